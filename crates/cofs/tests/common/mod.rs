//! What the command line's tests share: the binary under test, scratch directories, mounts.
#![allow(dead_code)] // each test crate uses its part

pub mod lives;

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    fmt::Debug,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The program under test with its arguments.
pub fn cofs(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofs"));
    command.args(arguments).env_remove("COFS_LOG").env_remove("COFS_FAILPOINT").env_remove("NOTIFY_SOCKET");
    command
}

/// The same by a user who may do no more than modes allow, also where that is root.
pub fn powerless(arguments: &[&str]) -> Command {
    if !rustix::process::geteuid().is_root() {
        return cofs(arguments);
    }
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-all", env!("CARGO_BIN_EXE_cofs")]).args(arguments);
    command
}

/// A directory in `root` in which nobody without privileges may write.
pub fn unwritable(root: &TempDir) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = path_str(root, "unwritable");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
    path
}

pub fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn path_str(root: &TempDir, name: &str) -> String {
    root.path().join(name).to_str().unwrap().to_owned()
}

/// A fresh volume in `root/store`.
pub fn format(root: &TempDir) -> String {
    let store = path_str(root, "store");
    run(&["format", &store]);
    store
}

/// Runs a line that must succeed; returns its standard output.
#[track_caller]
pub fn run(arguments: &[&str]) -> String {
    let output = cofs(arguments).output().unwrap();
    assert!(output.status.success(), "cofs {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every file below `root` with its bytes: to show that nothing was changed.
pub fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(at: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                walk(&path, found);
                found.insert(name, Vec::new());
            } else if path.file_name().unwrap() != "lock" {
                found.insert(name, fs::read(&path).unwrap_or_default());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, &mut found);
    found
}

/// Runs a line that must fail: with `code`, one line on standard error that contains each of `words`, nothing
/// on standard output, and nothing changed under `root`.
#[track_caller]
pub fn refused(root: &Path, arguments: &[impl AsRef<OsStr> + Debug], code: i32, words: &[&str]) {
    let before = contents(root);
    let output = cofs(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?} said {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "not one line: {said}");
    assert_eq!(output.stdout, b"", "{arguments:?} wrote to standard output");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
    assert!(before == contents(root), "{arguments:?} changed something");
}

/// A mounted volume, unmounted when it goes out of scope, whatever happened.
pub struct Mounted {
    pub store: String,
    pub dir: PathBuf,
}

impl Mounted {
    #[track_caller]
    pub fn new(root: &TempDir, store: &str, options: &[&str]) -> Self {
        let dir = root.path().join("mount");
        fs::create_dir_all(&dir).unwrap();
        let mut line = vec!["mount", "-d", store, dir.to_str().unwrap()];
        line.extend(options);
        run(&line);
        Self { store: store.to_owned(), dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    #[track_caller]
    pub fn unmount(self) {
        unmount(&self.dir);
    }
}

/// Tries again while it is busy: a child that another test has just forked may hold our files until it
/// execs.
#[track_caller]
pub fn unmount(dir: &Path) {
    wait_for("cofs umount", || {
        let output = cofs(&["umount", dir.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("is in use"), "{said}");
        output.status.success()
    });
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.dir).output();
    }
}

pub fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", dir.display()))
}

/// A mount in the foreground, as a service manager would start it; taken away when it goes out of scope.
pub struct Foreground {
    pub process: Child,
    dir: PathBuf,
}

impl Foreground {
    pub fn start(mut command: Command, dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let child = Self { process: command.spawn().unwrap(), dir: dir.to_owned() };
        wait_for("the mount appears", || is_mounted(dir));
        child
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    #[track_caller]
    pub fn ends_well(&mut self) {
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.dir).output();
    }
}

pub fn foreground(store: &str, dir: &Path) -> Foreground {
    Foreground::start(cofs(&["mount", store, dir.to_str().unwrap()]), dir)
}

/// One that nobody watches over: the process is the one that serves, and a dead mount stays when it is killed.
pub fn unwatched(store: &str, dir: &Path) -> Foreground {
    Foreground::start(cofs(&["mount", store, dir.to_str().unwrap(), "-o", "norestart"]), dir)
}

/// Whether this machine can mount FUSE file systems at all.
pub fn can_mount() -> bool {
    Path::new("/dev/fuse").exists()
}

/// Has the kernel give io_uring to mounts made from now on, which it does not by default; `false`, said aloud, where it has none to
/// give, or we may not have it.
pub fn uring_can_be_had() -> bool {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    let _ = fs::write(SWITCH, "Y");
    let on = fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "Y");
    if !on {
        eprintln!("without io_uring: {SWITCH} is not there, or may not be switched on");
    }
    on
}

/// Whether a test that mounts cannot be made; says so.
pub fn skip() -> bool {
    let skip = !can_mount();
    if skip {
        eprintln!("skipped: this machine has no /dev/fuse");
    }
    skip
}

/// A small file system of its own, taken away when it goes out of scope.
pub struct Small(pub PathBuf);

impl Small {
    pub fn mount(root: &TempDir) -> Self {
        Self::mount_with(root, c"size=64m")
    }

    pub fn mount_with(root: &TempDir, options: &CStr) -> Self {
        let at = root.path().join("small");
        fs::create_dir(&at).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("cofs-test", &at, "tmpfs", flags, options).unwrap();
        Self(at)
    }

    /// One of blocks on a disk; `None` where there are no loop devices.
    pub fn on_loop(root: &TempDir, bytes: u64) -> Option<Self> {
        let (at, image) = (root.path().join("small"), root.path().join("image"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let done = |program: &str, options: &[&str], end: &[&Path]| {
            Command::new(program)
                .args(options)
                .arg(&image)
                .args(end)
                .output()
                .is_ok_and(|o| o.status.success())
        };
        let there = done("mkfs.ext4", &["-q", "-F"], &[]) && done("mount", &["-o", "loop"], &[&at]);
        there.then_some(Self(at))
    }

    /// To the last inode.
    pub fn fill_with_files(&self) {
        let more = |number: u32| fs::File::create(self.0.join(format!("ballast-{number}"))).is_ok();
        (0..).take_while(|number| more(*number)).for_each(drop);
    }

    /// To the last block.
    pub fn fill(&self) {
        let mut ballast = fs::File::options().append(true).create(true).open(self.0.join("ballast")).unwrap();
        for bytes in [1 << 16, 4096, 1024] {
            while io::Write::write_all(&mut ballast, &vec![1; bytes]).is_ok() {}
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Waits for something that must come true.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! A volume that may only be read: `mount -o ro`, `status`, `dump` and `fsck` work on a store that cannot be written, also one
//! whose process was killed, and leave it as it was to the last byte; what would change it is refused.

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use common::{
    Mounted, cofs, format,
    lives::{kill, pid, put_program},
    path_str, run, scratch, skip, unwatched, wait_for,
};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount},
    process::geteuid,
};
use tempfile::TempDir;

const OPEN_BYTES: usize = 300_000;
const NOBODY: u32 = 65_534;

/// A store as `kill -9` leaves it: with a file that was open for writing, one that was unlinked while open, objects made ahead of
/// need, and a journal that must be replayed.
fn crashed(root: &TempDir) -> String {
    let store = format(root);
    let dir = root.path().join("crashed");
    let mut child = unwatched(&store, &dir);
    fs::write(dir.join("small"), "a few bytes").unwrap();
    fs::write(dir.join("large"), large()).unwrap();
    let mut open = File::create(dir.join("open")).unwrap();
    open.write_all(&vec![7; OPEN_BYTES]).unwrap();
    let mut gone = File::create(dir.join("gone")).unwrap();
    gone.write_all(&vec![8; OPEN_BYTES]).unwrap();
    fs::remove_file(dir.join("gone")).unwrap();
    // Nobody waits for the end of a file that was closed.
    wait_for("the large file is closed", || {
        let info = run(&["info", dir.join("large").to_str().unwrap(), "--output", "json"]);
        serde_json::from_str::<serde_json::Value>(&info).unwrap()[0]["writing"] == false
    });
    child.process.kill().unwrap();
    child.process.wait().unwrap();
    drop((open, gone));
    common::unmount(&dir);
    store
}

fn large() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at / 7) as u8).collect()
}

/// What a file is: mode, inode, when it and what it is was changed last; and its bytes.
type Seen = ((u32, u64, i128, i128), Vec<u8>);

/// All that stands in the store.
fn everything(store: &Path) -> BTreeMap<String, Seen> {
    fn look(path: &Path, seen: &mut BTreeMap<String, Seen>) {
        let at = fs::symlink_metadata(path).unwrap();
        let nanos = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        let what =
            (at.mode(), at.ino(), nanos(at.mtime(), at.mtime_nsec()), nanos(at.ctime(), at.ctime_nsec()));
        let bytes = if at.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        seen.insert(path.to_str().unwrap().to_owned(), (what, bytes));
        if at.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| look(&entry.unwrap().path(), seen));
        }
    }
    let mut seen = BTreeMap::new();
    look(store, &mut seen);
    seen
}

#[track_caller]
fn unchanged(before: &BTreeMap<String, Seen>, store: &Path) {
    let after = everything(store);
    let names = |seen: &BTreeMap<String, Seen>| seen.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(&after));
    let changed: Vec<_> = before.iter().filter(|(path, seen)| after[*path] != **seen).collect();
    assert!(changed.is_empty(), "changed: {:?}", changed.iter().map(|(path, _)| path).collect::<Vec<_>>());
}

/// Who runs the program: we, or the user nobody with a copy of it.
struct Somebody {
    program: String,
    nobody: bool,
}

impl Somebody {
    fn we() -> Self {
        Self { program: env!("CARGO_BIN_EXE_cofs").to_owned(), nobody: false }
    }

    fn command(&self, line: &[&str]) -> Command {
        if !self.nobody {
            return cofs(line);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", &self.program]).args(line);
        command
    }

    /// Its standard output, of a line that must succeed.
    #[track_caller]
    fn does(&self, line: &[&str]) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A line that is refused, in one line that says each of `words`.
    #[track_caller]
    fn is_refused(&self, line: &[&str], words: &[&str]) {
        let output = self.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{line:?} was done: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "not one line: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "`{word}` is missing in: {said}"));
    }

    /// Everything that looks at a volume works on a store that [`crashed`] has left, and tells what would be after a recovery.
    #[track_caller]
    fn looks_at(&self, root: &TempDir, store: &str) {
        let status: serde_json::Value =
            serde_json::from_str(&self.does(&["status", store, "--output", "json"])).unwrap();
        assert_eq!(
            (&status["mounted"], &status["recovered"]["settled"]),
            (&false.into(), &2.into()),
            "{status}"
        );
        assert_eq!(status["pools"][0]["health"], "healthy", "{status}");
        self.does(&["fsck", store]);
        assert!(self.does(&["dump", store]).len() > 100);
        assert_eq!(self.does(&["config", store, "pool.default.tier"]), "disk\n");

        let dir = root.path().join("mount");
        fs::create_dir_all(&dir).unwrap();
        if self.nobody {
            std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // As root we may look into anybody's mount only if he lets us, which takes a line in /etc/fuse.conf.
        let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let read = |name: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat", &at(name)]);
            if self.nobody { command.output().unwrap().stdout } else { fs::read(at(name)).unwrap() }
        };
        self.does(&["mount", "-d", "-o", "ro", store, dir.to_str().unwrap()]);
        let mounted = Mounted { store: store.to_owned(), dir: dir.clone() };
        assert_eq!(read("small"), b"a few bytes");
        assert!(read("large") == large());
        assert!(read("open") == vec![7; OPEN_BYTES], "its size stands in its object");
        let info: serde_json::Value =
            serde_json::from_str(&self.does(&["info", &at("open"), "--output", "json"])).unwrap();
        assert_eq!(info[0]["size_bytes"], OPEN_BYTES, "{info}");
        self.does(&["umount", mounted.dir.to_str().unwrap()]);
    }
}

#[test]
fn reading_changes_nothing_in_a_store_that_could_be_changed() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = crashed(&root);
    let before = everything(Path::new(&store));
    Somebody::we().looks_at(&root, &store);
    unchanged(&before, Path::new(&store));
    // And what was to be put right still is.
    let mounted = Mounted::new(&root, &store, &[]);
    let status: serde_json::Value =
        serde_json::from_str(&run(&["status", &store, "--output", "json"])).unwrap();
    assert_eq!((&status["recovered"]["settled"], &status["recovered"]["released"]), (&2.into(), &1.into()));
    assert!(fs::read(mounted.path("open")).unwrap() == vec![7; OPEN_BYTES]);
    mounted.unmount();
    assert_eq!(cofs(&["fsck", &store]).status().unwrap().code(), Some(0));
}

/// A directory that shows another one, read-only.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    fn of(root: &TempDir, below: &str) -> Self {
        let at = root.path().join("read-only");
        fs::create_dir(&at).unwrap();
        mount_bind(below, &at).unwrap();
        let shown = Self(at);
        mount_remount(&shown.0, MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
        shown
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_store_on_a_read_only_file_system_is_looked_at_and_not_changed() {
    if skip() || !geteuid().is_root() {
        eprintln!("skipped: mounting a directory read-only takes root");
        return;
    }
    let root = scratch();
    let below = crashed(&root);
    let before = everything(Path::new(&below));
    let shown = ReadOnly::of(&root, &below);
    let store = shown.0.to_str().unwrap();
    let we = Somebody::we();
    we.looks_at(&root, store);
    let dir = path_str(&root, "mount");
    for line in [
        &["mount", store, &dir][..],
        &["mount", "-d", store, &dir],
        &["fsck", "--repair", store],
        &["gc", store],
        &["config", store, "pool.default.tier=flash"],
    ] {
        we.is_refused(line, &["read-only file system", "mount -o ro"]);
    }
    drop(shown);
    unchanged(&before, Path::new(&below));
    // A copy without the lock's file, such as some programs for backups make.
    fs::remove_file(Path::new(&below).join("lock")).unwrap();
    fs::remove_dir(root.path().join("read-only")).unwrap();
    let before = everything(Path::new(&below));
    let shown = ReadOnly::of(&root, &below);
    we.looks_at(&root, shown.0.to_str().unwrap());
    drop(shown);
    unchanged(&before, Path::new(&below));
}

/// Lets nobody write what is in a store; `others`: lets everybody read it.
fn write_protect(path: &Path, others: u32) {
    let at = fs::symlink_metadata(path).unwrap();
    if at.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| write_protect(&entry.unwrap().path(), others));
    }
    let may_enter = if at.is_dir() { 0o111 } else { 0 };
    let mode = at.mode() & 0o500 | (0o044 | may_enter) & others;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// As root: as the user nobody, on a store of root's. As a user: on an own one that is write-protected.
#[test]
fn a_store_that_one_may_only_read_is_looked_at() {
    let is_root = geteuid().is_root();
    let device = fs::metadata("/dev/fuse").map_or(0, |device| device.mode());
    if skip() || device & 0o006 != 0o006 {
        eprintln!("skipped: needs a /dev/fuse that users may open");
        return;
    }
    let root = scratch();
    let store = crashed(&root);
    let somebody = if is_root {
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = path_str(&root, "cofs");
        put_program(&program);
        Somebody { program, nobody: true }
    } else {
        Somebody::we()
    };
    let dir = path_str(&root, "mount");
    if is_root {
        fs::create_dir(&dir).unwrap();
        somebody.is_refused(&["mount", "-o", "ro", &store, &dir], &["permission denied", "owner"]);
        somebody.is_refused(&["status", &store], &["permission denied", "owner"]);
    }
    write_protect(Path::new(&store), 0o777);
    let before = everything(Path::new(&store));
    somebody.looks_at(&root, &store);
    for line in [&["mount", &store, &dir][..], &["gc", &store], &["fsck", "--repair", &store]] {
        somebody.is_refused(line, &["permission denied", "mount -o ro"]);
    }
    unchanged(&before, Path::new(&store));
    if is_root {
        let lock = Path::new(&store).join("lock");
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o400)).unwrap();
        somebody.is_refused(&["status", &store], &["lock", "permission denied", "let you read"]);
    }
    write_protect(Path::new(&store), 0);
    let mut make_writable = Command::new("chmod");
    assert!(make_writable.args(["-R", "u+w", &store]).status().unwrap().success());
}

#[test]
fn a_volume_is_read_by_many_or_written_by_one() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dirs = ["one", "two", "three"].map(|name| path_str(&root, name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let mounted: Vec<_> = dirs[..2]
        .iter()
        .map(|dir| {
            run(&["mount", "-d", "-o", "ro", &store, dir]);
            Mounted { store: store.clone(), dir: dir.into() }
        })
        .collect();
    run(&["fsck", &store]);
    run(&["dump", &store]);
    let we = Somebody::we();
    for line in [
        &["mount", "-d", &store, &dirs[2]][..],
        &["mount", &store, &dirs[2]],
        &["gc", &store],
        &["fsck", "--repair", &store],
        &["config", &store, "pool.default.tier=flash"],
    ] {
        let word = if line[0] == "gc" { "mounted read-only" } else { &store };
        we.is_refused(line, &[word, "umount"]);
    }
    // A mount that is closed is so although somebody goes on reading.
    let lock = File::open(Path::new(&store).join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared).unwrap();
    let began = Instant::now();
    mounted.into_iter().for_each(Mounted::unmount);
    assert!(began.elapsed() < Duration::from_secs(30), "nobody waits for the other reader");
    drop(lock);
    let written = Mounted::new(&root, &store, &[]);
    fs::write(written.path("file"), "bytes").unwrap();
    we.is_refused(&["mount", "-d", "-o", "ro", &store, &dirs[2]], &["already mounted", "umount"]);
    we.is_refused(&["dump", &store], &["already mounted", "umount"]);
    written.unmount();
}

#[test]
fn a_supervised_read_only_mount_goes_on_and_changes_nothing() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = crashed(&root);
    let before = everything(Path::new(&store));
    let mounted = Mounted::new(&root, &store, &["-o", "ro,supervise"]);
    let first = kill(&mounted.dir);
    wait_for("another process serves", || pid(&mounted.dir, "pid") != first);
    assert_eq!(fs::read(mounted.path("small")).unwrap(), b"a few bytes");
    assert!(fs::read(mounted.path("open")).unwrap() == vec![7; OPEN_BYTES]);
    mounted.unmount();
    unchanged(&before, Path::new(&store));
}

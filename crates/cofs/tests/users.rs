//! End to end: ordinary users, and what is theirs and not.

mod common;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use common::{
    Mounted, is_mounted,
    lives::{child_of, is_stopped, put_program},
    path_str, run, scratch, skip, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

/// Another user, with the program and a directory of his own.
struct User {
    uid: u32,
    program: String,
    store: String,
    dir: String,
}

impl User {
    fn new(root: &tempfile::TempDir, uid: u32) -> Self {
        let [program, store, dir] = ["cofs", "store", "mount"].map(|name| path_str(root, name));
        put_program(&program);
        fs::create_dir(&dir).unwrap();
        for path in [root.path(), Path::new(&dir)] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
        Self { uid, program, store, dir }
    }

    /// The line with which root runs `line` as the user.
    fn line(&self, line: &[&str]) -> Vec<String> {
        let uid = self.uid;
        let become_him = [&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--"];
        ["setpriv"].iter().chain(&become_him).chain(line).map(ToString::to_string).collect()
    }

    fn output(&self, line: &[&str]) -> Output {
        let line = self.line(line);
        Command::new(&line[0]).args(&line[1..]).output().unwrap()
    }

    #[track_caller]
    fn run(&self, line: &[&str]) -> String {
        let output = self.output(line);
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn users_may_mount() -> bool {
    let device = fs::metadata("/dev/fuse").map_or(0, |device| device.mode());
    device & 0o006 == 0o006
}

fn skip_of_users() -> bool {
    let skip = skip() || !rustix::process::geteuid().is_root() || !users_may_mount();
    if skip {
        eprintln!("skipped: needs root to become another user, and a /dev/fuse that users may open");
    }
    skip
}

fn has_processes(uid: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbered = processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    numbered.filter_map(|entry| entry.metadata().ok()).any(|metadata| metadata.uid() == uid)
}

/// Of a user with no other processes, as the limit counts all that he has, and their threads. Wherever they end, he is told so; or it serves.
#[test]
fn too_few_processes_are_told_in_one_line() {
    /// Debian's `games`, who does nothing: fusermount3 wants one with a name.
    const GAMES: u32 = 5;
    /// From here on there are enough to find out what lacks.
    const SOME: u32 = 4;
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root to become another user");
        return;
    }
    let may_mount = users_may_mount();
    let root = scratch();
    let user = User::new(&root, GAMES);
    // Of an earlier run, ended and not looked after yet by the machine's first process: they count.
    wait_for("the end of the user's processes", || !has_processes(GAMES));
    user.run(&[&user.program, "format", &user.store]);
    let (mut served, mut refused) = (0, 0);
    for limit in 1..if may_mount { 40 } else { SOME } {
        let line = user.line(&[&user.program, "mount", "-d", &user.store, &user.dir]);
        let output = Command::new("prlimit").arg(format!("--nproc={limit}")).args(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            served += 1;
            let small = format!("{}/small", user.dir);
            user.run(&["timeout", "60", "sh", "-c", &format!("echo {limit} > {small} && cat {small}")]);
            user.run(&[&user.program, "umount", &user.dir]);
            continue;
        }
        refused += 1;
        assert_eq!(output.status.code(), Some(1), "{limit}: {said}");
        // Before it what it can do without was missed, perhaps, and said in lines of the log.
        let is_of_log = |line: &str| limit >= SOME && line.contains(" WARN cofs_");
        let is_told = |line: &str| line.starts_with("cofs mount: ");
        assert!(said.lines().all(|line| is_told(line) || is_of_log(line)), "{limit}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(is_told(last) && last.contains("limit on processes raised (ulimit -u"), "{limit}: {said}");
        assert!(!is_mounted(Path::new(&user.dir)), "{limit}: {said}");
    }
    assert!(
        (served > 0 || !may_mount) && refused >= SOME - 1 + u32::from(may_mount),
        "{served} served, {refused} refused"
    );
    user.run(&[&user.program, "fsck", &user.store]);
}

/// The helper that unmounts needs a process where the mount has just lacked a thread: there is one when its own threads have ended.
#[test]
fn who_lacks_a_thread_for_the_mount_leaves_none_behind() {
    /// Debian's `uucp`, who does nothing.
    const UUCP: u32 = 10;
    if skip_of_users() {
        return;
    }
    let root = scratch();
    let user = User::new(&root, UUCP);
    wait_for("the end of the user's processes", || !has_processes(UUCP));
    user.run(&[&user.program, "format", &user.store]);
    for (how, served_by_child) in [("restart", true), ("norestart", false)] {
        let stopped = ["env", "COFS_FAILPOINT=cofs.mount.attached:1:stop"];
        let mount = [&user.program, "mount", "-o", how, &user.store, &user.dir];
        let line = user.line(&[&stopped[..], &mount].concat());
        let child = Command::new(&line[0]).args(&line[1..]).stderr(Stdio::piped()).spawn().unwrap();
        let started = Pid::from_child(&child);
        let mounts = || if served_by_child { child_of(started) } else { Some(started) };
        wait_for("the mount to be made, and no more", || mounts().is_some_and(is_stopped));
        assert!(is_mounted(Path::new(&user.dir)));
        // As many as he has; no thread of the mount's is among them yet.
        let processes = [Some(started), mounts().filter(|_| served_by_child)];
        let threads = processes.into_iter().flatten().map(|pid| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            threads.count()
        });
        let pid = mounts().unwrap();
        let limit = [format!("--pid={pid}"), format!("--nproc={}", threads.sum::<usize>())];
        user.run(&["prlimit", &limit[0], &limit[1]]);
        kill_process(pid, Signal::CONT).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{how}: {said}");
        assert!(said.contains("limit on processes raised (ulimit -u"), "{how}: {said}");
        assert!(!is_mounted(Path::new(&user.dir)), "{how}: {said}");
    }
    user.run(&[&user.program, "fsck", &user.store]);
}

/// As the user nobody, in a directory of its own: format, mount by fusermount3, work, unmount.
#[test]
fn an_ordinary_user_mounts_by_fusermount3() {
    const NOBODY: u32 = 65_534;
    if skip_of_users() {
        return;
    }
    let root = scratch();
    let user = User::new(&root, NOBODY);
    let User { program, store, dir, .. } = &user;
    user.run(&[program, "format", store]);
    // Without the helper, and with one that has no rights.
    let helpers = root.path().join("helpers");
    fs::create_dir(&helpers).unwrap();
    for words in ["fusermount3 not found: install fuse3", "it must be set-user-id root"] {
        let path = format!("PATH={}", helpers.display());
        let refused = user.output(&["env", "-i", &path, program, "mount", store, dir]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{said}");
        let found = Command::new("sh").args(["-c", "command -v fusermount3"]).output().unwrap();
        let copy = helpers.join("fusermount3");
        // By another process, see `put_program`.
        let found = String::from_utf8(found.stdout).unwrap();
        assert!(
            Command::new("install").args(["-m", "755", found.trim()]).arg(&copy).status().unwrap().success()
        );
    }
    user.run(&[program, "mount", "-d", store, dir]);
    user.run(&["sh", "-c", &format!("head -c 1000000 /dev/zero > {dir}/large && echo small > {dir}/small")]);
    assert_eq!(user.run(&["cat", &format!("{dir}/small")]), "small\n");
    assert!(user.run(&[program, "status", dir]).contains("mounted"));
    user.run(&[program, "umount", dir]);
    user.run(&[program, "fsck", store]);

    // Not by others: neither unmounted nor looked at, and said so.
    run(&["mount", "-d", store, dir]);
    let mounted = Mounted { store: store.clone(), dir: dir.into() };
    for (line, words) in [
        (&[program, "umount", dir][..], "was mounted by the user 0"),
        (&[program, "umount", "--lazy", dir], "was mounted by the user 0"),
        (&[program, "status", dir], "permission denied; do it as its owner or as root"),
    ] {
        let refused = user.output(line);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{said}");
    }
    mounted.unmount();
}

//! Mounts whose processes are killed.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process, test_kill_process},
};
use serde_json::Value;
use tempfile::TempDir;

use super::{path_str, run, wait_for};

/// A life that is long enough not to count towards giving up, and to spare.
pub const A_LIFE: Duration = Duration::from_millis(300);

pub fn status(dir: &Path) -> Value {
    serde_json::from_str(&run(&["status", dir.to_str().unwrap(), "--output", "json"])).unwrap()
}

pub fn pid(dir: &Path, of: &str) -> Pid {
    let pid = &status(dir)["mount"][of];
    Pid::from_raw(i32::try_from(pid.as_i64().unwrap_or_else(|| panic!("{of}: {pid}"))).unwrap()).unwrap()
}

pub fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Whether it waits for a SIGCONT.
pub fn is_stopped(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// One that it has started, in its first thread.
pub fn child_of(process: Pid) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// Ends the process that serves, which has lived; what asks for anything now waits for the next.
pub fn kill(dir: &Path) -> Pid {
    let serves = pid(dir, "pid");
    sleep(A_LIFE);
    kill_process(serves, Signal::KILL).unwrap();
    serves
}

/// The table of mounts, watched from this thread's CPU. A process there that gives way to everybody does nothing between a change and our next step.
pub struct MountTable {
    table: fs::File,
    /// Lines of a shell which becomes such a process.
    pub gives_way: String,
}

impl MountTable {
    /// This thread stays where it is.
    pub fn watch() -> Self {
        let (cpu, thread) = (rustix::thread::sched_getcpu(), rustix::thread::gettid());
        let pin = |of: &str| format!("taskset -cp {cpu} {of} >/dev/null");
        assert!(Command::new("sh").args(["-c", &pin(&thread.to_string())]).status().unwrap().success());
        let table = fs::File::open("/proc/self/mountinfo").unwrap();
        Self { table, gives_way: format!("{}; chrt -ip 0 $$", pin("$$")) }
    }

    /// Until it changes, or a moment has passed.
    pub fn changes(&self) {
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
    }
}

/// By another process: a child that another test has just forked would hold what we write, and nobody could run it meanwhile.
pub fn put_program(at: &str) {
    assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_cofs"), at]).status().unwrap().success());
}

/// A foreground mount of a copy of the program with `options`, in a state of our own: (what was started, the copy's path).
pub fn foreground_with(
    root: &TempDir,
    store: &str,
    options: &str,
    environment: &[(&str, &str)],
) -> (Child, String) {
    let program = path_str(root, "program");
    put_program(&program);
    let dir = root.path().join("mount");
    fs::create_dir_all(&dir).unwrap();
    let device = || fs::metadata(&dir).map(|found| std::os::unix::fs::MetadataExt::dev(&found));
    let before = device().unwrap();
    let mut command = Command::new(&program);
    command.args(["mount", store, dir.to_str().unwrap(), "-o", options]);
    command.env_remove("COFS_FAILPOINT").env_remove("NOTIFY_SOCKET").envs(environment.iter().copied());
    let child = command.spawn().unwrap();
    wait_for("the mount", || device().is_ok_and(|now| now != before));
    (child, program)
}

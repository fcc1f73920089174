//! A machine of one's own: user-mode Linux (Debian's package `user-mode-linux`), an ordinary process, whose root is
//! this machine's tree, read-only, and whose disk is an image.
//!
//! Its first process is a script of the caller's; what that writes to the console is read here, line by line.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "for tests only")]

mod disk;
mod kernel;
mod shell;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

pub use self::{
    disk::{Disk, run},
    kernel::{Kernel, Release, running},
    shell::{PATIENCE, sh, try_sh},
};

/// See there: user-mode Linux and CPUs that are newer than it.
const XSTATE: &str = include_str!("xstate.c");

pub struct Machine {
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Machine {
    /// Boots a machine with this machine's own kernel for it and the disk `disk` (`/dev/ubda`). `init` is the text of its first process, a
    /// program with a `#!` line. `dir` is for its files; what the machine itself complains of is in `machine.log` there.
    pub fn boot(dir: &Path, disk: &Path, init: &str) -> Self {
        Self::boot_kernel(&Kernel::own(), dir, disk, init)
    }

    /// The same with another kernel.
    pub fn boot_kernel(kernel: &Kernel, dir: &Path, disk: &Path, init: &str) -> Self {
        let init = program(dir, &kernel.with_modules(init));
        let mut process = Command::new(kernel.program())
            .env("LD_PRELOAD", xstate(dir))
            .args(["mem=768M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
            .arg(format!("ubd0={}", disk.display()))
            .arg(format!("init={}", init.display()))
            .args(["con=null", "con0=null,fd:1", "ssl=null"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.join("machine.log")).unwrap())
            // The machine is several processes: they die together.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{} (Debian: user-mode-linux): {error}", kernel.program().display())
            });
        let lines = read(process.stdout.take().unwrap());
        Self { process, lines, said: Vec::new() }
    }

    /// What it has said so far, as far as it has been listened to.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// Listens until it has said a line that is `wanted`. Panics where that does not come within `limit`.
    #[track_caller]
    pub fn hear(&mut self, limit: Duration, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + limit;
        while !self.said.last().is_some_and(|line| wanted(line)) {
            if self.next_line(until).is_err() {
                panic!("the machine does not say what it should: {:#?}", self.said);
            }
        }
    }

    /// Listens for that long.
    pub fn listen(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.next_line(until).is_ok() {}
    }

    /// The power goes, now. Everything the machine has said.
    pub fn cut_power(mut self) -> Vec<String> {
        self.kill();
        self.said.extend(self.lines.iter());
        std::mem::take(&mut self.said)
    }

    /// Waits until it has switched itself off. Everything it has said; an error if it runs on after `limit`.
    pub fn run_until_off(mut self, limit: Duration) -> Result<Vec<String>, Vec<String>> {
        let until = Instant::now() + limit;
        let is_off = loop {
            match self.next_line(until) {
                Ok(()) => {}
                Err(why) => break why == RecvTimeoutError::Disconnected,
            }
        };
        let said = self.cut_power();
        if is_off { Ok(said) } else { Err(said) }
    }

    fn next_line(&mut self, until: Instant) -> Result<(), RecvTimeoutError> {
        let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))?;
        self.said.push(line);
        Ok(())
    }

    fn kill(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("init");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn xstate(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("xstate.c"), dir.join("xstate.so"));
    if !library.exists() {
        fs::write(&source, XSTATE).unwrap();
        run(Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    }
    library
}

fn read(from: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

//! Programs that work on a mount, and may have to wait there.

use std::{
    io::Read,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use cofs_testkit::machine::{PATIENCE, sh};

/// A program that was started and not waited for.
pub struct Caller {
    line: String,
    child: Child,
}

impl Caller {
    /// A line for the shell, in `dir`, without a shell that stays.
    pub fn new(dir: &Path, line: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line}")]).current_dir(dir);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { line: line.to_owned(), child }
    }

    #[track_caller]
    pub fn still_waits(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{}: it was to wait, and has ended: {ended:?}", self.line);
    }

    #[track_caller]
    pub fn leaves_when_killed(mut self) {
        self.child.kill().unwrap();
        self.comes_to_an_end();
    }

    #[track_caller]
    pub fn succeeds(mut self) {
        let status = self.ends();
        let said = self.said();
        assert!(status.success(), "{}: {status}: {said}", self.line);
    }

    /// With EIO, whatever it was doing.
    #[track_caller]
    pub fn hears_of_an_error(mut self) {
        let status = self.ends();
        let said = self.said();
        assert!(!status.success() && said.contains("Input/output error"), "{}: {status}: {said}", self.line);
    }

    #[track_caller]
    pub fn comes_to_an_end(mut self) {
        self.ends();
    }

    /// What it complained of, once it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    #[track_caller]
    fn ends(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{}: it does not end; who waits:\n{}",
                self.line,
                who_waits()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The kernel's stacks of those who cannot be interrupted.
fn who_waits() -> String {
    sh("for task in /proc/[0-9]*/task/*; do
            grep -q '^State:.D' $task/status 2>/dev/null || continue
            echo $(cat $task/comm) $(sed -n '4,12s/.* //p' $task/stack)
        done")
}

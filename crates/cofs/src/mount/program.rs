//! This program, to be started once more.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::failure::{Done, Failure};

/// What runs here, wherever it stood.
const RUNNING: &str = "/proc/self/exe";
/// How long another one may take to say that it is one.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 4096;

/// Where it stood when this process asked first.
pub struct Program(PathBuf);

impl Program {
    pub fn this() -> io::Result<Self> {
        std::env::current_exe().map(Self)
    }

    /// What stands in its place by now; where nothing does, what runs here.
    pub fn to_start(&self) -> &Path {
        if self.0.is_file() { &self.0 } else { Path::new(RUNNING) }
    }

    /// Whether what stands in its place can take over from what runs; where it cannot, that is told.
    pub fn fits(&self) -> bool {
        let checked = self.check();
        checked
            .inspect_err(|failure| tracing::warn!(%failure, "who serves is not replaced, and goes on"))
            .is_ok()
    }

    /// Errors: what stands in its place is no cofs that could be started, or takes too long to say so.
    fn check(&self) -> Done {
        let path = &self.0;
        let unfit = |why: &str| Failure::new(format!("{} {why}", path.display()));
        let mut command = Command::new(path);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| Failure::io("cannot start", path, &error))?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() < ANSWER_TIME_MAX => sleep(Duration::from_millis(5)),
                None => {
                    child.kill()?;
                    child.wait()?;
                    return Err(unfit("does not answer to --version"));
                }
            }
        };
        let mut said = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(ANSWER_BYTES_MAX).read_to_end(&mut said)?;
        }
        let is_cofs = status.success() && said.starts_with(b"cofs ");
        if is_cofs { Ok(()) } else { Err(unfit("is no cofs that runs here")) }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn only_a_cofs_that_runs_is_one() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("program");
        let program = Program(path.clone());
        assert_eq!(program.to_start(), Path::new(RUNNING));
        assert!(program.check().is_err(), "there is none");
        for (script, fits) in [
            ("#!/bin/sh\necho cofs 1.2.3\n", true),
            ("#!/bin/sh\necho cofs 1.2.3\nexit 1\n", false),
            ("#!/bin/sh\necho another\n", false),
            ("#!/bin/there is none\n", false),
            ("", false),
        ] {
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(program.check().is_ok(), fits, "{script}");
            assert_eq!(program.to_start(), path);
        }
    }
}

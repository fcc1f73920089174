//! Going into the background: `mount -d`.
//!
//! The parent starts the same program again with the same arguments and a mark in its environment, and
//! waits. The child mounts, begins a session of its own, writes one word to its standard output and lets go
//! of the terminal. So `mount -d` returns when the mount serves, or with the child's own error.
//!
//! Until it has mounted the child stays in its parent's process group: where a service manager mounts at the first access
//! (autofs), only that group may enter the directory meanwhile; anybody else waits for us.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode, Stdio},
};

use crate::failure::{Done, EXIT_FAILED, Failure};

/// Marks the child in the background.
const MARK: &str = "COFS_BACKGROUND";
/// What the child says when its mount serves.
const READY: &[u8] = b"ready\n";

/// Whether this process is the child, already in the background.
pub fn is_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The parent: runs `arguments` (the first is the program's name) in the background; returns when that serves, or has failed and said why.
pub fn start(arguments: &[OsString]) -> Done<ExitCode> {
    let (name, rest) = arguments.split_first().ok_or_else(|| Failure::new("called without a name"))?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::from(error).within("cannot find this program to start it in the background")
    })?;
    let mut child = Command::new(program)
        // Its name, too, as it tells a mount helper from a command.
        .arg0(name)
        .args(rest)
        .env(MARK, "1")
        .stdin(null()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| Failure::from(error).within("cannot start in the background"))?;
    if says_ready(&mut child) {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    match status.code() {
        // It has said why itself.
        Some(code) if code != 0 => Ok(ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED))),
        _ => Err(Failure::new(format!("the background process ended before it served ({status})"))
            .next("run cofs mount without -d, with --log debug, to see why")),
    }
}

fn says_ready(child: &mut Child) -> bool {
    let mut said = Vec::new();
    match &mut child.stdout {
        Some(stdout) => {
            let read = stdout.take(READY.len() as u64).read_to_end(&mut said);
            read.is_ok() && said == READY
        }
        None => false,
    }
}

/// To read and to write.
pub fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// The child, first: away from the caller's directory.
pub fn detach() -> io::Result<()> {
    std::env::set_current_dir("/")
}

/// The child, once it serves: leaves the caller's terminal, tells the parent and lets go of standard output and error.
/// Messages go to `log` from here on, or nowhere.
pub fn ready(log: Option<&File>) -> io::Result<()> {
    // It fails only for a process that leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let mut stdout = io::stdout().lock();
    // A parent that was killed while it waited is no reason to end.
    let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    let_go(log)
}

/// Lets go of standard output and error. Messages go to `log` from here on, or nowhere. What has been told to serve must not end because
/// of this: it takes no further descriptor, as standard input is [`null`] already.
pub fn let_go(log: Option<&File>) -> io::Result<()> {
    let null = io::stdin();
    rustix::stdio::dup2_stdout(&null)?;
    match log {
        Some(log) => rustix::stdio::dup2_stderr(log)?,
        None => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}

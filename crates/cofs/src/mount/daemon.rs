//! Going into the background: `mount -d`.
//!
//! The parent starts the same program again with the same arguments and a mark in its environment, and
//! waits. The child mounts, begins a session of its own, writes one word to its standard output and lets go
//! of the terminal. So `mount -d` returns when the mount serves, or with the child's own error. If it is told to end before that, so is the child,
//! and nothing is left.
//!
//! Until it has mounted the child stays in its parent's process group: where a service manager mounts at the first access
//! (autofs), only that group may enter the directory meanwhile; anybody else waits for us.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::unix::{fs::FileTypeExt, net::UnixStream, process::CommandExt},
    path::Path,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    process::{Pid, Signal},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{program::Program, signals::die_of};
use crate::failure::{Done, EXIT_FAILED, Failure, Within};

/// Marks the child in the background, and those that it starts. Its value is the parent's number.
const MARK: &str = "COFS_BACKGROUND";
/// What the child says when its mount serves.
const READY: &[u8] = b"ready\n";
/// Where journald takes the standard error of services.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// What it is told of them first, a line each: identifier, unit (none), priority (warning), whether lines begin with their own (no), and whether
/// to pass them on to syslog, the kernel's log and the console (no).
const JOURNAL_HEADER: &[u8] = b"cofs\n\n4\n0\n0\n0\n0\n";

/// Whether this process is the child, already in the background.
pub fn is_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Refuses a mark that is not of this process's own parent: nobody waits there for our word.
pub fn refuse_mark() -> Done {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    match std::env::var_os(MARK) {
        Some(marked) if parent.is_none_or(|parent| marked != *parent) => {
            Err(Failure::new("the process that was to wait until this one serves is not there")
                .next(format!("{MARK} is for processes that cofs mount -d has started: unset it")))
        }
        _ => Ok(()),
    }
}

/// The parent: runs `arguments` (the first is the program's name) in the background; returns when that serves, or has failed and said why.
pub fn start(arguments: &[OsString]) -> Done<ExitCode> {
    let (name, rest) = arguments.split_first().ok_or_else(|| Failure::new("called without a name"))?;
    let program = Program::this().within("cannot find this program to start it in the background")?;
    // Before there is a child that could be left behind.
    let mut signals = Signals::new([SIGTERM, SIGINT]).within("cannot wait for signals")?;
    let mut child = Command::new(program.to_start())
        // Its name, too, as it tells a mount helper from a command.
        .arg0(name)
        .args(rest)
        .env(MARK, std::process::id().to_string())
        .stdin(null()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| Failure::from(error).within("cannot start in the background"))?;
    let (is_ready, told) = wait(&mut child, &mut signals)?;
    if let Some(signal) = told {
        child.wait()?;
        return die_of(signal);
    }
    if is_ready {
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

/// Until the child serves or has ended: whether it serves, and the last signal that has told us to end, which has been passed on. Errors: nobody
/// could listen to it, and it has been told to end.
fn wait(child: &mut Child, signals: &mut Signals) -> Done<(bool, Option<i32>)> {
    let (stdout, handle) = (child.stdout.take(), signals.handle());
    thread::scope(|scope| {
        let listen = move || {
            let is_ready = stdout.is_some_and(says_ready);
            handle.close();
            is_ready
        };
        let listener = match thread::Builder::new().spawn_scoped(scope, listen) {
            Ok(listener) => listener,
            Err(error) => {
                rustix::process::kill_process(Pid::from_child(child), Signal::TERM)?;
                child.wait()?;
                return Err(Failure::from(error).within("cannot wait for the background process"));
            }
        };
        let mut told = None;
        for signal in signals.forever() {
            told = Some(signal);
            // It has not been waited for: the number is still its own.
            if let Err(error) = rustix::process::kill_process(Pid::from_child(child), Signal::TERM) {
                tracing::warn!(%error, signal, "the process in the background cannot be told");
            }
        }
        Ok((listener.join().unwrap_or(false), told))
    })
}

fn says_ready(stdout: ChildStdout) -> bool {
    let mut said = Vec::new();
    let read = stdout.take(READY.len() as u64).read_to_end(&mut said);
    read.is_ok() && said == READY
}

/// Opens what messages are to go to. It is not waited for: a FIFO must have its reader, and loses what that does not take in time.
pub fn open_log(path: &Path) -> Done<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
    let log = File::from(opened.map_err(|error| {
        let failure = Failure::io("cannot write messages to", path, &error.into());
        if error == Errno::NXIO { failure.next("have it read first, or name a file") } else { failure }
    })?);
    if log.metadata()?.file_type().is_block_device() {
        return Err(Failure::new(format!("cannot write messages to {}: it is a disk", path.display()))
            .next("name a file"));
    }
    Ok(log)
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
/// Messages go to `log` from here on, or to the journal.
pub fn ready(log: Option<&File>) -> io::Result<()> {
    // It fails only for a process that leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let mut stdout = io::stdout().lock();
    // A parent that was killed while it waited is no reason to end.
    let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    let_go(log)
}

/// Lets go of standard output and error. Messages go to `log` from here on, or to the journal where there is one, else nowhere. What has been
/// told to serve must not end because of this: it needs no further descriptor, as standard input is [`null`] already.
pub fn let_go(log: Option<&File>) -> io::Result<()> {
    let null = io::stdin();
    rustix::stdio::dup2_stdout(&null)?;
    if let Some(log) = log {
        rustix::stdio::dup2_stderr(log)?;
    } else if let Ok(journal) = journal(Path::new(JOURNAL)) {
        rustix::stdio::dup2_stderr(&journal)?;
    } else {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

/// A stream whose lines are messages in the journal, as sd_journal_stream_fd(3) makes it.
fn journal(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.shutdown(std::net::Shutdown::Read)?;
    stream.write_all(JOURNAL_HEADER)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_journal_is_told_who_speaks() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        assert!(journal(&socket).is_err());
        let listener = UnixListener::bind(&socket).unwrap();
        journal(&socket).unwrap().write_all(b"a line\n").unwrap();
        let mut told = String::new();
        listener.accept().unwrap().0.read_to_string(&mut told).unwrap();
        assert_eq!(told.lines().collect::<Vec<_>>(), ["cofs", "", "4", "0", "0", "0", "0", "a line"]);
    }
}

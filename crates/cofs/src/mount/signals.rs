//! SIGTERM and SIGINT unmount.
//!
//! A mount that is not in use goes at once. One whose users do not let go within a moment is written out, taken
//! out of the tree, and its users are cut off, also those that only have it where we do not see it: what they wrote is kept, what they do next fails. That is what a service manager that stops a service expects; `cofs umount` instead refuses a busy mount.

use std::{fs::File, io, path::Path, process::ExitCode, sync::mpsc, thread, time::Duration};

use rustix::io::Errno;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{connection::Connection, notify::notify};
use crate::failure::{Done, EXIT_FAILED};

/// How long the users of a busy mount have before they are cut off.
const GRACE: Duration = Duration::from_secs(2);

/// Signals that have come and not been answered. From its making on they no longer end the process, so that
/// none can leave a mount behind that nobody serves.
pub struct Told(mpsc::Sender<Mounted>);

/// What is taken down, and what writes out what its users have changed through mappings.
struct Mounted {
    /// `None`: not known, as somebody had unmounted it lazily before it was.
    connection: Option<Connection>,
    write_out: Box<dyn Fn() + Send>,
}

impl Told {
    /// With a thread of its own, before there is a mount that it could be missed for.
    pub fn new() -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let (tell, told) = mpsc::channel::<Mounted>();
        thread::Builder::new().name("signals".into()).spawn(move || {
            let Ok(Mounted { connection, write_out }) = told.recv() else { return };
            for signal in signals.forever() {
                match &connection {
                    Some(connection) if connection.is_there() => {
                        tracing::info!(signal, "unmounting");
                        notify("STOPPING=1", "Closing the volume");
                        take_down(connection, &*write_out);
                    }
                    // A signal may come twice (a service manager and the supervisor, timeout(1), a terminal and its shell), or after somebody's umount.
                    Some(_) => {}
                    None => end_by(signal, &*write_out),
                }
            }
        })?;
        Ok(Self(tell))
    }

    /// Takes the mount down when told, or when that was told already, wherever it is by then; what its users have
    /// changed through mappings is written by `write_out`.
    pub fn unmount(self, connection: Option<Connection>, write_out: impl Fn() + Send + 'static) {
        // The thread waits for this, and does not end before.
        let _ = self.0.send(Mounted { connection, write_out: Box::new(write_out) });
    }
}

/// Ends as a process does that does not heed the signal: a shell breaks off what it does, and a service manager takes it for an end in order. The first
/// process of a container does not die of its own; its code says the same.
pub fn die_of(signal: i32) -> Done<ExitCode> {
    if std::process::id() != 1 {
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(EXIT_FAILED)))
}

/// Cuts off the users of a mount that is in nobody's tree, and of which no more is known, by the end of the process: to the volume that is a crash.
fn end_by(signal: i32, write_out: &dyn Fn()) {
    tracing::warn!(signal, "unmounted already, before it was served: cutting off who uses it still");
    notify("STOPPING=1", "Closing the volume");
    thread::sleep(GRACE);
    write_out();
    if let Err(error) = die_of(signal) {
        tracing::warn!(%error, signal, "cannot die of the signal");
    }
    std::process::exit(128 + signal);
}

fn take_down(connection: &Connection, write_out: &dyn Fn()) {
    let Err(error) = leaves_within_grace(connection) else { return };
    if error.kind() != io::ErrorKind::ResourceBusy {
        tracing::warn!(%error, "cannot unmount");
        return;
    }
    let points = connection.points().unwrap_or_default();
    tracing::warn!(?points, "still in use: cutting its users off");
    let written = points.first().map_or(Ok(()), |point| begin_to_write(point)).map(|()| write_out());
    if let Err(error) = written.and_then(|()| connection.cut_off()) {
        tracing::warn!(%error, ?points, "its users cannot be cut off: waiting for them");
    }
}

/// Errors: EBUSY, if it is in use for longer.
fn leaves_within_grace(connection: &Connection) -> io::Result<()> {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        match connection.unmount() {
            Ok(()) if !connection.is_there() => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return Err(error),
            _ => thread::sleep(GRACE / TRIES),
        }
    }
    Err(Errno::BUSY.into())
}

/// Pages that were changed through mmap(2) are still in the kernel. It writes many at a time for this, but may not wait for them.
fn begin_to_write(point: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(point)?)?)
}

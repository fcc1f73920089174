//! SIGTERM and SIGINT unmount.
//!
//! A mount that is not in use goes at once. One whose users do not let go within a moment is written out, taken
//! out of the tree, and its users are cut off: what they wrote is kept, what they do next fails. That is what a service manager that stops a service expects; `cofs umount` instead refuses a busy mount.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use cofs_fuse::{Unmount, unmount};
use rustix::{io::Errno, mount::UnmountFlags};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{mountinfo, notify::notify};
use crate::failure::{Done, EXIT_FAILED};

/// How long the users of a busy mount have before they are cut off.
const GRACE: Duration = Duration::from_secs(2);

/// Signals that have come and not been answered. From its making on they no longer end the process, so that
/// none can leave a mount behind that nobody serves.
pub struct Told(Signals);

impl Told {
    pub fn new() -> io::Result<Self> {
        Signals::new([SIGTERM, SIGINT]).map(Self)
    }

    /// Starts the thread that takes the mount at `point` down when told, or when that was told already; what its users have changed through
    /// mappings is written by `write_out`.
    pub fn unmount(mut self, point: PathBuf, write_out: impl Fn() + Send + 'static) -> io::Result<()> {
        let ours = device_at(&point);
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in self.0.forever() {
                // A signal may come twice (a service manager and the supervisor, timeout(1), a terminal and its shell), or after somebody's umount. What
                // stands there by then is not ours.
                if ours.is_some_and(|ours| has_gone(&point, ours)) {
                    continue;
                }
                tracing::info!(signal, "unmounting");
                notify("STOPPING=1", "Closing the volume");
                let abort = ours.map(|(_, minor)| format!("/sys/fs/fuse/connections/{minor}/abort"));
                take_down(&point, abort.as_deref().map(Path::new), &write_out);
            }
        })?;
        Ok(())
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

/// The device number of the file system that stands at `point`, major and minor. By the latter fusectl's directory is called, where the kernel lets the
/// connection be aborted.
///
/// The kernel is asked for what it has. A request to ourselves would do as well, but a process that is killed while it waits for one
/// can never end: the thread waits for an answer, and the connection for the thread to let go of it.
fn device_at(point: &Path) -> Option<(u32, u32)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, point, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// Whether the mount is not at `point` any more, nor beneath another.
fn has_gone(point: &Path, device: (u32, u32)) -> bool {
    let is_ours = |mount: &mountinfo::Mount| mount.point == point && mount.device == device;
    mountinfo::mounts().is_ok_and(|mounts| !mounts.iter().any(is_ours))
}

fn take_down(point: &Path, abort: Option<&Path>, write_out: &dyn Fn()) {
    let Err(error) = unmount_within_grace(point) else { return };
    // Somebody else has just taken it down.
    if error.kind() == io::ErrorKind::InvalidInput && matches!(mountinfo::at(point), Ok(None)) {
        return;
    }
    if error.kind() != io::ErrorKind::ResourceBusy {
        tracing::warn!(%error, point = %point.display(), "cannot unmount");
        return;
    }
    tracing::warn!(point = %point.display(), "still in use: cutting its users off");
    let written = begin_to_write(point).map(|()| write_out());
    if let Err(error) = written.and_then(|()| cut_off(point, abort)) {
        tracing::warn!(%error, point = %point.display(), "its users cannot be cut off: waiting for them");
    }
}

fn unmount_within_grace(point: &Path) -> io::Result<()> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match unmount(point, Unmount::IfUnused) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(GRACE / TRIES),
            other => return other,
        }
    }
    unmount(point, Unmount::IfUnused)
}

/// Ends the connection and takes the mount out of the tree: forced unmounting does both, but only for root.
fn cut_off(point: &Path, abort: Option<&Path>) -> io::Result<()> {
    match rustix::mount::unmount(point, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            unmount(point, Unmount::Lazily)?;
            abort.map_or(Ok(()), |abort| fs::write(abort, "1"))
        }
        other => Ok(other?),
    }
}

/// Pages that were changed through mmap(2) are still in the kernel. It writes many at a time for this, but may not wait for them.
fn begin_to_write(point: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(point)?)?)
}

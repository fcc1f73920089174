//! Mounts whose process has ended: they fail everybody, and only keep others from the directory.

use std::{
    io,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use cofs_fuse::HeldMount;

use super::{mountinfo, program::Program};
use crate::failure::{Done, Failure, Within};

/// How long a connection may take to end after its process, whose memory and rings the kernel has to clear first.
const END_TIME_MAX: Duration = Duration::from_secs(60);
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Takes every dead mount away that lies on top of `dir`; what lives, or is another's, stays.
pub fn take_away(dir: &Path) -> Done {
    let point = mountinfo::absolute(dir).map_err(|error| Failure::io("cannot reach", dir, &error))?;
    while mountinfo::at(&point)?.is_some() {
        // Who is about to replace it may have taken it away by the time that it is known to be dead.
        let held = HeldMount::at(&point).map_err(|error| Failure::io("cannot reach", &point, &error))?;
        if !held.is_dead() {
            break;
        }
        held.take_away().map_err(|error| Failure::io("cannot unmount", &point, &error))?;
    }
    Ok(())
}

/// Starts a small process that outlives this one, however this one ends, and then takes the mount on `point` away should it be
/// dead (`-o auto_unmount`). It waits until what is returned is dropped. (`fusermount3` has such an option, too; it looks once, and a
/// connection over io_uring may not have ended by then.)
pub fn watch(point: &Path) -> Done<ChildStdin> {
    let mut command = Command::new(Program::this()?.to_start());
    command.args(["umount", "--outlive", "--"]).arg(point);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or_else(|| Failure::new("it has no standard input"))
}

/// The life of that process.
pub fn outlive(point: &Path) -> Done {
    // What ends a terminal's or a service's other processes is not for this one.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())
        .within("cannot wait for the end of the mount's process")?;
    let from = Instant::now();
    while mountinfo::at(point)?.is_some() && from.elapsed() < END_TIME_MAX {
        take_away(point)?;
        std::thread::sleep(LOOKS_EVERY);
    }
    Ok(())
}

//! What the kernel holds: made to write it, made to forget it.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Only root can, and not in every container.
pub fn can_drop_caches() -> bool {
    rustix::process::geteuid().is_root() && fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

/// Writes what is dirty in the file system of `sync`; forgets what is clean in all.
pub fn settle(sync: Option<&Path>, drop_caches: bool) -> io::Result<()> {
    if let Some(path) = sync {
        rustix::fs::syncfs(File::open(path)?)?;
    }
    if drop_caches {
        // Only what is clean can be forgotten.
        rustix::fs::sync();
        fs::write(DROP_CACHES, "3\n")?;
    }
    Ok(())
}

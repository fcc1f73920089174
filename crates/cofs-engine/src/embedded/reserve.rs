//! Space set aside, so that a full file system below can be emptied again.
//!
//! Opening a store writes a few small files, and removing files from the volume is commits: on a file
//! system with nothing left both would fail, and the volume could not be mounted to make room. So a file
//! of [`RESERVE_BYTES_MAX`] lies in the store; when opening fails for want of space it is given up, and it is
//! made again by a later opening that finds room.
//!
//! All of it is best effort: a file system that can't set space aside is used without.

use std::{fs::File, path::Path};

use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};

/// Room for opening, and for some hundred thousand commits that remove.
const RESERVE_BYTES_MAX: u64 = 16 << 20;
/// The part of the free space that is taken at most, as a divisor: small file systems are left usable.
const FREE_PART: u64 = 16;

pub(super) const NAME: &str = "reserve";

/// Makes the reserve if it is not there.
pub(super) fn make(directory: &Path) {
    let path = directory.join(NAME);
    if path.exists() {
        return;
    }
    if try_make(directory, &path).is_err() {
        // Nothing is promised, and a half-made one is no use; the store works without.
        let _ = std::fs::remove_file(&path);
    }
}

fn try_make(directory: &Path, path: &Path) -> Result<(), Errno> {
    let space = statvfs(directory)?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let file = File::create_new(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES_MAX.min(free_bytes / FREE_PART).max(1))
}

/// Gives the space up; whether there was any.
pub(super) fn release(directory: &Path) -> bool {
    std::fs::remove_file(directory.join(NAME)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn it_takes_space_and_gives_it_up_once() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path());
        let file = std::fs::metadata(directory.path().join(NAME)).unwrap();
        assert!(file.blocks() > 0 && file.len() <= RESERVE_BYTES_MAX);
        assert!(release(directory.path()));
        assert!(!release(directory.path()));
    }
}

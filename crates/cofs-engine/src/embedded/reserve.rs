//! Space set aside, so that a full file system below can be emptied again.
//!
//! Opening a store writes a few small files, and removing files from the volume is commits: on a file
//! system with nothing left both would fail, and the volume could not be mounted to make room. So a file
//! of [`RESERVE_BYTES_MAX`] lies in the store; when opening fails for want of space, or the journal is full and a commit
//! that removes something waits, it is given up. It is made again when there is room.
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

/// Gives the space up; how much it was.
pub(super) fn release(directory: &Path) -> Option<u64> {
    let path = directory.join(NAME);
    let bytes = std::fs::metadata(&path).ok()?.len();
    std::fs::remove_file(path).ok().map(|()| bytes)
}

/// Makes it again if there is room for as much as was given up; whether it did.
pub(super) fn restore(directory: &Path, bytes: u64) -> bool {
    let roomy = statvfs(directory)
        .is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) / FREE_PART >= bytes);
    if roomy {
        make(directory);
    }
    roomy
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
        let len = file.len();
        assert_eq!(release(directory.path()), Some(len));
        assert_eq!(release(directory.path()), None);
        assert!(!restore(directory.path(), u64::MAX));
        assert_eq!(release(directory.path()), None);
        assert!(restore(directory.path(), 1));
        assert!(release(directory.path()).is_some());
    }
}

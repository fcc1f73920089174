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
/// The part of the file system, and of its free space, that is taken at most, as divisors: small ones are left usable.
const PART: u64 = 32;
const FREE_PART: u64 = 16;

pub(super) const NAME: &str = "reserve";

/// Makes the reserve if it is not there: as much as the file system can spare now.
pub(super) fn make(directory: &Path) {
    set_aside(directory, 1);
}

/// Makes it again after it was given up, when there is room for all of it: a small one would be no use the next time.
pub(super) fn restore(directory: &Path) {
    set_aside(directory, u64::MAX);
}

/// Sets space aside, at least so many bytes or all that there should be.
fn set_aside(directory: &Path, bytes_min: u64) {
    let path = directory.join(NAME);
    if path.exists() {
        return;
    }
    let Ok(space) = statvfs(directory) else { return };
    let share = |blocks: u64, part: u64| blocks.saturating_mul(space.f_frsize) / part;
    let wanted = RESERVE_BYTES_MAX.min(share(space.f_blocks, PART)).max(1);
    let affordable = wanted.min(share(space.f_bavail, FREE_PART));
    if affordable < bytes_min.min(wanted) {
        return;
    }
    if try_make(&path, affordable).is_err() {
        // Nothing is promised, and a half-made one is no use; the store works without.
        let _ = std::fs::remove_file(&path);
    }
}

fn try_make(path: &Path, bytes: u64) -> Result<(), Errno> {
    let file = File::create_new(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)
}

/// Whether there is one to give up.
pub(super) fn is_there(directory: &Path) -> bool {
    directory.join(NAME).exists()
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
        for set_aside in [make, restore] {
            assert!(!is_there(directory.path()));
            set_aside(directory.path());
            let file = std::fs::metadata(directory.path().join(NAME)).unwrap();
            assert!(file.blocks() > 0 && file.len() <= RESERVE_BYTES_MAX);
            assert!(is_there(directory.path()));
            assert!(release(directory.path()));
            assert!(!release(directory.path()));
        }
        set_aside(directory.path(), u64::MAX);
        assert!(is_there(directory.path()), "there is room for all that there should be");
    }
}

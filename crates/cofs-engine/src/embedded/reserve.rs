//! Space set aside, so that a full file system below can be emptied again.
//!
//! Opening a store writes a few small files, and removing files from the volume is commits: on a file
//! system with nothing left both would fail, and the volume could not be mounted to make room. So a file
//! of [`RESERVE_BYTES_MAX`] lies in the store; when opening fails for want of space, or what the journal holds cannot be put below and
//! something of it is a removal, it is given up: the space that removals set free comes back by writing tables, some of it by
//! compaction. It is made again when there is room.
//!
//! All of it is best effort: a file system that can't set space aside is used without.

use std::{fs::File, path::Path};

use rustix::{
    fs::{FallocateFlags, StatVfs, fallocate, statvfs},
    io::Errno,
    thread::{CapabilitySet, capabilities},
};

/// Room for opening, for what the journal holds, and for some hundred thousand commits that remove.
const RESERVE_BYTES_MAX: u64 = 64 << 20;
/// The part of the file system, and of its free space, that is taken at most, as divisors: small ones are left usable.
const PART: u64 = 32;
const FREE_PART: u64 = 16;

/// What a file may take besides its bytes, in the file system's own tables.
const LEFT_BYTES: u64 = 16 << 10;

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
    make_of(&path, affordable);
}

fn make_of(path: &Path, bytes: u64) -> bool {
    let made = try_make(path, bytes).is_ok();
    if !made {
        // Nothing is promised, and a half-made one is no use; the store works without.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn try_make(path: &Path, bytes: u64) -> Result<(), Errno> {
    let file = File::create_new(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)
}

/// Gives the space up; how many bytes, if there were any.
pub(super) fn release(directory: &Path) -> Option<u64> {
    let path = directory.join(NAME);
    let bytes = std::fs::metadata(&path).ok()?.len();
    std::fs::remove_file(path).ok().map(|()| bytes)
}

/// Takes so much space back, if it is there; whether it was.
pub(super) fn take_back(directory: &Path, bytes: u64) -> bool {
    free_bytes(directory) >= bytes && make_of(&directory.join(NAME), bytes)
}

/// Takes back so much, or nearly all that is left.
pub(super) fn take_back_most(directory: &Path, bytes: u64) {
    let left = free_bytes(directory).saturating_sub(LEFT_BYTES);
    if left > 0 {
        make_of(&directory.join(NAME), bytes.min(left));
    }
}

/// What is free for this process. 0 if the file system does not tell.
pub(super) fn free_bytes(directory: &Path) -> u64 {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    statvfs(directory).map_or(0, |space| free_blocks(&space, effective).saturating_mul(space.f_frsize))
}

/// Some file systems (ext4) keep a part for who has `CAP_SYS_RESOURCE`. Who has it in a user namespace of his own only does not
/// count for them, but cannot be told from others here: for him this is too much by that part.
fn free_blocks(space: &StatVfs, effective: CapabilitySet) -> u64 {
    if effective.contains(CapabilitySet::SYS_RESOURCE) { space.f_bfree } else { space.f_bavail }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn is_there(directory: &Path) -> bool {
        directory.join(NAME).exists()
    }

    #[test]
    fn what_is_kept_for_root_is_free_for_root_only() {
        let mut space = statvfs("/").unwrap();
        (space.f_bfree, space.f_bavail) = (1000, 900);
        let free = |effective: CapabilitySet| free_blocks(&space, effective);
        assert_eq!([CapabilitySet::SYS_RESOURCE, CapabilitySet::all()].map(free), [1000, 1000]);
        assert_eq!([CapabilitySet::empty(), CapabilitySet::SYS_ADMIN].map(free), [900, 900]);
    }

    #[test]
    fn it_takes_space_and_gives_it_up_once() {
        let directory = tempfile::tempdir().unwrap();
        for set_aside in [make, restore] {
            assert!(!is_there(directory.path()));
            set_aside(directory.path());
            let file = std::fs::metadata(directory.path().join(NAME)).unwrap();
            assert!(file.blocks() > 0 && file.len() <= RESERVE_BYTES_MAX);
            assert!(is_there(directory.path()));
            assert_eq!(release(directory.path()), Some(file.len()));
            assert_eq!(release(directory.path()), None);
        }
        assert!(take_back(directory.path(), 5000));
        assert_eq!(release(directory.path()), Some(5000));
        assert!(!take_back(directory.path(), u64::MAX) && !is_there(directory.path()));
        take_back_most(directory.path(), 5000);
        assert_eq!(release(directory.path()), Some(5000));
        set_aside(directory.path(), u64::MAX);
        assert!(is_there(directory.path()), "there is room for all that there should be");
    }
}

//! Space set aside, so that a full file system below can be emptied again.
//!
//! Opening a store writes a few small files, and removing files from the volume is commits: on a file
//! system with nothing left both would fail, and the volume could not be mounted to make room. So a file
//! of [`RESERVE_BYTES_MAX`] lies in the store; when opening fails for want of space, or what the journal holds cannot be put below and
//! something of it is a removal, it is given up: the space that removals set free comes back by writing tables, some of it by
//! compaction. It is made again when there is room.
//!
//! While the store is open, others who write to the file system take what was given up: mostly the volume's own data, which lie on the
//! same one. So there is a second, small one that nothing but opening gives up, before the first. What opening writes replaces what the one before
//! wrote, so that it is taken back at once, before anybody uses the store: a full volume can be mounted again and again.
//!
//! Some file systems run out of inodes before they run out of space. So each has empty files beside it, which are made, and go, with it.
//!
//! All of it is best effort: a file system that can't set space aside is used without.

use std::{
    ffi::OsStr,
    fs::File,
    io::{
        self,
        ErrorKind::{AlreadyExists, FileTooLarge, QuotaExceeded, StorageFull},
    },
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, OFlags, StatVfs, fallocate, statvfs},
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};

/// Room for opening, for what the journal holds, and for some hundred thousand commits that remove.
const RESERVE_BYTES_MAX: u64 = 64 << 20;
/// The part of the file system, and of its free space, that is taken at most, as divisors: small ones are left usable.
const PART: u64 = 32;
const FREE_PART: u64 = 16;

/// What a file may take besides its bytes, in the file system's own tables.
const LEFT_BYTES: u64 = 16 << 10;

/// What opening takes at most: RocksDB writes its settings, a log and a manifest anew, some 50 KB, before it removes the old ones. The manifest
/// lists tables; of a file system full of nothing but them, it is this part.
const OPENING_BYTES: u64 = 256 << 10;
const MANIFEST_PART: u64 = 1 << 16;
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Less is not worth a try.
const PIECE_BYTES: u64 = 4 << 10;

pub(super) const NAME: &str = "reserve";
pub(super) const OPENING_NAME: &str = "reserve-opening";

/// Empty files beside each: opening makes some eight files before it removes as many, and what removals set free comes back by a few tables.
const SPARES: u32 = 16;

pub(super) fn is_its(file: &OsStr) -> bool {
    let is_spare = |(name, number): (&str, &str)| {
        [NAME, OPENING_NAME].contains(&name) && number.parse().is_ok_and(|number: u32| number < SPARES)
    };
    file == NAME
        || file == OPENING_NAME
        || file.to_str().and_then(|file| file.split_once('.')).is_some_and(is_spare)
}

fn spares(path: &Path) -> impl Iterator<Item = PathBuf> {
    (0..SPARES).map(|number| path.with_extension(number.to_string()))
}

/// Has as many spare files as can be had.
fn keep_spares(path: &Path, space: &StatVfs) {
    if space.f_files == 0 {
        return; // Inodes are not counted there.
    }
    for spare in spares(path) {
        let made = File::options().write(true).create_new(true).open(spare);
        if made.is_err_and(|error| error.kind() != AlreadyExists) {
            return;
        }
    }
}

/// Makes the reserve if it is not there, or larger: as much as the file system can spare now.
pub(super) fn make(directory: &Path) {
    set_aside(directory, 1);
}

/// Makes it again after it was given up, when there is room for all of it: a small one would be no use the next time.
pub(super) fn restore(directory: &Path) {
    set_aside(directory, u64::MAX);
}

/// Sets space aside, at least so many bytes or all that there should be.
fn set_aside(directory: &Path, bytes_min: u64) {
    let Ok(space) = statvfs(directory) else { return };
    let share = |blocks: u64, part: u64| blocks.saturating_mul(space.f_frsize) / part;
    let wanted = RESERVE_BYTES_MAX.min(share(space.f_blocks, PART)).max(1);
    let affordable = wanted.min(share(space.f_bavail, FREE_PART));
    if affordable >= bytes_min.min(wanted) {
        let _ = hold(&directory.join(NAME), affordable);
        keep_spares(&directory.join(NAME), &space);
    }
}

/// Sets so much aside in a file, with what that has already.
fn hold(path: &Path, bytes: u64) -> io::Result<()> {
    let held = held_bytes(path);
    if held >= bytes {
        return Ok(());
    }
    try_hold(path, held, bytes - held).inspect_err(|_| {
        if held == 0 {
            // Nothing is promised, and an empty one is no use; the store works without.
            let _ = std::fs::remove_file(path);
        }
    })
}

fn try_hold(path: &Path, held: u64, more: u64) -> io::Result<()> {
    // A FIFO in its place would be waited for.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).custom_flags(flags).open(path)?;
    fallocate(&file, FallocateFlags::empty(), held, more).map_err(|errno| {
        // Some file systems leave what they have got.
        let _ = file.set_len(held);
        errno.into()
    })
}

fn held_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Gives the space up; how many bytes, if there were any.
pub(super) fn release(directory: &Path) -> Option<u64> {
    give_up(&directory.join(NAME))
}

/// Gives up what only opening may have; how many bytes, if there were any.
pub(super) fn release_for_opening(directory: &Path) -> Option<u64> {
    give_up(&directory.join(OPENING_NAME))
}

fn give_up(path: &Path) -> Option<u64> {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let is_removed = |file: &Path| std::fs::remove_file(file).is_ok();
    let spares = spares(path).filter(|spare| is_removed(spare)).count();
    (is_removed(path) || spares > 0).then_some(bytes)
}

/// Takes so much space back, if it is there; whether it was.
pub(super) fn take_back(directory: &Path, bytes: u64) -> bool {
    let taken = free_bytes(directory) >= bytes && hold(&directory.join(NAME), bytes).is_ok();
    if taken && let Ok(space) = statvfs(directory) {
        keep_spares(&directory.join(NAME), &space);
    }
    taken
}

/// Takes back so much, or nearly all that is left.
pub(super) fn take_back_most(directory: &Path, bytes: u64) {
    let left = free_bytes(directory).saturating_sub(LEFT_BYTES);
    if left > 0 {
        let _ = hold(&directory.join(NAME), bytes.min(left));
    }
    if let Ok(space) = statvfs(directory) {
        keep_spares(&directory.join(NAME), &space);
    }
}

/// Has what the next opening takes, or as much of it as there is.
pub(super) fn keep_for_opening(directory: &Path) {
    let Ok(space) = statvfs(directory) else { return };
    let manifest_bytes =
        (space.f_blocks.saturating_mul(space.f_frsize) / MANIFEST_PART).min(MANIFEST_BYTES_MAX);
    let (path, bytes) = (directory.join(OPENING_NAME), OPENING_BYTES + manifest_bytes);
    keep_spares(&path, &space);
    // What is told to be free is not what this user may have: root has more of ext4, others less where there are quotas. And what is not
    // kept now is somebody else's by the next life.
    let mut more = bytes.saturating_sub(held_bytes(&path));
    while more >= PIECE_BYTES && held_bytes(&path) < bytes {
        let held = hold(&path, bytes.min(held_bytes(&path) + more));
        if held.is_err_and(|error| !matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)) {
            return;
        }
        more /= 2;
    }
}

/// What is free for this process. 0 if the file system does not tell.
pub(super) fn free_bytes(directory: &Path) -> u64 {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let is_root = geteuid().is_root();
    statvfs(directory)
        .map_or(0, |space| free_blocks(&space, is_root, effective).saturating_mul(space.f_frsize))
}

/// Some file systems (ext4) keep a part for root, and for who has `CAP_SYS_RESOURCE`. Who is that in a user namespace of his own only does not
/// count for them, but cannot be told from others here: for him this is too much by that part.
fn free_blocks(space: &StatVfs, is_root: bool, effective: CapabilitySet) -> u64 {
    if is_root || effective.contains(CapabilitySet::SYS_RESOURCE) { space.f_bfree } else { space.f_bavail }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_is_kept_for_opening_is_a_thing_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let held = || held_bytes(&directory.path().join(OPENING_NAME));
        keep_for_opening(directory.path());
        let whole = held();
        assert!((OPENING_BYTES..=OPENING_BYTES + MANIFEST_BYTES_MAX).contains(&whole));
        make(directory.path());
        assert!(release(directory.path()).is_some() && held() == whole, "that is the other one");
        assert_eq!(release_for_opening(directory.path()), Some(whole));
        assert_eq!(release_for_opening(directory.path()), None);
        // Where only a part of it could be had, the rest follows.
        hold(&directory.path().join(OPENING_NAME), 5000).unwrap();
        assert_eq!(held(), 5000);
        keep_for_opening(directory.path());
        let file = std::fs::metadata(directory.path().join(OPENING_NAME)).unwrap();
        assert!(file.len() == whole && file.blocks() * 512 >= whole);
        assert!(hold(&directory.path().join(OPENING_NAME), u64::MAX >> 2).is_err() && held() == whole);
    }

    #[test]
    fn files_are_kept_and_given_up_beside_each() {
        let directory = tempfile::tempdir().unwrap();
        let names = || -> Vec<_> {
            let files = std::fs::read_dir(directory.path()).unwrap();
            files.map(|file| file.unwrap().file_name()).collect()
        };
        make(directory.path());
        keep_for_opening(directory.path());
        keep_for_opening(directory.path());
        let all = names();
        assert!(all.len() == 2 * (1 + SPARES as usize) && all.iter().all(|name| is_its(name)), "{all:?}");
        assert!(release_for_opening(directory.path()).is_some());
        assert!(
            names().len() == 1 + SPARES as usize && release(directory.path()).is_some() && names().is_empty()
        );
        // Those alone are worth a try, too.
        let space = statvfs(directory.path()).unwrap();
        keep_spares(&directory.path().join(NAME), &space);
        assert_eq!((release(directory.path()), release(directory.path())), (Some(0), None));
        assert!(
            !["reserve.txt", "reserve.16", "reserve.", "other.1"].iter().any(|name| is_its(OsStr::new(name)))
        );
    }

    fn is_there(directory: &Path) -> bool {
        directory.join(NAME).exists()
    }

    #[test]
    fn what_is_kept_for_root_is_free_for_root_only() {
        let mut space = statvfs("/").unwrap();
        (space.f_bfree, space.f_bavail) = (1000, 900);
        let free = |effective: CapabilitySet| free_blocks(&space, false, effective);
        assert_eq!([CapabilitySet::SYS_RESOURCE, CapabilitySet::all()].map(free), [1000, 1000]);
        assert_eq!([CapabilitySet::empty(), CapabilitySet::SYS_ADMIN].map(free), [900, 900]);
        assert_eq!(free_blocks(&space, true, CapabilitySet::empty()), 1000, "in a container, say");
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

//! Removed inodes that someone still holds without having them open: a current directory, an `O_PATH`
//! descriptor. Their last attributes answer fstat(2), take what is set, and have such a directory opened, until the kernel forgets them; a file's bytes are gone, and
//! its extended attributes.
//!
//! Bounded by [`limits::GHOSTS_MAX`]; one that fell out answers `Stale`.

use cofs_types::{Attributes, InodeId, limits};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

const SHARDS: usize = 16;

pub(crate) struct Ghosts {
    shards: [Mutex<FxHashMap<InodeId, Attributes>>; SHARDS],
}

impl Ghosts {
    pub(crate) fn new() -> Self {
        Self { shards: Default::default() }
    }

    fn shard(&self, ino: InodeId) -> &Mutex<FxHashMap<InodeId, Attributes>> {
        &self.shards[ino.sequence() as usize % SHARDS]
    }

    pub(crate) fn put(&self, attributes: &Attributes) {
        let mut shard = self.shard(attributes.ino).lock();
        if shard.len() >= limits::GHOSTS_MAX / SHARDS {
            // Whichever: the kernel forgets nearly all within milliseconds.
            let one = shard.keys().next().copied();
            one.map(|ino| shard.remove(&ino));
        }
        shard.insert(attributes.ino, *attributes);
    }

    /// Unless the kernel has forgotten it meanwhile.
    pub(crate) fn change(&self, attributes: &Attributes) {
        if let Some(ghost) = self.shard(attributes.ino).lock().get_mut(&attributes.ino) {
            *ghost = *attributes;
        }
    }

    pub(crate) fn get(&self, ino: InodeId) -> Option<Attributes> {
        self.shard(ino).lock().get(&ino).copied()
    }

    pub(crate) fn forget(&self, ino: InodeId) {
        self.shard(ino).lock().remove(&ino);
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofs_types::{FileKind, Timestamp};

    fn ghost(number: u64) -> Attributes {
        let now = Timestamp::new(1, 0).unwrap();
        Attributes {
            ino: InodeId::new(number).unwrap(),
            kind: FileKind::Regular,
            permissions: 0o644,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            blocks_512: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        }
    }

    #[test]
    fn they_stay_until_they_are_forgotten_and_are_bounded() {
        let ghosts = Ghosts::new();
        let most = limits::GHOSTS_MAX as u64;
        (1..=3 * most).for_each(|number| ghosts.put(&ghost(number)));
        assert!(
            ghosts.len() <= limits::GHOSTS_MAX && ghosts.len() > limits::GHOSTS_MAX / 2,
            "{}",
            ghosts.len()
        );
        let last = InodeId::new(3 * most).unwrap();
        assert_eq!(ghosts.get(last), Some(ghost(3 * most)));
        ghosts.forget(last);
        assert_eq!(ghosts.get(last), None);
    }
}

//! Files that a rename has replaced, held for those who are just about to open them.
//!
//! Between a look-up and the open that follows it, the file may be replaced: programs write a new version beside
//! the old one and rename it over, while others read. The name never goes away, so neither may the open fail:
//! the old file stays openable, unlinked, until the kernel forgets it; and so a symbolic link may be followed that
//! another has just replaced. (The kernel itself looks up once more when it is told `ESTALE`, but only once. For a file that was plainly removed,
//! that is enough.)
//!
//! Bounded by [`limits::LINGERING_MAX`]: then the one that has been here longest goes. A crash leaves them in `U`.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_types::{InodeId, limits};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Lingering {
    inodes: Mutex<VecDeque<InodeId>>,
    /// How many, so that a forget need not lock while there are none, which is nearly always.
    count: AtomicUsize,
}

impl Lingering {
    /// Takes over a claim on `ino`; returns one that is to be given back for it.
    #[must_use]
    pub(crate) fn put(&self, ino: InodeId) -> Option<InodeId> {
        let mut inodes = self.inodes.lock();
        inodes.push_back(ino);
        let oldest = if inodes.len() > limits::LINGERING_MAX { inodes.pop_front() } else { None };
        self.count.store(inodes.len(), Ordering::Release);
        oldest
    }

    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.inodes.lock().contains(&ino)
    }

    /// Whether `ino` was here; its claim is the caller's to give back.
    pub(crate) fn take(&self, ino: InodeId) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut inodes = self.inodes.lock();
        let Some(at) = inodes.iter().position(|here| *here == ino) else { return false };
        inodes.remove(at);
        self.count.store(inodes.len(), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_each_goes_once() {
        let lingering = Lingering::default();
        let ino = |n: usize| InodeId::new(n as u64 + 1).unwrap();
        assert!(!lingering.take(ino(0)));
        assert!((0..limits::LINGERING_MAX).all(|n| lingering.put(ino(n)).is_none()));
        assert_eq!(lingering.put(ino(limits::LINGERING_MAX)), Some(ino(0)));
        assert!(!lingering.take(ino(0)));
        assert!(lingering.take(ino(1)));
        assert!(!lingering.take(ino(1)));
    }
}

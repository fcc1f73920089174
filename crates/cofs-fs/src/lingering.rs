//! Files that a rename has replaced or exchanged, held for those who are just about to open them.
//!
//! Between a look-up and the open that follows it, the file may be replaced: programs write a new version beside
//! the old one and rename it over, while others read. The name never goes away, so neither may the open fail:
//! the old file stays openable, unlinked, until the kernel forgets it; and so a symbolic link may be followed that
//! another has just replaced. (The kernel itself looks up once more when it is told `ESTALE`, but only once. For a file that was plainly removed,
//! that is enough.)
//!
//! So it is where the new version changes names with the old one, and the old one is unlinked then: both files are held from the exchange
//! on, with their names, and the unlink finds them open, at no cost to other unlinks.
//!
//! Who has bound such a file elsewhere (`mount --bind`), or holds it by `O_PATH`, keeps it as long, too: so many may be here at a time.
//!
//! Bounded by [`limits::LINGERING_MAX`]: then the one that has been here longest goes. A crash leaves them in `U`.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_types::{InodeId, limits};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct Lingering {
    inodes: Mutex<Queue>,
    /// How many, so that a forget need not lock while there are none, which is nearly always.
    count: AtomicUsize,
}

/// Inodes in the order in which they came, any of which may leave.
#[derive(Default)]
struct Queue {
    places: FxHashMap<InodeId, u64>,
    order: BTreeMap<u64, InodeId>,
    next: u64,
}

impl Queue {
    fn push(&mut self, ino: InodeId) {
        self.places.insert(ino, self.next);
        self.order.insert(self.next, ino);
        self.next += 1;
    }

    fn pop(&mut self) -> Option<InodeId> {
        let (_, ino) = self.order.pop_first()?;
        self.places.remove(&ino);
        Some(ino)
    }

    fn remove(&mut self, ino: InodeId) -> bool {
        self.places.remove(&ino).is_some_and(|place| self.order.remove(&place).is_some())
    }
}

impl Lingering {
    /// Takes over a claim on `ino`; returns one that is to be given back for it.
    #[must_use]
    pub(crate) fn put(&self, ino: InodeId) -> Option<InodeId> {
        let mut inodes = self.inodes.lock();
        let was_here = inodes.remove(ino);
        inodes.push(ino);
        if was_here {
            return Some(ino);
        }
        let oldest = if inodes.order.len() > limits::LINGERING_MAX { inodes.pop() } else { None };
        self.count.store(inodes.order.len(), Ordering::Release);
        oldest
    }

    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.inodes.lock().places.contains_key(&ino)
    }

    /// Whether `ino` was here; its claim is the caller's to give back.
    pub(crate) fn take(&self, ino: InodeId) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut inodes = self.inodes.lock();
        let was_here = inodes.remove(ino);
        self.count.store(inodes.order.len(), Ordering::Release);
        was_here
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

    #[test]
    fn one_that_comes_again_keeps_one_claim_and_is_the_newest() {
        let lingering = Lingering::default();
        let ino = |n: usize| InodeId::new(n as u64 + 1).unwrap();
        assert!((0..limits::LINGERING_MAX).all(|n| lingering.put(ino(n)).is_none()));
        assert_eq!(lingering.put(ino(0)), Some(ino(0)));
        assert_eq!(lingering.put(ino(limits::LINGERING_MAX)), Some(ino(1)));
        assert!(lingering.take(ino(0)));
        assert!(!lingering.has(ino(0)));
    }
}

//! Inodes whose pages in the kernel may be out of date, because their bytes changed below it.
//!
//! With passthrough, bytes change in the object, and the pages that the kernel kept of an earlier, cached
//! open do not follow. When such a file moves back inline its next open goes through those pages: it must
//! drop them first. A set that is full takes nobody else, and then the file stays in its object. The same holds of
//! pages that were brought by a mapping while another wrote past the page cache.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use cofs_types::{InodeId, limits};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct StalePages {
    inodes: Mutex<HashSet<InodeId>>,
    /// The set's size, so that an open need not lock it while it is empty, which is nearly always.
    count: AtomicUsize,
    /// One had to be remembered and had no place: from now on all count as out of date.
    all: AtomicBool,
}

impl StalePages {
    /// `false` if there is no room to remember it.
    pub(crate) fn note(&self, ino: InodeId) -> bool {
        let mut inodes = self.inodes.lock();
        if inodes.len() >= limits::STALE_PAGES_MAX && !inodes.contains(&ino) {
            return false;
        }
        inodes.insert(ino);
        self.count.store(inodes.len(), Ordering::Release);
        true
    }

    /// As [`note`](Self::note), for one that nothing else can be done about.
    pub(crate) fn note_for_certain(&self, ino: InodeId) {
        if !self.note(ino) {
            self.all.store(true, Ordering::Release);
        }
    }

    /// Whether the pages of `ino` must be dropped now (they count as good afterwards).
    pub(crate) fn take(&self, ino: InodeId) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return self.all.load(Ordering::Acquire);
        }
        let mut inodes = self.inodes.lock();
        let there = inodes.remove(&ino);
        self.count.store(inodes.len(), Ordering::Release);
        there || self.all.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: usize) -> InodeId {
        InodeId::new(number as u64).unwrap()
    }

    #[test]
    fn what_has_no_place_and_must_be_remembered_makes_all_count_as_out_of_date() {
        let (pages, most) = (StalePages::default(), limits::STALE_PAGES_MAX);
        assert!((1..=most).all(|number| pages.note(ino(number))));
        assert!(!pages.note(ino(most + 1)));
        assert!(pages.note(ino(1)), "it has its place");
        assert!(!pages.take(ino(most + 1)));
        assert!(pages.take(ino(1)) && !pages.take(ino(1)));
        pages.note_for_certain(ino(most + 1));
        assert!(!pages.take(ino(1)), "there was a place");
        pages.note_for_certain(ino(most + 2));
        assert!(pages.take(ino(1)) && pages.take(ino(most + 2)));
        assert!((2..=most + 1).all(|number| pages.take(ino(number))));
        assert!(pages.take(ino(1)), "also when none is left");
    }
}

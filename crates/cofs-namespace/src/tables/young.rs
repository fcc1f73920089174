//! Young directories: those made since the volume was opened. Of these it is known which slots have never been taken.
//!
//! Who unpacks an archive, or writes a checkpoint, asks of each new name whether it stands already, and then makes
//! it. The answer would be looked for in every layer of the engine that may have the key, only to be that there is none. In
//! a directory that was empty within living memory, a slot that nobody has taken since is free, and nothing need be
//! read. (CephFS's clients call a directory that they know so *complete*.)
//!
//! Memory is fixed: a table of directories, in which a newcomer displaces whoever has its place; and one bit for a taken
//! slot, shared by those that hash to it. Both err to the side that costs a look into the engine and nothing else.
//!
//! Invariants:
//! - A directory is added before the commit that makes it, so before any of its slots can be taken; its number never
//!   comes again.
//! - The bit of a slot is set before the commit that takes it. So a reader who has noted the version of the slot's stripe, and
//!   then finds the bit unset, knows that the slot was free at that version.
//! - Bits are unset only after the table has been emptied, and directories are added only when that is over. So a bit that was
//!   unset while its directory was in the table, before and after, has never been set.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering, fence},
};

use cofs_types::{InodeId, limits};
use parking_lot::Mutex;
use zerocopy::FromZeros as _;

const WORD_BITS: usize = u64::BITS as usize;
/// After so many births it is looked how many bits are set.
const BIRTHS_PER_LOOK: u32 = 64;
/// So many of the words are looked at.
const WORDS_LOOKED_AT: usize = 256;

pub struct Young {
    table_len: usize,
    bits: usize,
    tables: OnceLock<Tables>,
    /// Directories added since the last look.
    births: Mutex<u32>,
}

/// Made when there is a first young directory: many who open a volume only read.
struct Tables {
    /// Inode numbers; 0 is none's.
    directories: Box<[AtomicU64]>,
    taken: Box<[AtomicU64]>,
}

impl Young {
    pub fn new() -> Self {
        Self::sized(limits::YOUNG_DIRECTORIES_MAX, limits::YOUNG_SLOT_BITS)
    }

    /// Both are powers of two.
    fn sized(table_len: usize, bits: usize) -> Self {
        Self { table_len, bits, tables: OnceLock::new(), births: Mutex::new(0) }
    }

    /// `directory` is about to be made, and empty.
    pub fn add(&self, directory: InodeId) {
        let tables = self.tables.get_or_init(|| Tables::new(self.table_len, self.bits / WORD_BITS));
        let mut births = self.births.lock();
        *births += 1;
        if *births >= BIRTHS_PER_LOOK {
            *births = 0;
            if tables.is_crowded() {
                tables.forget_all();
            }
        }
        tables.place(directory).store(directory.get(), Ordering::Release);
    }

    /// `slot` of `directory` is about to be taken.
    pub fn take(&self, directory: InodeId, slot: u64) {
        if let Some(tables) = self.tables.get()
            && tables.has(directory)
        {
            let (word, bit) = tables.bit(directory, slot);
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Whether nobody has taken `slot` of `directory`, for sure. The version of its stripe has been noted before.
    pub fn is_free(&self, directory: InodeId, slot: u64) -> bool {
        let Some(tables) = self.tables.get() else { return false };
        if !tables.has(directory) {
            return false;
        }
        let (word, bit) = tables.bit(directory, slot);
        let unset = word.load(Ordering::Acquire) & bit == 0;
        // Else it may have been unset because the table had been emptied.
        unset && tables.has(directory)
    }
}

impl Tables {
    fn new(directories: usize, words: usize) -> Self {
        let zeroed = |len| <[AtomicU64]>::new_box_zeroed_with_elems(len).unwrap_or_default();
        Self { directories: zeroed(directories), taken: zeroed(words) }
    }

    fn place(&self, directory: InodeId) -> &AtomicU64 {
        &self.directories[spread(directory.get()) as usize & (self.directories.len() - 1)]
    }

    fn has(&self, directory: InodeId) -> bool {
        self.place(directory).load(Ordering::Acquire) == directory.get()
    }

    fn bit(&self, directory: InodeId, slot: u64) -> (&AtomicU64, u64) {
        // Slots are keyed hashes already.
        let hash = slot ^ spread(directory.get());
        let word = (hash / u64::from(u64::BITS)) as usize & (self.taken.len() - 1);
        (&self.taken[word], 1 << (hash % u64::from(u64::BITS)))
    }

    /// Whether so many bits are set that a quarter of all free slots would be taken for taken.
    fn is_crowded(&self) -> bool {
        let step = (self.taken.len() / WORDS_LOOKED_AT).max(1);
        let (mut words, mut set) = (0, 0);
        for word in self.taken.iter().step_by(step) {
            words += 1;
            set += word.load(Ordering::Relaxed).count_ones() as usize;
        }
        set > words * WORD_BITS / 4
    }

    /// With the lock on births held.
    fn forget_all(&self) {
        self.directories.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        // Who sees a bit unset by what follows sees that the table is empty.
        fence(Ordering::Release);
        self.taken.iter().for_each(|word| word.store(0, Ordering::Release));
    }
}

/// Numbers of neighbours far apart (the multiplier is 2^64 divided by the golden ratio).
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    #[test]
    fn a_slot_is_free_until_it_is_taken_and_only_of_a_young_directory() {
        let young = Young::sized(64, 1 << 12);
        young.take(ino(2), 7);
        assert!(!young.is_free(ino(2), 8), "nothing is known of it");
        young.add(ino(5));
        assert!(young.is_free(ino(5), 7));
        young.take(ino(5), 7);
        assert!(!young.is_free(ino(5), 7));
        assert!(young.is_free(ino(5), 8), "another slot");
        young.add(ino(6));
        assert!(young.is_free(ino(6), 7), "another directory");
        assert!(!young.is_free(ino(2), 7));
    }

    #[test]
    fn one_that_is_displaced_is_young_no_more() {
        let young = Young::sized(1, 1 << 12);
        young.add(ino(5));
        young.add(ino(6));
        assert!(!young.is_free(ino(5), 7) && young.is_free(ino(6), 7));
    }

    #[test]
    fn crowded_bits_are_given_up_together_with_the_directories() {
        let young = Young::sized(64, 1 << 10);
        young.add(ino(5));
        let mut slot = 0;
        while young.is_free(ino(5), u64::MAX) && slot < 1 << 9 {
            young.take(ino(5), slot);
            slot += 1;
        }
        (0..u64::from(BIRTHS_PER_LOOK)).for_each(|number| young.add(ino(1000 + number)));
        assert!(!young.is_free(ino(5), 0), "it is forgotten");
        let newest = ino(999 + u64::from(BIRTHS_PER_LOOK));
        assert!((0..1 << 9).all(|slot| young.is_free(newest, slot)), "and so are its slots");
    }

    #[test]
    fn what_has_been_taken_is_never_free_whatever_others_do() {
        // Small, so that all is forgotten all the time, at births of others too.
        let young = Young::sized(1 << 10, 1 << 12);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let young = &young;
                scope.spawn(move || {
                    for round in 0..10_000 {
                        let directory = ino(2 + thread + 4 * round);
                        let slots = (0..32).map(|slot| spread(slot + 1));
                        young.add(directory);
                        slots.clone().for_each(|slot| young.take(directory, slot));
                        for _ in 0..4 {
                            for slot in slots.clone() {
                                assert!(!young.is_free(directory, slot), "slot {slot} of {directory}");
                            }
                        }
                    }
                });
            }
        });
    }
}

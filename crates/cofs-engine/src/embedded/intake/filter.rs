//! A blocked Bloom filter over a memtable's keys: whoever looks for a new name asks every layer, and a walk down a tree of
//! a hundred thousand keys is a cache miss for each of its levels; this is one.
//!
//! After Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters (2007): a key's bits stand in one cache line.

use std::{
    hash::Hasher,
    sync::atomic::{AtomicU64, Ordering},
};

use rustc_hash::FxHasher;

/// Bits set for a key.
const BITS: u32 = 4;
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * 8;

/// One cache line.
#[derive(Default)]
#[repr(align(64))]
struct Block([AtomicU64; WORDS]);

/// Keys that differ in less than this, in their last byte, are neighbours: inodes with numbers that follow each other, which are often looked for one
/// after the other.
pub(super) const NEIGHBOURS: u8 = 16;

/// Where a key is found, in tables of any size: neighbours beside each other.
#[derive(Clone, Copy)]
pub(super) struct KeyHash {
    /// The same for neighbours.
    neighbourhood: u64,
    /// Less than [`NEIGHBOURS`].
    neighbour: u8,
}

impl KeyHash {
    pub fn of(key: &[u8]) -> Self {
        let (last, rest) = key.split_last().map_or((0, key), |(last, rest)| (*last, rest));
        let mut hasher = FxHasher::default();
        hasher.write(rest);
        hasher.write_u8(last / NEIGHBOURS);
        Self { neighbourhood: hasher.finish(), neighbour: last % NEIGHBOURS }
    }

    /// A part of it, for tables of fewer places than it has bits: its last four bits are the neighbour.
    pub fn short(self) -> u32 {
        let neighbourhood = (self.neighbourhood >> 32 ^ self.neighbourhood) as u32;
        neighbourhood & !u32::from(NEIGHBOURS - 1) | u32::from(self.neighbour)
    }

    /// The words of a block that hold the key's bits, and the bits.
    fn bits(self) -> impl Iterator<Item = (usize, u64)> {
        // Nine bits choose one of 512, not those by which the block was chosen.
        let hash = (self.neighbourhood ^ u64::from(self.neighbour)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28;
        (0..BITS).map(move |number| {
            let bit = (hash >> (9 * number)) & 511;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }
}

pub(super) struct Filter {
    blocks: Box<[Block]>,
}

impl Filter {
    /// For so many keys three in a hundred absent ones pass; with more it only lets more pass.
    pub fn for_keys(keys: usize) -> Self {
        let blocks = (keys / BLOCK_BYTES + 1).next_power_of_two();
        Self { blocks: (0..blocks).map(|_| Block::default()).collect() }
    }

    fn block(&self, hash: KeyHash) -> &Block {
        // A power of two, so that the mask is within.
        let index = (hash.neighbourhood >> 40) as usize & (self.blocks.len() - 1);
        &self.blocks[index]
    }

    /// Before anybody can find the key in the table. Whoever knows of the commit sees the bits.
    pub fn add(&self, hash: KeyHash) {
        let block = self.block(hash);
        for (word, bit) in hash.bits() {
            let word = &block.0[word];
            // Most keys of a busy directory's neighbours are there: no line is made dirty for nothing.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// `false`: the key is not in the table.
    pub fn may_have(&self, hash: KeyHash) -> bool {
        let block = self.block(hash);
        hash.bits().all(|(word, bit)| block.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the schema's: a kind, a directory or an inode, a hash or nothing.
    fn key(number: u64) -> Vec<u8> {
        [&b"\0\0E"[..], &(number % 7).to_be_bytes(), &number.to_be_bytes()].concat()
    }

    #[test]
    fn what_was_added_passes_and_of_the_others_few_do() {
        const KEYS: u64 = 100_000;
        let filter = Filter::for_keys(KEYS as usize);
        let hash = |number| KeyHash::of(&key(number));
        (0..KEYS).for_each(|number| filter.add(hash(number)));
        assert!((0..KEYS).all(|number| filter.may_have(hash(number))));
        let pass = (KEYS..2 * KEYS).filter(|&number| filter.may_have(hash(number))).count();
        assert!(pass < KEYS as usize / 20, "{pass} of {KEYS}");
    }

    #[test]
    fn one_that_is_too_small_forgets_nothing() {
        let filter = Filter::for_keys(0);
        (0..1000).for_each(|number| filter.add(KeyHash::of(&key(number))));
        assert!((0..1000).all(|number| filter.may_have(KeyHash::of(&key(number)))));
    }
}

//! Inode numbers: each directory takes contiguous blocks, so that its inodes lie together.
//!
//! Blocks come from a reservation in the header, so that a crash loses numbers and never gives one out
//! twice. A directory's first block is small, each further one twice as large. What is forgotten (the table of
//! blocks is bounded) is lost: 2^48 numbers last.

use cofs_engine::Change;
use cofs_types::{FsError, FsResult, InodeId, limits};
use parking_lot::Mutex;
use quick_cache::unsync::Cache;

use crate::{
    schema::{HeaderPart, encode_number, key},
    tx::{Store, verb},
};

const SHARDS: usize = 16;

#[derive(Clone, Copy)]
struct Block {
    next: u64,
    end: u64,
    size: u64,
}

/// Sequence numbers that the header has given up.
struct Reserve {
    next: u64,
    end: u64,
}

pub struct Allocator {
    reserve: Mutex<Reserve>,
    blocks: [Mutex<Cache<InodeId, Block>>; SHARDS],
}

impl Allocator {
    /// `next`: what the header says.
    pub fn new(next: u64) -> Self {
        let per_shard = limits::INODE_BLOCKS_MAX / SHARDS;
        Self {
            reserve: Mutex::new(Reserve { next, end: next }),
            blocks: std::array::from_fn(|_| Mutex::new(Cache::new(per_shard))),
        }
    }

    /// A number for a new inode in `dir`.
    pub fn take(&self, store: &Store, dir: InodeId) -> FsResult<InodeId> {
        let shard = &self.blocks[dir.sequence() as usize % SHARDS];
        let mut blocks = shard.lock();
        let mut block = blocks.get(&dir).copied().unwrap_or(Block { next: 0, end: 0, size: 0 });
        if block.next == block.end {
            let size = (block.size * 2).clamp(limits::INODE_BLOCK_MIN, limits::INODE_BLOCK_MAX);
            let next = self.take_block(store, size)?;
            block = Block { next, end: next + size, size };
        }
        let sequence = block.next;
        block.next += 1;
        blocks.insert(dir, block);
        InodeId::from_parts(dir.partition(), sequence).ok_or(FsError::LimitReached("inode numbers"))
    }

    fn take_block(&self, store: &Store, size: u64) -> FsResult<u64> {
        let mut reserve = self.reserve.lock();
        if reserve.end - reserve.next < size {
            let end = reserve.end + limits::INODE_RESERVATION;
            store.commit_alone(&verb!("reserve"), vec![reservation(end)])?;
            reserve.end = end;
        }
        let next = reserve.next;
        reserve.next += size;
        Ok(next)
    }

    /// Gives back what is reserved and not taken; nothing may be taken afterwards.
    pub fn give_back(&self) -> Change {
        reservation(self.reserve.lock().next)
    }
}

pub fn reservation(next: u64) -> Change {
    Change::put(key::header(HeaderPart::Inodes), encode_number(next))
}

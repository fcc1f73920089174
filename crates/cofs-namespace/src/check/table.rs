//! All inodes in 16 bytes each: the number, and a word of what else must be known of it.
//!
//! The word, from its low end: kind (3 bits), flags (5), chunks of inline data (5), bytes in the last of them
//! (13); in its upper half the links found so far, or a directory's subdirectories. A directory has its
//! parent in a table of its own.

use cofs_types::{FileKind, InodeId, Layout, limits::INLINE_CHUNK_BYTES};

use crate::schema::Inode;

const KIND: u64 = 0b111;
const CHUNKS_SHIFT: u32 = 8;
const CHUNKS: u64 = 0b11111;
const TAIL_SHIFT: u32 = 13;
const TAIL: u64 = (1 << 13) - 1;
const COUNT_SHIFT: u32 = 32;

/// A fact of an inode that some other record tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Flag {
    /// `U` stands.
    Unlinked = 1 << 3,
    /// `W` stands.
    Writing = 1 << 4,
    /// Large extended attributes are expected.
    LargeXattrs = 1 << 5,
    /// A directory has its name in its parent.
    Named = 1 << 6,
    /// A directory's record `S` was seen.
    Shard = 1 << 7,
}

/// Where an inode stands in the table.
pub type Index = usize;

/// A directory and its parent's number (0: none).
#[derive(Clone, Copy)]
struct Parent {
    index: u32,
    parent: u64,
}

#[derive(Default)]
pub struct Table {
    numbers: Vec<u64>,
    words: Vec<u64>,
    parents: Vec<Parent>,
}

impl Table {
    /// Inodes come in ascending order.
    pub fn push(&mut self, ino: InodeId, inode: &Inode) {
        let mut word = inode.kind as u64;
        if inode.layout == Layout::Inline {
            let chunk = INLINE_CHUNK_BYTES as u64;
            let chunks = inode.size_bytes.div_ceil(chunk).min(CHUNKS);
            let tail = inode.size_bytes - chunks.saturating_sub(1) * chunk;
            word |= chunks << CHUNKS_SHIFT | tail.min(chunk) << TAIL_SHIFT;
        }
        if inode.large_xattrs > 0 {
            word |= Flag::LargeXattrs as u64;
        }
        if inode.kind == FileKind::Directory {
            let parent = inode.parent.map_or(0, InodeId::get);
            self.parents.push(Parent { index: self.numbers.len() as u32, parent });
        }
        self.numbers.push(ino.get());
        self.words.push(word);
    }

    pub fn find(&self, ino: InodeId) -> Option<Index> {
        self.numbers.binary_search(&ino.get()).ok()
    }

    pub fn ino(&self, index: Index) -> Option<InodeId> {
        self.numbers.get(index).copied().and_then(InodeId::new)
    }

    pub fn last(&self) -> Option<InodeId> {
        self.numbers.last().copied().and_then(InodeId::new)
    }

    fn word(&self, index: Index) -> u64 {
        self.words.get(index).copied().unwrap_or_default()
    }

    pub fn kind(&self, index: Index) -> FileKind {
        FileKind::from_byte((self.word(index) & KIND) as u8).unwrap_or(FileKind::Regular)
    }

    pub fn is_directory(&self, index: Index) -> bool {
        self.kind(index) == FileKind::Directory
    }

    pub fn has(&self, index: Index, flag: Flag) -> bool {
        self.word(index) & flag as u64 != 0
    }

    pub fn set(&mut self, index: Index, flag: Flag) {
        if let Some(word) = self.words.get_mut(index) {
            *word |= flag as u64;
        }
    }

    /// Links of a file, or subdirectories.
    pub fn count(&self, index: Index) -> u32 {
        (self.word(index) >> COUNT_SHIFT) as u32
    }

    pub fn add_one(&mut self, index: Index) {
        if let Some(word) = self.words.get_mut(index) {
            *word = word.saturating_add(1 << COUNT_SHIFT);
        }
    }

    /// How many bytes of inline data chunk `chunk` may hold; 0: it may not exist.
    pub fn inline_bytes(&self, index: Index, chunk: u32) -> usize {
        let word = self.word(index);
        let chunks = word >> CHUNKS_SHIFT & CHUNKS;
        match u64::from(chunk) + 1 {
            n if n < chunks => INLINE_CHUNK_BYTES,
            n if n == chunks => (word >> TAIL_SHIFT & TAIL) as usize,
            _ => 0,
        }
    }

    /// The number that a directory has for its parent.
    pub fn parent(&self, index: Index) -> Option<InodeId> {
        let at = self.parents.binary_search_by_key(&(index as u32), |p| p.index).ok()?;
        InodeId::new(self.parents.get(at)?.parent)
    }

    /// Changes a directory's parent in the table only.
    pub fn set_parent(&mut self, index: Index, parent: InodeId) {
        if let Ok(at) = self.parents.binary_search_by_key(&(index as u32), |p| p.index)
            && let Some(entry) = self.parents.get_mut(at)
        {
            entry.parent = parent.get();
        }
    }

    /// One directory of each cycle of parents, with its parent.
    pub fn cycles(&self) -> Vec<(InodeId, InodeId)> {
        const UNSEEN: u32 = 0;
        let mut walks = vec![UNSEEN; self.parents.len()];
        let mut found = Vec::new();
        for start in 0..self.parents.len() {
            let walk = start as u32 + 1;
            let mut at = start;
            while walks.get(at) == Some(&UNSEEN) {
                walks[at] = walk; // `get` has just found it
                let Some(next) = self.parent_position(at) else { break };
                if next != at && walks.get(next) == Some(&walk) {
                    found.extend(self.named(at));
                    break;
                }
                at = next;
            }
        }
        found
    }

    fn parent_position(&self, at: usize) -> Option<usize> {
        let parent = self.find(InodeId::new(self.parents.get(at)?.parent)?)?;
        self.parents.binary_search_by_key(&(parent as u32), |p| p.index).ok()
    }

    fn named(&self, at: usize) -> Option<(InodeId, InodeId)> {
        let entry = self.parents.get(at)?;
        Some((self.ino(entry.index as Index)?, InodeId::new(entry.parent)?))
    }
}

#[cfg(test)]
mod tests {
    use cofs_types::Timestamp;

    use super::*;

    fn directory(table: &mut Table, ino: u64, parent: u64) {
        let mut inode = Inode::new(FileKind::Directory, 0o755, (0, 0), Timestamp::default());
        inode.parent = InodeId::new(parent);
        table.push(InodeId::new(ino).unwrap(), &inode);
    }

    #[test]
    fn a_cycle_is_found_once() {
        let mut table = Table::default();
        for (ino, parent) in [(1, 1), (2, 1), (3, 5), (4, 3), (5, 4), (6, 5), (7, 2)] {
            directory(&mut table, ino, parent);
        }
        let cycles = table.cycles();
        assert_eq!(cycles.len(), 1);
        assert!([3, 4, 5].contains(&cycles[0].0.get()), "{cycles:?}");
    }

    #[test]
    fn the_last_chunk_ends_with_the_file() {
        let mut table = Table::default();
        let mut inode = Inode::new(FileKind::Regular, 0o644, (0, 0), Timestamp::default());
        inode.size_bytes = 4096 + 10;
        table.push(InodeId::ROOT, &inode);
        inode.size_bytes = 8192;
        table.push(InodeId::new(2).unwrap(), &inode);
        inode.size_bytes = 65536;
        table.push(InodeId::new(3).unwrap(), &inode);
        let bytes = |index, chunk| table.inline_bytes(index, chunk);
        assert_eq!((bytes(0, 0), bytes(0, 1), bytes(0, 2)), (4096, 10, 0));
        assert_eq!((bytes(1, 1), bytes(1, 2)), (4096, 0));
        assert_eq!((bytes(2, 15), bytes(2, 16)), (4096, 0));
    }
}

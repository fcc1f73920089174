//! Keys, made and parsed.

use cofs_engine::KeyShape;
use cofs_types::{FsError, FsResult, InodeId, ObjectId, PartitionId, XattrName};

use self::tag::*;

/// What kind of record a key is of.
pub(super) mod tag {
    pub const ENTRY: u8 = b'E';
    pub const INODE: u8 = b'I';
    pub const INLINE: u8 = b'B';
    pub const XATTR: u8 = b'X';
    pub const SHARD: u8 = b'S';
    pub const WRITING: u8 = b'W';
    pub const UNLINKED: u8 = b'U';
    pub const RECLAIM: u8 = b'R';
    pub const HEADER: u8 = b'H';
}

/// What an engine may know: a key's first bytes are its partition and kind. Inodes and inline data come in the order of their numbers
/// (in several sequences at a time, as each directory has its block of numbers), entries by their hash.
pub const KEY_SHAPE: KeyShape = KeyShape {
    family_bytes: 3,
    number: |key| match key {
        [_, _, INODE | INLINE, number @ ..] => number.first_chunk().map(|number| u64::from_be_bytes(*number)),
        _ => None,
    },
    // The first chunk of inline data goes with all others: see `tables/inline.rs`.
    whole: |key| match key {
        [_, _, INODE, ..] => true,
        [_, _, INLINE, rest @ ..] => rest.get(8..) == Some(&0_u32.to_be_bytes()),
        _ => false,
    },
    // A directory is listed, of all else whole tables are.
    scanned: |key| if let [_, _, ENTRY, ..] = key { 11 } else { 3 },
};

/// The only partition there is so far; the header and the reclaim list stand in it.
const HOME: PartitionId = PartitionId(0);

/// The parts of the header, each a record of its own, so that a guard on the epoch is not broken by the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum HeaderPart {
    /// What was chosen at format; never written again.
    Volume = b'v',
    /// Raised by every open: who holds an older one can no longer commit.
    Epoch = b'e',
    /// The inode number below which all are given out or reserved.
    Inodes = b'i',
    /// Figures as of the last flush, and whether the volume was closed.
    Counts = b'c',
    /// The epoch in which no inode had a security label; see `tables/labels.rs`. Not always there.
    Unlabelled = b'l',
    /// How far the pools' object numbers were given out; see `tables/pool_ends.rs`. Not always there.
    PoolEnds = b'o',
}

impl HeaderPart {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Volume, Self::Epoch, Self::Inodes, Self::Counts, Self::Unlabelled, Self::PoolEnds];
        all.into_iter().find(|part| *part as u8 == byte)
    }
}

/// A key, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key<'a> {
    Entry { dir: InodeId, slot: u64 },
    Inode(InodeId),
    Inline { ino: InodeId, chunk: u32 },
    Xattr { ino: InodeId, name: &'a XattrName },
    Shard { dir: InodeId, shard: u16 },
    Writing(InodeId),
    Unlinked(InodeId),
    Reclaim(ObjectId),
    Header(HeaderPart),
}

/// `<partition> <tag> <number>`: the shape of most keys.
fn numbered(tag: u8, partition: PartitionId, number: u64) -> [u8; 11] {
    let head: [u8; 3] = join(partition.0.to_be_bytes(), [tag]);
    join(head, number.to_be_bytes())
}

fn of_inode(tag: u8, ino: InodeId) -> [u8; 11] {
    numbered(tag, ino.partition(), ino.get())
}

/// Two arrays as one; `C` must be `A + B` long.
fn join<const A: usize, const B: usize, const C: usize>(a: [u8; A], b: [u8; B]) -> [u8; C] {
    const { assert!(A + B == C) };
    let mut out = [0; C];
    out.iter_mut().zip(a.into_iter().chain(b)).for_each(|(to, from)| *to = from);
    out
}

/// The entry in `slot` of `dir`. The slot is the listing's cookie: see [`super::NameHasher`].
pub fn entry(dir: InodeId, slot: u64) -> [u8; 19] {
    join(of_inode(ENTRY, dir), slot.to_be_bytes())
}

pub fn inode(ino: InodeId) -> [u8; 11] {
    of_inode(INODE, ino)
}

/// The `chunk`-th `INLINE_CHUNK_BYTES` of an inline file.
pub fn inline(ino: InodeId, chunk: u32) -> [u8; 15] {
    join(of_inode(INLINE, ino), chunk.to_be_bytes())
}

/// An extended attribute too large for the inode's record.
pub fn xattr(ino: InodeId, name: &XattrName) -> Vec<u8> {
    [&of_inode(XATTR, ino)[..], name.as_bytes()].concat()
}

pub fn shard(dir: InodeId, shard: u16) -> [u8; 13] {
    join(of_inode(SHARD, dir), shard.to_be_bytes())
}

pub fn writing(ino: InodeId) -> [u8; 11] {
    of_inode(WRITING, ino)
}

pub fn unlinked(ino: InodeId) -> [u8; 11] {
    of_inode(UNLINKED, ino)
}

pub fn reclaim(object: ObjectId) -> [u8; 11] {
    numbered(RECLAIM, HOME, object.get())
}

pub fn header(part: HeaderPart) -> [u8; 4] {
    let [high, low] = HOME.0.to_be_bytes();
    [high, low, HEADER, part as u8]
}

impl<'a> Key<'a> {
    /// Errors: `Corrupt` for bytes that are no key of this format.
    pub fn parse(key: &'a [u8]) -> FsResult<Self> {
        Self::parse_parts(key)
            .ok_or_else(|| FsError::corrupt(format!("no key of this format: {}", key.escape_ascii())))
    }

    fn parse_parts(key: &'a [u8]) -> Option<Self> {
        let (partition, rest) = key.split_first_chunk::<2>()?;
        let (tag, rest) = rest.split_first()?;
        if *tag == HEADER {
            let &[part] = rest else { return None };
            return (PartitionId(u16::from_be_bytes(*partition)) == HOME)
                .then_some(Self::Header(HeaderPart::from_byte(part)?));
        }
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(*number);
        if *tag == RECLAIM {
            let at_home = PartitionId(u16::from_be_bytes(*partition)) == HOME;
            return (at_home && rest.is_empty()).then_some(Self::Reclaim(ObjectId::from_raw(number)));
        }
        let ino = InodeId::new(number)?;
        if ino.partition().0.to_be_bytes() != *partition {
            return None;
        }
        let bare = rest.is_empty();
        match *tag {
            ENTRY => Some(Self::Entry { dir: ino, slot: u64::from_be_bytes(rest.try_into().ok()?) }),
            INODE => bare.then_some(Self::Inode(ino)),
            INLINE => Some(Self::Inline { ino, chunk: u32::from_be_bytes(rest.try_into().ok()?) }),
            XATTR => Some(Self::Xattr { ino, name: XattrName::new(rest).ok()? }),
            SHARD => Some(Self::Shard { dir: ino, shard: u16::from_be_bytes(rest.try_into().ok()?) }),
            WRITING => bare.then_some(Self::Writing(ino)),
            UNLINKED => bare.then_some(Self::Unlinked(ino)),
            _ => None,
        }
    }
}

/// Keys from `start` to below `end`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

impl Range {
    /// All keys that begin with `prefix`.
    fn of_prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        Self { start: prefix.to_vec(), end }
    }

    fn starting(mut self, start: Vec<u8>) -> Self {
        self.start = start;
        self
    }

    /// Leaves out all keys up to and with `key`.
    #[must_use]
    pub fn behind(self, key: &[u8]) -> Self {
        let mut start = key.to_vec();
        start.push(0);
        self.starting(start)
    }
}

/// What is scanned.
#[allow(dead_code)] // whole tables are for `check` and `dump`
pub mod ranges {
    use super::*;

    fn tag(tag: u8) -> Range {
        let [high, low] = HOME.0.to_be_bytes();
        Range::of_prefix(&[high, low, tag])
    }

    /// The entries of `dir` from `slot` on.
    pub fn entries(dir: InodeId, slot: u64) -> Range {
        Range::of_prefix(&of_inode(ENTRY, dir)).starting(entry(dir, slot).to_vec())
    }

    pub fn all_entries() -> Range {
        tag(ENTRY)
    }

    pub fn inodes() -> Range {
        tag(INODE)
    }

    /// The inline chunks of all files.
    pub fn inlines() -> Range {
        tag(INLINE)
    }

    /// The inline chunks of one file.
    pub fn inline(ino: InodeId) -> Range {
        Range::of_prefix(&of_inode(INLINE, ino))
    }

    /// The large extended attributes of one inode.
    pub fn xattrs(ino: InodeId) -> Range {
        Range::of_prefix(&of_inode(XATTR, ino))
    }

    pub fn all_xattrs() -> Range {
        tag(XATTR)
    }

    pub fn shards() -> Range {
        tag(SHARD)
    }

    pub fn writing(after: Option<InodeId>) -> Range {
        let all = tag(WRITING);
        after.map_or(all.clone(), |ino| all.behind(&super::writing(ino)))
    }

    pub fn unlinked(after: Option<InodeId>) -> Range {
        let all = tag(UNLINKED);
        after.map_or(all.clone(), |ino| all.behind(&super::unlinked(ino)))
    }

    pub fn reclaim() -> Range {
        tag(RECLAIM)
    }

    /// Everything that any format of cofs ever wrote.
    pub fn everything() -> Range {
        Range { start: Vec::new(), end: vec![u8::MAX; 4] }
    }
}

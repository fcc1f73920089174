//! The key codec and the value codec: the only place that makes or reads a key or a stored value.
//!
//! Keys are `<partition> <tag> ...` with big-endian numbers, so that byte order is the order of a listing.
//! Values begin with a version byte. Every decoder is total: any bytes give a value or
//! [`FsError::Corrupt`](cofs_types::FsError::Corrupt), and nothing is allocated beyond the bytes at hand.
//! `docs/design/format.md` describes both; a test ties that page to this code.

mod entry;
mod header;
mod inode;
mod keys;
mod marks;
mod newer;
mod packed;
mod shard;
mod wire;
mod xattrs;

pub use entry::{EntryRecord, NameHasher, Occupant};
pub use header::{Counts, Volume, decode_number, decode_pool_ends, encode_number, encode_pool_ends};
pub use inode::Inode;
pub use keys::{HeaderPart, KEY_SHAPE, Key, Range, ranges};
pub use marks::{CHUNK_HEADER_BYTES, MARK, Writing, decode_chunk, encode_chunk, encode_chunk_into};
pub use newer::newer_version;
pub use shard::{Shard, Times};
pub use xattrs::SmallXattrs;

/// The keys' makers, under one word: `keys::inode(ino)`.
pub mod key {
    pub use super::keys::{entry, header, inline, inode, reclaim, shard, unlinked, writing, xattr};
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

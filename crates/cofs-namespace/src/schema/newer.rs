//! Records of a version that this code does not know.
//!
//! They are whole: a newer cofs wrote them, and reads them. Nobody may take one for damage.

use super::{HeaderPart, entry, header, inode, keys::tag, marks, shard};

/// The version of a record that a newer cofs has written. `None` also for a kind of record that is not known.
pub fn newer_version(key: &[u8], value: &[u8]) -> Option<u8> {
    let known = match key {
        [_, _, tag::ENTRY, ..] => entry::VERSION,
        [_, _, tag::INODE, ..] => inode::VERSION,
        [_, _, tag::SHARD, ..] => shard::VERSION,
        [_, _, tag::WRITING, ..] => marks::CLOSED_VERSION,
        [_, _, tag::INLINE | tag::XATTR | tag::UNLINKED | tag::RECLAIM, ..] => marks::VERSION,
        // It has a version of its own, by which the volume is refused.
        [_, _, tag::HEADER, part] if *part == HeaderPart::Volume as u8 => return None,
        [_, _, tag::HEADER, part] if HeaderPart::from_byte(*part).is_some() => header::VERSION,
        _ => return None,
    };
    value.first().copied().filter(|version| *version > known)
}

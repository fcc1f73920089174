//! Directory entries: the record, and the slot where a name stands.
//!
//! A name's home slot is its hash cut to what a listing's cookie can hold. Two names of one directory with
//! the same home are told apart by open addressing: the second goes to the next slot, and the first then says
//! that the chain goes on. What is removed from within a chain leaves a vacant record. So a slot is one entry's
//! own as long as it stands, and serves as its cookie. With a keyed 63-bit hash, chains practically never
//! come up: they cost nothing until then.

use std::hash::Hasher;

use cofs_types::{FileKind, FsResult, InodeId, Name, limits};
use siphasher::sip::SipHasher13;

use super::wire::{Reader, put_number};

pub(super) const VERSION: u8 = 1;
const CONTINUES: u8 = 1;
const VACANT: u8 = 2;

/// The lowest cookie an entry can have: 0 is the start, 1 and 2 are `.` and `..`.
const SLOT_MIN: u64 = 3;
/// Cookies stay below 2^63, with room for a chain behind the last home.
const SLOT_MAX: u64 = i64::MAX as u64 - limits::ENTRY_CHAIN_MAX;

/// Finds a name's home slot.
#[derive(Clone, Copy)]
pub struct NameHasher {
    key: [u8; 16],
    hash: fn(&[u8; 16], &[u8]) -> u64,
}

impl NameHasher {
    /// SipHash-1-3 under the volume's key, so that nobody can make names that collide.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, hash: siphash }
    }

    /// A hash of the test's choice.
    #[cfg(test)]
    pub fn weak(hash: fn(&[u8; 16], &[u8]) -> u64) -> Self {
        Self { key: [0; 16], hash }
    }

    pub fn home(&self, name: &Name) -> u64 {
        ((self.hash)(&self.key, name.as_bytes()) >> 1).clamp(SLOT_MIN, SLOT_MAX)
    }
}

fn siphash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(bytes);
    hasher.finish()
}

/// Who stands in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupant<'a> {
    pub name: &'a Name,
    pub ino: InodeId,
    pub kind: FileKind,
}

/// What stands in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRecord<'a> {
    /// `None`: removed from within a chain.
    pub occupant: Option<Occupant<'a>>,
    /// Names with this home, or an earlier one, may stand in the next slot.
    pub continues: bool,
}

impl<'a> EntryRecord<'a> {
    pub fn decode(value: &'a [u8]) -> FsResult<Self> {
        let mut reader = Reader::versioned(value, VERSION, "directory entry")?;
        let flags = reader.byte()?;
        let continues = flags & CONTINUES != 0;
        if flags & !(CONTINUES | VACANT) != 0 {
            return Err(reader.corrupt());
        }
        if flags & VACANT != 0 {
            reader.end()?;
            return Ok(Self { occupant: None, continues });
        }
        let kind = FileKind::from_byte(reader.byte()?).ok_or_else(|| reader.corrupt())?;
        let ino = reader.ino()?;
        let name = Name::new(reader.rest()).map_err(|_| reader.corrupt())?;
        Ok(Self { occupant: Some(Occupant { name, ino, kind }), continues })
    }

    pub fn encode(&self) -> Vec<u8> {
        let continues = if self.continues { CONTINUES } else { 0 };
        let Some(occupant) = &self.occupant else { return vec![VERSION, continues | VACANT] };
        let mut out = Vec::with_capacity(13 + occupant.name.as_bytes().len());
        out.extend([VERSION, continues, occupant.kind as u8]);
        put_number(&mut out, occupant.ino.get());
        out.extend_from_slice(occupant.name.as_bytes());
        out
    }
}

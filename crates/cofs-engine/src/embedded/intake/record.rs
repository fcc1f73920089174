//! The journal's records: one commit each, or several that waited for one call, with a checksum that knows its place.
//!
//! ```text
//! len u32 | crc32c u32 | payload of len bytes       all integers little-endian
//! payload: changes of  0 | key len u32 | key                              (delete)
//!                      1 | key len u32 | value len u32 | key | value      (put)
//! ```
//!
//! A length of 0 is the end of a segment that another follows. The checksum covers the payload, the segment's
//! generation and the record's index, so that what an earlier use of the file left is never taken for a record; and the
//! segment's salt, so that nobody can have had bytes stored in the file that are (a small file's bytes stand here as they are).

use std::cell::Cell;

use smallvec::SmallVec;

use crate::{Bytes, Change, Key};

/// A change as it is kept: `None` is a deletion.
pub(super) type Logged = (Key, Option<Bytes>);

pub(super) const HEADER_BYTES: usize = 8;
const DELETE: u8 = 0;
const PUT: u8 = 1;

/// Where a record stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) generation: u64,
    /// Records before it in its segment.
    pub(super) index: u64,
    /// The segment's; none before version 3 of the store.
    pub(super) salt: Option<u64>,
}

/// Values from this size on are not copied on their way to the file.
const LARGE_BYTES: usize = 1 << 10;

/// A record in the making. Its memory is its thread's, for the next one.
pub(super) struct Record<'a> {
    /// All but the large values.
    bytes: Vec<u8>,
    /// The large values, each with the bytes before it.
    large: SmallVec<[(usize, &'a [u8]); 2]>,
    len: usize,
    payload_crc: u32,
}

/// More is not kept for the next record.
const SPARE_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<'a> Record<'a> {
    /// Bytes of the record that ends a segment.
    pub(super) const END_BYTES: u64 = HEADER_BYTES as u64;

    /// The record of `changes`. Errors: `None` beyond 4 GiB.
    pub(super) fn of(changes: &'a [Change]) -> Option<Self> {
        let mut bytes = SPARE.take();
        bytes.reserve(HEADER_BYTES + changes.iter().map(copied_bytes).sum::<usize>());
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        let mut record = Self { bytes, large: SmallVec::new(), len: 0, payload_crc: 0 };
        for change in changes {
            match change {
                Change::Delete { key } => {
                    record.bytes.push(DELETE);
                    record.bytes.extend_from_slice(&len(key.len())?);
                    record.bytes.extend_from_slice(key);
                }
                Change::Put { key, value, .. } => {
                    record.bytes.push(PUT);
                    record.bytes.extend_from_slice(&len(key.len())?);
                    record.bytes.extend_from_slice(&len(value.len())?);
                    record.bytes.extend_from_slice(key);
                    if value.len() < LARGE_BYTES {
                        record.bytes.extend_from_slice(value);
                    } else {
                        record.large.push((record.bytes.len(), value));
                    }
                }
            }
        }
        record.len = record.bytes.len() + record.large.iter().map(|(_, value)| value.len()).sum::<usize>();
        let mut crc = 0;
        record.each_piece(HEADER_BYTES, |piece| crc = crc32c::crc32c_append(crc, piece));
        record.payload_crc = crc;
        let payload_len = len(record.len - HEADER_BYTES)?;
        record.bytes[..4].copy_from_slice(&payload_len);
        Some(record)
    }

    /// The record that ends a segment.
    pub(super) fn end() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], large: SmallVec::new(), len: HEADER_BYTES, payload_crc: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Shows the bytes to be written at `place`, one piece behind the other.
    pub(super) fn at(&mut self, place: Place, see: impl FnMut(&[u8])) {
        let crc = checksum(self.payload_crc, place);
        self.bytes[4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.each_piece(0, see);
    }

    fn each_piece(&self, start: usize, mut see: impl FnMut(&[u8])) {
        let mut from = start;
        for (at, value) in &self.large {
            see(&self.bytes[from..*at]);
            see(value);
            from = *at;
        }
        see(&self.bytes[from..]);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            // A thread that ends has none any more.
            let _ = SPARE.try_with(|spare| spare.set(bytes));
        }
    }
}

/// All of a change but a large value.
fn copied_bytes(change: &Change) -> usize {
    match change {
        Change::Delete { key } => 5 + key.len(),
        Change::Put { key, value, .. } if value.len() < LARGE_BYTES => 9 + key.len() + value.len(),
        Change::Put { key, .. } => 9 + key.len(),
    }
}

fn len(bytes: usize) -> Option<[u8; 4]> {
    Some(u32::try_from(bytes).ok()?.to_le_bytes())
}

/// Aligned, or they would be summed byte by byte.
#[repr(align(8))]
struct Words([u8; 24]);

fn checksum(payload_crc: u32, place: Place) -> u32 {
    let mut bytes = Words([0; 24]);
    bytes.0[..8].copy_from_slice(&place.generation.to_le_bytes());
    bytes.0[8..16].copy_from_slice(&place.index.to_le_bytes());
    bytes.0[16..].copy_from_slice(&place.salt.unwrap_or_default().to_le_bytes());
    let len = if place.salt.is_some() { 24 } else { 16 };
    crc32c::crc32c_append(payload_crc, &bytes.0[..len])
}

/// What a record says of itself, before it is read.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    payload_len: u32,
    crc: u32,
}

impl Claim {
    /// Of the record at the beginning of `bytes`, if they are enough for that.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (payload_len, rest) = take_u32(bytes)?;
        take_u32(rest).map(|(crc, _)| Self { payload_len, crc })
    }

    /// Bytes of the record.
    pub(super) fn len(self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.payload_len)
    }

    /// Whether a payload of this checksum is what was written for `place`.
    pub(super) fn is_of(self, payload_crc: u32, place: Place) -> bool {
        self.crc == checksum(payload_crc, place)
    }
}

/// What stands at a place of a segment.
pub(super) enum Found {
    /// A commit, and the bytes behind it.
    Commit(Vec<Logged>, usize),
    End,
    /// Nothing that was written whole for this place.
    Nothing,
}

/// Reads the record at the beginning of `bytes`. Total: it allocates no more than `bytes` holds.
pub(super) fn read(bytes: &[u8], place: Place) -> Found {
    let Some(claim) = Claim::of(bytes) else { return Found::Nothing };
    let Some(payload) = bytes[HEADER_BYTES..].get(..claim.payload_len as usize) else {
        return Found::Nothing;
    };
    if !claim.is_of(if payload.is_empty() { 0 } else { crc32c::crc32c(payload) }, place) {
        return Found::Nothing;
    }
    if payload.is_empty() {
        return Found::End;
    }
    changes(payload).map_or(Found::Nothing, |changes| Found::Commit(changes, HEADER_BYTES + payload.len()))
}

fn changes(mut payload: &[u8]) -> Option<Vec<Logged>> {
    let mut changes = Vec::new();
    while let Some((tag, rest)) = payload.split_first() {
        let (key_len, rest) = take_u32(rest)?;
        let (value_len, rest) = match *tag {
            DELETE => (None, rest),
            PUT => take_u32(rest).map(|(len, rest)| (Some(len), rest))?,
            _ => return None,
        };
        let (key, rest) = rest.split_at_checked(key_len as usize)?;
        let (value, rest) = rest.split_at_checked(value_len.unwrap_or(0) as usize)?;
        changes.push((Key::from_slice(key), value_len.map(|_| Bytes::copy_from_slice(value))));
        payload = rest;
    }
    Some(changes)
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { generation: 7, index: 3, salt: Some(9) };

    fn batch() -> Vec<Change> {
        let large = vec![5; LARGE_BYTES];
        let small =
            [Change::put(b"key", &b"value"[..]), Change::delete([9; 40]), Change::put([], Bytes::new())];
        [&[Change::put(b"large", large.clone())], &small[..], &[Change::put(b"last", large)]].concat()
    }

    fn bytes_at(record: &mut Record<'_>, place: Place) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.at(place, |piece| bytes.extend_from_slice(piece));
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_at_its_own_place_only() {
        let batch = batch();
        let mut record = Record::of(&batch).unwrap();
        let mut bytes = bytes_at(&mut record, PLACE);
        bytes.extend(b"more");
        let Found::Commit(changes, len) = read(&bytes, PLACE) else { panic!() };
        assert_eq!(len as u64, record.len());
        let large = Some(Bytes::from(vec![5; LARGE_BYTES]));
        assert_eq!(changes[0], (Key::from_slice(b"large"), large.clone()));
        assert_eq!(changes[1], (Key::from_slice(b"key"), Some(Bytes::from_static(b"value"))));
        assert_eq!(changes[2], (Key::from_vec(vec![9; 40]), None));
        assert_eq!(changes[3], (Key::new(), Some(Bytes::new())));
        assert_eq!(changes[4], (Key::from_slice(b"last"), large));
        assert_eq!(changes.len(), 5);
        let others = [
            Place { index: 4, ..PLACE },
            Place { generation: 8, ..PLACE },
            Place { salt: Some(8), ..PLACE },
            Place { salt: None, ..PLACE },
        ];
        for other in others {
            assert!(matches!(read(&bytes, other), Found::Nothing));
        }
        assert!(matches!(read(&bytes_at(&mut Record::end(), PLACE), PLACE), Found::End));
    }

    #[test]
    fn a_damaged_or_cut_record_is_none() {
        let batch = batch();
        let bytes = bytes_at(&mut Record::of(&batch).unwrap(), PLACE);
        for cut in 0..bytes.len() {
            assert!(matches!(read(&bytes[..cut], PLACE), Found::Nothing), "{cut}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[cut] ^= 1 << bit;
                assert!(matches!(read(&damaged, PLACE), Found::Nothing), "{cut}.{bit}");
            }
        }
        assert!(matches!(read(&[0; 64], PLACE), Found::Nothing), "zeros are no end");
    }
}

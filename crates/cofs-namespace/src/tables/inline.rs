//! Inline data: a small file's bytes, in records of `INLINE_CHUNK_BYTES`.
//!
//! All records of a file are covered by its inode. A record may be shorter than its chunk, and may be missing:
//! what is not there reads as zeros. Nothing stands beyond the file's end. Whoever removes the first record removes all: the
//! engine is told so (`KEY_SHAPE`), and takes what else has its number for removed.

use std::ops::Range;

use cofs_engine::Change;
use cofs_types::{FsResult, InodeId, limits::INLINE_CHUNK_BYTES};
use smallvec::SmallVec;

use super::spare::chunk_value;
use crate::{
    schema::{decode_chunk, key},
    tx::Tx,
};

const CHUNK: u64 = INLINE_CHUNK_BYTES as u64;

/// When that much is read nothing is kept of it in the engine's memory: the kernel, which asks for it, keeps it. What is smaller
/// shares a block of the engine with others, which may be read next.
const SHOWN_BYTES_MIN: usize = 1 << 10;

/// A part of one chunk: its number, and bytes within it.
struct Piece {
    chunk: u32,
    within: Range<usize>,
}

/// The chunks that `range` touches.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Piece> {
    let chunks_end = if range.is_empty() { 0 } else { range.end.div_ceil(CHUNK) };
    (range.start / CHUNK..chunks_end).map(move |chunk| {
        let base = chunk * CHUNK;
        let start = range.start.saturating_sub(base);
        let end = (range.end - base).min(CHUNK);
        Piece { chunk: chunk as u32, within: start as usize..end as usize } // inline files are small
    })
}

/// A chunk's bytes, without the zeros at its end that are not stored.
fn chunk(tx: &Tx<'_>, ino: InodeId, chunk: u32) -> FsResult<Vec<u8>> {
    let value = tx.get_covered(&key::inline(ino, chunk))?;
    Ok(value.as_deref().map_or(Ok(&[][..]), stored)?.to_vec())
}

fn stored(value: &[u8]) -> FsResult<&[u8]> {
    decode_chunk(value, INLINE_CHUNK_BYTES)
}

/// Fills `into` with the bytes from `offset` on, all of which lie within the file.
pub fn read(tx: &Tx<'_>, ino: InodeId, offset: u64, into: &mut [u8]) -> FsResult<()> {
    let pieces: SmallVec<[Piece; 4]> = pieces(offset..offset + into.len() as u64).collect();
    let keys: SmallVec<[_; 4]> = pieces.iter().map(|piece| key::inline(ino, piece.chunk)).collect();
    if let (&[Piece { within: Range { start, .. }, .. }], [key]) = (&pieces[..], &keys[..])
        && into.len() < SHOWN_BYTES_MIN
    {
        return copy(tx.get_covered(key)?.as_deref(), start, into);
    }
    let mut parts: SmallVec<[_; 4]> = SmallVec::new();
    let mut rest = into;
    for piece in pieces {
        let (to, behind) = rest.split_at_mut(piece.within.len());
        parts.push((piece.within.start, to));
        rest = behind;
    }
    let keys: SmallVec<[&[u8]; 4]> = keys.iter().map(|key| &key[..]).collect();
    let mut copied = Ok(());
    tx.show_covered(&keys, &mut |at, value| {
        let (start, to) = &mut parts[at];
        if copied.is_ok() {
            copied = copy(value, *start, to);
        }
    })?;
    copied
}

/// Fills `to` with what stands from `start` on in a chunk, and zeros behind it.
fn copy(value: Option<&[u8]>, start: usize, to: &mut [u8]) -> FsResult<()> {
    let bytes = value.map_or(Ok(&[][..]), stored)?;
    let bytes = bytes.get(start..).unwrap_or_default();
    let (data, zeros) = to.split_at_mut(bytes.len().min(to.len()));
    data.copy_from_slice(&bytes[..data.len()]); // `data` is no longer than `bytes`
    zeros.fill(0);
    Ok(())
}

/// Puts `data` at `offset`. `size_bytes`: the file's size before, beyond which nothing stands.
pub fn write(tx: &mut Tx<'_>, ino: InodeId, offset: u64, data: &[u8], size_bytes: u64) -> FsResult<()> {
    let mut rest = data;
    for piece in pieces(offset..offset + data.len() as u64) {
        let (from, behind) = rest.split_at(piece.within.len());
        rest = behind;
        let base = u64::from(piece.chunk) * CHUNK;
        let covers_all = piece.within.start == 0 && base + piece.within.end as u64 >= size_bytes;
        let key = key::inline(ino, piece.chunk);
        let new = base >= size_bytes;
        let change = if new { Tx::insert_covered } else { Tx::put_covered };
        if covers_all || from.len() == INLINE_CHUNK_BYTES {
            change(tx, &key, chunk_value(from));
            continue;
        }
        let mut bytes = if new { Vec::new() } else { chunk(tx, ino, piece.chunk)? };
        if bytes.len() < piece.within.end {
            bytes.resize(piece.within.end, 0);
        }
        if let Some(to) = bytes.get_mut(piece.within) {
            to.copy_from_slice(from);
        }
        change(tx, &key, chunk_value(&bytes));
    }
    Ok(())
}

/// Lets `range` read as zeros.
pub fn zero(tx: &mut Tx<'_>, ino: InodeId, range: Range<u64>) -> FsResult<()> {
    for piece in pieces(range) {
        let key = key::inline(ino, piece.chunk);
        let mut bytes = chunk(tx, ino, piece.chunk)?;
        if piece.within.start >= bytes.len() {
            continue;
        }
        if piece.within.start == 0 && piece.within.end >= bytes.len() && piece.chunk > 0 {
            tx.delete_covered(&key);
            continue;
        }
        if piece.within.end >= bytes.len() {
            bytes.truncate(piece.within.start);
        } else if let Some(within) = bytes.get_mut(piece.within) {
            within.fill(0);
        }
        tx.put_covered(&key, chunk_value(&bytes));
    }
    Ok(())
}

/// Takes away everything from `size_bytes` on; `before`: the file's size so far.
pub fn cut(tx: &mut Tx<'_>, ino: InodeId, size_bytes: u64, before: u64) -> FsResult<()> {
    if size_bytes > 0 {
        return zero(tx, ino, size_bytes..before.max(size_bytes));
    }
    chunks(ino, before).for_each(|key| tx.delete_covered(&key));
    Ok(())
}

/// The removal of all chunks of a file of `size_bytes`.
pub fn removal(ino: InodeId, size_bytes: u64) -> impl Iterator<Item = Change> {
    chunks(ino, size_bytes).map(Change::delete)
}

/// The keys of all chunks of a file of `size_bytes`.
fn chunks(ino: InodeId, size_bytes: u64) -> impl Iterator<Item = [u8; 15]> {
    (0..size_bytes.div_ceil(CHUNK)).map(move |chunk| key::inline(ino, chunk as u32)) // inline files are small
}

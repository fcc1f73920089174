//! Records that say something by standing there (`W`, `U`, `R`), and those that hold plain bytes (`B`, `X`).

use cofs_types::{FsError, FsResult};

use crate::Unsynced;

pub(super) const VERSION: u8 = 1;

/// The value of a record in a set.
pub const MARK: &[u8] = &[VERSION];

/// Of the value of a record in `W` whose file is closed.
pub(super) const CLOSED_VERSION: u8 = 2;

/// What a record in `W` says of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writing {
    /// It may be written: size and times stand in its object.
    Open,
    /// It was closed and its record has size and times; what its object has may not be on stable storage.
    Closed(Unsynced),
}

impl Writing {
    pub fn encode(self) -> Vec<u8> {
        let Self::Closed(Unsynced { second, run }) = self else { return MARK.to_vec() };
        [&[CLOSED_VERSION][..], &second.to_be_bytes(), &run.to_be_bytes()].concat()
    }

    pub fn decode(value: &[u8]) -> FsResult<Self> {
        let closed = || {
            let (second, run) = value.strip_prefix(&[CLOSED_VERSION])?.split_first_chunk()?;
            let (second, run) = (u32::from_be_bytes(*second), u64::from_be_bytes(run.try_into().ok()?));
            Some(Self::Closed(Unsynced { second, run }))
        };
        if value == MARK { Some(Self::Open) } else { closed() }
            .ok_or_else(|| FsError::corrupt("mark of a file open for writing"))
    }
}

/// Of a chunk's value, before its bytes: the version.
pub const CHUNK_HEADER_BYTES: usize = 1;

/// Bytes as a value: a chunk of inline data (at most `INLINE_CHUNK_BYTES`; what it lacks to a full chunk
/// reads as zeros) or the value of an extended attribute.
pub fn encode_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHUNK_HEADER_BYTES + bytes.len());
    encode_chunk_into(&mut out, bytes);
    out
}

/// The same, behind what is in `out`.
pub fn encode_chunk_into(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(VERSION);
    out.extend_from_slice(bytes);
}

/// `bytes_max`: more than this cannot be right.
pub fn decode_chunk(value: &[u8], bytes_max: usize) -> FsResult<&[u8]> {
    match value.split_first() {
        Some((&VERSION, bytes)) if bytes.len() <= bytes_max => Ok(bytes),
        _ => Err(FsError::corrupt("inline data or large extended attribute")),
    }
}

//! Records that say something by standing there (`W`, `U`, `R`), and those that hold plain bytes (`B`, `X`).

use cofs_types::{FsError, FsResult};

pub(super) const VERSION: u8 = 1;

/// The value of a record in a set.
pub const MARK: &[u8] = &[VERSION];

/// Bytes as a value: a chunk of inline data (at most `INLINE_CHUNK_BYTES`; what it lacks to a full chunk
/// reads as zeros) or the value of an extended attribute.
pub fn encode_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bytes.len());
    out.push(VERSION);
    out.extend_from_slice(bytes);
    out
}

/// `bytes_max`: more than this cannot be right.
pub fn decode_chunk(value: &[u8], bytes_max: usize) -> FsResult<&[u8]> {
    match value.split_first() {
        Some((&VERSION, bytes)) if bytes.len() <= bytes_max => Ok(bytes),
        _ => Err(FsError::corrupt("inline data or large extended attribute")),
    }
}

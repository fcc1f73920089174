//! The header's records.

use cofs_types::{FsError, FsResult, ObjectId, PoolEnd, PoolId, limits};

use super::wire::{Reader, put_number};
use crate::VolumeOptions;

pub(super) const VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"cofs";
const CLEAN: u8 = 1;
const EXACT: u8 = 2;

/// The format this code writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// What was chosen at format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    pub options: VolumeOptions,
}

impl Volume {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_number(&mut out, u64::from(FORMAT_VERSION));
        put_number(&mut out, u64::from(self.options.inline_bytes_max));
        out.extend_from_slice(&self.options.hash_key);
        out
    }

    /// Errors: `Engine` for a newer format (whatever follows is not looked at), `Corrupt`.
    pub fn decode(value: &[u8]) -> FsResult<Self> {
        let Some(rest) = value.strip_prefix(MAGIC) else {
            return Err(FsError::corrupt("header: not the metadata of a cofs volume"));
        };
        let mut reader = Reader::unversioned(rest, "header");
        let format = reader.number_u32()?;
        if format > FORMAT_VERSION {
            return Err(FsError::Engine(
                format!(
                    "the volume has format version {format}, this cofs knows up to {FORMAT_VERSION}: \
                     use a newer cofs"
                )
                .into(),
            ));
        }
        let inline_bytes_max = reader.number_u32()?;
        let hash_key = reader.array()?;
        if format == 0 || inline_bytes_max > limits::INLINE_BYTES_LIMIT {
            return Err(reader.corrupt());
        }
        reader.end()?;
        Ok(Self { options: VolumeOptions { inline_bytes_max, hash_key } })
    }
}

/// Figures as of the last flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Inodes in the volume. May lag by the last second before a crash.
    pub files: u64,
    /// Closed in order, and not opened since.
    pub clean: bool,
    /// No crash has come between the figure and the truth: it is right whenever the volume is closed.
    pub exact: bool,
}

impl Counts {
    pub fn encode(&self) -> Vec<u8> {
        let flag = |set, flag| if set { flag } else { 0 };
        let mut out = vec![VERSION, flag(self.clean, CLEAN) | flag(self.exact, EXACT)];
        put_number(&mut out, self.files);
        out
    }

    pub fn decode(value: &[u8]) -> FsResult<Self> {
        let mut reader = Reader::versioned(value, VERSION, "header counts")?;
        let flags = reader.byte()?;
        let files = reader.number()?;
        if flags & !(CLEAN | EXACT) != 0 {
            return Err(reader.corrupt());
        }
        reader.end()?;
        Ok(Self { files, clean: flags & CLEAN != 0, exact: flags & EXACT != 0 })
    }
}

/// The epoch, or the number of the first inode that is not reserved.
pub fn encode_number(number: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_number(&mut out, number);
    out
}

pub fn decode_number(value: &[u8]) -> FsResult<u64> {
    let mut reader = Reader::versioned(value, VERSION, "header number")?;
    let number = reader.number()?;
    reader.end()?;
    Ok(number)
}

/// How far each pool's numbers were given out. `ends` ascend by pool.
pub fn encode_pool_ends(ends: &[PoolEnd]) -> Vec<u8> {
    let mut out = vec![VERSION];
    for PoolEnd { pool, end, generation } in ends {
        [pool.0.into(), *end, *generation].into_iter().for_each(|number| put_number(&mut out, number));
    }
    out
}

pub fn decode_pool_ends(value: &[u8]) -> FsResult<Vec<PoolEnd>> {
    let mut reader = Reader::versioned(value, VERSION, "header pool ends")?;
    let mut ends: Vec<PoolEnd> = Vec::new();
    while !reader.is_empty() {
        let pool = u16::try_from(reader.number()?).map(PoolId).map_err(|_| reader.corrupt())?;
        let (end, generation) = (reader.number()?, reader.number()?);
        let ascends = ends.last().is_none_or(|last| last.pool < pool);
        if !ascends || ObjectId::from_parts(pool, end).is_none() {
            return Err(reader.corrupt());
        }
        ends.push(PoolEnd { pool, end, generation });
    }
    Ok(ends)
}

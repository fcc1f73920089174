//! What a directory gathers apart from its inode: subdirectories and its own times.

use cofs_types::{FsResult, Timestamp};

use super::wire::{Reader, put_number, put_time};

pub(super) const VERSION: u8 = 1;
const HAS_TIMES: u8 = 1;

/// A directory's times of change, where they are later than its inode's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Times {
    pub fn both(now: Timestamp) -> Self {
        Self { mtime: now, ctime: now }
    }

    /// The later of each.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        Self { mtime: self.mtime.max(other.mtime), ctime: self.ctime.max(other.ctime) }
    }
}

/// The record of a directory (of one shard of it). A directory without one has no subdirectory, and the times
/// of its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shard {
    pub subdirectories: u32,
    /// Where they stand they win over the inode's.
    pub times: Option<Times>,
}

impl Shard {
    pub fn decode(value: &[u8]) -> FsResult<Self> {
        let mut reader = Reader::versioned(value, VERSION, "directory shard")?;
        let flags = reader.byte()?;
        if flags & !HAS_TIMES != 0 {
            return Err(reader.corrupt());
        }
        let subdirectories = reader.number_u32()?;
        let times = match flags & HAS_TIMES {
            0 => None,
            _ => Some(Times { mtime: reader.time()?, ctime: reader.time()? }),
        };
        reader.end()?;
        Ok(Self { subdirectories, times })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.times.is_some())];
        put_number(&mut out, u64::from(self.subdirectories));
        if let Some(times) = &self.times {
            put_time(&mut out, times.mtime);
            put_time(&mut out, times.ctime);
        }
        out
    }
}

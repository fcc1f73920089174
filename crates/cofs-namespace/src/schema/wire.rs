//! Bytes to numbers and back: LEB128 for unsigned numbers, zigzag for signed ones. Reading is total.

use cofs_types::{FsError, FsResult, InodeId, Timestamp};

use super::packed::{self, CONTINUES, Front};

/// What is left of a record, read from its front. `None`: what is there is nothing of the kind.
///
/// For records that are read often: an error is too large to be handed from one to the next, a `None` is not.
pub struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// An unsigned LEB128 number in its shortest form.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        if let [byte @ ..CONTINUES, rest @ ..] = self.0 {
            self.0 = rest;
            return Some(u64::from(*byte));
        }
        let (number, len) = packed::first(self.0)?;
        self.0 = self.0.get(len..)?;
        Some(number)
    }

    #[inline]
    pub fn number_u32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    #[inline]
    pub fn ino(&mut self) -> Option<InodeId> {
        InodeId::new(self.number()?)
    }

    pub fn time(&mut self) -> Option<Timestamp> {
        let zigzag = self.number()?;
        let secs = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Timestamp::new(secs, self.number_u32()?)
    }
}

/// Reads a record from its front. `what` names the record in the error.
pub struct Reader<'a> {
    rest: Rest<'a>,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader behind the version byte, which must be `version`.
    pub fn versioned(bytes: &'a [u8], version: u8, what: &'static str) -> FsResult<Self> {
        let mut reader = Self::unversioned(bytes, what);
        let found = reader.byte()?;
        if found != version {
            return Err(FsError::corrupt(format!("{what}: record version {found}, known is {version}")));
        }
        Ok(reader)
    }

    pub fn unversioned(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: Rest(bytes), what }
    }

    pub fn corrupt(&self) -> FsError {
        FsError::corrupt(self.what)
    }

    /// What `read` reads. Errors: `Corrupt` where that is `None`.
    #[inline]
    pub fn read<T>(&mut self, read: impl FnOnce(&mut Rest<'a>) -> Option<T>) -> FsResult<T> {
        read(&mut self.rest).ok_or_else(|| self.corrupt())
    }

    pub fn byte(&mut self) -> FsResult<u8> {
        self.read(Rest::byte)
    }

    pub fn bytes(&mut self, len: usize) -> FsResult<&'a [u8]> {
        self.read(|rest| rest.bytes(len))
    }

    pub fn array<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        self.read(|rest| rest.bytes(N)?.try_into().ok())
    }

    /// An unsigned LEB128 number in its shortest form.
    pub fn number(&mut self) -> FsResult<u64> {
        self.read(Rest::number)
    }

    pub fn number_u32(&mut self) -> FsResult<u32> {
        self.read(Rest::number_u32)
    }

    pub fn ino(&mut self) -> FsResult<InodeId> {
        self.read(Rest::ino)
    }

    pub fn time(&mut self) -> FsResult<Timestamp> {
        self.read(Rest::time)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.0.is_empty()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest.0)
    }

    /// Nothing may be left.
    pub fn end(self) -> FsResult<()> {
        if self.is_empty() { Ok(()) } else { Err(self.corrupt()) }
    }
}

#[inline]
pub fn put_number(out: &mut Vec<u8>, value: u64) {
    if value < u64::from(CONTINUES) {
        out.push(value as u8);
    } else {
        packed::put(out, value);
    }
}

/// Zigzag.
fn seconds(time: Timestamp) -> u64 {
    (time.secs << 1 ^ time.secs >> 63) as u64
}

pub fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    put_number(out, seconds(time));
    put_number(out, u64::from(time.nanos));
}

impl<const N: usize> Front<N> {
    pub fn time(&mut self, time: Timestamp) {
        self.number(seconds(time));
        self.number(u64::from(time.nanos));
    }
}

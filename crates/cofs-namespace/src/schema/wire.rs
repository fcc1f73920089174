//! Bytes to numbers and back: LEB128 for unsigned numbers, zigzag for signed ones. Reading is total.

use cofs_types::{FsError, FsResult, InodeId, Timestamp};

use super::packed::{self, CONTINUES, Front};

/// Reads a record from its front. `what` names the record in the error.
pub struct Reader<'a> {
    rest: &'a [u8],
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
        Self { rest: bytes, what }
    }

    pub fn corrupt(&self) -> FsError {
        FsError::corrupt(self.what)
    }

    pub fn byte(&mut self) -> FsResult<u8> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn bytes(&mut self, len: usize) -> FsResult<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned LEB128 number in its shortest form.
    #[inline]
    pub fn number(&mut self) -> FsResult<u64> {
        if let [byte @ ..CONTINUES, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        let (number, len) = packed::first(self.rest).ok_or_else(|| self.corrupt())?;
        self.rest = &self.rest[len..];
        Ok(number)
    }

    pub fn number_u32(&mut self) -> FsResult<u32> {
        u32::try_from(self.number()?).map_err(|_| self.corrupt())
    }

    pub fn ino(&mut self) -> FsResult<InodeId> {
        InodeId::new(self.number()?).ok_or_else(|| self.corrupt())
    }

    pub fn time(&mut self) -> FsResult<Timestamp> {
        let zigzag = self.number()?;
        let secs = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let nanos = self.number_u32()?;
        Timestamp::new(secs, nanos).ok_or_else(|| self.corrupt())
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing may be left.
    pub fn end(self) -> FsResult<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.corrupt()) }
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

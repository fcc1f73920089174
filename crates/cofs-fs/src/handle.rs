//! What an open file is called: its flags, and the life of the mount in which it was opened.
//!
//! A handle is its own description, so that there is no table of handles to lock, to bound, to leak, and to lose with the process. What
//! is shared by all opens of an inode stands in the [open table](crate::open_table).

#[cfg(test)]
use cofs_types::AccessMode;
use cofs_types::{FsError, FsResult, OpenFlags};

use crate::HandleId;

const READS: u64 = 1;
const WRITES: u64 = 2;
const SYNC: u64 = 4;
const DATA_SYNC: u64 = 8;
const NO_ATIME: u64 = 16;
const EXEC: u64 = 32;
const PLACE_SHIFT: u32 = 8;
const PLACE_MAX: u64 = 63;
const LIFE_SHIFT: u32 = 32;

/// The flags of an open file, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(u64);

impl Handle {
    pub(crate) fn new(flags: &OpenFlags, life: u32) -> Self {
        let mut bits = u64::from(life) << LIFE_SHIFT;
        for (set, bit) in [
            (flags.access.reads(), READS),
            (flags.access.writes(), WRITES),
            (flags.sync, SYNC),
            (flags.data_sync || flags.sync, DATA_SYNC),
            (flags.no_atime, NO_ATIME),
            (flags.exec, EXEC),
        ] {
            if set {
                bits |= bit;
            }
        }
        Self(bits)
    }

    /// The same, which has been told to drop pages: its place among those, from 1 on, or 0 where there is none
    /// ([`crate::open_inode::Dropping`]).
    pub(crate) fn in_place(self, place: u32) -> Self {
        Self(self.0 | (u64::from(place) & PLACE_MAX) << PLACE_SHIFT)
    }

    pub(crate) const fn place(self) -> u32 {
        (self.0 >> PLACE_SHIFT & PLACE_MAX) as u32
    }

    pub(crate) const fn from_id(id: HandleId) -> Self {
        Self(id.0)
    }

    pub(crate) const fn id(self) -> HandleId {
        HandleId(self.0)
    }

    /// The life of the mount in which it was given out ([`crate::FsOptions::life`]).
    pub(crate) const fn life(self) -> u32 {
        (self.0 >> LIFE_SHIFT) as u32
    }

    pub(crate) const fn writes(self) -> bool {
        self.0 & WRITES != 0
    }

    /// A program that runs.
    pub(crate) const fn execs(self) -> bool {
        self.0 & EXEC != 0
    }

    pub(crate) const fn no_atime(self) -> bool {
        self.0 & NO_ATIME != 0
    }

    /// How each write must be synced: `Some(true)`: the data (`O_DSYNC`), `Some(false)`: everything (`O_SYNC`).
    pub(crate) const fn syncs(self) -> Option<bool> {
        if self.0 & SYNC != 0 {
            Some(false)
        } else if self.0 & DATA_SYNC != 0 {
            Some(true)
        } else {
            None
        }
    }

    /// Errors: `BadHandle` for a file that is not open for writing.
    pub(crate) fn for_writing(self) -> FsResult<Self> {
        if self.writes() { Ok(self) } else { Err(FsError::BadHandle) }
    }

    /// Errors: `BadHandle` for a file that is open for writing only. The kernel reads through such a handle
    /// too when it fills a page, so this holds for what callers ask for by themselves (copying).
    pub(crate) fn for_reading(self) -> FsResult<Self> {
        if self.0 & READS != 0 { Ok(self) } else { Err(FsError::BadHandle) }
    }
}

/// The flags of a plain open in `access`.
#[cfg(test)]
pub(crate) fn plain(access: AccessMode) -> Handle {
    Handle::new(&OpenFlags::new(access), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_tells_how_the_file_was_opened() {
        assert!(plain(AccessMode::Read).for_writing().is_err());
        assert!(plain(AccessMode::Write).for_reading().is_err());
        let mut flags = OpenFlags::new(AccessMode::ReadWrite);
        assert_eq!(Handle::new(&flags, 7).syncs(), None);
        flags.data_sync = true;
        assert_eq!(Handle::new(&flags, 7).syncs(), Some(true));
        flags.sync = true;
        let handle = Handle::from_id(Handle::new(&flags, 7).id());
        assert_eq!((handle.syncs(), handle.life(), handle.place()), (Some(false), 7, 0));
        let handle = handle.in_place(63);
        assert_eq!((handle.syncs(), handle.life(), handle.place()), (Some(false), 7, 63));
        assert!(handle.for_writing().and(handle.for_reading()).is_ok());
    }
}

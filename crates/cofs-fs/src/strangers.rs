//! Files that were being written when a process before this one was killed, and that programs have open still: through passthrough the kernel
//! goes on writing to their objects, for mounts that are dead, without a word to us.
//!
//! They stay in the open-for-writing set, so that whoever asks for their size is told what the object has, until nobody has them open any more.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_metadata::MetadataDriver;
use cofs_types::{FsResult, InodeId, limits};
use parking_lot::Mutex;

use crate::{Cofs, open_inode::State};

/// Tells whether anybody but the caller has a file open. What cannot be told is taken for not open.
pub type OpenElsewhere = fn(BorrowedFd<'_>) -> bool;

#[derive(Default)]
pub(crate) struct Strangers {
    inodes: Mutex<HashSet<InodeId>>,
    /// How many, so that a close need not lock while there are none, which is nearly always.
    count: AtomicUsize,
}

impl Strangers {
    /// `false` if there is no room to remember it.
    pub(crate) fn note(&self, ino: InodeId) -> bool {
        let mut inodes = self.inodes.lock();
        if inodes.len() >= limits::STRANGERS_MAX {
            return false;
        }
        inodes.insert(ino);
        self.count.store(inodes.len(), Ordering::Release);
        true
    }

    fn has(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.inodes.lock().contains(&ino)
    }

    fn forget(&self, ino: InodeId) {
        let mut inodes = self.inodes.lock();
        inodes.remove(&ino);
        self.count.store(inodes.len(), Ordering::Release);
    }
}

impl<M: MetadataDriver> Cofs<M> {
    /// Whether somebody from before writes the file, whose object is open, perhaps still.
    pub(crate) fn has_stranger(&self, ino: InodeId, state: &State) -> FsResult<bool> {
        if !self.strangers.has(ino) {
            return Ok(false);
        }
        let object = state.object()?;
        let there = self.options.open_elsewhere.is_some_and(|open| open(object.file.as_fd()));
        if !there {
            self.strangers.forget(ino);
        }
        Ok(there)
    }
}

//! Files whose objects may be written without a word to us, through passthrough: those that were being written when a process before this one was
//! killed, and that programs have open still (the kernel goes on for mounts that are dead); and those that stay mapped when they are closed.
//!
//! They stay in the open-for-writing set, so that whoever asks for their size is told what the object has, until nobody has them open any more.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_metadata::MetadataDriver;
use cofs_types::{InodeId, limits};
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
    /// Whether a mapping may outlive the close of the last writer; then the file is a stranger's from now on.
    pub(crate) fn may_stay_mapped(&self, ino: InodeId, state: &State) -> bool {
        state.passthrough
            && state.both
            && state.writing.is_some()
            && self.is_open_elsewhere(state)
            && self.strangers.note(ino)
    }

    /// Whether somebody writes the file, whose object is open, perhaps still.
    pub(crate) fn has_stranger(&self, ino: InodeId, state: &State) -> bool {
        if !self.strangers.has(ino) {
            return false;
        }
        let there = self.is_open_elsewhere(state);
        if !there {
            self.strangers.forget(ino);
        }
        there
    }

    fn is_open_elsewhere(&self, state: &State) -> bool {
        let Some(object) = &state.object else { return false };
        self.options.open_elsewhere.is_some_and(|open| open(object.file.as_fd()))
    }
}

//! Removal: of objects, and of their directories once those are used up and empty.

use std::io;

use cofs_types::{FsError, FsResult, failpoint, limits::OBJECTS_READY_MAX};
use rustix::io::Errno;

use super::Pool;
use crate::{
    path::{self, DirectoryNumber},
    store::{At, BackingStore, OpenMode, errno},
};

impl Pool {
    /// Removes an object; one that is not there is removed.
    pub fn remove(&self, sequence: u64) -> FsResult<()> {
        failpoint("placement.remove.before");
        let number = DirectoryNumber::of(sequence);
        let removed = self.run("remove an object", || match self.directories.cached(number) {
            Some(directory) => directory.remove_object(&*self.store, sequence),
            None => self.store.remove_file(At::root(&path::of_object(sequence))),
        });
        match removed {
            // The first of two attempts may have removed it.
            Ok(()) | Err(FsError::NotFound) => self.note_emptied(number),
            Err(error) => return Err(error),
        }
        failpoint("placement.remove.after");
        Ok(())
    }

    pub(super) fn remove_later(&self, sequence: u64) {
        let mut unwanted = self.unwanted.lock();
        // One more is an orphan, which a scan finds.
        if unwanted.len() < OBJECTS_READY_MAX {
            unwanted.insert(sequence);
            self.signal.wake();
        }
    }

    /// Removes what could not be removed when it was given back.
    pub fn remove_unwanted(&self) -> FsResult<()> {
        loop {
            let Some(sequence) = self.unwanted.lock().first().copied() else { return Ok(()) };
            self.remove(sequence)?;
            self.unwanted.lock().remove(&sequence);
        }
    }

    fn note_emptied(&self, number: DirectoryNumber) {
        let (first, surplus) = self.emptied.note(number);
        if first {
            self.signal.wake();
        }
        if let Some(surplus) = surplus {
            self.remove_if_empty(surplus);
        }
    }

    /// Whether there are directories to look at with [`sweep`](Self::sweep).
    pub fn has_emptied(&self) -> bool {
        self.emptied.any_before(DirectoryNumber::of(self.numbers.next()))
    }

    /// Removes the directories that are used up and empty; `all`: also those not used up (at the end).
    pub fn sweep(&self, all: bool) {
        let used_up = DirectoryNumber::of(self.numbers.next());
        for number in self.emptied.take_before((!all).then_some(used_up)) {
            self.remove_if_empty(number);
        }
    }

    fn remove_if_empty(&self, number: DirectoryNumber) {
        if self.ready.any_in(number) {
            return;
        }
        // What is not empty, or cannot be removed now, stays: an empty directory harms nobody.
        if remove_directory(&*self.store, number).is_ok() {
            self.directories.forget(number);
            failpoint("placement.remove.directory");
            if number.top() < DirectoryNumber::of(self.numbers.next()).top() {
                let _ = self.store.remove_directory(At::root(&number.parent_path()));
            }
        }
    }
}

fn remove_directory(store: &dyn BackingStore, number: DirectoryNumber) -> io::Result<()> {
    let path = number.path();
    match store.remove_directory(At::root(&path)) {
        Err(error) if errno(&error) == Some(Errno::NOTEMPTY) => {
            let directory = store.open(At::root(&path), OpenMode::Directory)?;
            store.list(&directory, &mut |name, _| {
                let log = name == path::OWNERS.as_bytes();
                if log { Ok(()) } else { Err(io::ErrorKind::DirectoryNotEmpty.into()) }
            })?;
            // Only the log of owners is left, of objects that are no more.
            store.remove_file(At::below(&directory, path::OWNERS))?;
            store.remove_directory(At::root(&path))
        }
        other => other,
    }
}

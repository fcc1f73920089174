//! Open object directories, and which of their entries are durable.
//!
//! Each entry made in a directory by this process, and each record in its log of owners, has a turn, counted
//! from 1; syncing the directory makes all turns up to then durable. An object's own sync promises neither its
//! name (POSIX) nor its record, so whoever syncs an object settles its turn first. A directory with turns
//! that are not durable stays in the cache.

use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cofs_types::{InodeId, limits::OBJECT_DIRECTORIES_OPEN_MAX};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{
    owner::OwnerLog,
    path::{self, DirectoryNumber},
    pool::errno,
    store::{At, BackingStore, OpenMode, Operation},
};

/// One open object directory.
pub struct ObjectDirectory {
    number: DirectoryNumber,
    file: File,
    /// Entries and records made.
    made: AtomicU64,
    /// Of those, how many are durable.
    durable: AtomicU64,
    /// It was made by this process, and its parents were not synced since.
    new: AtomicBool,
    owners: Mutex<Option<Arc<OwnerLog>>>,
}

impl ObjectDirectory {
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Notes that an entry was made (or found, not known to be durable), and returns its turn.
    pub fn entry_made(&self) -> u64 {
        self.made.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The turn that must be settled for all there is now; `None` if all is durable.
    pub fn unsettled(&self) -> Option<u64> {
        let made = self.made.load(Ordering::Acquire);
        (made > self.durable.load(Ordering::Acquire)).then_some(made)
    }

    pub fn is_durable(&self, turn: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= turn
    }

    /// Makes what has this turn durable, if it is not.
    pub fn settle(&self, store: &dyn BackingStore, turn: u64) -> io::Result<()> {
        if self.is_durable(turn) { Ok(()) } else { self.sync(store) }
    }

    /// Makes all entries durable, and the directory itself.
    pub fn sync(&self, store: &dyn BackingStore) -> io::Result<()> {
        let upto = self.made.load(Ordering::Acquire);
        if self.new.load(Ordering::Acquire) {
            for parent in [self.number.parent_path().as_str(), path::OBJECTS] {
                match store.open(At::root(parent), OpenMode::Directory) {
                    Ok(parent) => {
                        store.admit(Operation::Sync)?;
                        parent.sync_all()?;
                    }
                    // Removed with all that was in it: there is no name to make durable.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            self.new.store(false, Ordering::Release);
        }
        self.sync_owners(store)?;
        store.admit(Operation::Sync)?;
        self.file.sync_all()?;
        self.durable.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }

    /// Puts the log of owners on stable storage, and nothing else.
    pub fn sync_owners(&self, store: &dyn BackingStore) -> io::Result<()> {
        // Who notes an owner meanwhile does not wait.
        let log = self.owners.lock().clone();
        log.map_or(Ok(()), |log| self.with_log(store, &log, |log| log.sync(store)))
    }

    /// Notes an owner in the sidecar log, and returns the record's turn.
    pub fn log_owner(&self, store: &dyn BackingStore, index: u64, owner: Option<InodeId>) -> io::Result<u64> {
        let log = self.owner_log(store)?;
        self.with_log(store, &log, |log| log.append(store, index, owner))?;
        Ok(self.entry_made())
    }

    /// Once more, on the log opened anew, where its file is of no use any more.
    fn with_log(
        &self,
        store: &dyn BackingStore,
        log: &OwnerLog,
        call: impl Fn(&OwnerLog) -> io::Result<()>,
    ) -> io::Result<()> {
        match call(log) {
            Err(error) if matches!(errno(&error), Some(Errno::BADF | Errno::STALE)) => {
                log.reopen(store, &self.file)?;
                call(log)
            }
            other => other,
        }
    }

    fn owner_log(&self, store: &dyn BackingStore) -> io::Result<Arc<OwnerLog>> {
        let mut log = self.owners.lock();
        match &*log {
            Some(log) => Ok(Arc::clone(log)),
            None => Ok(Arc::clone(log.insert(Arc::new(OwnerLog::open(store, &self.file)?)))),
        }
    }
}

/// The object directories that are open, a bounded number.
#[derive(Default)]
pub struct Directories {
    open: Mutex<HashMap<DirectoryNumber, Arc<ObjectDirectory>>>,
}

impl Directories {
    pub fn cached(&self, number: DirectoryNumber) -> Option<Arc<ObjectDirectory>> {
        self.open.lock().get(&number).cloned()
    }

    /// The directory, opened if it was not; `NotFound` if it is not there.
    pub fn open(
        &self,
        store: &dyn BackingStore,
        number: DirectoryNumber,
    ) -> io::Result<Arc<ObjectDirectory>> {
        match self.cached(number) {
            Some(directory) => Ok(directory),
            None => self.insert(store, number, false),
        }
    }

    /// As [`open`](Self::open), but makes it (and its parent) if it is not there.
    pub fn open_or_make(
        &self,
        store: &dyn BackingStore,
        number: DirectoryNumber,
    ) -> io::Result<Arc<ObjectDirectory>> {
        match self.open(store, number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let exists_is_well = |result: io::Result<()>| match result {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    other => other,
                };
                exists_is_well(store.make_directory(At::root(&number.parent_path())))?;
                exists_is_well(store.make_directory(At::root(&number.path())))?;
                self.insert(store, number, true)
            }
            other => other,
        }
    }

    fn insert(
        &self,
        store: &dyn BackingStore,
        number: DirectoryNumber,
        new: bool,
    ) -> io::Result<Arc<ObjectDirectory>> {
        let file = store.open(At::root(&number.path()), OpenMode::Directory)?;
        let directory = ObjectDirectory {
            number,
            file,
            made: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            new: AtomicBool::new(false),
            owners: Mutex::new(None),
        };
        let (directory, full) = {
            let mut open = self.open.lock();
            let directory = Arc::clone(open.entry(number).or_insert_with(|| Arc::new(directory)));
            (directory, open.len() > OBJECT_DIRECTORIES_OPEN_MAX)
        };
        if new {
            directory.new.store(true, Ordering::Release);
        }
        if full {
            self.evict(store, number)?;
        }
        Ok(directory)
    }

    /// Makes room: closes a directory other than `keep`, one that need not be synced if there is any.
    fn evict(&self, store: &dyn BackingStore, keep: DirectoryNumber) -> io::Result<()> {
        let mut open = self.open.lock();
        let others = || open.iter().filter(|(number, _)| **number != keep);
        let idle = others().find(|(_, directory)| directory.unsettled().is_none()).map(|(number, _)| *number);
        if let Some(number) = idle {
            open.remove(&number);
            return Ok(());
        }
        let Some(oldest) = others().map(|(number, _)| *number).min() else { return Ok(()) };
        let Some(directory) = open.remove(&oldest) else { return Ok(()) };
        drop(open);
        directory.sync(store).inspect_err(|_| {
            self.open.lock().entry(oldest).or_insert(directory);
        })
    }

    /// Those with entries that are not durable.
    pub fn unsettled(&self) -> Vec<Arc<ObjectDirectory>> {
        self.open.lock().values().filter(|directory| directory.unsettled().is_some()).cloned().collect()
    }

    pub fn forget(&self, number: DirectoryNumber) {
        self.open.lock().remove(&number);
    }

    pub fn forget_all(&self) {
        self.open.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryStore, owner};

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    #[test]
    fn who_settles_a_record_of_an_owner_has_it_after_a_power_cut() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join(path::OBJECTS)).unwrap();
        let store = DirectoryStore::new(scratch.path());
        store.attach(&mut |_| Ok(())).unwrap();
        let directory = Directories::default().open_or_make(&store, DirectoryNumber::of(1)).unwrap();
        let entry = directory.entry_made();
        directory.settle(&store, entry).unwrap();
        let first = directory.log_owner(&store, 1, Some(ino(7))).unwrap();
        assert!(!directory.is_durable(first));
        assert_eq!(directory.unsettled(), Some(first), "it stays in the cache");
        directory.settle(&store, first).unwrap();
        assert_eq!(directory.unsettled(), None);
        directory.log_owner(&store, 2, Some(ino(8))).unwrap();
        // For the one of these that is settled already there is nothing to be done.
        directory.settle(&store, first).unwrap();
        directory.owners.lock().as_ref().unwrap().lose_unsynced();
        let left = owner::read_log(&store, directory.file()).unwrap();
        assert_eq!(left, HashMap::from([(1, ino(7))]));
    }
}

//! Open object directories, and which of their entries are durable.
//!
//! Each entry made in a directory by this process, and each record in its log of owners, has a turn, counted
//! from 1; syncing the directory makes all turns up to then durable. An object's own sync promises neither its
//! name (POSIX) nor its record, so whoever syncs an object settles its turn first. A directory with turns
//! that are not durable stays in the cache. What a pool has open of it may be given up below, but it stays
//! the same with all that is known of it: two of one directory would write their records over each other's.

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

use crate::{
    era::{Era, Kept},
    owner::OwnerLog,
    path::{self, DirectoryNumber},
    store::{At, BackingStore, OpenMode, Operation},
};

/// One open object directory.
pub struct ObjectDirectory {
    number: DirectoryNumber,
    file: Mutex<Kept<Arc<File>>>,
    /// Entries and records made.
    made: AtomicU64,
    /// Of those, how many are durable.
    durable: AtomicU64,
    /// It was made by this process, and its parents were not synced since.
    new: AtomicBool,
    owners: OwnerLog,
}

impl ObjectDirectory {
    fn new(number: DirectoryNumber, era: Era) -> Self {
        Self {
            number,
            file: Mutex::new(Kept::new(era.clone())),
            made: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            new: AtomicBool::new(false),
            owners: OwnerLog::new(number.owners_path(), era),
        }
    }

    pub fn file(&self, store: &dyn BackingStore) -> io::Result<Arc<File>> {
        let open = || store.open(At::root(&self.number.path()), OpenMode::Directory).map(Arc::new);
        self.file.lock().get(open).cloned()
    }

    /// Opens the object with this number, which is of this directory.
    pub fn open_object(&self, store: &dyn BackingStore, sequence: u64, mode: OpenMode) -> io::Result<File> {
        let file = self.file(store)?;
        store.open(At::below(&file, &path::name_of(sequence)), mode)
    }

    pub fn remove_object(&self, store: &dyn BackingStore, sequence: u64) -> io::Result<()> {
        let file = self.file(store)?;
        store.remove_file(At::below(&file, &path::name_of(sequence)))
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
        match self.sync_with_parents(store) {
            // Removed with all that was in it: there is no name to make durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        self.durable.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }

    fn sync_with_parents(&self, store: &dyn BackingStore) -> io::Result<()> {
        self.sync_owners(store)?;
        let file = self.file(store)?;
        sync_directory(store, &file)?;
        if self.new.load(Ordering::Acquire) {
            for parent in [self.number.parent_path().as_str(), path::OBJECTS] {
                sync_directory(store, &store.open(At::root(parent), OpenMode::Directory)?)?;
            }
            self.new.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Puts the log of owners on stable storage, and nothing else.
    pub fn sync_owners(&self, store: &dyn BackingStore) -> io::Result<()> {
        self.owners.sync(store)
    }

    /// Notes an owner in the sidecar log, and returns the record's turn.
    pub fn log_owner(&self, store: &dyn BackingStore, index: u64, owner: Option<InodeId>) -> io::Result<u64> {
        self.owners.append(store, index, owner)?;
        Ok(self.entry_made())
    }
}

fn sync_directory(store: &dyn BackingStore, directory: &File) -> io::Result<()> {
    store.admit(Operation::Sync)?;
    directory.sync_all()
}

/// The object directories that are open, a bounded number.
#[derive(Default)]
pub struct Directories {
    era: Era,
    open: Mutex<HashMap<DirectoryNumber, Arc<ObjectDirectory>>>,
}

impl Directories {
    pub fn new(era: Era) -> Self {
        Self { era, ..Self::default() }
    }

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
        let directory = ObjectDirectory::new(number, self.era.clone());
        directory.file(store)?;
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
        let idle = others().filter(|(_, directory)| directory.unsettled().is_none());
        // Not one with objects that are ready, if it can be helped: it would be opened a second time.
        let unheld = idle.min_by_key(|(_, directory)| Arc::strong_count(directory));
        if let Some(number) = unheld.map(|(number, _)| *number) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryStore, owner};

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    fn scratch() -> (tempfile::TempDir, DirectoryStore) {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join(path::OBJECTS)).unwrap();
        let store = DirectoryStore::new(scratch.path());
        store.attach(&mut |_| Ok(())).unwrap();
        (scratch, store)
    }

    #[test]
    fn a_directory_that_is_opened_anew_knows_what_is_durable_in_it() {
        let (scratch, store) = scratch();
        let era = Era::default();
        let directory = Directories::new(era.clone()).open_or_make(&store, DirectoryNumber::of(1)).unwrap();
        let before = directory.file(&store).unwrap();
        let entry = directory.entry_made();
        era.end();
        assert_eq!(directory.unsettled(), Some(entry));
        directory.settle(&store, entry).unwrap();
        assert_eq!(directory.unsettled(), None);
        assert!(!Arc::ptr_eq(&before, &directory.file(&store).unwrap()));
        // Where it is gone nothing is left to be done.
        directory.entry_made();
        std::fs::remove_dir_all(scratch.path().join("objects/0")).unwrap();
        era.end();
        directory.sync(&store).unwrap();
        assert_eq!(directory.unsettled(), None);
    }

    #[test]
    fn directories_that_somebody_has_are_closed_last() {
        let (_scratch, store) = scratch();
        let directories = Directories::default();
        let open = |number| directories.open_or_make(&store, DirectoryNumber::from_parts(0, number)).unwrap();
        let held: Vec<_> = (0..16).map(open).collect();
        (16..256).for_each(|number| drop(open(number)));
        assert!(held.iter().zip(0..).all(|(held, number)| Arc::ptr_eq(held, &open(number))));
        assert_eq!(directories.open.lock().len(), OBJECT_DIRECTORIES_OPEN_MAX);
    }

    #[test]
    fn who_settles_a_record_of_an_owner_has_it_after_a_power_cut() {
        let (_scratch, store) = scratch();
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
        directory.owners.lose_unsynced(&store);
        let left = owner::read_log(&store, directory.file(&store).as_deref().unwrap()).unwrap();
        assert_eq!(left, HashMap::from([(1, ino(7))]));
    }
}

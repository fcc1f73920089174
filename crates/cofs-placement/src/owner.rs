//! Whose an object is: the tag that a volume can be rebuilt by.
//!
//! The tag is the extended attribute `user.cofs.ino`, the inode's number in decimal. Where the file system
//! has none, it is a record in the append-only log `owners` of the object's directory; of an object's
//! records the last counts, and what is torn or illegible is as if it were not there.
//!
//! A record's 32 bytes, little-endian: magic `cofsown\x01`, index of the object in its directory, inode
//! number (0: nobody's), SipHash-1-3 (key 0) of the 24 bytes before.

use std::{collections::HashMap, fs::File, hash::Hasher, io, os::unix::fs::FileExt, sync::Arc};

use cofs_types::{InodeId, limits::OBJECTS_PER_DIRECTORY};
use parking_lot::Mutex;
use rustix::{
    fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr},
    io::Errno,
};
use siphasher::sip::SipHasher13;

use crate::{
    era::{Era, Kept},
    path,
    store::{At, BackingStore, OpenMode, Operation, errno, open_regular},
};

pub const XATTR: &str = "user.cofs.ino";
const RECORD_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"cofsown\x01";
/// Digits of the largest inode number.
const DECIMAL_BYTES_MAX: usize = 20;

/// Whether the file system below refused because it has no extended attributes.
pub fn unsupported(error: &io::Error) -> bool {
    errno(error) == Some(Errno::OPNOTSUPP)
}

/// Tags an open object by its extended attribute.
pub fn set_xattr(store: &dyn BackingStore, object: &File, owner: InodeId) -> io::Result<()> {
    store.admit(Operation::Tag)?;
    Ok(fsetxattr(object, XATTR, owner.get().to_string().as_bytes(), XattrFlags::empty())?)
}

pub fn clear_xattr(store: &dyn BackingStore, object: &File) -> io::Result<()> {
    store.admit(Operation::Tag)?;
    match fremovexattr(object, XATTR) {
        Err(Errno::NODATA) => Ok(()),
        other => Ok(other?),
    }
}

/// What the extended attribute says; nobody if there is none or it is no inode's number.
pub fn get_xattr(store: &dyn BackingStore, object: &File) -> io::Result<Option<InodeId>> {
    let mut value = [0; DECIMAL_BYTES_MAX];
    let found =
        store.admit(Operation::ReadTag).and_then(|()| Ok(fgetxattr(object, XATTR, value.as_mut_slice())?));
    match found {
        Ok(length) => Ok(value.get(..length).and_then(parse)),
        Err(error) => match errno(&error) {
            Some(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
            _ => Err(error),
        },
    }
}

fn parse(value: &[u8]) -> Option<InodeId> {
    let text = str::from_utf8(value).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    InodeId::new(text.parse().ok()?)
}

/// Records that a log keeps until they are on stable storage.
const UNSYNCED_BYTES_MAX: usize = RECORD_BYTES * 2048;

/// The log of one directory. Who appends does not wait for who syncs.
pub struct OwnerLog {
    path: String,
    era: Era,
    tail: Mutex<Tail>,
    /// Held by who syncs, and taken before `tail`.
    syncing: Mutex<()>,
}

/// What is not on stable storage, as far as this process knows.
struct Tail {
    file: Kept<Arc<File>>,
    /// Where it begins.
    synced_bytes: u64,
    /// The records from there on.
    unsynced: Vec<u8>,
    /// How many bytes of these may be lost, with the file that was given up or in a sync that failed: a file system may have dropped the
    /// pages of all that was not synced then (an NFS mount that gives up does), and tells so once.
    doubtful: usize,
}

impl Tail {
    fn end(&self) -> u64 {
        self.synced_bytes + self.unsynced.len() as u64
    }

    /// The log's file, made if need be. A torn tail will be written over.
    fn file(&mut self, store: &dyn BackingStore, path: &str) -> io::Result<Arc<File>> {
        let Self { file, synced_bytes, unsynced, doubtful } = self;
        let open = || {
            let file = match store.open(At::root(path), OpenMode::CreateNew) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    store.open(At::root(path), OpenMode::ReadWrite)?
                }
                other => other?,
            };
            *doubtful = unsynced.len();
            if unsynced.is_empty() {
                let length = file.metadata()?.len();
                *synced_bytes = (*synced_bytes).max(length - length % RECORD_BYTES as u64);
            }
            Ok(Arc::new(file))
        };
        file.get(open).cloned()
    }

    /// The first `count` bytes are on stable storage now.
    fn settled(&mut self, count: usize) {
        self.synced_bytes += count as u64;
        self.unsynced.drain(..count);
        self.doubtful = self.doubtful.saturating_sub(count);
    }
}

impl OwnerLog {
    /// The log that stands, or will, at `path`.
    pub fn new(path: String, era: Era) -> Self {
        let file = Kept::new(era.clone());
        let tail = Mutex::new(Tail { file, synced_bytes: 0, unsynced: Vec::new(), doubtful: 0 });
        Self { path, era, tail, syncing: Mutex::new(()) }
    }

    /// Waits for a sync only where too much is not synced.
    pub fn append(&self, store: &dyn BackingStore, index: u64, owner: Option<InodeId>) -> io::Result<()> {
        if self.tail.lock().unsynced.len() >= UNSYNCED_BYTES_MAX {
            self.sync(store)?;
        }
        let mut tail = self.tail.lock();
        let file = tail.file(store, &self.path)?;
        store.admit(Operation::Write)?;
        let record = encode(index, owner);
        file.write_all_at(&record, tail.end())?;
        tail.unsynced.extend(record);
        Ok(())
    }

    /// Puts all records on stable storage; what may be lost is written anew.
    pub fn sync(&self, store: &dyn BackingStore) -> io::Result<()> {
        let _alone = self.syncing.lock();
        if self.tail.lock().unsynced.is_empty() {
            return Ok(());
        }
        // The first may tell of what went wrong long before, or that the file was given up: whoever syncs now has no part in that.
        self.try_sync(store).or_else(|_| self.try_sync(store))
    }

    /// What is appended meanwhile is left to the next; if this one fails it is in doubt like the rest.
    fn try_sync(&self, store: &dyn BackingStore) -> io::Result<()> {
        let synced = self.era.judge(|| self.write_and_sync(store));
        let mut tail = self.tail.lock();
        match synced {
            Ok(count) => tail.settled(count),
            Err(_) => tail.doubtful = tail.unsynced.len(),
        }
        synced.map(drop)
    }

    /// How many bytes are on stable storage then. Nobody else moves their beginning.
    fn write_and_sync(&self, store: &dyn BackingStore) -> io::Result<usize> {
        let (file, begin, count, doubtful) = {
            let mut tail = self.tail.lock();
            let file = tail.file(store, &self.path)?;
            let doubtful = tail.unsynced.get(..tail.doubtful).unwrap_or_default().to_vec();
            (file, tail.synced_bytes, tail.unsynced.len(), doubtful)
        };
        if !doubtful.is_empty() {
            store.admit(Operation::Write)?;
            file.write_all_at(&doubtful, begin)?;
        }
        store.admit(Operation::Sync)?;
        file.sync_data()?;
        Ok(count)
    }

    /// The power goes: what was not synced is not there.
    #[cfg(test)]
    pub fn lose_unsynced(&self, store: &dyn BackingStore) {
        let mut tail = self.tail.lock();
        tail.file(store, &self.path).unwrap().set_len(tail.synced_bytes).unwrap();
    }
}

/// All that the log of `directory` says, by index. Empty if there is no log.
pub fn read_log(store: &dyn BackingStore, directory: &File) -> io::Result<HashMap<u64, InodeId>> {
    let mut owners = HashMap::new();
    let file = match open_regular(store, At::below(directory, path::OWNERS), OpenMode::Look) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(owners),
        other => other?,
    };
    let mut block = [0; RECORD_BYTES * 128];
    let mut offset = 0;
    loop {
        store.admit(Operation::Read)?;
        let length = read_up_to(&file, &mut block, offset)?;
        let records = block.get(..length).unwrap_or_default().as_chunks::<RECORD_BYTES>().0;
        for (index, owner) in records.iter().filter_map(decode) {
            match owner {
                Some(owner) => owners.insert(index, owner),
                None => owners.remove(&index),
            };
        }
        if length < block.len() {
            return Ok(owners);
        }
        offset += length as u64;
    }
}

fn read_up_to(file: &File, block: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

fn encode(index: u64, owner: Option<InodeId>) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    bytes[16..24].copy_from_slice(&owner.map_or(0, InodeId::get).to_le_bytes());
    let sum = checksum(&bytes[..24]);
    bytes[24..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<(u64, Option<InodeId>)> {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    if bytes[..8] != MAGIC || word(24)? != checksum(&bytes[..24]) {
        return None;
    }
    let index = word(8).filter(|&index| index < OBJECTS_PER_DIRECTORY)?;
    Some((index, InodeId::new(word(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryStore, Fault, FaultyStore};

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    struct World {
        scratch: tempfile::TempDir,
        store: FaultyStore,
        /// Where the log is.
        directory: File,
        era: Era,
    }

    impl World {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let store = FaultyStore::new(Arc::new(DirectoryStore::new(scratch.path())));
            store.attach(&mut |_| Ok(())).unwrap();
            let directory = File::open(scratch.path()).unwrap();
            Self { scratch, store, directory, era: Era::default() }
        }

        fn log(&self) -> OwnerLog {
            OwnerLog::new(path::OWNERS.to_owned(), self.era.clone())
        }

        /// The log's file, for who damages it.
        fn raw(&self) -> File {
            File::options().write(true).open(self.scratch.path().join(path::OWNERS)).unwrap()
        }

        fn read(&self) -> HashMap<u64, InodeId> {
            read_log(&self.store, &self.directory).unwrap()
        }
    }

    #[test]
    fn the_last_record_counts_and_a_torn_tail_does_not() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        log.append(store, 3, Some(ino(7))).unwrap();
        log.append(store, 3, Some(ino(8))).unwrap();
        log.append(store, 4, Some(ino(9))).unwrap();
        log.append(store, 4, None).unwrap();
        assert_eq!(world.read(), HashMap::from([(3, ino(8))]));

        world.raw().write_all_at(&encode(5, Some(ino(10)))[..17], 4 * 32).unwrap();
        assert_eq!(world.read(), HashMap::from([(3, ino(8))]));

        let log = world.log();
        log.append(store, 6, Some(ino(11))).unwrap();
        assert_eq!(world.read(), HashMap::from([(3, ino(8)), (6, ino(11))]));
    }

    #[test]
    fn what_a_failed_sync_has_lost_is_written_anew() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        log.append(store, 3, Some(ino(7))).unwrap();
        log.sync(store).unwrap();
        log.append(store, 4, Some(ino(8))).unwrap();
        store.inject(Fault::new(&[Operation::Sync], Errno::IO.raw_os_error()));
        assert!(log.sync(store).is_err());
        store.heal();
        // As an NFS mount does that gives up: the pages are gone, and the length that they had.
        log.lose_unsynced(store);
        log.append(store, 5, Some(ino(9))).unwrap();
        log.sync(store).unwrap();
        let all = HashMap::from([(3, ino(7)), (4, ino(8)), (5, ino(9))]);
        assert_eq!(world.read(), all);
        // Or gives up the file.
        log.append(store, 6, Some(ino(10))).unwrap();
        log.lose_unsynced(store);
        world.era.end();
        log.sync(store).unwrap();
        assert_eq!(world.read().get(&6), Some(&ino(10)));
        // Afterwards they are no longer its concern.
        world.raw().set_len(0).unwrap();
        log.append(store, 6, Some(ino(10))).unwrap();
        log.sync(store).unwrap();
        assert_eq!(world.read(), HashMap::from([(6, ino(10))]));
    }

    /// The kernel tells of pages that it lost long ago to the first who asks.
    #[test]
    fn an_error_of_old_is_no_error_of_a_later_sync() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        log.append(store, 3, Some(ino(7))).unwrap();
        log.lose_unsynced(store);
        store.inject(Fault::new(&[Operation::Sync], Errno::IO.raw_os_error()).times(1));
        log.sync(store).unwrap();
        assert_eq!(store.injected(), 1);
        assert_eq!(world.read(), HashMap::from([(3, ino(7))]));
    }

    #[test]
    fn a_log_keeps_a_bounded_number_of_records() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        let most = UNSYNCED_BYTES_MAX / RECORD_BYTES;
        store.inject(Fault::new(&[Operation::Sync], Errno::IO.raw_os_error()));
        let append = || log.append(store, 3, Some(ino(7)));
        (0..most).for_each(|_| append().unwrap());
        assert!(append().is_err());
        store.heal();
        append().unwrap();
        assert_eq!(log.tail.lock().unsynced.len(), RECORD_BYTES);
    }

    #[test]
    fn who_notes_an_owner_does_not_wait_for_a_sync() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        log.append(store, 3, Some(ino(7))).unwrap();
        for (errno, records) in [(None, 1), (Some(Errno::IO), 3)] {
            store.hang_at(&[Operation::Sync]);
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let sync = scope.spawn(|| log.sync(store));
                while store.hanging() == 0 {
                    std::thread::yield_now();
                }
                scope.spawn(|| tell.send(log.append(store, 3 + records, Some(ino(8)))).unwrap());
                let appended = told.recv_timeout(std::time::Duration::from_secs(60));
                if let Some(errno) = errno {
                    store.inject(Fault::new(&[Operation::Sync], errno.raw_os_error()).times(2));
                }
                store.resume();
                appended.expect("it waits for the sync").unwrap();
                assert_eq!(sync.join().unwrap().is_ok(), errno.is_none());
            });
            assert_eq!(log.tail.lock().unsynced.len(), RECORD_BYTES * if errno.is_none() { 1 } else { 2 });
        }
        // What came while a sync was failing is in doubt as well.
        log.lose_unsynced(store);
        log.sync(store).unwrap();
        let all = HashMap::from([(3, ino(7)), (4, ino(8)), (6, ino(8))]);
        assert_eq!(world.read(), all);
    }

    #[test]
    fn who_opens_the_log_anew_does_not_wait_for_a_sync_either() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        log.append(store, 3, Some(ino(7))).unwrap();
        store.hang_at(&[Operation::Sync]);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| log.sync(store));
            while store.hanging() == 0 {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                log.append(store, 4, Some(ino(8))).unwrap();
                world.era.end();
                tell.send(log.append(store, 5, Some(ino(9)))).unwrap();
            });
            let appended = told.recv_timeout(std::time::Duration::from_secs(60));
            store.resume();
            appended.expect("it waits for the sync").unwrap();
            sync.join().unwrap().unwrap();
        });
        // What the file before had, and that sync had not, is in doubt.
        log.lose_unsynced(store);
        log.sync(store).unwrap();
        assert_eq!(world.read().get(&4), Some(&ino(8)));
    }

    #[test]
    fn damage_in_the_middle_costs_one_record() {
        let world = World::new();
        let (log, store) = (world.log(), &world.store);
        for index in 0..300 {
            log.append(store, index, Some(ino(index + 1))).unwrap();
        }
        world.raw().write_all_at(&[1], 150 * 32 + 18).unwrap();
        let owners = world.read();
        assert_eq!((owners.len(), owners.get(&150), owners.get(&299)), (299, None, Some(&ino(300))));
    }

    #[test]
    fn only_inode_numbers_are_read_from_tags() {
        assert_eq!(parse(b"42"), Some(ino(42)));
        for value in [&b""[..], b"0", b"+1", b"-1", b"1 ", b"99999999999999999999", b"\xff"] {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }
}

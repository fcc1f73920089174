//! One file of the journal.
//!
//! ```text
//! 0   "cofsjrn2" | generation u64 | previous u64 | oldest u64 | salt u64 | crc32c u32     little-endian
//! 64  records (see `record.rs`)
//! ```
//!
//! `generation` numbers the segments for ever; `previous` is the one before it; `oldest` is the oldest whose commits
//! RocksDB may have lacked when this one was made ready: those before it are dead, and those that RocksDB says it has by now. `salt` is random: who does not know it can
//! make no records. (Before version 3 of the store, "cofsjrn1", there was none.)
//!
//! Invariants:
//! - a header is on stable storage before the first record behind it is written. So no record of a file's
//!   present use is ever found under a header of an earlier use;
//! - what a sync could not write the kernel may show as if it had, and tells once only: so after a failed sync each one fails, and what an
//!   earlier process left, or a failed write may have hidden an error of, is written again by the first sync.

use std::{
    fs::{self, File},
    io::{self, IoSlice},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::{Mutex, RwLock};
use rustix::{
    fs::{Advice, AtFlags, FallocateFlags, StatxFlags, fadvise, fallocate, statx},
    io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr},
    rand::{GetRandomFlags, getrandom},
};

use crate::open_regular;

use super::{
    mapping::{Mapping, writes_in_place},
    record::{self, Claim, Found, Logged, Place, Record},
};

const MAGIC: &[u8; 8] = b"cofsjrn2";
const HEADER_BYTES: usize = 44;
const MAGIC_WITHOUT_SALT: &[u8; 8] = b"cofsjrn1";
const HEADER_BYTES_WITHOUT_SALT: usize = 36;
/// Where the records begin.
const RECORDS_AT: u64 = 64;
/// So much is looked at, and cleared, at a time.
const CLEARED_BYTES: usize = 64 << 10;
/// So much is read at a time. A file may be of any length: nobody has to have written what stands behind the records.
const READ_BYTES: u64 = 16 << 20;
pub(in crate::embedded) const NAME_PREFIX: &str = "journal-";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) generation: u64,
    pub(super) previous: u64,
    pub(super) oldest: u64,
    /// None in one that is yet to be written, and in those of before.
    pub(super) salt: Option<u64>,
}

impl Header {
    /// The next 44 bytes, or 36 without a salt, and zeros.
    fn encode(self) -> [u8; HEADER_BYTES] {
        let (magic, len) = match self.salt {
            Some(_) => (MAGIC, HEADER_BYTES),
            None => (MAGIC_WITHOUT_SALT, HEADER_BYTES_WITHOUT_SALT),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(magic);
        let numbers = [Some(self.generation), Some(self.previous), Some(self.oldest), self.salt];
        for (place, number) in bytes[8..].chunks_mut(8).zip(numbers.into_iter().flatten()) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..len - 4]);
        bytes[len - 4..len].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?));
        let salted = bytes.starts_with(MAGIC);
        let salt = if salted { Some(number(32)?) } else { None };
        let header = Self { generation: number(8)?, previous: number(16)?, oldest: number(24)?, salt };
        let len = if salted { HEADER_BYTES } else { HEADER_BYTES_WITHOUT_SALT };
        (bytes.get(..len)? == &header.encode()[..len]).then_some(header)
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // So few come whole, and without waiting once the machine has started.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// The file numbers of the journal in `directory`.
pub(super) fn slots(directory: &Path) -> io::Result<Vec<u32>> {
    let mut slots = Vec::new();
    for file in fs::read_dir(directory)? {
        let name = file?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME_PREFIX));
        slots.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    slots.sort_unstable();
    Ok(slots)
}

pub(super) fn path(directory: &Path, slot: u32) -> PathBuf {
    directory.join(format!("{NAME_PREFIX}{slot}"))
}

/// The header of a file; `None`: it is not in use.
pub(super) fn header(directory: &Path, slot: u32) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    let read = open_regular(&path(directory, slot))?.read_at(&mut bytes, 0)?;
    Ok(Header::decode(&bytes[..read]))
}

/// Whether a file can be found again, by what this machine knows of it; where that is nothing, it can.
fn has_name(file: &File) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    !statx(file, c"", flags, StatxFlags::NLINK).is_ok_and(|found| found.stx_nlink == 0)
}

/// Takes a file out of use.
pub(super) fn void(directory: &Path, slot: u32) -> io::Result<()> {
    let file = File::options().write(true).open(path(directory, slot))?;
    file.write_all_at(&[0; HEADER_BYTES], 0)?;
    file.sync_data()
}

/// A file of `bytes`; whether it is new, or was shorter.
pub(super) fn allocate(directory: &Path, slot: u32, bytes: u64) -> io::Result<(File, bool)> {
    let path = path(directory, slot);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let len = file.metadata()?.len();
    if len < bytes {
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    } else if len > bytes {
        file.set_len(bytes)?; // a batch larger than a segment stood in it
    }
    Ok((file, len < bytes))
}

/// A file in use.
pub(super) struct Segment {
    file: File,
    /// Where stores will do, until it is ended.
    mapping: RwLock<Option<Mapping>>,
    pub(super) slot: u32,
    pub(super) header: Header,
    /// It had a name when it was opened, as far as its file system tells.
    named: bool,
    /// It is ended, and on stable storage.
    synced: AtomicBool,
    syncing: Mutex<Syncing>,
}

/// What is known of a segment's syncs, one of which is done at a time.
#[derive(Default)]
struct Syncing {
    /// What is to be written again by the next one: of the records up to here the kernel may have lost some without anybody having been told.
    doubtful: Option<Tail>,
    /// The errno of one that failed.
    failed: Option<i32>,
}

/// What a segment holds.
pub(super) struct Replayed {
    pub(super) commits: u64,
    /// It was ended: another follows.
    pub(super) ended: bool,
    /// Behind the last record.
    pub(super) at: u64,
}

impl Segment {
    /// Makes a file ready for records: of `bytes` where space can be set aside, so that the file system below may
    /// fill up and commits go on. Mapped, if it `may_store` and that is safe: as it was, where `mapped` is of this file. Its header is on stable storage when this
    /// returns.
    pub(super) fn prepare(
        directory: &Path,
        slot: u32,
        header: Header,
        bytes: u64,
        may_store: bool,
        mapped: Option<Mapping>,
    ) -> io::Result<Self> {
        let (file, new) = allocate(directory, slot, bytes)?;
        let header = Header { salt: Some(random()?), ..header };
        if new {
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            File::open(directory)?.sync_all()?;
        } else {
            write_synced(&file, &header.encode())?;
        }
        let mapped = mapped.and_then(|mapping| mapping.again(&file, bytes));
        let mapping = mapped.or_else(|| may_store.then(|| Mapping::new(&file, bytes)).flatten());
        Ok(Self::new(file, mapping, slot, header))
    }

    /// Opens a file in use.
    pub(super) fn open(directory: &Path, slot: u32, header: Header, write: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(write).open(path(directory, slot))?;
        Ok(Self::new(file, None, slot, header))
    }

    fn new(file: File, mapping: Option<Mapping>, slot: u32, header: Header) -> Self {
        let (synced, syncing) = Default::default();
        let named = has_name(&file);
        Self { file, mapping: RwLock::new(mapping), slot, header, named, synced, syncing }
    }

    /// Makes a file that was opened ready for more records behind `tail`. What stands there, which after a power cut may be records that
    /// would count again behind others, is gone from stable storage when this returns.
    pub(super) fn go_on(&self, tail: Tail, bytes: u64, may_store: bool) -> io::Result<()> {
        let mut at = tail.at;
        let mut piece = vec![0; CLEARED_BYTES];
        loop {
            let read = read_all_at(&self.file, at, &mut piece)?;
            if read == 0 {
                break;
            }
            // Where it is empty, and may be kept so without space, it stays as it is.
            if piece[..read].iter().any(|byte| *byte != 0) {
                piece.fill(0);
                self.file.write_all_at(&piece[..read], at)?;
            }
            at += read as u64;
        }
        self.file.sync_data()?;
        *self.mapping.write() = may_store.then(|| Mapping::new(&self.file, bytes)).flatten();
        Ok(())
    }

    /// What stands in it is on stable storage below: nothing of it is written or synced any more. Its mapping, for who uses the file next.
    pub(super) fn done_with(&self) -> Option<Mapping> {
        // Whoever syncs it just now ends first: behind this the file may be another segment's.
        let _syncing = self.syncing.lock();
        self.synced.store(true, Ordering::Release);
        self.mapping.write().take()
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.mapping.read().is_some()
    }

    /// Reads the file's old bytes, so that no store into them has to wait for the disk. Takes as long as the disk does.
    pub(super) fn keep_in_memory(&self) {
        if let Some(mapping) = self.mapping.read().as_ref().filter(|mapping| !mapping.stays_in_memory()) {
            // All at once, and not a little at a time.
            let _ = fadvise(&self.file, 0, None, Advice::WillNeed);
            mapping.keep_in_memory();
        }
    }

    fn place(&self, index: u64) -> Place {
        Place { generation: self.header.generation, index, salt: self.header.salt }
    }

    /// Errors leave no record behind, as far as the file can be written at all.
    pub(super) fn append_at(&self, record: &mut Record<'_>, tail: &mut Tail) -> io::Result<()> {
        let written = match &*self.mapping.read() {
            Some(mapping) if mapping.holds(tail.at, record.len()) => {
                let (mut at, mut written) = (tail.at, Ok(()));
                record.at(self.place(tail.records), |piece| {
                    // One that fails stays one.
                    written = mapping.write(at, piece);
                    at += piece.len() as u64;
                });
                written
            }
            _ => {
                let mut whole = Vec::with_capacity(record.len() as usize);
                record.at(self.place(tail.records), |piece| whole.extend_from_slice(piece));
                self.file.write_all_at(&whole, tail.at)
            }
        };
        if let Err(error) = written {
            self.failed_at(*tail);
            return Err(error);
        }
        tail.at += record.len();
        tail.records += 1;
        Ok(())
    }

    /// A record could not be written at `tail`.
    fn failed_at(&self, tail: Tail) {
        // Of a mapping nothing reaches the file any more where that was; calls may when the file system below has recovered.
        drop(self.mapping.write().take());
        // It may stand there whole all the same.
        let _ = self.file.write_all_at(&[0; record::HEADER_BYTES], tail.at);
        if hides_errors(&self.file) {
            self.syncing.lock().doubtful = Some(tail);
        }
    }

    /// Where pages should be [opened](Self::open_pages) next, if it is time for that, and nobody else was told.
    pub(super) fn pages_to_open(&self, tail: &Tail) -> Option<u64> {
        self.mapping.read().as_ref()?.to_open(tail.at)
    }

    /// Prepares pages from `from` on for records to come.
    pub(super) fn open_pages(&self, from: u64) {
        if let Some(mapping) = &*self.mapping.read() {
            mapping.open(from);
        }
    }

    /// Reads the records from the first on and hands them over, as far as they are whole.
    pub(super) fn replay(&self, mut commit: impl FnMut(Vec<Logged>)) -> io::Result<Replayed> {
        let mut bytes = Vec::new();
        let mut tail = Tail::default();
        let mut ended = false;
        while !ended && self.read_on(&mut bytes, tail)? {
            (tail, ended) = self.read_records(&bytes, tail, &mut commit);
        }
        let Tail { at, records } = tail;
        let behind = at + if ended { Record::END_BYTES } else { 0 };
        self.syncing.lock().doubtful = Some(Tail { at: behind, records });
        Ok(Replayed { commits: records, ended, at })
    }

    /// Reads more of the file than `bytes`, which are all up to there, if the record at `tail` may not be whole in them. `false`: it is, or never will be.
    fn read_on(&self, bytes: &mut Vec<u8>, tail: Tail) -> io::Result<bool> {
        let had = bytes.len() as u64;
        let claim = usize::try_from(tail.at).ok().and_then(|at| Claim::of(bytes.get(at..)?));
        let end =
            claim.map_or(tail.at + record::HEADER_BYTES as u64, |claim| tail.at.saturating_add(claim.len()));
        let is_far = end > had + READ_BYTES;
        if end <= had || is_far && !self.is_whole(claim, tail)? {
            return Ok(false);
        }
        let wanted = end.max(had + READ_BYTES).min(self.file.metadata()?.len());
        bytes.resize(usize::try_from(wanted.max(had)).map_err(|_| io::ErrorKind::OutOfMemory)?, 0);
        let read = read_all_at(&self.file, had, &mut bytes[had as usize..])?;
        bytes.truncate(had as usize + read);
        Ok(read > 0)
    }

    /// Whether a record that is larger than what is read at a time is what it claims, without having it in memory.
    fn is_whole(&self, claim: Option<Claim>, tail: Tail) -> io::Result<bool> {
        let Some(claim) = claim else { return Ok(false) };
        let (mut at, end) = (tail.at + record::HEADER_BYTES as u64, tail.at + claim.len());
        if self.file.metadata()?.len() < end {
            return Ok(false);
        }
        let mut piece = vec![0; CLEARED_BYTES];
        let mut crc = 0;
        while at < end {
            let most = (end - at).min(CLEARED_BYTES as u64) as usize;
            let read = read_all_at(&self.file, at, &mut piece[..most])?;
            if read < most {
                return Ok(false);
            }
            crc = crc32c::crc32c_append(crc, &piece[..most]);
            at += most as u64;
        }
        Ok(claim.is_of(crc, self.place(tail.records)))
    }

    /// Where the records from `tail` on in `bytes`, the file's, stop being whole, and whether they are ended there.
    fn read_records(
        &self,
        bytes: &[u8],
        mut tail: Tail,
        mut commit: impl FnMut(Vec<Logged>),
    ) -> (Tail, bool) {
        loop {
            let rest = usize::try_from(tail.at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            match record::read(rest, self.place(tail.records)) {
                Found::Commit(changes, len) => {
                    commit(changes);
                    tail.at += len as u64;
                    tail.records += 1;
                }
                Found::End => return (tail, true),
                Found::Nothing => return (tail, false),
            }
        }
    }

    /// Puts what has been written on stable storage.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.sync_in_turn(&mut self.syncing.lock())
    }

    fn sync_in_turn(&self, syncing: &mut Syncing) -> io::Result<()> {
        if let Some(errno) = syncing.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let doubtful = syncing.doubtful;
        let synced = doubtful.map_or(Ok(()), |tail| self.write_again(tail)).and_then(|()| self.sync_data());
        match &synced {
            Ok(()) => syncing.doubtful = None,
            Err(error) => syncing.failed = Some(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
        }
        synced
    }

    fn sync_data(&self) -> io::Result<()> {
        #[cfg(test)]
        super::tests::note_sync(self.slot)?;
        self.file.sync_data()?;
        if self.named && !has_name(&self.file) {
            // What is in it is lost with this process.
            let text = "a file of it has been removed (what is in the mount can be read still, and copied)";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }

    /// Writes all up to `tail`, which stands in the file for who reads it, if it is whole still. Where that takes space, which there may be none of, it is read
    /// once more instead, as the file system below has it.
    fn write_again(&self, tail: Tail) -> io::Result<()> {
        let bytes = self.whole_up_to(tail)?;
        if writes_in_place(&self.file) {
            match self.file.write_all_at(&bytes, 0) {
                Err(error) if is_full(&error) => {}
                written => return written,
            }
        }
        self.file.sync_data()?;
        fadvise(&self.file, 0, None, Advice::DontNeed)?;
        self.whole_up_to(tail).map(drop)
    }

    /// Errors: EIO if it is not whole any more.
    fn whole_up_to(&self, tail: Tail) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(tail.at).map_err(|_| io::ErrorKind::OutOfMemory)?];
        let read = read_all_at(&self.file, 0, &mut bytes)?;
        let (found, _) = self.read_records(&bytes[..read], Tail::default(), drop);
        let whole = found.records >= tail.records && Header::decode(&bytes) == Some(self.header);
        if whole { Ok(bytes) } else { Err(Errno::IO.into()) }
    }

    /// The same for a segment that is ended: once.
    pub(super) fn sync_ended(&self) -> io::Result<()> {
        if self.synced.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut syncing = self.syncing.lock();
        if !self.synced.load(Ordering::Acquire) {
            // A sync of pages that are mapped interrupts the other CPUs for each of them.
            drop(self.mapping.write().take());
            self.sync_in_turn(&mut syncing)?;
            self.synced.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.syncing.lock().failed.is_some()
    }
}

/// Where the next record of a segment goes.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) at: u64,
    pub(super) records: u64,
}

impl Default for Tail {
    fn default() -> Self {
        Self { at: RECORDS_AT, records: 0 }
    }
}

/// Writes the first bytes of a file, and puts them on stable storage, without what else there is to be written of it, where the file system below can.
fn write_synced(file: &File, bytes: &[u8]) -> io::Result<()> {
    match retry_on_intr(|| pwritev2(file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::DSYNC)) {
        Ok(written) if written == bytes.len() => Ok(()),
        // So few bytes come whole, but where there is no space for them.
        Ok(_) => Err(Errno::NOSPC.into()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            file.write_all_at(bytes, 0)?;
            file.sync_data()
        }
        Err(errno) => Err(errno.into()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a write to `file` may fail because of what earlier ones left to be sent, of which no sync tells then: an NFS client's (`nfs_file_write` in Linux).
fn hides_errors(file: &File) -> bool {
    const NFS: u32 = 0x6969;
    rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type as u32 == NFS)
}

/// As far as the file goes: it may be shorter by now than it was said to be.
fn read_all_at(file: &File, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

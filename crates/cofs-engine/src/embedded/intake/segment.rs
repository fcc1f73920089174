//! One file of the journal.
//!
//! ```text
//! 0   "cofsjrn1" | generation u64 | previous u64 | oldest u64 | crc32c u32     little-endian
//! 64  records (see `record.rs`)
//! ```
//!
//! `generation` numbers the segments for ever; `previous` is the one before it; `oldest` is the oldest whose commits
//! RocksDB may have lacked when this one was made ready: those before it are dead.
//!
//! Invariant: a header is on stable storage before the first record behind it is written. So no record of a file's
//! present use is ever found under a header of an earlier use.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;
use rustix::{
    fs::{Advice, FallocateFlags, fadvise, fallocate},
    io::Errno,
};

use crate::open_regular;

use super::{
    mapping::Mapping,
    record::{self, Found, Logged, Place, Record},
};

const MAGIC: &[u8; 8] = b"cofsjrn1";
const HEADER_BYTES: usize = 36;
/// Where the records begin.
const RECORDS_AT: u64 = 64;
/// So much is looked at, and cleared, at a time.
const CLEARED_BYTES: usize = 64 << 10;
pub(in crate::embedded) const NAME_PREFIX: &str = "journal-";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) generation: u64,
    pub(super) previous: u64,
    pub(super) oldest: u64,
}

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.previous.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.oldest.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let number =
            |at: usize| header[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let header = Self { generation: number(8), previous: number(16), oldest: number(24) };
        (header.encode() == *bytes.first_chunk::<HEADER_BYTES>()?).then_some(header)
    }
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
    /// It is ended, and on stable storage.
    synced: AtomicBool,
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
    /// fill up and commits go on. Mapped, if it `may_store` and that is safe. On stable storage when this returns.
    pub(super) fn prepare(
        directory: &Path,
        slot: u32,
        header: Header,
        bytes: u64,
        may_store: bool,
    ) -> io::Result<Self> {
        let (file, new) = allocate(directory, slot, bytes)?;
        file.write_all_at(&header.encode(), 0)?;
        if new {
            file.sync_all()?;
            File::open(directory)?.sync_all()?;
        } else {
            file.sync_data()?;
        }
        let mapping = may_store.then(|| Mapping::new(&file, bytes)).flatten();
        Ok(Self { file, mapping: RwLock::new(mapping), slot, header, synced: AtomicBool::new(false) })
    }

    /// Opens a file in use.
    pub(super) fn open(directory: &Path, slot: u32, header: Header, write: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(write).open(path(directory, slot))?;
        Ok(Self { file, mapping: RwLock::new(None), slot, header, synced: AtomicBool::new(false) })
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

    pub(super) fn is_mapped(&self) -> bool {
        self.mapping.read().is_some()
    }

    /// Reads the file's old bytes, so that no store into them has to wait for the disk. Takes as long as the disk does.
    pub(super) fn keep_in_memory(&self) {
        if let Some(mapping) = &*self.mapping.read() {
            // All at once, and not a little at a time.
            let _ = fadvise(&self.file, 0, None, Advice::WillNeed);
            mapping.keep_in_memory();
        }
    }

    pub(super) fn append_at(&self, record: &mut Record<'_>, tail: &mut Tail) -> io::Result<()> {
        let place = Place { generation: self.header.generation, index: tail.records };
        let (begin, len) = (tail.at, record.len());
        match &*self.mapping.read() {
            Some(mapping) if mapping.holds(begin, len) => {
                let (mut at, mut written) = (begin, Ok(()));
                record.at(place, |piece| {
                    // One that fails stays one.
                    written = mapping.write(at, piece);
                    at += piece.len() as u64;
                });
                written?;
            }
            _ => {
                let mut whole = Vec::with_capacity(record.len() as usize);
                record.at(place, |piece| whole.extend_from_slice(piece));
                self.file.write_all_at(&whole, begin)?;
            }
        }
        tail.at += len;
        tail.records += 1;
        Ok(())
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
        let len = self.file.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?];
        let read = read_all_at(&self.file, 0, &mut bytes)?;
        let bytes = &bytes[..read];
        let mut tail = Tail::default();
        loop {
            let rest = usize::try_from(tail.at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            let place = Place { generation: self.header.generation, index: tail.records };
            let ended = match record::read(rest, place) {
                Found::Commit(changes, len) => {
                    commit(changes);
                    tail.at += len as u64;
                    tail.records += 1;
                    continue;
                }
                Found::End => true,
                Found::Nothing => false,
            };
            return Ok(Replayed { commits: tail.records, ended, at: tail.at });
        }
    }

    /// Puts what has been written on stable storage.
    pub(super) fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        super::tests::note_sync(self.slot);
        self.file.sync_data()
    }

    /// The same for a segment that is ended: once.
    pub(super) fn sync_ended(&self) -> io::Result<()> {
        if !self.synced.load(Ordering::Acquire) {
            // A sync of pages that are mapped interrupts the other CPUs for each of them.
            drop(self.mapping.write().take());
            self.sync()?;
            self.synced.store(true, Ordering::Release);
        }
        Ok(())
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

//! Answers: their layouts, and the one place where they enter the transport's buffer.
//!
//! An answer is small (kept beside), a run of bytes (handed over by the file system), laid out where it goes, or already in place,
//! because READ and READDIR wrote it where the kernel will take it from. The transport adds its header. Nothing is allocated.

use std::time::Duration;

use bytes::Bytes;
use cofs_face::{DataPath, DirEntry, Entry, Opened, OpenedDirectory, Space, Stat};
use cofs_types::Attributes;
use smallvec::SmallVec;
use zerocopy::{Immutable, IntoBytes};

use crate::{
    abi::{self, fopen},
    errno::Errno,
};

/// Room for the largest answer that is kept beside: CREATE's entry and open file.
const SMALL_BYTES: usize = size_of::<abi::EntryOut>() + size_of::<abi::OpenOut>();

/// What goes back to the kernel.
#[derive(Debug)]
pub enum Reply {
    /// The kernel expects nothing.
    None,
    Done,
    Small(SmallVec<[u8; SMALL_BYTES]>),
    /// STATX's, laid out only in its place: it is twice as large as all others.
    Statx(Stat),
    Bytes(Bytes),
    /// So many bytes of the buffer are the answer already.
    InPlace(usize),
}

impl Reply {
    pub fn of<T: IntoBytes + Immutable>(value: &T) -> Self {
        const { assert!(size_of::<T>() <= SMALL_BYTES, "a larger one would be allocated for") };
        Self::Small(SmallVec::from_slice(value.as_bytes()))
    }

    /// Puts the answer at the front of `buffer`; returns its length. Errors: EIO if it does not fit, which a
    /// kernel that keeps to the negotiated sizes never meets.
    pub fn place(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let statx;
        let bytes: &[u8] = match self {
            Self::None | Self::Done => return Ok(0),
            Self::InPlace(len) => return Ok(*len),
            Self::Small(small) => small,
            Self::Statx(stat) => {
                statx = statx_out(stat);
                statx.as_bytes()
            }
            Self::Bytes(bytes) => bytes,
        };
        buffer.get_mut(..bytes.len()).ok_or(Errno(libc::EIO))?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// An extended attribute's value or list: the bytes, or their number where the caller asks with no room.
    /// Errors: ERANGE if there is less room than that.
    pub fn sized(bytes: Bytes, room: u32) -> Result<Self, Errno> {
        if room == 0 {
            let size = u32::try_from(bytes.len()).map_err(|_| Errno(libc::E2BIG))?;
            return Ok(Self::of(&abi::GetxattrOut { size, padding: 0 }));
        }
        if bytes.len() > room as usize { Err(Errno(libc::ERANGE)) } else { Ok(Self::Bytes(bytes)) }
    }

    pub fn entry(entry: &Entry) -> Self {
        Self::of(&entry_out(entry))
    }

    /// "No such name", to be believed for so long.
    pub fn negative(validity: Duration) -> Self {
        let (entry_valid, entry_valid_nsec) = seconds(validity);
        Self::of(&abi::EntryOut { entry_valid, entry_valid_nsec, ..Default::default() })
    }

    pub fn attributes(stat: &Stat) -> Self {
        let (attr_valid, attr_valid_nsec) = seconds(stat.validity);
        let attr = attr(&stat.attributes);
        Self::of(&abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr })
    }

    pub fn opened(opened: &Opened) -> Self {
        Self::of(&open_out(opened))
    }

    pub fn created(entry: &Entry, opened: &Opened) -> Self {
        let mut bytes = SmallVec::from_slice(entry_out(entry).as_bytes());
        bytes.extend_from_slice(open_out(opened).as_bytes());
        Self::Small(bytes)
    }

    pub fn opened_directory(opened: &OpenedDirectory) -> Self {
        let open_flags = bit(opened.cache, fopen::CACHE_DIR) | bit(opened.keep_cache, fopen::KEEP_CACHE);
        Self::of(&abi::OpenOut { fh: opened.handle.0, open_flags, backing_id: 0 })
    }

    pub fn written(size: usize) -> Self {
        Self::of(&abi::WriteOut { size: u32::try_from(size).unwrap_or(u32::MAX), padding: 0 })
    }

    pub fn offset(offset: u64) -> Self {
        Self::of(&abi::LseekOut { offset })
    }

    /// Bytes copied, in the 64-bit form of COPY_FILE_RANGE_64 or in WRITE's.
    pub fn copied(bytes_copied: u64, wide: bool) -> Self {
        if wide {
            return Self::of(&abi::CopyFileRangeOut { bytes_copied });
        }
        Self::written(usize::try_from(bytes_copied).unwrap_or(usize::MAX))
    }

    pub fn space(space: &Space) -> Self {
        Self::of(&abi::Kstatfs {
            blocks: space.blocks,
            bfree: space.blocks_free,
            bavail: space.blocks_available,
            files: space.files,
            ffree: space.files_free,
            bsize: space.block_bytes,
            namelen: space.name_bytes_max,
            frsize: space.block_bytes,
            ..Default::default()
        })
    }
}

/// Fills a directory listing until an entry does not fit.
#[derive(Debug)]
pub struct Listing<'a> {
    into: &'a mut [u8],
    len: usize,
    with_attributes: bool,
}

impl<'a> Listing<'a> {
    pub fn new(into: &'a mut [u8], with_attributes: bool) -> Self {
        Self { into, len: 0, with_attributes }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// How many entries have room if their names are the shortest; at least 1.
    pub fn entries_max(&self) -> usize {
        let record = self.head_bytes() + size_of::<abi::Dirent>() + 1;
        (self.into.len() / record.next_multiple_of(8)).max(1)
    }

    const fn head_bytes(&self) -> usize {
        if self.with_attributes { size_of::<abi::EntryOut>() } else { 0 }
    }

    /// `false`, and nothing written, if the entry does not fit.
    pub fn push(&mut self, entry: DirEntry<'_>) -> bool {
        let head_bytes = self.head_bytes();
        let record = head_bytes + size_of::<abi::Dirent>() + entry.name.len();
        let padded = record.next_multiple_of(8);
        let Some(at) = self.into.get_mut(self.len..self.len + padded) else { return false };
        let (attributes, rest) = at.split_at_mut(head_bytes);
        if self.with_attributes {
            attributes.copy_from_slice(entry.entry.map_or(EMPTY, |e| entry_out(&e)).as_bytes());
        }
        let (head, name) = rest.split_at_mut(size_of::<abi::Dirent>());
        let namelen = entry.name.len() as u32;
        let kind = entry.kind.mode_bits() >> 12;
        head.copy_from_slice(
            abi::Dirent { ino: entry.ino.get(), off: entry.cookie, namelen, kind }.as_bytes(),
        );
        let (name, padding) = name.split_at_mut(entry.name.len());
        name.copy_from_slice(entry.name);
        padding.fill(0);
        self.len += padded;
        true
    }
}

/// `st_blksize`. The kernel derives its own block size from it, so it is a page's.
const BLOCK_BYTES: u32 = 4096;

/// An entry that was not looked up.
const EMPTY: abi::EntryOut = abi::EntryOut {
    nodeid: 0,
    generation: 0,
    entry_valid: 0,
    attr_valid: 0,
    entry_valid_nsec: 0,
    attr_valid_nsec: 0,
    attr: abi::Attr {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        atimensec: 0,
        mtimensec: 0,
        ctimensec: 0,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    },
};

/// A time-out as the kernel takes it. It adds the seconds to its clock in jiffies, saturating; what fits 32
/// bits (136 years) is safe on every version.
fn seconds(validity: Duration) -> (u64, u32) {
    match u32::try_from(validity.as_secs()) {
        Ok(secs) => (secs.into(), validity.subsec_nanos()),
        Err(_) => (u32::MAX.into(), 0),
    }
}

fn entry_out(entry: &Entry) -> abi::EntryOut {
    let (entry_valid, entry_valid_nsec) = seconds(entry.validity.entry);
    let (attr_valid, attr_valid_nsec) = seconds(entry.validity.attributes);
    abi::EntryOut {
        nodeid: entry.attributes.ino.get(),
        // Inode numbers are never reused, so one generation does for all.
        generation: 0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&entry.attributes),
    }
}

fn attr(a: &Attributes) -> abi::Attr {
    abi::Attr {
        ino: a.ino.get(),
        size: a.size_bytes,
        blocks: a.blocks_512,
        atime: a.atime.secs as u64,
        mtime: a.mtime.secs as u64,
        ctime: a.ctime.secs as u64,
        atimensec: a.atime.nanos,
        mtimensec: a.mtime.nanos,
        ctimensec: a.ctime.nanos,
        mode: a.mode(),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn statx_out(stat: &Stat) -> abi::StatxOut {
    let (attr_valid, attr_valid_nsec) = seconds(stat.validity);
    let stat = statx(&stat.attributes);
    abi::StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
}

fn statx(a: &Attributes) -> abi::Statx {
    let time = |t: cofs_types::Timestamp| abi::SxTime { tv_sec: t.secs, tv_nsec: t.nanos, reserved: 0 };
    abi::Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: BLOCK_BYTES,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: a.mode() as u16,
        ino: a.ino.get(),
        size: a.size_bytes,
        blocks: a.blocks_512,
        atime: time(a.atime),
        btime: time(a.btime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        rdev_major: libc::major(a.rdev.into()),
        rdev_minor: libc::minor(a.rdev.into()),
        ..Default::default()
    }
}

fn open_out(opened: &Opened) -> abi::OpenOut {
    let (path, backing_id) = match opened.data_path {
        DataPath::Cached { keep_cache } => (bit(keep_cache, fopen::KEEP_CACHE), 0),
        // Without PARALLEL_DIRECT_WRITES: one call's bytes are written before another's, however many requests
        // it takes.
        DataPath::Direct => (fopen::DIRECT_IO, 0),
        DataPath::Passthrough(id) => (fopen::PASSTHROUGH, id.0),
    };
    let open_flags = path | bit(opened.no_flush, fopen::NOFLUSH);
    abi::OpenOut { fh: opened.handle.0, open_flags, backing_id }
}

const fn bit(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use cofs_face::{BackingId, HandleId, Validity};
    use cofs_types::{FileKind, InodeId, Timestamp};

    use super::*;

    fn entry(validity: Duration) -> Entry {
        let time = |secs| Timestamp { secs, nanos: 9 };
        let attributes = Attributes {
            ino: InodeId::new(0x0102).unwrap(),
            kind: FileKind::Regular,
            permissions: 0o644,
            nlink: 3,
            uid: 4,
            gid: 5,
            rdev: 6,
            size_bytes: 7,
            blocks_512: 8,
            atime: time(10),
            mtime: time(11),
            ctime: time(-1),
            btime: time(13),
        };
        Entry { attributes, validity: Validity { entry: validity, attributes: validity } }
    }

    fn bytes(reply: &Reply) -> Vec<u8> {
        let mut buffer = vec![0xEE; 4096];
        let len = reply.place(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn halves(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn golden_attr() -> Vec<u8> {
        [words(&[0x0102, 7, 8, 10, 11, u64::MAX]), halves(&[9, 9, 9, 0o100_644, 3, 4, 5, 6, 4096, 0])]
            .concat()
    }

    fn golden_entry(secs: u64, nanos: u32) -> Vec<u8> {
        [words(&[0x0102, 0, secs, secs]), halves(&[nanos, nanos]), golden_attr()].concat()
    }

    #[test]
    fn entries_and_attributes_have_the_kernels_layout() {
        let entry = entry(Duration::from_millis(1500));
        assert_eq!(bytes(&Reply::entry(&entry)), golden_entry(1, 500_000_000));
        let stat = Stat { attributes: entry.attributes, validity: Duration::from_secs(2) };
        let golden = [words(&[2]), halves(&[0, 0]), golden_attr()].concat();
        assert_eq!(bytes(&Reply::attributes(&stat)), golden);
        assert_eq!(bytes(&Reply::negative(Duration::from_secs(3)))[..24], words(&[0, 0, 3]));
    }

    #[test]
    fn an_answer_that_is_laid_out_in_its_place_makes_no_other_larger() {
        let stat = Stat { attributes: entry(Duration::ZERO).attributes, validity: Duration::from_secs(2) };
        let statx = bytes(&Reply::Statx(stat));
        let head = [words(&[2]), halves(&[0, 0]), words(&[0, 0])].concat();
        assert_eq!((statx.len(), &statx[..32]), (288, &head[..]));
        // `stx_ino` to `stx_blocks`, as `struct statx` has them.
        assert_eq!(statx[32 + 0x20..32 + 0x38], words(&[0x0102, 7, 8]));
        assert!(size_of::<Stat>() <= SMALL_BYTES, "{}", size_of::<Stat>());
    }

    #[test]
    fn for_ever_is_the_longest_time_that_every_kernel_takes() {
        assert_eq!(bytes(&Reply::entry(&entry(Duration::MAX))), golden_entry(u32::MAX.into(), 0));
    }

    #[test]
    fn an_open_file_says_how_its_bytes_travel() {
        let opened =
            |data_path, no_flush| bytes(&Reply::opened(&Opened { handle: HandleId(1), data_path, no_flush }));
        let golden = |flags, id| [words(&[1]), halves(&[flags, id])].concat();
        assert_eq!(opened(DataPath::Cached { keep_cache: true }, true), golden(0b10_0010, 0));
        assert_eq!(opened(DataPath::Cached { keep_cache: false }, false), golden(0, 0));
        assert_eq!(opened(DataPath::Direct, false), golden(1, 0));
        assert_eq!(opened(DataPath::Passthrough(BackingId(12)), false), golden(0b1000_0000, 12));
        let both = Reply::created(
            &entry(Duration::ZERO),
            &Opened { handle: HandleId(1), data_path: DataPath::Direct, no_flush: false },
        );
        assert_eq!(bytes(&both), [golden_entry(0, 0), golden(1, 0)].concat());
    }

    #[test]
    fn a_listing_is_padded_and_stops_at_what_does_not_fit() {
        let ino = InodeId::new(5).unwrap();
        let one = |name| DirEntry { ino, kind: FileKind::Directory, name, cookie: 77, entry: None };
        let mut room = [0xEE; 64];
        let mut listing = Listing::new(&mut room, false);
        assert!(listing.push(one(b"abc")));
        assert!(!listing.push(one(b"longer than eight")));
        assert!(listing.push(one(b"12345678")));
        assert!(!listing.push(one(b"")));
        assert_eq!(listing.len(), 64);
        let golden = [words(&[5, 77]), halves(&[3, 4]), b"abc\0\0\0\0\0".to_vec()].concat();
        assert_eq!(room[..32], golden);
        assert_eq!(room[56..], *b"12345678");
    }

    #[test]
    fn a_listing_with_attributes_has_entries_before_names_and_none_for_dots() {
        let ino = InodeId::new(0x0102).unwrap();
        let mut room = [0xEE; 320];
        let mut listing = Listing::new(&mut room, true);
        let entry = entry(Duration::ZERO);
        let kind = FileKind::Regular;
        assert!(listing.push(DirEntry { ino, kind, name: b".", cookie: 1, entry: None }));
        assert!(listing.push(DirEntry { ino, kind, name: b"a", cookie: 2, entry: Some(entry) }));
        assert_eq!(room[..128], [0; 128]);
        assert_eq!(room[160..288], golden_entry(0, 0));
    }

    #[test]
    fn an_attribute_is_measured_fetched_or_refused() {
        let value = Bytes::from_static(b"value");
        assert_eq!(bytes(&Reply::sized(value.clone(), 0).unwrap()), halves(&[5, 0]));
        assert_eq!(bytes(&Reply::sized(value.clone(), 5).unwrap()), b"value");
        assert_eq!(Reply::sized(value, 4).unwrap_err(), Errno(libc::ERANGE));
    }

    #[test]
    fn what_does_not_fit_its_place_is_an_error_and_no_panic() {
        assert_eq!(Reply::Bytes(Bytes::from_static(b"12345")).place(&mut [0; 4]), Err(Errno(libc::EIO)));
    }
}

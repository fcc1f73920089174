//! Answers: their layouts, and where they are laid out.
//!
//! A short answer is laid out in a place beside its request, from which the request may go on borrowing: [`Short`]. A long one is a run of bytes that the file system
//! hands over, or stands already where the kernel will take it from, because READ and READDIR wrote it there. The transport adds its header. Nothing is
//! allocated, and nothing laid out is moved, but over io_uring once.

use std::time::Duration;

use bytes::Bytes;
use cofs_face::{DataPath, DirEntry, Entry, Opened, OpenedDirectory, Space, Stat};
use cofs_types::Attributes;
use zerocopy::{Immutable, IntoBytes};

use crate::{
    abi::{self, fopen},
    errno::Errno,
};

/// Room for the largest answer that is laid out beside its request: STATX's.
pub const SHORT_BYTES: usize = size_of::<abi::StatxOut>();

/// Where the body of an answer stands, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Beside the request.
    Short(usize),
    /// In its place.
    Long(usize),
}

/// What goes back to the kernel.
#[derive(Debug)]
pub enum Reply {
    /// The kernel expects nothing.
    None,
    Placed(Body),
    /// To be put in the place of the request.
    Bytes(Bytes),
}

impl Reply {
    /// It is done, and there is no more to say.
    pub const DONE: Self = Self::Placed(Body::Short(0));

    /// So many bytes in the request's place are the answer.
    pub fn in_place(len: usize) -> Self {
        Self::Placed(Body::Long(len))
    }
}

/// Puts an answer at the front of `place`; returns its length. Errors: EIO if it does not fit, which a kernel that keeps to the
/// negotiated sizes never meets.
pub fn put(bytes: &[u8], place: &mut [u8]) -> Result<usize, Errno> {
    place.get_mut(..bytes.len()).ok_or(Errno(libc::EIO))?.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Where a short answer is laid out.
#[derive(Debug)]
pub struct Short<'a>(pub &'a mut [u8; SHORT_BYTES]);

impl Short<'_> {
    fn of<T: IntoBytes + Immutable>(&mut self, value: &T) -> Reply {
        self.at::<T, 0>(value)
    }

    /// `value` so far into the place: the answer ends with it.
    fn at<T: IntoBytes + Immutable, const AT: usize>(&mut self, value: &T) -> Reply {
        const { assert!(AT + size_of::<T>() <= SHORT_BYTES, "it has no room") };
        let (_, place) = self.0.split_at_mut(AT);
        let (place, _) = place.split_at_mut(size_of::<T>());
        place.copy_from_slice(value.as_bytes());
        Reply::Placed(Body::Short(AT + size_of::<T>()))
    }

    /// An extended attribute's value or list: the bytes, or their number where the caller asks with no room.
    /// Errors: ERANGE if there is less room than that.
    pub fn sized(&mut self, bytes: Bytes, room: u32) -> Result<Reply, Errno> {
        if room == 0 {
            let size = u32::try_from(bytes.len()).map_err(|_| Errno(libc::E2BIG))?;
            return Ok(self.of(&abi::GetxattrOut { size, padding: 0 }));
        }
        if bytes.len() > room as usize { Err(Errno(libc::ERANGE)) } else { Ok(Reply::Bytes(bytes)) }
    }

    pub fn entry(&mut self, entry: &Entry) -> Reply {
        self.of(&entry_out(entry))
    }

    /// "No such name", to be believed for so long.
    pub fn negative(&mut self, validity: Duration) -> Reply {
        let (entry_valid, entry_valid_nsec) = seconds(validity);
        self.of(&abi::EntryOut { entry_valid, entry_valid_nsec, ..Default::default() })
    }

    pub fn attributes(&mut self, stat: &Stat) -> Reply {
        let (attr_valid, attr_valid_nsec) = seconds(stat.validity);
        let attr = attr(&stat.attributes);
        self.of(&abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr })
    }

    pub fn statx(&mut self, stat: &Stat) -> Reply {
        self.of(&statx_out(stat))
    }

    pub fn opened(&mut self, opened: &Opened) -> Reply {
        self.of(&open_out(opened))
    }

    pub fn created(&mut self, entry: &Entry, opened: &Opened) -> Reply {
        self.entry(entry);
        self.at::<_, { size_of::<abi::EntryOut>() }>(&open_out(opened))
    }

    pub fn opened_directory(&mut self, opened: &OpenedDirectory) -> Reply {
        let open_flags = bit(opened.cache, fopen::CACHE_DIR) | bit(opened.keep_cache, fopen::KEEP_CACHE);
        self.of(&abi::OpenOut { fh: opened.handle.0, open_flags, backing_id: 0 })
    }

    pub fn written(&mut self, size: usize) -> Reply {
        self.of(&abi::WriteOut { size: u32::try_from(size).unwrap_or(u32::MAX), padding: 0 })
    }

    pub fn offset(&mut self, offset: u64) -> Reply {
        self.of(&abi::LseekOut { offset })
    }

    /// Bytes copied, in the 64-bit form of COPY_FILE_RANGE_64 or in WRITE's.
    pub fn copied(&mut self, bytes_copied: u64, wide: bool) -> Reply {
        if wide {
            return self.of(&abi::CopyFileRangeOut { bytes_copied });
        }
        self.written(usize::try_from(bytes_copied).unwrap_or(usize::MAX))
    }

    pub fn space(&mut self, space: &Space) -> Reply {
        self.of(&abi::Kstatfs {
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

    fn bytes(lay_out: impl FnOnce(&mut Short<'_>) -> Reply) -> Vec<u8> {
        let mut place = [0xEE; SHORT_BYTES];
        match lay_out(&mut Short(&mut place)) {
            Reply::Placed(Body::Short(len)) => place[..len].to_vec(),
            Reply::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
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
        assert_eq!(bytes(|short| short.entry(&entry)), golden_entry(1, 500_000_000));
        let stat = Stat { attributes: entry.attributes, validity: Duration::from_secs(2) };
        let golden = [words(&[2]), halves(&[0, 0]), golden_attr()].concat();
        assert_eq!(bytes(|short| short.attributes(&stat)), golden);
        assert_eq!(bytes(|short| short.negative(Duration::from_secs(3)))[..24], words(&[0, 0, 3]));
    }

    #[test]
    fn the_largest_short_answer_has_the_kernels_layout() {
        let stat = Stat { attributes: entry(Duration::ZERO).attributes, validity: Duration::from_secs(2) };
        let statx = bytes(|short| short.statx(&stat));
        let head = [words(&[2]), halves(&[0, 0]), words(&[0, 0])].concat();
        assert_eq!((statx.len(), &statx[..32]), (288, &head[..]));
        // `stx_ino` to `stx_blocks`, as `struct statx` has them.
        assert_eq!(statx[32 + 0x20..32 + 0x38], words(&[0x0102, 7, 8]));
    }

    #[test]
    fn for_ever_is_the_longest_time_that_every_kernel_takes() {
        assert_eq!(bytes(|short| short.entry(&entry(Duration::MAX))), golden_entry(u32::MAX.into(), 0));
    }

    #[test]
    fn an_open_file_says_how_its_bytes_travel() {
        let opened = |data_path, no_flush| {
            bytes(|short| short.opened(&Opened { handle: HandleId(1), data_path, no_flush }))
        };
        let golden = |flags, id| [words(&[1]), halves(&[flags, id])].concat();
        assert_eq!(opened(DataPath::Cached { keep_cache: true }, true), golden(0b10_0010, 0));
        assert_eq!(opened(DataPath::Cached { keep_cache: false }, false), golden(0, 0));
        assert_eq!(opened(DataPath::Direct, false), golden(1, 0));
        assert_eq!(opened(DataPath::Passthrough(BackingId(12)), false), golden(0b1000_0000, 12));
        let direct = Opened { handle: HandleId(1), data_path: DataPath::Direct, no_flush: false };
        let both = bytes(|short| short.created(&entry(Duration::ZERO), &direct));
        assert_eq!(both, [golden_entry(0, 0), golden(1, 0)].concat());
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
        assert_eq!(bytes(|short| short.sized(value.clone(), 0).unwrap()), halves(&[5, 0]));
        assert_eq!(bytes(|short| short.sized(value.clone(), 5).unwrap()), b"value");
        assert_eq!(Short(&mut [0; SHORT_BYTES]).sized(value, 4).unwrap_err(), Errno(libc::ERANGE));
    }

    #[test]
    fn what_does_not_fit_its_place_is_an_error_and_no_panic() {
        assert_eq!(put(b"12345", &mut [0; 4]), Err(Errno(libc::EIO)));
    }
}

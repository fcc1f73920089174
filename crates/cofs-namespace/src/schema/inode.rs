//! The inode's record.

use bytes::Bytes;
use cofs_types::{FileKind, FsResult, InodeId, Layout, ObjectId, Timestamp, limits};

use super::{
    SmallXattrs,
    packed::Front,
    wire::{Reader, Rest, put_number},
};

pub(super) const VERSION: u8 = 1;

/// Of all that stands before a symlink's target: two bytes, 19 numbers at their longest, and room for how they are written.
const NUMBERS_BYTES_MAX: usize = 2 + 19 * 10 + 8;

const ATIME: u64 = 1;
const MTIME: u64 = 1 << 1;
const CTIME: u64 = 1 << 2;
const DEVICE: u64 = 1 << 3;
const PARENT: u64 = 1 << 4;
const OBJECT: u64 = 1 << 5;
const TARGET: u64 = 1 << 6;
const XATTRS: u64 = 1 << 7;
const LARGE_XATTRS: u64 = 1 << 8;
const IN_WRITING: u64 = 1 << 9;
const LINKABLE: u64 = 1 << 10;
const KNOWN: u64 = (1 << 11) - 1;

/// An inode as it is stored. What a directory shows besides (subdirectories, gathered times) stands in its
/// [`Shard`](super::Shard).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub permissions: u16,
    /// Names that lead here. A directory has 2 as long as it stands, 0 when it is removed.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Of a regular file; 0 for the other kinds.
    pub size_bytes: u64,
    /// Of a file in an object; 0 else.
    pub blocks_512: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// Of a directory: where `..` leads.
    pub parent: Option<InodeId>,
    pub layout: Layout,
    /// It stands in `W`.
    pub writing: bool,
    /// Made without a name, and may get one.
    pub linkable: bool,
    /// A symlink's.
    pub target: Bytes,
    pub xattrs: SmallXattrs,
    /// How many stand in records of their own.
    pub large_xattrs: u32,
}

impl Inode {
    /// An inode without names, times all `now`.
    pub fn new(kind: FileKind, permissions: u16, owner: (u32, u32), now: Timestamp) -> Self {
        Self {
            kind,
            permissions,
            nlink: 0,
            uid: owner.0,
            gid: owner.1,
            rdev: 0,
            size_bytes: 0,
            blocks_512: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent: None,
            layout: Layout::Inline,
            writing: false,
            linkable: false,
            target: Bytes::new(),
            xattrs: SmallXattrs::default(),
            large_xattrs: 0,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let flags = self.flags();
        let mut front = Front::<NUMBERS_BYTES_MAX>::new();
        front.byte(VERSION);
        front.number(flags);
        front.byte(self.kind as u8);
        for number in [u32::from(self.permissions), self.nlink, self.uid, self.gid] {
            front.number(u64::from(number));
        }
        front.number(self.size_bytes);
        front.time(self.btime);
        // Most changes set several to the same.
        let mut last = None;
        for (flag, time) in [(ATIME, self.atime), (MTIME, self.mtime), (CTIME, self.ctime)] {
            if flags & flag != 0 {
                let begin = front.len();
                match last {
                    Some((same, at)) if same == time => front.again(at),
                    _ => front.time(time),
                }
                last = Some((time, begin));
            }
        }
        self.encode_rare(flags, &mut front);
        let mut out = front.bytes().to_vec();
        for (flag, bytes) in [(TARGET, &self.target[..]), (XATTRS, self.xattrs.packed())] {
            if flags & flag != 0 {
                put_number(&mut out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
        }
        out
    }

    fn encode_rare(&self, flags: u64, front: &mut Front<NUMBERS_BYTES_MAX>) {
        if flags & DEVICE != 0 {
            front.number(u64::from(self.rdev));
        }
        if let Some(parent) = self.parent {
            front.number(parent.get());
        }
        if let Layout::Object(object) = self.layout {
            front.number(object.get());
            front.number(self.blocks_512);
        }
        if flags & LARGE_XATTRS != 0 {
            front.number(u64::from(self.large_xattrs));
        }
    }

    fn flags(&self) -> u64 {
        let flag = |condition: bool, bit: u64| if condition { bit } else { 0 };
        flag(self.atime != self.btime, ATIME)
            | flag(self.mtime != self.btime, MTIME)
            | flag(self.ctime != self.btime, CTIME)
            | flag(self.rdev != 0, DEVICE)
            | flag(self.parent.is_some(), PARENT)
            | flag(matches!(self.layout, Layout::Object(_)), OBJECT)
            | flag(!self.target.is_empty(), TARGET)
            | flag(!self.xattrs.is_empty(), XATTRS)
            | flag(self.large_xattrs != 0, LARGE_XATTRS)
            | flag(self.writing, IN_WRITING)
            | flag(self.linkable, LINKABLE)
    }

    pub fn decode(value: &[u8]) -> FsResult<Self> {
        let mut inode = Self::blank();
        inode.decode_into(value)?;
        Ok(inode)
    }

    /// A place for [`decode_into`](Self::decode_into).
    pub fn blank() -> Self {
        Self::new(FileKind::Regular, 0, (0, 0), Timestamp::default())
    }

    /// Reads an inode into its place: it is large to be handed from one to the next. Errors leave something of both.
    pub fn decode_into(&mut self, value: &[u8]) -> FsResult<()> {
        let mut reader = Reader::versioned(value, VERSION, "inode")?;
        reader.read(|rest| self.parse(rest))?;
        reader.end()
    }

    fn parse(&mut self, rest: &mut Rest<'_>) -> Option<()> {
        let flags = rest.number()?;
        let kind = FileKind::from_byte(rest.byte()?)?;
        let permissions = u16::try_from(rest.number()?).ok()?;
        if flags & !KNOWN != 0 || permissions & !0o7777 != 0 {
            return None;
        }
        let [nlink, uid, gid] = [rest.number_u32()?, rest.number_u32()?, rest.number_u32()?];
        let size_bytes = rest.number()?;
        let btime = rest.time()?;
        let mut time = |flag| if flags & flag != 0 { rest.time() } else { Some(btime) };
        let (atime, mtime, ctime) = (time(ATIME)?, time(MTIME)?, time(CTIME)?);
        *self = Self::new(kind, permissions, (uid, gid), btime);
        (self.nlink, self.size_bytes) = (nlink, size_bytes);
        (self.atime, self.mtime, self.ctime) = (atime, mtime, ctime);
        self.parse_rare(flags, rest)?;
        (size_bytes <= self.size_bytes_max() && self.flags() == flags).then_some(())
    }

    /// No file of this kind and layout is larger.
    fn size_bytes_max(&self) -> u64 {
        match (self.kind, self.layout) {
            (FileKind::Regular, Layout::Inline) => u64::from(limits::INLINE_BYTES_LIMIT),
            (FileKind::Regular, Layout::Object(_)) => limits::FILE_BYTES_MAX,
            _ => 0,
        }
    }

    fn parse_rare(&mut self, flags: u64, rest: &mut Rest<'_>) -> Option<()> {
        if flags & DEVICE != 0 {
            self.rdev = rest.number_u32()?;
        }
        if flags & PARENT != 0 {
            self.parent = Some(rest.ino()?);
        }
        if flags & OBJECT != 0 {
            self.layout = Layout::Object(ObjectId::from_raw(rest.number()?));
            self.blocks_512 = rest.number()?;
        }
        if flags & LARGE_XATTRS != 0 {
            self.large_xattrs = rest.number_u32()?;
        }
        if flags & TARGET != 0 {
            self.target = Bytes::copy_from_slice(sized(rest)?);
        }
        if flags & XATTRS != 0 {
            self.xattrs = SmallXattrs::parse(Bytes::copy_from_slice(sized(rest)?)).ok()?;
        }
        self.writing = flags & IN_WRITING != 0;
        self.linkable = flags & LINKABLE != 0;
        Some(())
    }
}

fn sized<'a>(rest: &mut Rest<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(rest.number()?).ok()?;
    rest.bytes(len)
}

//! What `stat` tells, and what can be set of it.

use crate::{InodeId, Timestamp};

/// The kind of an inode (POSIX `S_IFMT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    Regular = 1,
    Directory = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    CharDevice = 6,
    BlockDevice = 7,
}

impl FileKind {
    /// The kind behind a stored byte; `None` for a byte that names none.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Socket,
            6 => Self::CharDevice,
            7 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits of `st_mode` (Linux, `stat.h`).
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }

    /// The kind that the `S_IFMT` bits of `mode` name; 0 means a regular file, as in mknod(2).
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 | 0 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// An inode's attributes, as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub ino: InodeId,
    pub kind: FileKind,
    /// Permission, set-id and sticky bits: `mode & 0o7777`.
    pub permissions: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device node (Linux's 32-bit encoding), else 0.
    pub rdev: u32,
    pub size_bytes: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Time of birth.
    pub btime: Timestamp,
}

impl Attributes {
    /// `st_mode`: kind and permissions.
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions as u32
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    To(Timestamp),
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    pub permissions: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Only cofs itself sets this (restore, `load`); else it follows every change.
    pub ctime: Option<Timestamp>,
    /// The caller lacks the privilege to keep set-id bits over this change (`FATTR_KILL_SUIDGID`). Alone: over a
    /// change of the file's bytes that comes next.
    pub kill_set_id: bool,
}

impl SetAttributes {
    /// Nothing but the set-id bits goes.
    pub const KILL_SET_ID: Self = Self {
        permissions: None,
        uid: None,
        gid: None,
        size_bytes: None,
        atime: None,
        mtime: None,
        ctime: None,
        kill_set_id: true,
    };
}

/// What a new inode is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    pub kind: FileKind,
    /// Permission, set-id and sticky bits as asked for, before umask and default ACL.
    pub permissions: u16,
    /// The caller's umask; it does not apply where the directory has a default ACL.
    pub umask: u16,
    /// For device nodes.
    pub rdev: u32,
    /// A symlink's target (1 to 4095 bytes), else empty.
    pub target: &'a [u8],
}

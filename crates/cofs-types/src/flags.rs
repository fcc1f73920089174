//! How a thing is asked for: open flags, rename modes and the like, parsed from the kernel's bits once.

/// What an open file may be used for (`O_ACCMODE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMode {
    Read,
    Write,
    ReadWrite,
}

impl AccessMode {
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// The flags of open(2) that concern the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags {
    pub access: AccessMode,
    pub truncate: bool,
    pub append: bool,
    /// `O_EXCL` at create; at `O_TMPFILE` it forbids linking the file later.
    pub exclusive: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_SYNC` (with `data_sync`) or `O_DSYNC` (`data_sync` alone).
    pub sync: bool,
    pub data_sync: bool,
    pub no_atime: bool,
    /// Opened for execve(2).
    pub exec: bool,
    /// The caller lacks the privilege to keep set-id bits over a truncating open.
    pub kill_set_id: bool,
}

impl OpenFlags {
    pub const fn new(access: AccessMode) -> Self {
        Self {
            access,
            truncate: false,
            append: false,
            exclusive: false,
            direct: false,
            sync: false,
            data_sync: false,
            no_atime: false,
            exec: false,
            kill_set_id: false,
        }
    }
}

/// renameat2(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    #[default]
    Replace,
    NoReplace,
    Exchange,
    /// `RENAME_WHITEOUT`: a whiteout (a character device 0:0 without permissions) takes the old name. What has the new
    /// one is replaced, or stands in the way.
    Whiteout {
        replace: bool,
    },
}

impl RenameMode {
    /// Whether what has the new name loses it.
    pub const fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout { replace: true })
    }
}

/// setxattr(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    #[default]
    Set,
    /// `XATTR_CREATE`: fails with `Exists` if it stands.
    Create,
    /// `XATTR_REPLACE`: fails with `NoAttribute` if it does not.
    Replace,
    /// Both: fails whether it stands or not.
    Never,
}

/// What a change of a file's bytes takes from it besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kills {
    /// It was made by a mapping.
    Nothing,
    Capabilities,
    /// And the set-id bits, which the changer may not keep.
    SetIdToo,
}

/// fallocate(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallocateMode {
    Allocate { keep_size: bool },
    PunchHole,
    ZeroRange { keep_size: bool },
}

/// `SEEK_DATA` and `SEEK_HOLE` of lseek(2); the rest the kernel answers itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekWhence {
    Data,
    Hole,
}

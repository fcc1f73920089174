//! What can be wrong.

use std::fmt;

use cofs_types::{FileKind, InodeId, NameBuf, ObjectId};

use super::{Salvage, Was};

/// A contradiction in a volume's metadata. Its text says what is wrong and what a repair does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// There is no root directory. Nothing else is told before it is made again.
    NoRoot,
    /// An inode is not there or cannot be read, and what leads to it tells what it was.
    Lost {
        ino: InodeId,
        was: Was,
    },
    /// A record that no version of the format writes there.
    UnknownRecord {
        key: Vec<u8>,
    },
    /// A record whose key or value cannot be understood.
    Undecodable {
        key: Vec<u8>,
        what: String,
    },
    /// The directory of an entry does not exist or is none.
    EntryWithoutDirectory {
        dir: InodeId,
        slot: u64,
    },
    /// The inode of an entry does not exist.
    DanglingEntry {
        dir: InodeId,
        slot: u64,
        name: NameBuf,
        ino: InodeId,
    },
    /// The entry says another kind than the inode.
    EntryKind {
        dir: InodeId,
        slot: u64,
        stored: FileKind,
        kind: FileKind,
    },
    /// A look-up of the name does not come to this slot, or comes to an earlier one.
    MisplacedEntry {
        dir: InodeId,
        slot: u64,
        name: NameBuf,
    },
    /// A directory has a name elsewhere than in its parent.
    ExtraDirectoryEntry {
        dir: InodeId,
        slot: u64,
        ino: InodeId,
    },
    /// A directory's only name is not in what it takes for its parent.
    WrongParent {
        ino: InodeId,
        stored: Option<InodeId>,
        found: InodeId,
    },
    /// No name leads here.
    Unreachable {
        ino: InodeId,
    },
    /// Directories that lie in one another, away from the root; `ino` is one of them.
    Cycle {
        ino: InodeId,
        parent: InodeId,
    },
    LinkCount {
        ino: InodeId,
        stored: u32,
        found: u32,
    },
    Subdirectories {
        dir: InodeId,
        stored: u32,
        found: u32,
    },
    StrayShard {
        dir: InodeId,
        shard: u16,
    },
    /// Inline data of no inode, of one that has no such bytes, or beyond its end.
    StrayInline {
        ino: InodeId,
        chunk: u32,
    },
    /// An extended attribute of no inode, or of one that knows of none.
    StrayXattr {
        key: Vec<u8>,
    },
    LargeXattrs {
        ino: InodeId,
        stored: u32,
        found: u32,
    },
    /// The set of files open for writing and the inode contradict each other.
    Writing {
        ino: InodeId,
        marked: bool,
    },
    /// A mark of an unlinked inode, which does not exist or has names.
    StrayUnlinked {
        ino: InodeId,
    },
    /// An object in use stands on the reclaim list.
    ReclaimInUse {
        object: ObjectId,
        ino: InodeId,
    },
    /// Numbers of inodes that exist could be given out again.
    Reservation {
        stored: Option<u64>,
        needed: u64,
    },
    FileCount {
        stored: Option<u64>,
        found: u64,
    },
    /// The header says that no inode has a security label.
    Labelled {
        ino: InodeId,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoot => write!(f, "there is no root directory: make one"),
            Self::Lost { ino, was: Was::Directory { .. } } => {
                write!(f, "inode {ino} of a directory is lost: make it anew, for root alone")
            }
            Self::Lost { ino, was: Was::Inline { size_bytes } } => {
                write!(
                    f,
                    "inode {ino} of a file is lost: make it anew for its {size_bytes} bytes, for root alone"
                )
            }
            Self::Lost { ino, was: Was::Object(Salvage { object, size_bytes, .. }) } => {
                write!(
                    f,
                    "inode {ino} of a file is lost: make it anew for object {object} of {size_bytes} bytes, for root alone"
                )
            }
            Self::UnknownRecord { key } => write!(f, "unknown record {}: remove it", key.escape_ascii()),
            Self::Undecodable { key, what } => {
                write!(f, "record {} cannot be read ({what}): remove it", key.escape_ascii())
            }
            Self::EntryWithoutDirectory { dir, slot } => {
                write!(f, "entry {slot:x} of {dir}, which is no directory: remove it")
            }
            Self::DanglingEntry { dir, name, ino, .. } => {
                write!(
                    f,
                    "entry {name:?} of directory {dir} leads to inode {ino}, which does not exist: remove it"
                )
            }
            Self::EntryKind { dir, slot, stored, kind } => {
                write!(f, "entry {slot:x} of directory {dir} says {stored:?}, its inode {kind:?}: correct it")
            }
            Self::MisplacedEntry { dir, name, .. } => {
                write!(f, "entry {name:?} of directory {dir} stands where it is not looked for: move it")
            }
            Self::ExtraDirectoryEntry { dir, slot, ino } => {
                write!(f, "directory {ino} has a second name, entry {slot:x} of directory {dir}: remove it")
            }
            Self::WrongParent { ino, found, .. } => {
                write!(
                    f,
                    "directory {ino} lies in directory {found}, but takes another for its parent: correct it"
                )
            }
            Self::Unreachable { ino } => write!(f, "inode {ino} has no name: put it into lost+found"),
            Self::Cycle { ino, parent } => {
                write!(f, "directory {ino} lies in itself by way of {parent}: take it out")
            }
            Self::LinkCount { ino, stored, found } => {
                write!(f, "inode {ino} counts {stored} links, and has {found}: correct it")
            }
            Self::Subdirectories { dir, stored, found } => {
                write!(f, "directory {dir} counts {stored} subdirectories, and has {found}: correct it")
            }
            other => other.fmt_marks(f),
        }
    }
}

impl Problem {
    fn fmt_marks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StrayShard { dir, .. } => write!(f, "figures of {dir}, which is no directory: remove them"),
            Self::StrayInline { ino, chunk } => {
                write!(f, "inline data {chunk} of inode {ino}, which has no such bytes: remove it")
            }
            Self::StrayXattr { key } => {
                write!(f, "extended attribute {} that belongs to no inode: remove it", key.escape_ascii())
            }
            Self::LargeXattrs { ino, stored, found } => {
                write!(
                    f,
                    "inode {ino} counts {stored} large extended attributes, and has {found}: correct it"
                )
            }
            Self::Writing { ino, marked: true } => {
                write!(f, "inode {ino} is marked as open for writing, and does not say so: correct it")
            }
            Self::Writing { ino, marked: false } => {
                write!(f, "inode {ino} says it is open for writing, and is not marked: correct it")
            }
            Self::StrayUnlinked { ino } => {
                write!(f, "inode {ino} is marked as unlinked, and is not: remove the mark")
            }
            Self::ReclaimInUse { object, ino } => {
                write!(f, "object {object} of inode {ino} stands on the reclaim list: take it off")
            }
            Self::Reservation { needed, .. } => {
                write!(f, "inode numbers in use are not reserved: reserve up to {needed}")
            }
            Self::FileCount { stored: Some(stored), found } => {
                write!(f, "the header counts {stored} inodes, and there are {found}: correct it")
            }
            Self::FileCount { stored: None, found } => {
                write!(f, "the header's figures cannot be read, and there are {found} inodes: write them")
            }
            Self::Labelled { ino } => {
                write!(
                    f,
                    "inode {ino} has a security label, and the header knows of none in the volume: correct it"
                )
            }
            _ => Ok(()),
        }
    }
}

//! POSIX semantics as transactions over the engine.
//!
//! [`Namespace`] answers every question about names, inodes and their attributes, and changes them, one
//! transaction per operation. It does I/O only through the engine, reads no clock and draws no random
//! number: time is an argument, so that what a simulator runs is the production code.

pub mod acl;
pub mod check;
pub mod dump;
mod ops;
mod schema;
mod tables;
mod tx;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;

use cofs_types::{Attributes, FileKind, FsResult, InodeId, Layout, Name, Timestamp};
use parking_lot::Mutex;

pub use crate::schema::KEY_SHAPE;
use crate::{
    schema::NameHasher,
    tables::{allocator::Allocator, labels::Labels, pool_ends::PoolEnds},
    tx::{Store, Tx, Verb},
};

/// What a volume is formatted with, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeOptions {
    /// Files up to this size may keep their bytes with the metadata; at most `limits::INLINE_BYTES_LIMIT`.
    pub inline_bytes_max: u32,
    /// The SipHash-1-3 key of the entry hash, drawn at format.
    pub hash_key: [u8; 16],
}

/// Who knows which inodes are open.
pub trait OpenInodes: Send + Sync {
    /// Asked inside the commit of the last unlink, under the inode's lock: it must not call the name space.
    fn is_open(&self, ino: InodeId) -> bool;
}

/// An inode with what the other drivers need of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    pub attributes: Attributes,
    pub layout: Layout,
    /// It stands in the open-for-writing set `W`: size and times are those of its object.
    pub writing: bool,
}

/// What became of an inode that lost a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Other names remain.
    Linked,
    /// It was open as it lost its name: it stands in `U` until [`Namespace::release_unlinked`]. Who closes it
    /// last calls that; if the last close has come just before this answer, the one who gets it does.
    Kept,
    /// Its record is deleted; its object, if any, is on the reclaim list.
    Gone,
}

/// What a removal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The inode as it is now: nlink 0 when the last name went, ctime = now.
    pub node: Node,
    pub fate: Fate,
}

/// What a rename did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// What stood at the new name before.
    pub replaced: Option<Removed>,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct ListedEntry<'a> {
    pub name: &'a Name,
    pub ino: InodeId,
    pub kind: FileKind,
    /// Where a listing goes on behind this entry.
    pub cookie: u64,
    pub node: Option<Node>,
}

/// Which entries of a listing come with their nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithNodes {
    None,
    /// Directories: a reader who goes down the tree needs them.
    Directories,
    All,
}

impl WithNodes {
    fn of(self, kind: FileKind) -> bool {
        match self {
            Self::None => false,
            Self::Directories => kind == FileKind::Directory,
            Self::All => true,
        }
    }
}

/// What an object tells of its file, to be kept in the inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    pub size_bytes: u64,
    pub blocks_512: u64,
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub ctime: Option<Timestamp>,
    /// The change came from one who may not keep set-id bits.
    pub kill_set_id: bool,
    /// The capabilities go, which they have not yet: the kernel takes them away before a write, and may have been given others since.
    pub drop_capability: bool,
}

/// How a closed file's bytes may be lost: in a power cut, or with the file system below, for neither of which its last close waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsynced {
    /// When it was closed, in seconds since the machine started: what its object was given is older than a sync of the pool that
    /// begins in a later one.
    pub second: u32,
    /// In which run of the machine and of the file system below; 0 where that is not known. In the same one nothing is lost.
    pub run: u64,
}

/// Whether a settled file stays in the open-for-writing set `W`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Somebody may write it.
    Stays,
    /// Nobody does, and it is marked: a power cut may take what its object has.
    Closed(Unsynced),
    /// It leaves. What its object has is on stable storage.
    Synced,
}

/// The name space of one volume. Every method may be called from any thread; none waits but for the engine.
pub struct Namespace {
    store: Store,
    allocator: Allocator,
    hasher: NameHasher,
    labels: Labels,
    pool_ends: PoolEnds,
    options: VolumeOptions,
    was_clean: bool,
    /// Whether the number of files is right, and not only near: see `Counts::exact`.
    counts_exactly: bool,
    /// The figure that the header has.
    files_counted: AtomicU64,
    /// Held by a move of a directory into another: see `ops/rename.rs`.
    tree: Mutex<()>,
}

impl Namespace {
    /// Runs an operation that removes no inode.
    fn commit<T>(&self, verb: &Verb, body: impl FnMut(&mut Tx<'_>) -> FsResult<T>) -> FsResult<T> {
        Ok(self.commit_removal(verb, body)?.0)
    }

    /// Runs an operation; tells besides what became of an inode that lost its last name.
    fn commit_removal<T>(
        &self,
        verb: &Verb,
        body: impl FnMut(&mut Tx<'_>) -> FsResult<T>,
    ) -> FsResult<(T, Option<Fate>)> {
        let done = self.store.run(verb, body)?;
        // What fails here is told by the next flush: this operation has been done.
        let _ = self.store.relieve_gathered();
        Ok(done)
    }
}

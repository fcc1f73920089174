//! POSIX semantics as transactions over the engine.
//!
//! [`Namespace`] answers every question about names, inodes and their attributes, and changes them, one
//! transaction per operation. It does I/O only through the engine, reads no clock and draws no random
//! number: time is an argument, so that what a simulator runs is the production code.

pub mod acl;

use std::sync::Arc;

use bytes::Bytes;
use cofs_engine::{Engine, EngineStats};
use cofs_types::{
    Attributes, Credentials, FileKind, FsError, FsResult, InodeId, Layout, Name, NewInode, ObjectId,
    RenameMode, SetAttributes, Timestamp, XattrMode, XattrName,
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
    /// It is open: it stands in `U` until [`Namespace::release_unlinked`].
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
}

/// The name space of one volume. Every method may be called from any thread.
pub struct Namespace {
    engine: Arc<dyn Engine>,
    #[allow(dead_code)]
    opens: Arc<dyn OpenInodes>,
    options: VolumeOptions,
}

#[allow(unused_variables, clippy::too_many_arguments)]
impl Namespace {
    /// Writes an empty volume. Refuses an engine that is not empty.
    pub fn format(
        engine: &dyn Engine,
        options: &VolumeOptions,
        root: (u32, u32, u16),
        now: Timestamp,
    ) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn open(engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>) -> FsResult<Self> {
        Err(FsError::NotImplemented)
    }
    pub fn options(&self) -> VolumeOptions {
        self.options
    }
    pub fn lookup(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn node(&self, ino: InodeId) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn parent(&self, ino: InodeId) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn create(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
        new: &NewInode<'_>,
        object: Option<ObjectId>,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn create_unlinked(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        new: &NewInode<'_>,
        linkable: bool,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn link(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn unlink(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Removed> {
        Err(FsError::NotImplemented)
    }
    pub fn rmdir(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Removed> {
        Err(FsError::NotImplemented)
    }
    pub fn rename(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        Err(FsError::NotImplemented)
    }
    pub fn readlink(&self, ino: InodeId) -> FsResult<Bytes> {
        Err(FsError::NotImplemented)
    }
    pub fn list(
        &self,
        ino: InodeId,
        cookie: u64,
        with_nodes: bool,
        visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
    ) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn release_unlinked(&self, now: Timestamp, ino: InodeId) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn setattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        change: &SetAttributes,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn touch_atime(&self, now: Timestamp, ino: InodeId) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn getxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> FsResult<Bytes> {
        Err(FsError::NotImplemented)
    }
    pub fn setxattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        name: &XattrName,
        value: &[u8],
        mode: XattrMode,
        kill_set_gid: bool,
    ) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn listxattr(&self, ino: InodeId) -> FsResult<Bytes> {
        Err(FsError::NotImplemented)
    }
    pub fn removexattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        name: &XattrName,
    ) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn access(&self, c: &Credentials<'_>, ino: InodeId, mask: u32) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn inline_read(&self, ino: InodeId, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        Err(FsError::NotImplemented)
    }
    pub fn inline_write(
        &self,
        now: Timestamp,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn inline_zero(
        &self,
        now: Timestamp,
        ino: InodeId,
        offset: u64,
        len: u64,
        new_size: Option<u64>,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn outgrow(&self, now: Timestamp, ino: InodeId, object: ObjectId) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn inlay(
        &self,
        now: Timestamp,
        ino: InodeId,
        data: &[u8],
        times: Option<(Timestamp, Timestamp)>,
    ) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn begin_writing(&self, ino: InodeId) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn settle(&self, ino: InodeId, settled: &Settled, leave: bool) -> FsResult<Node> {
        Err(FsError::NotImplemented)
    }
    pub fn writing_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        Err(FsError::NotImplemented)
    }
    pub fn unlinked_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        Err(FsError::NotImplemented)
    }
    pub fn reclaim_list(&self, max: usize) -> FsResult<Vec<ObjectId>> {
        Err(FsError::NotImplemented)
    }
    pub fn reclaimed(&self, objects: &[ObjectId]) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn reclaim_put(&self, objects: &[ObjectId]) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn files(&self) -> u64 {
        0
    }
    pub fn flush(&self, now: Timestamp) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn sync(&self, now: Timestamp) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn close(&self, now: Timestamp) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn was_clean(&self) -> bool {
        false
    }
    pub fn engine_stats(&self) -> EngineStats {
        self.engine.stats()
    }
}

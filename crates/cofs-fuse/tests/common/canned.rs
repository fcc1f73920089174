//! A file system that answers everything at once, always the same, and allocates nothing: what is seen to happen around it is the
//! crate's own doing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use cofs_face::{
    Context, DataPath, DirEntry, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf, Opened,
    OpenedDirectory, Space, Stat, Validity, WriteFlags,
};
use cofs_types::{
    Attributes, FallocateMode, FileKind, FsResult, InodeId, Name, NewInode, OpenFlags, RenameMode,
    SeekWhence, SetAttributes, Timestamp, XattrMode, XattrName,
};

#[derive(Debug, Default)]
pub struct Canned {
    /// Look-ups that are over.
    pub forgotten: AtomicU64,
}

const OPENED: Opened =
    Opened { handle: HandleId(1), data_path: DataPath::Cached { keep_cache: true }, no_flush: true };

fn attributes(ino: InodeId) -> Attributes {
    let time = Timestamp { secs: 1, nanos: 2 };
    Attributes {
        ino,
        kind: FileKind::Regular,
        permissions: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 0,
        blocks_512: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

const ENTRY: fn(InodeId) -> Entry = |ino| Entry { attributes: attributes(ino), validity: Validity::FOREVER };
const STAT: fn(InodeId) -> Stat = |ino| Stat { attributes: attributes(ino), validity: Duration::MAX };

#[rustfmt::skip]
impl FileSystem for Canned {
    fn attach(&self, _: FaceAbilities) {}
    fn negative_validity(&self) -> Duration { Duration::MAX }
    async fn lookup(&self, _: &Context<'_>, parent: InodeId, _: &Name) -> FsResult<Entry> { Ok(ENTRY(parent)) }
    async fn lookup_self(&self, ino: InodeId) -> FsResult<Entry> { Ok(ENTRY(ino)) }
    async fn lookup_parent(&self, ino: InodeId) -> FsResult<Entry> { Ok(ENTRY(ino)) }
    fn forget(&self, _: InodeId, count: u64) -> bool {
        self.forgotten.fetch_add(count, Ordering::Relaxed);
        false
    }
    async fn make(&self, _: &Context<'_>, parent: InodeId, _: &Name, _: NewInode<'_>) -> FsResult<Entry> { Ok(ENTRY(parent)) }
    async fn link(&self, _: &Context<'_>, ino: InodeId, _: InodeId, _: &Name) -> FsResult<Entry> { Ok(ENTRY(ino)) }
    async fn unlink(&self, _: &Context<'_>, _: InodeId, _: &Name) -> FsResult<()> { Ok(()) }
    async fn rmdir(&self, _: &Context<'_>, _: InodeId, _: &Name) -> FsResult<()> { Ok(()) }
    async fn rename(&self, _: &Context<'_>, _: (InodeId, &Name), _: (InodeId, &Name), _: RenameMode) -> FsResult<()> { Ok(()) }
    async fn readlink(&self, _: InodeId) -> FsResult<Bytes> { Ok(Bytes::from_static(b"target")) }
    async fn getattr(&self, ino: InodeId, _: Option<HandleId>) -> FsResult<Stat> { Ok(STAT(ino)) }
    async fn setattr(&self, _: &Context<'_>, ino: InodeId, _: Option<HandleId>, _: &SetAttributes) -> FsResult<Stat> { Ok(STAT(ino)) }
    async fn getxattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName) -> FsResult<Bytes> { Ok(Bytes::from_static(b"value")) }
    async fn setxattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName, _: &[u8], _: XattrMode, _: bool) -> FsResult<()> { Ok(()) }
    async fn listxattr(&self, _: &Context<'_>, _: InodeId) -> FsResult<Bytes> { Ok(Bytes::from_static(b"user.a\0")) }
    async fn removexattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName) -> FsResult<()> { Ok(()) }
    async fn access(&self, _: &Context<'_>, _: InodeId, _: u32) -> FsResult<()> { Ok(()) }
    async fn create(&self, _: &Context<'_>, parent: InodeId, _: &Name, _: NewInode<'_>, _: OpenFlags) -> FsResult<(Entry, Opened)> { Ok((ENTRY(parent), OPENED)) }
    async fn tmpfile(&self, _: &Context<'_>, parent: InodeId, _: NewInode<'_>, _: OpenFlags) -> FsResult<(Entry, Opened)> { Ok((ENTRY(parent), OPENED)) }
    async fn open(&self, _: &Context<'_>, _: InodeId, _: OpenFlags) -> FsResult<Opened> { Ok(OPENED) }
    async fn read(&self, _: InodeId, _: HandleId, _: u64, into: &mut [u8], _: bool) -> FsResult<usize> {
        into.fill(b'r');
        Ok(into.len())
    }
    async fn write(&self, _: InodeId, _: HandleId, _: u64, data: &[u8], _: WriteFlags) -> FsResult<usize> { Ok(data.len()) }
    async fn flush(&self, _: InodeId, _: HandleId) -> FsResult<()> { Ok(()) }
    async fn fsync(&self, _: InodeId, _: Option<HandleId>, _: bool) -> FsResult<()> { Ok(()) }
    async fn release(&self, _: InodeId, _: HandleId) -> FsResult<()> { Ok(()) }
    async fn fallocate(&self, _: &Context<'_>, _: InodeId, _: HandleId, _: FallocateMode, _: u64, _: u64) -> FsResult<()> { Ok(()) }
    async fn lseek(&self, _: InodeId, _: HandleId, offset: u64, _: SeekWhence) -> FsResult<u64> { Ok(offset) }
    async fn copy_range(&self, _: &Context<'_>, _: (InodeId, HandleId, u64), _: (InodeId, HandleId, u64), len: u64) -> FsResult<u64> { Ok(len) }
    async fn opendir(&self, _: &Context<'_>, _: InodeId, _: OpenFlags) -> FsResult<OpenedDirectory> { Ok(OpenedDirectory { handle: HandleId(1), cache: false, keep_cache: false }) }
    async fn readdir(&self, _: &Context<'_>, ino: InodeId, _: HandleId, _: ListOf, sink: &mut DirSink<'_>) -> FsResult<()> {
        let entry = Some(ENTRY(ino));
        while sink(DirEntry { ino, kind: FileKind::Regular, name: b"name", cookie: 1, entry }) {}
        Ok(())
    }
    async fn releasedir(&self, _: InodeId, _: HandleId) -> FsResult<()> { Ok(()) }
    async fn fsyncdir(&self, _: InodeId) -> FsResult<()> { Ok(()) }
    async fn statfs(&self) -> FsResult<Space> { Ok(Space::default()) }
    async fn syncfs(&self) -> FsResult<()> { Ok(()) }
    async fn detach(&self) -> FsResult<()> { Ok(()) }
}

//! The table as a file system of the crate.

use std::time::Duration;

use bytes::Bytes;
use cofs_face::{
    Context, DataPath, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf, Opened, OpenedDirectory,
    Space, Stat, Validity, WriteFlags,
};
use cofs_types::{
    Attributes, FallocateMode, FileKind, FsError, FsResult, InodeId, Name, NewInode, OpenFlags, RenameMode,
    SeekWhence, SetAttributes, Timestamp, XattrMode, XattrName,
};

use super::table::{TIME, Table};

pub struct Fixed(pub &'static Table);

const OPENED: Opened =
    Opened { handle: HandleId(0), data_path: DataPath::Cached { keep_cache: true }, no_flush: true };

impl Fixed {
    fn attributes(&self, ino: InodeId) -> FsResult<Attributes> {
        let size_bytes = self.0.size(ino.get()).ok_or(FsError::Stale)?;
        let time = Timestamp { secs: TIME as i64, nanos: 0 };
        let directory = Table::is_directory(ino.get());
        Ok(Attributes {
            ino,
            kind: if directory { FileKind::Directory } else { FileKind::Regular },
            permissions: if directory { 0o755 } else { 0o644 },
            nlink: if directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes,
            blocks_512: size_bytes.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        })
    }

    fn number(name: &Name) -> FsResult<InodeId> {
        Table::number(name.as_bytes()).and_then(InodeId::new).ok_or(FsError::NotFound)
    }

    fn entry(&self, ino: InodeId) -> FsResult<Entry> {
        let attributes = self.attributes(ino).map_err(|_| FsError::NotFound)?;
        Ok(Entry { attributes, validity: Validity::FOREVER })
    }

    fn stat(&self, ino: InodeId) -> FsResult<Stat> {
        Ok(Stat { attributes: self.attributes(ino)?, validity: Duration::MAX })
    }
}

const NOT_HERE: FsError = FsError::NotSupported;

#[rustfmt::skip]
impl FileSystem for Fixed {
    fn attach(&self, _: FaceAbilities) {}

    fn negative_validity(&self) -> Duration {
        Duration::MAX
    }

    async fn lookup(&self, _: &Context<'_>, _: InodeId, name: &Name) -> FsResult<Entry> {
        self.entry(Self::number(name)?)
    }

    async fn lookup_self(&self, ino: InodeId) -> FsResult<Entry> {
        self.entry(ino)
    }

    async fn lookup_parent(&self, _: InodeId) -> FsResult<Entry> {
        self.entry(InodeId::ROOT)
    }

    fn forget(&self, _: InodeId, _: u64) -> bool {
        false
    }

    async fn make(&self, _: &Context<'_>, _: InodeId, _: &Name, _: NewInode<'_>) -> FsResult<Entry> {
        Err(NOT_HERE)
    }

    async fn link(&self, _: &Context<'_>, _: InodeId, _: InodeId, _: &Name) -> FsResult<Entry> {
        Err(NOT_HERE)
    }

    async fn unlink(&self, _: &Context<'_>, _: InodeId, name: &Name) -> FsResult<()> {
        self.0.remove(Self::number(name)?.get());
        Ok(())
    }

    async fn rmdir(&self, _: &Context<'_>, _: InodeId, _: &Name) -> FsResult<()> {
        Err(NOT_HERE)
    }

    async fn rename(&self, _: &Context<'_>, _: (InodeId, &Name), _: (InodeId, &Name), _: RenameMode) -> FsResult<()> {
        Err(NOT_HERE)
    }

    async fn readlink(&self, _: InodeId) -> FsResult<Bytes> {
        Err(NOT_HERE)
    }

    async fn getattr(&self, ino: InodeId, _: Option<HandleId>) -> FsResult<Stat> {
        self.stat(ino)
    }

    async fn setattr(&self, _: &Context<'_>, ino: InodeId, _: Option<HandleId>, _: &SetAttributes) -> FsResult<Stat> {
        self.stat(ino)
    }

    async fn getxattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName) -> FsResult<Bytes> {
        Err(FsError::NoAttribute)
    }

    async fn setxattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName, _: &[u8], _: XattrMode, _: bool) -> FsResult<()> {
        Err(NOT_HERE)
    }

    async fn listxattr(&self, _: &Context<'_>, _: InodeId) -> FsResult<Bytes> {
        Ok(Bytes::new())
    }

    async fn removexattr(&self, _: &Context<'_>, _: InodeId, _: &XattrName) -> FsResult<()> {
        Err(FsError::NoAttribute)
    }

    async fn access(&self, _: &Context<'_>, _: InodeId, _: u32) -> FsResult<()> {
        Ok(())
    }

    async fn create(&self, _: &Context<'_>, _: InodeId, name: &Name, _: NewInode<'_>, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        let ino = Self::number(name)?;
        self.0.create(ino.get());
        Ok((self.entry(ino)?, OPENED))
    }

    async fn tmpfile(&self, _: &Context<'_>, _: InodeId, _: NewInode<'_>, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        Err(NOT_HERE)
    }

    async fn open(&self, _: &Context<'_>, _: InodeId, _: OpenFlags) -> FsResult<Opened> {
        Ok(OPENED)
    }

    async fn read(&self, _: InodeId, _: HandleId, _: u64, into: &mut [u8], _: bool) -> FsResult<usize> {
        into.fill(0);
        Ok(into.len())
    }

    async fn write(&self, ino: InodeId, _: HandleId, offset: u64, data: &[u8], _: WriteFlags) -> FsResult<usize> {
        self.0.grow(ino.get(), offset + data.len() as u64);
        Ok(data.len())
    }

    async fn flush(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fsync(&self, _: InodeId, _: Option<HandleId>, _: bool) -> FsResult<()> {
        Ok(())
    }

    async fn release(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fallocate(&self, _: &Context<'_>, _: InodeId, _: HandleId, _: FallocateMode, _: u64, _: u64) -> FsResult<()> {
        Err(NOT_HERE)
    }

    async fn lseek(&self, _: InodeId, _: HandleId, _: u64, _: SeekWhence) -> FsResult<u64> {
        Err(NOT_HERE)
    }

    async fn copy_range(&self, _: &Context<'_>, _: (InodeId, HandleId, u64), _: (InodeId, HandleId, u64), _: u64) -> FsResult<u64> {
        Err(NOT_HERE)
    }

    async fn opendir(&self, _: &Context<'_>, _: InodeId, _: OpenFlags) -> FsResult<OpenedDirectory> {
        Ok(OpenedDirectory { handle: HandleId(0), cache: false, keep_cache: false })
    }

    async fn readdir(&self, _: &Context<'_>, _: InodeId, _: HandleId, _: ListOf, _: &mut DirSink<'_>) -> FsResult<()> {
        Ok(())
    }

    async fn releasedir(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fsyncdir(&self, _: InodeId) -> FsResult<()> {
        Ok(())
    }

    async fn statfs(&self) -> FsResult<Space> {
        Ok(Space { block_bytes: 4096, name_bytes_max: 255, ..Space::default() })
    }

    async fn syncfs(&self) -> FsResult<()> {
        Ok(())
    }

    async fn detach(&self) -> FsResult<()> {
        Ok(())
    }
}

//! [`Cofs`] as the faces see it: each operation leads to its file under `ops/`.

use std::time::Duration;

use bytes::Bytes;
use cofs_metadata::MetadataDriver;
use cofs_types::{
    FallocateMode, FsResult, InodeId, Name, NewInode, OpenFlags, RenameMode, SeekWhence, SetAttributes,
    XattrMode, XattrName,
};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, Context, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf, Opened, OpenedDirectory,
    Space, Stat, WriteFlags, blocking,
};

#[rustfmt::skip]
impl<M: MetadataDriver> FileSystem for Cofs<M> {
    fn attach(&self, abilities: FaceAbilities) {
        self.set_face(abilities);
    }

    fn negative_validity(&self) -> Duration {
        // Names appear through this mount only.
        Duration::MAX
    }

    async fn lookup(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<Entry> {
        self.do_lookup(ctx, parent, name).await
    }
    async fn lookup_self(&self, ino: InodeId) -> FsResult<Entry> {
        self.do_lookup_self(ino).await
    }
    async fn lookup_parent(&self, ino: InodeId) -> FsResult<Entry> {
        self.do_lookup_parent(ino).await
    }
    fn forget(&self, ino: InodeId, _count: u64) -> bool {
        // An inode that is gone gets no new look-ups: the first word of its end is its end.
        self.ghosts.forget(ino);
        self.stale_pages.take(ino);
        self.lingering.has(ino) || self.inherited.has(ino)
    }
    async fn forgotten(&self, ino: InodeId) {
        // What is let go is settled, released and closed.
        blocking().await;
        self.forget_lingering(ino).await;
        self.forget_inherited(ino).await;
    }
    async fn make(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>) -> FsResult<Entry> {
        self.hold_back().await;
        self.do_make(ctx, parent, name, &new).await
    }
    async fn link(&self, ctx: &Context<'_>, ino: InodeId, parent: InodeId, name: &Name) -> FsResult<Entry> {
        self.hold_back().await;
        self.do_link(ctx, ino, parent, name).await
    }
    async fn unlink(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.hold_back().await;
        self.do_unlink(ctx, parent, name).await
    }
    async fn rmdir(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.hold_back().await;
        self.do_rmdir(ctx, parent, name).await
    }
    async fn rename(&self, ctx: &Context<'_>, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> FsResult<()> {
        self.hold_back().await;
        self.do_rename(ctx, from, to, mode).await
    }
    async fn readlink(&self, ino: InodeId) -> FsResult<Bytes> {
        let target = here_or_waiting!(self.metadata.readlink(ino))?.value;
        self.touch_directory(ino).await;
        Ok(target)
    }

    async fn getattr(&self, ino: InodeId, _handle: Option<HandleId>) -> FsResult<Stat> {
        self.do_getattr(ino).await
    }
    async fn setattr(&self, ctx: &Context<'_>, ino: InodeId, handle: Option<HandleId>, change: &SetAttributes) -> FsResult<Stat> {
        self.hold_back().await;
        self.do_setattr(ctx, ino, handle, change).await
    }
    async fn getxattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> FsResult<Bytes> {
        self.do_getxattr(ctx, ino, name).await
    }
    async fn setxattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName, value: &[u8], mode: XattrMode, kill_set_gid: bool) -> FsResult<()> {
        self.hold_back().await;
        self.do_setxattr(ctx, ino, name, value, mode, kill_set_gid).await
    }
    async fn listxattr(&self, ctx: &Context<'_>, ino: InodeId) -> FsResult<Bytes> {
        self.do_listxattr(ctx, ino).await
    }
    async fn removexattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> FsResult<()> {
        self.hold_back().await;
        self.do_removexattr(ctx, ino, name).await
    }
    async fn access(&self, ctx: &Context<'_>, ino: InodeId, mask: u32) -> FsResult<()> {
        here_or_waiting!(self.metadata.access(&ctx.credentials, ino, mask)).map(|_| ())
    }

    async fn create(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.hold_back().await;
        self.do_create(ctx, parent, name, &new, &flags).await
    }
    async fn tmpfile(&self, ctx: &Context<'_>, parent: InodeId, new: NewInode<'_>, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.hold_back().await;
        self.do_tmpfile(ctx, parent, &new, &flags).await
    }
    async fn open(&self, ctx: &Context<'_>, ino: InodeId, flags: OpenFlags) -> FsResult<Opened> {
        if flags.truncate || flags.access.writes() {
            self.hold_back().await;
        }
        self.do_open(ctx, ino, &flags).await
    }
    async fn read(&self, ino: InodeId, handle: HandleId, offset: u64, into: &mut [u8], for_cache: bool) -> FsResult<usize> {
        self.do_read(ino, handle, offset, into, for_cache).await
    }
    async fn write(&self, ino: InodeId, handle: HandleId, offset: u64, data: &[u8], flags: WriteFlags) -> FsResult<usize> {
        // Inline data are metadata.
        if offset.saturating_add(data.len() as u64) <= self.inline_max {
            self.hold_back().await;
        }
        self.do_write(ino, handle, offset, data, flags).await
    }
    async fn flush(&self, _ino: InodeId, _handle: HandleId) -> FsResult<()> {
        // What was written was acknowledged by its write; a close(2) has nothing to add.
        Ok(())
    }
    async fn fsync(&self, ino: InodeId, handle: Option<HandleId>, data_only: bool) -> FsResult<()> {
        self.do_fsync(ino, handle, data_only).await
    }
    async fn release(&self, ino: InodeId, handle: HandleId) -> FsResult<()> {
        self.do_release(ino, handle).await
    }
    async fn fallocate(&self, ctx: &Context<'_>, ino: InodeId, handle: HandleId, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        self.hold_back().await;
        self.do_fallocate(ctx, ino, handle, mode, offset, len).await
    }
    async fn lseek(&self, ino: InodeId, handle: HandleId, offset: u64, whence: SeekWhence) -> FsResult<u64> {
        self.do_lseek(ino, handle, offset, whence).await
    }
    async fn copy_range(&self, ctx: &Context<'_>, from: (InodeId, HandleId, u64), to: (InodeId, HandleId, u64), len: u64) -> FsResult<u64> {
        self.hold_back().await;
        self.do_copy_range(ctx, from, to, len).await
    }

    async fn opendir(&self, ctx: &Context<'_>, ino: InodeId, flags: OpenFlags) -> FsResult<OpenedDirectory> {
        self.do_opendir(ctx, ino, flags).await
    }
    async fn readdir(&self, ctx: &Context<'_>, ino: InodeId, handle: HandleId, of: ListOf, sink: &mut DirSink<'_>) -> FsResult<()> {
        self.do_readdir(ctx, ino, handle, of, sink).await
    }
    async fn releasedir(&self, _ino: InodeId, _handle: HandleId) -> FsResult<()> {
        Ok(())
    }
    async fn fsyncdir(&self, _ino: InodeId) -> FsResult<()> {
        self.sync_metadata().await
    }

    async fn statfs(&self) -> FsResult<Space> {
        self.do_statfs().await
    }
    async fn syncfs(&self) -> FsResult<()> {
        self.do_syncfs().await
    }
    async fn detach(&self) -> FsResult<()> {
        self.do_detach().await
    }
}

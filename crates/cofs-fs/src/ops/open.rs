//! open(2) of a file that is there, and its end.

use std::time::Duration;

use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, InodeId, Layout, OpenFlags, SetAttributes};
use cofs_wait::{here_or_waiting, is_impatient};

use crate::{
    Cofs, Context, HandleId, Opened, blocking,
    handle::Handle,
    open_inode::{OpenInode, State},
    open_object::OpenObject,
    ops::truncate::Cut,
};

/// How often it is looked whether others have dropped pages.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_open(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        flags: &OpenFlags,
    ) -> FsResult<Opened> {
        if flags.access.writes() || flags.truncate {
            self.check_writable()?;
        }
        let inode = self.opens.claim(ino)?;
        let opened = self.open_claimed(ctx, &inode, flags).await;
        if opened.is_err() {
            self.unclaim(ino).await?;
        }
        opened
    }

    async fn open_claimed(
        &self,
        ctx: &Context<'_>,
        inode: &OpenInode,
        flags: &OpenFlags,
    ) -> FsResult<Opened> {
        if flags.truncate && here_or_waiting!(self.metadata.node(inode.ino))?.value.layout != Layout::Inline {
            blocking().await;
        }
        if inode.try_shared().is_some_and(|state| self.is_to_be_shared(&state, flags)) {
            blocking().await;
        }
        let (opened, entered, drops) = here_or_waiting!(self.open_joined(ctx, inode, flags))?;
        if drops {
            self.wait_for_drops(inode, Handle::from_id(opened.handle).place()).await;
        }
        if entered && (flags.sync || flags.data_sync) {
            // The kernel syncs the bytes it writes; that the file is being written must be durable too.
            if let Err(error) = self.sync_metadata().await {
                let mut state = inode.exclusive().await;
                self.leave(inode, &mut state, flags.access.writes()).await?;
                return Err(error);
            }
        }
        Ok(opened)
    }

    /// Who has opened the file before a writer was told to drop its pages, and the kernel does that when it comes to it: were that after the writer has changed
    /// one and before we have it, who reads then would bring the page back as it was. From now on nobody is told so.
    async fn wait_for_drops(&self, inode: &OpenInode, place: u32) {
        if inode.dropping.left_but(place).is_some() {
            blocking().await;
        }
        while let Some(left) = inode.dropping.left_but(place) {
            std::thread::sleep(left.min(LOOK_AGAIN));
        }
    }

    /// Tells besides whether the kernel may write by itself from now on, and whether he who is to write waits for others to have dropped pages.
    async fn open_joined(
        &self,
        ctx: &Context<'_>,
        inode: &OpenInode,
        flags: &OpenFlags,
    ) -> FsResult<(Opened, bool, bool)> {
        let writer = flags.access.writes();
        let mut state = inode.exclusive().await;
        let drops = writer && inode.dropping.left_but(0).is_some();
        let mut node = self.join(inode, &mut state, writer).await?;
        if self.is_to_be_shared(&state, flags) && !is_impatient() {
            self.share_by_object(inode, &mut state).await;
        }
        if flags.truncate && !writer && state.execs > 0 {
            // The kernel refuses writers before it asks us. One who empties it without writing it refuses only when we
            // have done so, and the program has lost its text.
            self.leave(inode, &mut state, writer).await?;
            return Err(FsError::ProgramRuns);
        }
        if flags.truncate {
            match self.truncate_opening(ctx, inode, &mut state, flags).await {
                Ok(cut) => node = cut,
                Err(error) => {
                    self.leave(inode, &mut state, writer).await?;
                    return Err(error);
                }
            }
        }
        self.choose_direct(inode, &mut state, flags, flags.truncate);
        state.is_opened(flags);
        let opened = self.opened(inode, &state, &node, flags);
        Ok((opened, state.passthrough && writer, drops))
    }

    async fn truncate_opening(
        &self,
        ctx: &Context<'_>,
        inode: &OpenInode,
        state: &mut State,
        flags: &OpenFlags,
    ) -> FsResult<cofs_metadata::Node> {
        let change =
            SetAttributes { size_bytes: Some(0), kill_set_id: flags.kill_set_id, ..SetAttributes::default() };
        self.truncate_locked(&ctx.credentials, inode, state, Cut { size: 0, change: &change }).await
    }

    pub(crate) async fn do_release(&self, ino: InodeId, handle: HandleId) -> FsResult<()> {
        if self.is_inherited(handle) {
            return self.release_inherited(ino, handle).await;
        }
        let Some(inode) = self.opens.get(ino) else { return Err(FsError::BadHandle) };
        let handle = Handle::from_id(handle);
        inode.dropping.done(handle.place());
        if let Ok(Some(object)) = self.object_of(&inode).await {
            if handle.writes() {
                self.hold_back().await;
                let _ = here_or_waiting!(self.small_bytes_at_hand(&object));
            }
            // What its end needs of it is in memory then, or this is a thread that may wait: with the lock held nobody leaves.
            let _ = here_or_waiting!(self.metadata.node(ino));
        }
        let mut state = inode.exclusive().await;
        state.execs = state.execs.saturating_sub(u32::from(handle.execs()));
        inode.dropping.leave(handle.place());
        let left = self.leave(&inode, &mut state, handle.writes()).await;
        drop(state);
        self.unclaim(ino).await.and(left)
    }

    /// What goes back into the metadata, should this be the last close, is in memory; who may wait reads it then. Errors: it is not, or cannot be read.
    async fn small_bytes_at_hand(&self, object: &OpenObject) -> FsResult<()> {
        if is_impatient() {
            let size = object.file.stat()?.size_bytes;
            if size <= self.inline_max {
                object.file.read_at(&mut vec![0; usize::try_from(size).unwrap_or(0)], 0)?;
            }
        }
        Ok(())
    }
}

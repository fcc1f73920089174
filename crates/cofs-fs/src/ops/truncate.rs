//! Files cut and stretched.

use std::sync::Arc;

use cofs_metadata::{MetadataDriver, Node};
use cofs_types::{
    Authority, Credentials, FsError, FsResult, InodeId, Layout, SetAttributes, failpoint, limits,
};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, Context, blocking,
    open_inode::{OpenInode, State},
};

/// A new size, and the change of attributes that it is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'a> {
    pub(crate) size: u64,
    pub(crate) change: &'a SetAttributes,
}

const WRITE_MASK: u32 = 2;

impl<M: MetadataDriver> Cofs<M> {
    /// truncate(2) and ftruncate(2): a session of its own, so that a file which nobody has open is settled,
    /// and moved inline, as after any other write.
    pub(crate) async fn do_truncate(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        by_path: bool,
        cut: Cut<'_>,
    ) -> FsResult<()> {
        if cut.size > limits::FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        if by_path && ctx.credentials.authority == Authority::Unchecked {
            here_or_waiting!(self.metadata.access(&ctx.credentials, ino, WRITE_MASK))?;
        }
        let inode = self.opens.claim(ino)?;
        let done = self.truncate_claimed(&ctx.credentials, &inode, cut).await;
        self.unclaim(ino).await.and(done)
    }

    async fn truncate_claimed(&self, c: &Credentials<'_>, inode: &OpenInode, cut: Cut<'_>) -> FsResult<()> {
        let layout = here_or_waiting!(self.metadata.node(inode.ino))?.value.layout;
        if layout != Layout::Inline || cut.size > self.inline_max {
            blocking().await;
        }
        inode.check_poison()?;
        here_or_waiting!(self.truncate_joined(c, inode, cut))
    }

    async fn truncate_joined(&self, c: &Credentials<'_>, inode: &OpenInode, cut: Cut<'_>) -> FsResult<()> {
        let mut state = inode.exclusive().await;
        self.join(inode, &mut state, true).await?;
        let done = self.truncate_locked(c, inode, &mut state, cut).await;
        let left = self.leave(inode, &mut state, true).await;
        done.map(|_| ()).and(left)
    }

    /// Sets the size of a file whose lock the caller holds, with the other changes that came along.
    pub(crate) async fn truncate_locked(
        &self,
        c: &Credentials<'_>,
        inode: &OpenInode,
        state: &mut State,
        cut: Cut<'_>,
    ) -> FsResult<Node> {
        inode.set_atime_due(true);
        if state.layout == Layout::Inline {
            if cut.size <= self.inline_max {
                let node = self.metadata.setattr(c, inode.ino, cut.change).await?.value;
                failpoint("fs.truncate.committed");
                return Ok(node);
            }
            self.outgrow(inode.ino, state, |file| file.set_len(cut.size)).await?;
        } else {
            self.check_object_writable(state)?;
            self.enter_writing_now(inode, state).await?;
            Arc::clone(state.object()?).file.set_len(cut.size)?;
            failpoint("fs.truncate.object_cut");
        }
        self.drop_capabilities(inode).await?;
        if cut.change.kill_set_id && state.set_id {
            self.kill_set_id(inode.ino, state).await?;
        }
        let rest = SetAttributes { size_bytes: None, kill_set_id: false, ..*cut.change };
        if rest != SetAttributes::default() {
            return self.set_attributes_locked(c, inode, state, &rest).await;
        }
        Ok(self.metadata.node(inode.ino).await?.value)
    }
}

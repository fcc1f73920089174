//! stat(2) and what sets it.

use std::sync::Arc;

use cofs_metadata::{Answer, MetadataDriver, Node};
use cofs_types::{
    Authority, Credentials, FileKind, FsError, FsResult, InodeId, SetAttributes, SetTime, failpoint,
};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, Context, HandleId, Stat, blocking,
    open_inode::{OpenInode, State, Writing},
    ops::truncate::Cut,
    session::SET_ID_BITS,
};

const OWNER_WRITES: u16 = 0o200;

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_getattr(&self, ino: InodeId) -> FsResult<Stat> {
        let answer = match here_or_waiting!(self.metadata.node(ino)) {
            Err(FsError::Stale) => return self.stat_of_ghost(ino),
            other => other?,
        };
        self.stat_of(answer).await
    }

    /// The last attributes of an inode that is gone.
    fn stat_of_ghost(&self, ino: InodeId) -> FsResult<Stat> {
        let attributes = self.ghosts.get(ino).ok_or(FsError::Stale)?;
        Ok(Stat { attributes, validity: std::time::Duration::MAX })
    }

    async fn stat_of(&self, answer: Answer<Node>) -> FsResult<Stat> {
        let (attributes, validity) = self.attributes_of(answer).await?;
        Ok(Stat { attributes, validity })
    }

    pub(crate) async fn do_setattr(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        handle: Option<HandleId>,
        change: &SetAttributes,
    ) -> FsResult<Stat> {
        self.check_writable()?;
        let answer = match change.size_bytes {
            Some(size) => self.set_size(ctx, ino, handle.is_none(), Cut { size, change }).await,
            None => {
                if *change == SetAttributes::KILL_SET_ID {
                    here_or_waiting!(self.check_may_kill_set_id(&ctx.credentials, ino))?;
                }
                here_or_waiting!(self.set_attributes(&ctx.credentials, ino, change))
            }
        };
        match answer {
            Err(FsError::Stale) => self.set_ghost(&ctx.credentials, ino, change),
            answer => self.stat_of(answer?).await,
        }
    }

    async fn set_size(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        by_path: bool,
        cut: Cut<'_>,
    ) -> FsResult<Answer<Node>> {
        self.do_truncate(ctx, ino, by_path, cut).await?;
        here_or_waiting!(self.metadata.node(ino))
    }

    /// Sets what only those see who still hold the inode that is gone. That it has a size still is for truncate(2) by a name whose
    /// file was exchanged or replaced in between: the name never goes away, so the file it had is cut.
    /// Errors: `Stale` too for a size where nobody has checked and ACLs, which are gone, might tell whether the caller may write.
    fn set_ghost(&self, c: &Credentials<'_>, ino: InodeId, change: &SetAttributes) -> FsResult<Stat> {
        let mut attributes = self.ghosts.get(ino).ok_or(FsError::Stale)?;
        let owns = c.uid == attributes.uid;
        let restricted = c.authority == Authority::Unchecked && c.uid != 0;
        if change.size_bytes.is_some() {
            let may_write = !restricted || owns && attributes.permissions & OWNER_WRITES != 0;
            if attributes.kind != FileKind::Regular || !may_write {
                return Err(FsError::Stale);
            }
        } else if restricted && !owns {
            return Err(FsError::NotPermitted);
        }
        let now = self.metadata.now();
        if let Some(size) = change.size_bytes {
            attributes.size_bytes = size;
            attributes.blocks_512 = attributes.blocks_512.min(size.div_ceil(512));
            attributes.mtime = now;
        }
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        attributes.permissions = change.permissions.unwrap_or(attributes.permissions);
        if change.kill_set_id {
            attributes.permissions &= !SET_ID_BITS;
        }
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.atime = change.atime.map_or(attributes.atime, at);
        attributes.mtime = change.mtime.map_or(attributes.mtime, at);
        attributes.ctime = change.ctime.unwrap_or(now);
        self.ghosts.change(&attributes);
        self.stat_of_ghost(ino)
    }

    /// The kernel sends the same request when somebody who may not keep the set-id bits writes to an open file, and
    /// for a chown(2) that names neither owner nor group, of which Linux's own file systems let only the owner take
    /// these bits. It does not say which of the two it is: the first one needs a file that is open for writing.
    /// Errors: `NotPermitted`.
    async fn check_may_kill_set_id(&self, c: &Credentials<'_>, ino: InodeId) -> FsResult<()> {
        let node = self.metadata.node(ino).await?.value;
        if c.uid == 0 || c.uid == node.attributes.uid || node.attributes.permissions & SET_ID_BITS == 0 {
            return Ok(());
        }
        match self.opens.get(ino) {
            Some(inode) if inode.shared().await.writers > 0 => Ok(()),
            _ => Err(FsError::NotPermitted),
        }
    }

    async fn set_attributes(
        &self,
        c: &Credentials<'_>,
        ino: InodeId,
        change: &SetAttributes,
    ) -> FsResult<Answer<Node>> {
        if let Some(inode) = self.opens.get(ino) {
            let mut state = inode.exclusive().await;
            if state.opens > 0 {
                self.set_attributes_locked(c, &inode, &mut state, change).await?;
                drop(state);
                return self.metadata.node(ino).await;
            }
        }
        let answer = self.metadata.setattr(c, ino, change).await?;
        failpoint("fs.setattr.committed");
        let SetAttributes { atime, mtime, .. } = *change;
        if answer.value.writing && (atime.is_some() || mtime.is_some()) {
            let times = SetAttributes { atime, mtime, ..SetAttributes::default() };
            self.set_times_left(ino, &times).await?;
            return self.metadata.node(ino).await;
        }
        Ok(answer)
    }

    /// Sets times of a file that nobody has open, and whose object tells them all the same ([`settle_left`](Self::settle_left)), in both.
    async fn set_times_left(&self, ino: InodeId, times: &SetAttributes) -> FsResult<()> {
        blocking().await;
        let inode = self.opens.claim(ino)?;
        let set = async {
            let mut state = inode.exclusive().await;
            self.join(&inode, &mut state, true).await?;
            let set = self.set_attributes_locked(&Credentials::ROOT, &inode, &mut state, times).await;
            self.leave(&inode, &mut state, true).await.and(set)
        };
        let set = set.await;
        self.unclaim(ino).await.and(set.map(drop))
    }

    /// Sets attributes of an open file. While its object tells the times, times that are set go there too.
    pub(crate) async fn set_attributes_locked(
        &self,
        c: &Credentials<'_>,
        inode: &OpenInode,
        state: &mut State,
        change: &SetAttributes,
    ) -> FsResult<Node> {
        let node = self.metadata.setattr(c, inode.ino, change).await?.value;
        failpoint("fs.setattr.committed");
        inode.set_atime_due(true);
        state.set_id = node.attributes.permissions & SET_ID_BITS != 0;
        if state.object_tells() && (change.mtime.is_some() || change.atime.is_some()) {
            self.set_object_times(state, &node, change)?;
        }
        Ok(node)
    }

    fn set_object_times(&self, state: &mut State, node: &Node, change: &SetAttributes) -> FsResult<()> {
        let file = Arc::clone(&state.object()?.file);
        let atime = change.atime.map(|_| node.attributes.atime);
        let mtime = change.mtime.filter(|_| state.writing.is_some()).map(|_| node.attributes.mtime);
        if file.writable() {
            file.set_times(atime, mtime)?;
            failpoint("fs.setattr.object_times_set");
        }
        let stat = file.stat()?;
        if mtime.is_some() {
            state.writing = Some(Writing { before: Some(stat) });
        }
        if atime.is_some() {
            state.atime_before = Some(stat.atime);
        }
        Ok(())
    }
}

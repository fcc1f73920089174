//! The open-for-writing set: while an inode stands in it, its object tells size and times.
//!
//! Entering makes the object's mtime equal to the record's first, so that afterwards the object's is the true
//! one, after a crash too: it is the old one until data changes. Who sets times meanwhile sets both.

use std::sync::Arc;

use cofs_metadata::{Leave, MetadataDriver, Settled};
use cofs_types::{Attributes, Credentials, FsResult, InodeId, Layout, SetAttributes, failpoint};

use crate::{
    Cofs, Context,
    open_inode::{Merged, OpenInode, State, Writing},
};

impl<M: MetadataDriver> Cofs<M> {
    /// Puts the inode into the set, before its object is first changed. A no-op if it stands there.
    pub(crate) async fn enter_writing(
        &self,
        ino: InodeId,
        state: &mut State,
        record: &Attributes,
    ) -> FsResult<()> {
        if state.writing.is_some() {
            return Ok(());
        }
        let file = Arc::clone(&state.object()?.file);
        let mut stat = file.stat()?;
        if stat.mtime != record.mtime {
            file.set_times(None, Some(record.mtime))?;
            stat = file.stat()?;
        }
        failpoint("fs.writing.times_equal");
        self.metadata.begin_writing(ino).await?;
        failpoint("fs.writing.begun");
        state.writing = Some(Writing { before: Some(stat) });
        state.wrote = true;
        Ok(())
    }

    /// As [`enter_writing`](Self::enter_writing), for one who has not read the record.
    pub(crate) async fn enter_writing_now(&self, inode: &OpenInode, state: &mut State) -> FsResult<()> {
        if state.writing.is_some() {
            return Ok(());
        }
        let record = self.metadata.node(inode.ino).await?.value.attributes;
        self.enter_writing(inode.ino, state, &record).await
    }

    /// What the object tells, laid over the record.
    pub(crate) fn merge(&self, state: &State, record: &Attributes) -> FsResult<Merged> {
        let merged = state.merge(record)?;
        self.metadata.witness(merged.stat.ctime);
        Ok(merged)
    }

    /// The attributes of an open file, from its record and from its object.
    pub(crate) fn present(&self, state: &State, record: &Attributes) -> FsResult<Attributes> {
        if state.object_tells() { Ok(self.merge(state, record)?.attributes) } else { Ok(*record) }
    }

    /// Commits what the object tells, and takes the inode out of the set with `leave`; what a power cut may take is marked.
    pub(crate) async fn settle(&self, ino: InodeId, state: &mut State, leave: bool) -> FsResult<()> {
        let record = self.metadata.node(ino).await?.value.attributes;
        let merged = self.merge(state, &record)?;
        let pool = state.object()?.file.id().pool();
        let how = if leave { self.closed.leave(&self.placement, pool) } else { Leave::Stays };
        self.metadata.settle(ino, &settled(&merged, false), how).await?;
        failpoint("fs.settle.committed");
        state.atime_before = Some(merged.stat.atime);
        state.writing = (!leave).then_some(Writing { before: Some(merged.stat) });
        Ok(())
    }

    /// Takes the set-id bits away after a write by one who may not keep them.
    pub(crate) async fn kill_set_id(&self, ino: InodeId, state: &mut State) -> FsResult<()> {
        let record = self.metadata.node(ino).await?.value.attributes;
        let merged = self.merge(state, &record)?;
        self.metadata.settle(ino, &settled(&merged, true), Leave::Stays).await?;
        failpoint("fs.write.set_id_killed");
        state.writing = Some(Writing { before: Some(merged.stat) });
        state.set_id = false;
        Ok(())
    }

    /// Before a change of bytes whose request does not say whether it takes the set-id bits away (fallocate,
    /// copy_file_range): it does, unless root makes it.
    pub(crate) async fn change_by(
        &self,
        ctx: &Context<'_>,
        inode: &OpenInode,
        state: &mut State,
    ) -> FsResult<()> {
        if ctx.credentials.uid == 0 || !state.set_id {
            return Ok(());
        }
        if state.layout != Layout::Inline {
            self.enter_writing_now(inode, state).await?;
            return self.kill_set_id(inode.ino, state).await;
        }
        let size = self.metadata.node(inode.ino).await?.value.attributes.size_bytes;
        let change = SetAttributes { size_bytes: Some(size), kill_set_id: true, ..SetAttributes::default() };
        self.metadata.setattr(&Credentials::ROOT, inode.ino, &change).await?;
        state.set_id = false;
        Ok(())
    }

    /// The last close of readers: the access time, if the kernel has read for itself.
    pub(crate) async fn record_access(&self, ino: InodeId, state: &State) -> FsResult<()> {
        if !state.passthrough || self.options.read_only || self.options.atime == crate::AtimeMode::Never {
            return Ok(());
        }
        let atime = state.object()?.file.stat()?.atime;
        if state.atime_before.is_some_and(|before| before != atime) {
            self.metadata.touch_atime(ino, atime).await?;
        }
        Ok(())
    }
}

pub(crate) fn settled(merged: &Merged, kill_set_id: bool) -> Settled {
    let now = &merged.attributes;
    Settled {
        size_bytes: now.size_bytes,
        blocks_512: now.blocks_512,
        mtime: merged.data_changed.then_some(now.mtime),
        atime: merged.atime_changed.then_some(now.atime),
        ctime: merged.data_changed.then_some(now.ctime),
        kill_set_id,
        drop_capability: false,
    }
}

//! write(2), where it comes through the daemon.
//!
//! A write to an inline file is one commit. One that passes the inline maximum moves the file into an object,
//! with the written bytes in it, before the layout changes: it happens whole or not at all. A write to an object that meets an error (no space)
//! behind its first bytes is answered with their count, as write(2) is; the next one meets the error.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_metadata::MetadataDriver;
use cofs_types::{Credentials, FsError, FsResult, InodeId, Kills, Layout, XattrName, failpoint, limits};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, HandleId, WriteFlags, blocking,
    handle::Handle,
    open_inode::{Mapped, OpenInode, State},
    open_object::OpenObject,
    ops::{read::LONG_IO_BYTES, xattr::CAPABILITY},
    page_merge::{Replaced, merged},
};

/// How far a write came without the exclusive lock.
enum Attempt {
    Done,
    /// It goes to this object, which is in the open-for-writing set.
    Object(Arc<OpenObject>),
    /// The layout or the set must change first.
    Change,
}

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_write(
        &self,
        ino: InodeId,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> FsResult<usize> {
        let inode = self.opened_by(ino, handle).await?;
        let handle = Handle::from_id(handle);
        if !flags.from_cache {
            handle.for_writing()?;
        }
        // What a mapping stores leaves them, as its set-id bits, whenever its pages come.
        if !flags.from_cache && inode.capable() {
            self.drop_capabilities(&inode).await?;
        }
        let written = if inode.perhaps_mapped(Mapped::ForStores) {
            Box::pin(self.write_beside_stores(&inode, offset, data, flags)).await?
        } else {
            let written = self.write_open(&inode, offset, data, flags).await?;
            self.recall_written(&inode, offset, &data[..written], flags).await?;
            written
        };
        if let Some(data_only) = handle.syncs() {
            self.sync_file(&inode, data_only).await?;
        }
        Ok(written)
    }

    /// Pages that were brought while these bytes were written may lack them.
    async fn recall_written(
        &self,
        inode: &OpenInode,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> FsResult<()> {
        if inode.perhaps_mapped(Mapped::ForReads) {
            let recall = self.recall_data(inode.ino);
            if inode.perhaps_mapped(Mapped::ForStores) {
                // Since it was begun: what such a page took away again is written once more.
                blocking().await;
                self.is_recalled(recall, limits::RECALL_PATIENCE);
                Box::pin(self.write_beside_stores(inode, offset, data, flags)).await?;
            }
        }
        Ok(())
    }

    /// A write to a file that somebody may have mapped, and change so, while it is written past the page cache ([`crate::page_merge`]).
    async fn write_beside_stores(
        &self,
        inode: &OpenInode,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> FsResult<usize> {
        blocking().await;
        let mut writes = inode.page_merge.lock();
        writes.retain(|write| !self.is_recalled(write.recall, Duration::ZERO));
        if flags.from_cache {
            return self.write_open(inode, offset, &merged(&writes, offset, data), flags).await;
        }
        let mut before = vec![0; data.len()];
        self.read_open(inode, offset, &mut before).await?;
        let written = self.write_open(inode, offset, data, flags).await;
        let recall = self.recall_data(inode.ino);
        let written = written?;
        before.truncate(written);
        writes.push(Replaced { offset, before, after: data[..written].to_vec(), recall });
        drop(writes);
        // Nobody is told that it is written while a page lacks it.
        self.is_recalled(recall, limits::RECALL_PATIENCE);
        Ok(written)
    }

    /// A write takes the capabilities away that the file was given, whoever writes. The kernel does so by itself
    /// before it writes through its cache or below, but not past both; nor where an open empties the file.
    pub(crate) async fn drop_capabilities(&self, inode: &OpenInode) -> FsResult<()> {
        inode.set_capable(false);
        let name = XattrName::new(CAPABILITY)?;
        match here_or_waiting!(self.metadata.removexattr(&Credentials::ROOT, inode.ino, name)) {
            Ok(_) => failpoint("fs.removexattr.committed"),
            Err(FsError::NoAttribute) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes to a file that the caller has open; how many bytes.
    pub(crate) async fn write_open(
        &self,
        inode: &OpenInode,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> FsResult<usize> {
        self.check_writable()?;
        inode.check_poison()?;
        let end = range_end(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(0);
        }
        let object = match here_or_waiting!(self.try_write(inode, offset, data, end, flags))? {
            Attempt::Done => return Ok(data.len()),
            Attempt::Object(object) => object,
            Attempt::Change => {
                blocking().await;
                let mut state = inode.exclusive().await;
                match self.change_for_write(inode, &mut state, (offset, data), end, flags).await? {
                    Some(object) => object,
                    None => return Ok(data.len()),
                }
            }
        };
        let written = self.write_object(&object, offset, data, flags.from_cache).await?;
        inode.set_atime_due(true);
        Ok(written)
    }

    /// On this thread, as long as the directory below does not make it wait. `whole`: an error where it is not all
    /// written, because the kernel takes no count for the pages that it writes back.
    async fn write_object(
        &self,
        object: &OpenObject,
        offset: u64,
        data: &[u8],
        whole: bool,
    ) -> FsResult<usize> {
        let long = data.len() >= LONG_IO_BYTES;
        if long && !self.pace.is_brisk(Instant::now()) {
            blocking().await;
        }
        let begin = Instant::now();
        let written = match whole {
            true => object.file.write_all_at(data, offset).map(|()| data.len()),
            false => object.file.write_at(data, offset),
        };
        self.pace.took(begin, Instant::now());
        let written = written?;
        failpoint("fs.write.object_written");
        Ok(written)
    }

    async fn try_write(
        &self,
        inode: &OpenInode,
        offset: u64,
        data: &[u8],
        end: u64,
        flags: WriteFlags,
    ) -> FsResult<Attempt> {
        let state = inode.shared().await;
        match state.layout {
            Layout::Inline if end <= self.inline_max => {
                self.write_inline(inode, offset, data, flags).await?;
                Ok(Attempt::Done)
            }
            Layout::Object(_) if state.writing.is_some() && !(flags.kill_set_id && state.set_id) => {
                Ok(Attempt::Object(Arc::clone(state.object()?)))
            }
            _ => Ok(Attempt::Change),
        }
    }

    async fn write_inline(
        &self,
        inode: &OpenInode,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> FsResult<()> {
        let kills = match flags {
            WriteFlags { kill_set_id: true, .. } => Kills::SetIdToo,
            WriteFlags { from_cache: true, .. } => Kills::Nothing,
            _ => Kills::Capabilities,
        };
        self.metadata.inline_write(inode.ino, offset, data, kills).await?;
        failpoint("fs.write.committed");
        inode.set_atime_due(true);
        Ok(())
    }

    /// The write that changes more than bytes; the object to write to, unless it has been written.
    async fn change_for_write(
        &self,
        inode: &OpenInode,
        state: &mut State,
        (offset, data): (u64, &[u8]),
        end: u64,
        flags: WriteFlags,
    ) -> FsResult<Option<Arc<OpenObject>>> {
        let mut written = false;
        match state.layout {
            Layout::Inline if end <= self.inline_max => {
                self.write_inline(inode, offset, data, flags).await?;
                return Ok(None);
            }
            Layout::Inline => {
                self.outgrow(inode.ino, state, |file| file.write_all_at(data, offset)).await?;
                inode.set_atime_due(true);
                written = true;
            }
            Layout::Object(_) => {
                self.check_object_writable(state)?;
                self.enter_writing_now(inode, state).await?;
            }
        }
        if flags.kill_set_id && state.set_id {
            self.kill_set_id(inode.ino, state).await?;
        }
        Ok(if written { None } else { Some(Arc::clone(state.object()?)) })
    }

    /// Errors: `ReadOnly` where the object could be opened for reading only.
    pub(crate) fn check_object_writable(&self, state: &State) -> FsResult<()> {
        if state.object()?.file.writable() { Ok(()) } else { Err(FsError::ReadOnly) }
    }
}

/// The end of a range. Errors: `FileTooLarge` beyond the largest file.
pub(crate) fn range_end(offset: u64, len: u64) -> FsResult<u64> {
    offset.checked_add(len).filter(|&end| end <= limits::FILE_BYTES_MAX).ok_or(FsError::FileTooLarge)
}

//! copy_file_range(2): between objects below, else in bounded steps by hand.

use std::sync::Arc;

use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, InodeId, Layout, failpoint, limits};

use crate::{
    Cofs, Context, HandleId, WriteFlags, blocking, handle::Handle, open_inode::OpenInode,
    open_object::OpenObject, ops::write::range_end,
};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_copy_range(
        &self,
        ctx: &Context<'_>,
        from: (InodeId, HandleId, u64),
        to: (InodeId, HandleId, u64),
        len: u64,
    ) -> FsResult<u64> {
        self.check_writable()?;
        Handle::from_id(from.1).for_reading()?;
        Handle::from_id(to.1).for_writing()?;
        let (from_end, to_end) = (from.2.saturating_add(len), to.2.saturating_add(len));
        if from.0 == to.0 && from.2 < to_end && to.2 < from_end {
            return Err(FsError::InvalidArgument("the ranges overlap"));
        }
        range_end(to.2, 0)?;
        let source = self.opened_by(from.0, from.1).await?;
        let target = self.opened_by(to.0, to.1).await?;
        target.check_poison()?;
        blocking().await;
        if self.copies() && self.may_lose_stores(&target).await {
            return Err(FsError::NotSupported);
        }
        self.change_by(ctx, &target, &mut *target.exclusive().await).await?;
        let len = len.min(limits::COPY_BYTES_MAX).min(limits::FILE_BYTES_MAX - to.2);
        let len = len.min(self.left_to_copy(from.0, from.2).await?);
        let copied = match self.copy_below((&source, from.2), (&target, to.2), len).await? {
            Some(copied) => copied,
            None => self.copy_by_hand((&source, from.2), (&target, to.2), len).await?,
        };
        self.was_read(&source, from.1, copied, None).await;
        Ok(copied)
    }

    /// Whether somebody may have mapped the target's pages in the kernel, and change them. Behind a copy the kernel drops these whole, with what was
    /// stored in them since it was asked; of its own writes it changes those bytes only.
    async fn may_lose_stores(&self, target: &OpenInode) -> bool {
        let state = target.shared().await;
        !state.passthrough && (state.both || self.inherited.has(target.ino))
    }

    /// Bytes from `offset` to the end of the source.
    async fn left_to_copy(&self, ino: InodeId, offset: u64) -> FsResult<u64> {
        let (attributes, _) = self.attributes_of(self.metadata.node(ino).await?).await?;
        Ok(attributes.size_bytes.saturating_sub(offset))
    }

    /// Copies from object to object; `None` where that cannot be done below.
    async fn copy_below(
        &self,
        (source, from): (&OpenInode, u64),
        (target, to): (&OpenInode, u64),
        len: u64,
    ) -> FsResult<Option<u64>> {
        let (Some(source), Some(object)) =
            (self.object_of(source).await?, self.object_for_writing(target).await?)
        else {
            return Ok(None);
        };
        match object.file.copy_range(&source.file, from, to, len) {
            Ok(copied) => {
                failpoint("fs.copy.object_done");
                target.set_atime_due(true);
                Ok(Some(copied))
            }
            Err(FsError::NotSupported | FsError::CrossDevice) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The object of an open file, entered into the open-for-writing set; `None` for an inline file.
    async fn object_for_writing(&self, inode: &OpenInode) -> FsResult<Option<Arc<OpenObject>>> {
        let mut state = inode.exclusive().await;
        if state.layout == Layout::Inline {
            return Ok(None);
        }
        self.check_object_writable(&state)?;
        self.enter_writing_now(inode, &mut state).await?;
        Ok(Some(Arc::clone(state.object()?)))
    }

    /// Reads and writes in steps. What was copied before an error is told; the error comes with the rest.
    async fn copy_by_hand(
        &self,
        (source, from): (&OpenInode, u64),
        (target, to): (&OpenInode, u64),
        len: u64,
    ) -> FsResult<u64> {
        let mut buffer = vec![0; limits::COPY_CHUNK_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let mut done = 0;
        while done < len {
            let want = usize::try_from(len - done).unwrap_or(usize::MAX).min(buffer.len());
            let chunk = buffer.get_mut(..want).unwrap_or_default();
            let step = match self.read_open(source, from + done, chunk).await {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = chunk.get(..count).unwrap_or_default();
                    self.write_open(target, to + done, bytes, WriteFlags::default())
                        .await
                        .map(|count| count as u64)
                }
                Err(error) => Err(error),
            };
            match step {
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

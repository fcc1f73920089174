//! fallocate(2): space ahead of need, holes, ranges of zeros.

use std::sync::Arc;

use cofs_metadata::MetadataDriver;
use cofs_placement::ObjectFile;
use cofs_types::{FallocateMode, FsError, FsResult, InodeId, Layout, failpoint, limits};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, Context, HandleId, blocking,
    handle::Handle,
    open_inode::{OpenInode, State},
    ops::write::range_end,
};

/// What fallocate(2) asks of a range.
#[derive(Clone, Copy, Debug)]
struct Request {
    mode: FallocateMode,
    offset: u64,
    len: u64,
    end: u64,
}

impl Request {
    fn grows(&self) -> bool {
        matches!(
            self.mode,
            FallocateMode::Allocate { keep_size: false } | FallocateMode::ZeroRange { keep_size: false }
        )
    }

    fn zeroes(&self) -> bool {
        !matches!(self.mode, FallocateMode::Allocate { .. })
    }

    /// Space that an inline file cannot hold, now or (with `keep_size`) later.
    fn needs_object(&self, inline_max: u64) -> bool {
        self.end > inline_max && !matches!(self.mode, FallocateMode::PunchHole)
    }
}

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_fallocate(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        handle: HandleId,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        self.check_writable()?;
        Handle::from_id(handle).for_writing()?;
        if len == 0 {
            return Err(FsError::InvalidArgument("a range of no bytes"));
        }
        let request = Request { mode, offset, len, end: range_end(offset, len)? };
        let inode = self.opened_by(ino, handle).await?;
        inode.check_poison()?;
        if self.object_of(&inode).await?.is_some() || request.needs_object(self.inline_max) {
            blocking().await;
        }
        here_or_waiting!(self.fallocate_open(ctx, &inode, &request))
    }

    async fn fallocate_open(&self, ctx: &Context<'_>, inode: &OpenInode, request: &Request) -> FsResult<()> {
        let mut state = inode.exclusive().await;
        inode.set_atime_due(true);
        self.change_by(ctx, inode, &mut state).await?;
        match state.layout {
            Layout::Inline if !request.needs_object(self.inline_max) => {
                self.fallocate_inline(inode.ino, request).await
            }
            Layout::Inline => {
                // Times change even if no byte does, as with an inline file.
                self.outgrow(inode.ino, &mut state, |file| allocate(file, request)).await?;
                state.preallocated = true;
                Ok(())
            }
            Layout::Object(_) => self.fallocate_object(inode, &mut state, request).await,
        }
    }

    /// In an inline file there is nothing to allocate: only zeros and the size are left of the request.
    async fn fallocate_inline(&self, ino: InodeId, request: &Request) -> FsResult<()> {
        let size = self.metadata.node(ino).await?.value.attributes.size_bytes;
        let new_size = (request.grows() && request.end > size).then_some(request.end);
        let zero_to = if request.zeroes() { request.end.min(size) } else { 0 };
        let zero_len = zero_to.saturating_sub(request.offset);
        // Where no byte changes, the times do all the same, as on Linux's own file systems.
        let offset = if zero_len == 0 { size } else { request.offset };
        self.metadata.inline_zero(ino, offset, zero_len, new_size).await?;
        failpoint("fs.fallocate.committed");
        Ok(())
    }

    async fn fallocate_object(
        &self,
        inode: &OpenInode,
        state: &mut State,
        request: &Request,
    ) -> FsResult<()> {
        self.check_object_writable(state)?;
        self.enter_writing_now(inode, state).await?;
        let object = Arc::clone(state.object()?);
        allocate(&object.file, request)?;
        failpoint("fs.fallocate.object_done");
        if matches!(request.mode, FallocateMode::Allocate { .. }) {
            state.preallocated = true;
        }
        Ok(())
    }
}

/// Does it below; what the file system there cannot do, by hand.
fn allocate(file: &ObjectFile, request: &Request) -> FsResult<()> {
    match file.fallocate(request.mode, request.offset, request.len) {
        Err(FsError::NotSupported) if request.zeroes() => zero_by_hand(file, request),
        other => other,
    }
}

/// Zeroes a range without the help of the file system below: a hole if it has holes, else zeros.
fn zero_by_hand(file: &ObjectFile, request: &Request) -> FsResult<()> {
    let size = file.stat()?.size_bytes;
    let end = request.end.min(size);
    if end > request.offset {
        let len = end - request.offset;
        match file.fallocate(FallocateMode::PunchHole, request.offset, len) {
            Err(FsError::NotSupported) => write_zeros(file, request.offset, end)?,
            other => other?,
        }
    }
    if request.grows() && request.end > size {
        file.set_len(request.end)?;
    }
    Ok(())
}

fn write_zeros(file: &ObjectFile, from: u64, to: u64) -> FsResult<()> {
    let zeros = vec![0; limits::COPY_CHUNK_BYTES];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(zeros.get(..len).unwrap_or_default(), at)?;
        at += len as u64;
    }
    Ok(())
}

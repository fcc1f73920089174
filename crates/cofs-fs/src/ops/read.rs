//! read(2), where it comes through the daemon.

use std::sync::Arc;

use cofs_metadata::MetadataDriver;
use cofs_types::{Attributes, FsResult, InodeId, Layout};
use cofs_wait::here_or_waiting;

use crate::{
    AtimeMode, Cofs, HandleId, blocking,
    handle::Handle,
    open_inode::{Mapped, OpenInode, State},
    open_object::OpenObject,
};

/// Reads of objects from this size on are done on a thread that may wait, and writes where they are known to wait
/// ([`crate::pace`]): below it, what they copy takes less time than the way there and back.
pub(crate) const LONG_IO_BYTES: usize = 64 << 10;

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_read(
        &self,
        ino: InodeId,
        handle: HandleId,
        offset: u64,
        into: &mut [u8],
        for_cache: bool,
    ) -> FsResult<usize> {
        let inode = self.opened_by(ino, handle).await?;
        let (count, seen) = here_or_waiting!(self.read_seeing(&inode, offset, into, for_cache))?;
        self.was_read(&inode, handle, count as u64, seen).await;
        Ok(count)
    }

    /// So many bytes were read by `handle`, who may have `seen` the file's attributes: records that, where it is due.
    pub(crate) async fn was_read(
        &self,
        inode: &OpenInode,
        handle: HandleId,
        count: u64,
        seen: Option<Attributes>,
    ) {
        if count > 0 && inode.atime_due() && !Handle::from_id(handle).no_atime() {
            self.touch(inode, seen).await;
        }
    }

    /// Reads from a file that the caller has open.
    pub(crate) async fn read_open(&self, inode: &OpenInode, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        self.read_seeing(inode, offset, into, false).await.map(|(count, _)| count)
    }

    /// The same; tells the file's attributes besides, if that took them.
    async fn read_seeing(
        &self,
        inode: &OpenInode,
        offset: u64,
        into: &mut [u8],
        for_cache: bool,
    ) -> FsResult<(usize, Option<Attributes>)> {
        let object = {
            let state = inode.shared().await;
            if for_cache && state.direct {
                self.page_is_brought(inode, &state);
            }
            match state.layout {
                Layout::Inline => {
                    let (count, node) = self.metadata.inline_read(inode.ino, offset, into).await?.value;
                    return Ok((count, Some(node.attributes)));
                }
                Layout::Object(_) => Arc::clone(state.object()?),
            }
        };
        if into.len() >= LONG_IO_BYTES {
            blocking().await;
        }
        Ok((object.file.read_at(into, offset)?, None))
    }

    /// Of a file that is open past the page cache, for a mapping; before it is read, so that a write which is not in it finds out.
    fn page_is_brought(&self, inode: &OpenInode, state: &State) {
        let how = if state.both { Mapped::ForStores } else { Mapped::ForReads };
        if !inode.perhaps_mapped(how) {
            inode.may_be_mapped(how);
            self.stale_pages.note_for_certain(inode.ino);
        }
    }

    /// The object of an open file, if it has one.
    pub(crate) async fn object_of(&self, inode: &OpenInode) -> FsResult<Option<Arc<OpenObject>>> {
        let state = inode.shared().await;
        match state.layout {
            Layout::Inline => Ok(None),
            Layout::Object(_) => Ok(Some(Arc::clone(state.object()?))),
        }
    }

    /// Records an access. That it cannot be recorded is no reason to fail a read.
    async fn touch(&self, inode: &OpenInode, seen: Option<Attributes>) {
        if self.options.atime != AtimeMode::Strict {
            inode.set_atime_due(false);
        }
        if self.options.read_only || self.options.atime == AtimeMode::Never {
            return;
        }
        if let Err(error) = here_or_waiting!(self.try_touch(inode, seen)) {
            tracing::debug!(%error, ino = %inode.ino, "access time not recorded");
        }
    }

    async fn try_touch(&self, inode: &OpenInode, seen: Option<Attributes>) -> FsResult<()> {
        let attributes = match seen {
            Some(attributes) => attributes,
            None => {
                let state = inode.shared().await;
                let record = self.metadata.node(inode.ino).await?.value.attributes;
                self.present(&state, &record)?
            }
        };
        let now = self.metadata.now();
        if self.options.atime.due(&attributes, now) {
            self.metadata.touch_atime(inode.ino, now).await?;
        }
        Ok(())
    }
}

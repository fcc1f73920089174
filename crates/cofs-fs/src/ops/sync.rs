//! What must be on stable storage before the answer: first the object, then the metadata that names it.

use cofs_metadata::MetadataDriver;
use cofs_types::{FsResult, InodeId, failpoint};

use crate::{Cofs, HandleId, blocking, open_inode::OpenInode};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_fsync(
        &self,
        ino: InodeId,
        handle: Option<HandleId>,
        data_only: bool,
    ) -> FsResult<()> {
        if let Some(handle) = handle.filter(|handle| self.is_inherited(*handle)) {
            return self.sync_file(&*self.opened_by(ino, handle).await?, data_only).await;
        }
        match self.opens.get(ino) {
            Some(inode) => self.sync_file(&inode, data_only).await,
            None => self.sync_metadata().await,
        }
    }

    /// Syncs an open file. One whose sync failed never succeeds again while it is open: the kernel tells of
    /// a lost page once, and forgets it. Size and times need no commit here: that the file is being written
    /// is durable with the metadata, and after a crash its object tells the rest.
    pub(crate) async fn sync_file(&self, inode: &OpenInode, data_only: bool) -> FsResult<()> {
        inode.check_poison()?;
        if let Some(object) = self.object_of(inode).await? {
            blocking().await;
            object.file.sync(data_only).inspect_err(|_| inode.poison())?;
            failpoint("fs.fsync.object_synced");
        }
        self.sync_metadata().await.inspect_err(|_| inode.poison())
    }

    /// Everything committed so far becomes durable; nothing to wait for if it is.
    pub(crate) async fn sync_metadata(&self) -> FsResult<()> {
        if !self.metadata.needs_sync() {
            return Ok(());
        }
        blocking().await;
        self.metadata.sync().await?;
        failpoint("fs.fsync.committed");
        Ok(())
    }

    pub(crate) async fn do_syncfs(&self) -> FsResult<()> {
        blocking().await;
        self.sync_pools(false)?;
        failpoint("fs.syncfs.pools_synced");
        self.sync_metadata().await
    }
}

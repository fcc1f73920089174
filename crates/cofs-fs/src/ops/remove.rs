//! Names removed and replaced. The commit comes first, then the reply; objects go later, by the collector.

use cofs_metadata::{Fate, MetadataDriver, Removed};
use cofs_types::{FileKind, FsResult, InodeId, Layout, Name, RenameMode, failpoint};
use cofs_wait::here_or_waiting;

use crate::{Cofs, Context};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_unlink(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.check_writable()?;
        if self.options.life == 0 {
            return self.unlink_held(ctx, parent, name).await;
        }
        // It may be open since an earlier life, and not stand in the table.
        let held = self.hold_target(ctx, (parent, name)).await?;
        let done = self.unlink_held(ctx, parent, name).await;
        self.linger(held).await.and(done)
    }

    async fn unlink_held(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        let removed = here_or_waiting!(self.metadata.unlink(&ctx.credentials, parent, name))?.value;
        failpoint("fs.unlink.committed");
        self.after_removal(&removed).await
    }

    pub(crate) async fn do_rmdir(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.check_writable()?;
        let removed = here_or_waiting!(self.metadata.rmdir(&ctx.credentials, parent, name))?.value;
        failpoint("fs.rmdir.committed");
        self.after_removal(&removed).await
    }

    pub(crate) async fn do_rename(
        &self,
        ctx: &Context<'_>,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.check_writable()?;
        let held = if mode.replaces() { self.hold_target(ctx, to).await? } else { None };
        let done = self.rename_held(ctx, from, to, mode).await;
        if done.is_ok() && mode == RenameMode::Exchange && self.options.life == 0 {
            self.linger_exchanged(ctx, [from, to]).await;
        }
        self.linger(held).await.and(done)
    }

    /// One of two files that were exchanged is often removed next, while others open what they found by its old name. Who was told of the
    /// exchange finds them held.
    async fn linger_exchanged(&self, ctx: &Context<'_>, names: [(InodeId, &Name); 2]) {
        for at in names {
            let held = self.hold_target(ctx, at).await.ok().flatten();
            if let Some(leaves) = held.and_then(|ino| self.lingering.put(ino))
                && let Err(error) = self.unclaim(leaves).await
            {
                tracing::warn!(%error, ino = %leaves, "a replaced file stays until the next start");
            }
        }
    }

    async fn rename_held(
        &self,
        ctx: &Context<'_>,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> FsResult<()> {
        let renamed = here_or_waiting!(self.metadata.rename(&ctx.credentials, from, to, mode))?.value;
        failpoint("fs.rename.committed");
        match renamed.replaced {
            Some(removed) => self.after_removal(&removed).await,
            None => Ok(()),
        }
    }

    /// Claims the regular file that is about to lose this name, so that it is kept. Where that cannot be done, the operation will
    /// say why, or needs no such care: but for a file that may be open since an earlier life.
    async fn hold_target(
        &self,
        ctx: &Context<'_>,
        (parent, name): (InodeId, &Name),
    ) -> FsResult<Option<InodeId>> {
        let Ok(target) = here_or_waiting!(self.metadata.lookup(&ctx.credentials, parent, name)) else {
            return Ok(None);
        };
        let target = target.value.attributes;
        let is_first_life = self.options.life == 0;
        let is_opened = matches!(target.kind, FileKind::Regular | FileKind::Symlink);
        if !is_opened || (is_first_life && target.nlink > 1) {
            return Ok(None);
        }
        match self.opens.claim(target.ino) {
            Err(error) if !is_first_life => Err(error),
            claimed => Ok(claimed.ok().map(|_| target.ino)),
        }
    }

    /// What was held stays openable if it has lost its last name, until the kernel forgets it.
    async fn linger(&self, held: Option<InodeId>) -> FsResult<()> {
        let Some(ino) = held else { return Ok(()) };
        let leaves = if !self.opens.is_unlinked(ino) {
            Some(ino)
        } else if self.options.life == 0 {
            self.lingering.put(ino)
        } else {
            self.inherited.hold(ino)
        };
        match leaves {
            Some(ino) => self.unclaim(ino).await,
            None => Ok(()),
        }
    }

    /// The kernel will not open this inode any more.
    pub(crate) async fn forget_lingering(&self, ino: InodeId) {
        if self.lingering.take(ino)
            && let Err(error) = self.unclaim(ino).await
        {
            tracing::warn!(%error, %ino, "a replaced file stays until the next start");
        }
    }

    /// What is left to do for an inode that has lost a name.
    async fn after_removal(&self, removed: &Removed) -> FsResult<()> {
        let ino = removed.node.attributes.ino;
        match removed.fate {
            Fate::Linked => Ok(()),
            Fate::Kept => {
                self.ghosts.put(&removed.node.attributes);
                if self.opens.mark_unlinked(ino) {
                    // Here and not when the kernel forgets it, which may be late.
                    self.close_idle_later(ino);
                    return Ok(());
                }
                // Its last close came between the commit and here, and did not know.
                self.release_unlinked(ino).await
            }
            Fate::Gone => {
                self.ghosts.put(&removed.node.attributes);
                if removed.node.layout != Layout::Inline {
                    self.close_idle_later(ino);
                    self.collector.wake();
                }
                Ok(())
            }
        }
    }
}

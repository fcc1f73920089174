//! Names removed and replaced. The commit comes first, then the reply; objects go later, by the collector.

use cofs_metadata::{Fate, MetadataDriver, Removed};
use cofs_types::{FsResult, InodeId, Layout, Name, RenameMode, failpoint};

use crate::{Cofs, Context};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_unlink(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.check_writable()?;
        let removed = self.metadata.unlink(&ctx.credentials, parent, name).await?.value;
        failpoint("fs.unlink.committed");
        self.after_removal(&removed).await
    }

    pub(crate) async fn do_rmdir(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.check_writable()?;
        let removed = self.metadata.rmdir(&ctx.credentials, parent, name).await?.value;
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
        let renamed = self.metadata.rename(&ctx.credentials, from, to, mode).await?.value;
        failpoint("fs.rename.committed");
        match renamed.replaced {
            Some(removed) => self.after_removal(&removed).await,
            None => Ok(()),
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
                    return Ok(());
                }
                // Its last close came between the commit and here, and did not know.
                self.release_unlinked(ino).await
            }
            Fate::Gone => {
                self.ghosts.put(&removed.node.attributes);
                if removed.node.layout != Layout::Inline {
                    self.idle.drop_of(ino);
                    self.collector.wake();
                }
                Ok(())
            }
        }
    }
}

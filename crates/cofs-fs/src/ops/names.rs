//! Names looked up, made and linked.

use cofs_metadata::MetadataDriver;
use cofs_types::{FileKind, FsResult, InodeId, Name, NewInode, failpoint};
use cofs_wait::here_or_waiting;

use crate::{Cofs, Context, Entry};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_lookup(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<Entry> {
        let found = here_or_waiting!(self.metadata.lookup(&ctx.credentials, parent, name))?;
        if found.value.attributes.kind != FileKind::Directory {
            self.listers.looks_up(ctx.pid, parent);
        }
        self.entry_of(found).await
    }

    pub(crate) async fn do_lookup_self(&self, ino: InodeId) -> FsResult<Entry> {
        self.entry_of(here_or_waiting!(self.metadata.node(ino))?).await
    }

    pub(crate) async fn do_lookup_parent(&self, ino: InodeId) -> FsResult<Entry> {
        self.entry_of(here_or_waiting!(self.metadata.parent(ino))?).await
    }

    /// mkdir(2), symlink(2), mknod(2).
    pub(crate) async fn do_make(
        &self,
        ctx: &Context<'_>,
        parent: InodeId,
        name: &Name,
        new: &NewInode<'_>,
    ) -> FsResult<Entry> {
        self.check_writable()?;
        let answer = here_or_waiting!(self.metadata.create(&ctx.credentials, parent, name, new))?;
        failpoint("fs.make.committed");
        self.entry_of(answer).await
    }

    pub(crate) async fn do_link(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Entry> {
        self.check_writable()?;
        let answer = here_or_waiting!(self.metadata.link(&ctx.credentials, ino, parent, name))?;
        failpoint("fs.link.committed");
        self.opens.mark_linked(ino);
        self.entry_of(answer).await
    }
}

//! Extended attributes, and the virtual ones through which the command line speaks with a live mount.

use bytes::Bytes;
use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, InodeId, XattrMode, XattrName};
use cofs_wait::here_or_waiting;

use crate::{Cofs, Context, blocking};

/// Names that start so are never stored, and never listed.
const VIRTUAL_PREFIX: &[u8] = b"cofs.";
const INFO: &[u8] = b"cofs.info";
const STATUS: &[u8] = b"cofs.status";
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
const COLLECT: &[u8] = b"cofs.gc";

fn is_virtual(name: &XattrName) -> bool {
    name.as_bytes().starts_with(VIRTUAL_PREFIX)
}

fn is_trusted(name: &[u8]) -> bool {
    name.starts_with(b"trusted.")
}

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_getxattr(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        name: &XattrName,
    ) -> FsResult<Bytes> {
        if !is_virtual(name) {
            return match here_or_waiting!(self.metadata.getxattr(&ctx.credentials, ino, name)) {
                Err(FsError::Stale) if self.ghosts.get(ino).is_some() => Err(FsError::NoAttribute),
                value => Ok(value?.value),
            };
        }
        match name.as_bytes() {
            INFO => self.info(ino).await,
            STATUS if ino == InodeId::ROOT => self.status().await,
            _ => Err(FsError::NoAttribute),
        }
    }

    pub(crate) async fn do_setxattr(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        name: &XattrName,
        value: &[u8],
        mode: XattrMode,
        kill_set_gid: bool,
    ) -> FsResult<()> {
        if is_virtual(name) {
            return self.set_virtual(ctx, ino, name).await;
        }
        self.check_writable()?;
        here_or_waiting!(self.metadata.setxattr(&ctx.credentials, ino, name, value, mode, kill_set_gid))?;
        if name.as_bytes() == CAPABILITY
            && let Some(inode) = self.opens.get(ino)
        {
            inode.set_capable(true);
        }
        cofs_types::failpoint("fs.setxattr.committed");
        Ok(())
    }

    async fn set_virtual(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> FsResult<()> {
        if name.as_bytes() != COLLECT || ino != InodeId::ROOT {
            return Err(FsError::NotSupported);
        }
        if ctx.credentials.uid != 0 && ctx.credentials.uid != self.options.owner_uid {
            return Err(FsError::NotPermitted);
        }
        blocking().await;
        self.collect().map(|_| ())
    }

    /// Trusted attributes are not even named to those who may not read them (xattr(7)); the kernel leaves that
    /// to the file system.
    pub(crate) async fn do_listxattr(&self, ctx: &Context<'_>, ino: InodeId) -> FsResult<Bytes> {
        let names = match here_or_waiting!(self.metadata.listxattr(ino)) {
            Err(FsError::Stale) if self.ghosts.get(ino).is_some() => Bytes::new(),
            names => names?.value,
        };
        if ctx.credentials.uid == 0 || !names.split(|byte| *byte == 0).any(is_trusted) {
            return Ok(names);
        }
        let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !is_trusted(name));
        Ok(shown.flatten().copied().collect())
    }

    pub(crate) async fn do_removexattr(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        name: &XattrName,
    ) -> FsResult<()> {
        self.check_writable()?;
        if is_virtual(name) {
            return Err(FsError::NoAttribute);
        }
        here_or_waiting!(self.metadata.removexattr(&ctx.credentials, ino, name))?;
        cofs_types::failpoint("fs.removexattr.committed");
        Ok(())
    }
}

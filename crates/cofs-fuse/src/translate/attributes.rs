//! Attributes: told, set, checked.

use cofs_face::{Context, FileSystem, HandleId};
use cofs_types::{InodeId, SetAttributes};

use super::{Answered, Seen};
use crate::{
    errno::Errno,
    reply::{Reply, Short},
};

pub async fn getattr<F: FileSystem>(fs: &F, ino: InodeId, handle: Option<HandleId>) -> Result<Seen, Errno> {
    Ok(Seen::Attributes(fs.getattr(ino, handle).await?))
}

pub async fn statx<F: FileSystem>(fs: &F, ino: InodeId, handle: Option<HandleId>) -> Result<Seen, Errno> {
    Ok(Seen::Statx(fs.getattr(ino, handle).await?))
}

pub async fn setattr<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    handle: Option<HandleId>,
    change: &SetAttributes,
    short: &mut Short<'_>,
) -> Answered {
    Ok(short.attributes(&fs.setattr(ctx, ino, handle, change).await?))
}

pub async fn access<F: FileSystem>(fs: &F, ctx: &Context<'_>, ino: InodeId, mask: u32) -> Answered {
    fs.access(ctx, ino, mask).await?;
    Ok(Reply::DONE)
}

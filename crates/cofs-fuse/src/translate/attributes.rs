//! Attributes: told, set, checked.

use cofs_face::{Context, FileSystem, HandleId};
use cofs_types::{InodeId, SetAttributes};

use super::Answered;
use crate::reply::Reply;

pub async fn getattr<F: FileSystem>(fs: &F, ino: InodeId, handle: Option<HandleId>) -> Answered {
    Ok(Reply::attributes(&fs.getattr(ino, handle).await?))
}

pub async fn statx<F: FileSystem>(fs: &F, ino: InodeId, handle: Option<HandleId>) -> Answered {
    Ok(Reply::Statx(fs.getattr(ino, handle).await?))
}

pub async fn setattr<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    handle: Option<HandleId>,
    change: SetAttributes,
) -> Answered {
    Ok(Reply::attributes(&fs.setattr(ctx, ino, handle, &change).await?))
}

pub async fn access<F: FileSystem>(fs: &F, ctx: &Context<'_>, ino: InodeId, mask: u32) -> Answered {
    fs.access(ctx, ino, mask).await?;
    Ok(Reply::Done)
}

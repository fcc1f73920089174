//! Extended attributes.

use cofs_face::{Context, FileSystem};
use cofs_types::{InodeId, XattrMode, XattrName};

use super::Answered;
use crate::reply::{Reply, Short};

pub async fn get<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    name: &XattrName,
    room: u32,
    short: &mut Short<'_>,
) -> Answered {
    short.sized(fs.getxattr(ctx, ino, name).await?, room)
}

pub async fn list<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    room: u32,
    short: &mut Short<'_>,
) -> Answered {
    short.sized(fs.listxattr(ctx, ino).await?, room)
}

pub async fn set<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    name: &XattrName,
    value: &[u8],
    mode: XattrMode,
    kill_set_gid: bool,
) -> Answered {
    fs.setxattr(ctx, ino, name, value, mode, kill_set_gid).await?;
    Ok(Reply::DONE)
}

pub async fn remove<F: FileSystem>(fs: &F, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> Answered {
    fs.removexattr(ctx, ino, name).await?;
    Ok(Reply::DONE)
}

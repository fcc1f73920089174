//! Names: looked up, made, linked, moved, removed.

use cofs_face::{Context, FileSystem};
use cofs_types::{FsError, InodeId, Name, NewInode, RenameMode};

use super::Answered;
use crate::{
    reply::{Reply, Short},
    request::LookupOf,
};

pub async fn lookup<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    parent: InodeId,
    of: LookupOf<'_>,
    short: &mut Short<'_>,
) -> Answered {
    let found = match of {
        LookupOf::Name(name) => fs.lookup(ctx, parent, name).await,
        LookupOf::Itself => fs.lookup_self(parent).await,
        LookupOf::Parent => fs.lookup_parent(parent).await,
    };
    match found {
        Ok(entry) => Ok(short.entry(&entry)),
        Err(FsError::NotFound) if matches!(of, LookupOf::Name(_)) => absent(fs, short),
        Err(error) => Err(error.into()),
    }
}

/// "Not there": with a time-out the kernel remembers it, without one it does not.
fn absent<F: FileSystem>(fs: &F, short: &mut Short<'_>) -> Answered {
    let validity = fs.negative_validity();
    if validity.is_zero() { Err(FsError::NotFound.into()) } else { Ok(short.negative(validity)) }
}

pub async fn make<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    parent: InodeId,
    name: &Name,
    new: NewInode<'_>,
    short: &mut Short<'_>,
) -> Answered {
    Ok(short.entry(&fs.make(ctx, parent, name, new).await?))
}

pub async fn link<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    parent: InodeId,
    name: &Name,
    short: &mut Short<'_>,
) -> Answered {
    Ok(short.entry(&fs.link(ctx, ino, parent, name).await?))
}

pub async fn unlink<F: FileSystem>(fs: &F, ctx: &Context<'_>, parent: InodeId, name: &Name) -> Answered {
    fs.unlink(ctx, parent, name).await?;
    Ok(Reply::DONE)
}

pub async fn rmdir<F: FileSystem>(fs: &F, ctx: &Context<'_>, parent: InodeId, name: &Name) -> Answered {
    fs.rmdir(ctx, parent, name).await?;
    Ok(Reply::DONE)
}

pub async fn rename<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    from: (InodeId, &Name),
    to: (InodeId, &Name),
    mode: RenameMode,
) -> Answered {
    fs.rename(ctx, from, to, mode).await?;
    Ok(Reply::DONE)
}

pub async fn readlink<F: FileSystem>(fs: &F, ino: InodeId) -> Answered {
    Ok(Reply::Bytes(fs.readlink(ino).await?))
}

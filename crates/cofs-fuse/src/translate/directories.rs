//! Open directories and their listings.

use cofs_face::{Context, FileSystem, HandleId, ListOf};
use cofs_types::{InodeId, OpenFlags};

use super::{Answered, Seen};
use crate::{
    errno::Errno,
    reply::{Listing, Reply, Short},
    request::ReaddirOf,
};

pub async fn opendir<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    flags: OpenFlags,
    short: &mut Short<'_>,
) -> Answered {
    Ok(short.opened_directory(&fs.opendir(ctx, ino, flags).await?))
}

pub async fn readdir<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    of: ReaddirOf,
    answer: &mut [u8],
) -> Answered {
    let room = of.size.min(answer.len());
    let mut listing = Listing::new(answer.get_mut(..room).unwrap_or_default(), of.with_attributes);
    let entries_max = listing.entries_max();
    let list = ListOf { cookie: of.cookie, with_attributes: of.with_attributes, entries_max };
    let mut sink = |entry: cofs_face::DirEntry<'_>| listing.push(entry);
    fs.readdir(ctx, ino, of.handle, list, &mut sink).await?;
    Ok(Reply::in_place(listing.len()))
}

pub async fn releasedir<F: FileSystem>(fs: &F, ino: InodeId, handle: HandleId) -> Answered {
    fs.releasedir(ino, handle).await?;
    Ok(Reply::DONE)
}

pub async fn fsyncdir<F: FileSystem>(fs: &F, ino: InodeId) -> Result<Seen, Errno> {
    fs.fsyncdir(ino).await?;
    Ok(Seen::Nothing)
}

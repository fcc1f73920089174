//! Files: opened, read, written, synced, closed.

use cofs_face::{Context, FileSystem, HandleId};
use cofs_types::InodeId;

use super::{Answered, Seen};
use crate::{
    errno::Errno,
    reply::{Reply, Short},
    request::{Operation, ReadOf},
};

/// Fills `answer` itself.
pub async fn read<F: FileSystem>(fs: &F, ino: InodeId, of: ReadOf, answer: &mut [u8]) -> Answered {
    let room = of.size.min(answer.len());
    let into = answer.get_mut(..room).unwrap_or_default();
    Ok(Reply::in_place(fs.read(ino, of.handle, of.offset, into, of.for_cache).await?))
}

pub async fn fsync<F: FileSystem>(
    fs: &F,
    ino: InodeId,
    handle: HandleId,
    data_only: bool,
) -> Result<Seen, Errno> {
    fs.fsync(ino, Some(handle), data_only).await?;
    Ok(Seen::Nothing)
}

pub async fn operate<F: FileSystem>(
    fs: &F,
    ctx: &Context<'_>,
    ino: InodeId,
    operation: &Operation<'_>,
    short: &mut Short<'_>,
) -> Answered {
    use Operation as Op;
    Ok(match *operation {
        Op::Open(flags) => short.opened(&fs.open(ctx, ino, flags).await?),
        Op::Create { name, new, flags } => {
            let (entry, opened) = fs.create(ctx, ino, name, new, flags).await?;
            short.created(&entry, &opened)
        }
        Op::Tmpfile { new, flags } => {
            let (entry, opened) = fs.tmpfile(ctx, ino, new, flags).await?;
            short.created(&entry, &opened)
        }
        Op::Write { handle, offset, data, flags } => {
            short.written(fs.write(ino, handle, offset, data, flags).await?)
        }
        Op::Release(handle) => done(fs.release(ino, handle).await?),
        Op::Flush(handle) => done(fs.flush(ino, handle).await?),
        Op::Fallocate { handle, mode, offset, len } => {
            done(fs.fallocate(ctx, ino, handle, mode, offset, len).await?)
        }
        Op::Lseek { handle, offset, whence } => short.offset(fs.lseek(ino, handle, offset, whence).await?),
        Op::CopyRange { handle, offset, to, len, wide_answer } => {
            short.copied(fs.copy_range(ctx, (ino, handle, offset), to, len).await?, wide_answer)
        }
        _ => return Err(Errno(libc::ENOSYS)),
    })
}

fn done((): ()) -> Reply {
    Reply::DONE
}

//! What concerns the whole mount, and look-ups that are over.

use cofs_fs::FileSystem;
use cofs_types::InodeId;

use super::Answered;
use crate::{reply::Reply, request::ForgetList};

pub async fn statfs<F: FileSystem>(fs: &F) -> Answered {
    Ok(Reply::space(&fs.statfs().await?))
}

pub async fn syncfs<F: FileSystem>(fs: &F) -> Answered {
    fs.syncfs().await?;
    Ok(Reply::Done)
}

pub fn forget<F: FileSystem>(fs: &F, ino: InodeId, count: u64) -> Reply {
    fs.forget(ino, count);
    Reply::None
}

pub fn batch_forget<F: FileSystem>(fs: &F, list: ForgetList<'_>) -> Reply {
    for (ino, count) in list.iter() {
        fs.forget(ino, count);
    }
    Reply::None
}

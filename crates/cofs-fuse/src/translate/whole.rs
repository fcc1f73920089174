//! What concerns the whole mount, and look-ups that are over.

use cofs_face::FileSystem;

use super::Answered;
use crate::reply::Reply;

pub async fn statfs<F: FileSystem>(fs: &F) -> Answered {
    Ok(Reply::space(&fs.statfs().await?))
}

pub async fn syncfs<F: FileSystem>(fs: &F) -> Answered {
    fs.syncfs().await?;
    Ok(Reply::Done)
}

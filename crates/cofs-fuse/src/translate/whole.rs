//! What concerns the whole mount, and look-ups that are over.

use cofs_face::FileSystem;

use super::Seen;
use crate::errno::Errno;

pub async fn statfs<F: FileSystem>(fs: &F) -> Result<Seen, Errno> {
    Ok(Seen::Space(fs.statfs().await?))
}

pub async fn syncfs<F: FileSystem>(fs: &F) -> Result<Seen, Errno> {
    fs.syncfs().await?;
    Ok(Seen::Nothing)
}

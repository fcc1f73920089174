//! `SEEK_DATA` and `SEEK_HOLE`.

use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, InodeId, SeekWhence};
use cofs_wait::{here_or_waiting, waiting};

use crate::{Cofs, HandleId};

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_lseek(
        &self,
        ino: InodeId,
        handle: HandleId,
        offset: u64,
        whence: SeekWhence,
    ) -> FsResult<u64> {
        let inode = self.opened_by(ino, handle).await?;
        if let Some(object) = self.object_of(&inode).await? {
            // Where its data are the file system below may have to read.
            waiting().await;
            return object.file.seek(whence, offset);
        }
        // An inline file is all data, which is always a right answer (lseek(2)).
        let size = here_or_waiting!(self.metadata.node(ino))?.value.attributes.size_bytes;
        match whence {
            _ if offset >= size => Err(FsError::NoData),
            SeekWhence::Data => Ok(offset),
            SeekWhence::Hole => Ok(size),
        }
    }
}

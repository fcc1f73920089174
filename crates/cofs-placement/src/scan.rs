//! Everything that stands in a pool, for those who check it.

use std::path::PathBuf;

use cofs_types::{InodeId, ObjectId, Timestamp};

/// What a scan of a pool met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundObject {
    Object {
        id: ObjectId,
        /// The inode it was taken for; `None` if it carries no (legible) tag.
        owner: Option<InodeId>,
        size_bytes: u64,
        blocks_512: u64,
        mtime: Timestamp,
        /// Untagged and empty, and the driver's own: waiting to be taken, or of the last reservation, so
        /// that the next start looks at it. Nobody else may remove it.
        ready: bool,
    },
    /// Something below `objects/` that the driver did not make. Its path is below the pool's directory.
    Foreign { path: PathBuf },
}

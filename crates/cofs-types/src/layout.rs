//! Where a file's bytes are.

use crate::ObjectId;

/// How a regular file's bytes map to storage.
///
/// A file is born [`Inline`](Self::Inline) and moves to an object when it outgrows the volume's
/// inline maximum; other kinds of inode have no bytes and stay `Inline`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Layout {
    /// The bytes (none, perhaps) are kept with the metadata.
    #[default]
    Inline,
    /// The bytes from 0 to the file's end are the bytes of one object.
    Object(ObjectId),
}

//! The file-system operations, where the metadata driver and the placement driver meet.

mod api;
mod blocking;

pub use api::{
    BackingId, Context, DataPath, DirEntry, DirSink, Entry, FaceAbilities, FileSystem, HandleId, Opened,
    OpenedDirectory, Passthrough, Recall, Space, Stat, Validity, WriteFlags,
};
pub use blocking::{BlockingThread, blocking, run};

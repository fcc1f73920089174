//! The seam between the faces of a file system and what answers them.
//!
//! A face (FUSE, NFS) speaks [`FileSystem`]; whoever implements it can be mounted: `cofs_fs::Cofs`, or the null file system of
//! `cofs-fuse`'s examples. Neither side knows the other, and a face is built without an engine or a pool. Operations
//! are futures that end at their first poll wherever they can; [`blocking`] is how one says that it will wait.

mod api;

pub use api::{
    BackingId, Context, DataPath, DirEntry, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf,
    Opened, OpenedDirectory, Passthrough, Recall, Space, Stat, Validity, WriteFlags,
};
pub use cofs_wait::{BlockingThread, at_once, blocking, left_for_nearby, run, waiting};

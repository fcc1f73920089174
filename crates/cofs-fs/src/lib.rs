//! The file-system operations, where the metadata driver and the placement driver meet.
//!
//! A face (FUSE, NFS) speaks [`FileSystem`], which stands in a crate of its own; [`Cofs`] answers it. One file under `ops/` holds one group
//! of operations; the order of their steps, and what a crash between two of them leaves, is the table in
//! `docs/design/orders.md`.

// An inode's lock is held over calls of the metadata driver, whose local answers come on the first poll, and
// never over `blocking()`: see the invariants of `open_inode`.
#![allow(clippy::await_holding_lock)]

mod closed;
mod cofs;
mod collector;
mod descriptors;
mod face;
mod ghosts;
mod handle;
mod idle;
mod inherited;
mod learned;
mod lingering;
mod listers;
mod moving;
mod numbering;
mod open_inode;
mod open_object;
mod open_table;
mod ops;
mod options;
mod pace;
mod page_merge;
mod recovery;
mod session;
mod stale_pages;
mod status;
mod strangers;
mod writing;

pub use cofs::{Cofs, VolumeParts};
pub use cofs_face::{
    BackingId, Context, DataPath, DirEntry, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf,
    Opened, OpenedDirectory, Passthrough, Recall, Space, Stat, Validity, WriteFlags, blocking, run,
};
pub use open_table::OpenTable;
pub use options::{AtimeMode, FsOptions};
pub use recovery::Recovered;
pub use strangers::OpenElsewhere;

/// Names of the threads that tidy up.
pub const BACKGROUND_THREADS: &[&str] = &[closed::THREAD, collector::THREAD];

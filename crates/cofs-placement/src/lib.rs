//! The placement driver: where the bytes of files stand below.
//!
//! A *pool* is a directory of some other file system; an *object* is one regular file in it, named by a
//! number that is never used twice. Objects are created ahead of need by a background filler, in
//! directories of at most [`cofs_types::limits::OBJECTS_PER_DIRECTORY`] objects, and carry the number of
//! the inode that owns them, so that a volume can be rebuilt from its pools.
//!
//! Only this room opens backing files, and it does so through [`BackingStore`]. It knows neither names
//! nor directories of the volume. What a crash can leave behind is written in
//! `docs/design/placement.md`.

mod boot;
mod damage;
mod directory_store;
mod era;
mod faulty_store;
mod filler;
mod format;
mod free_space;
mod health;
mod identity;
mod in_time;
mod numbers;
mod object_directory;
mod object_file;
mod owner;
mod path;
mod placement;
mod pool;
mod read_only_store;
mod ready;
mod reservation;
mod scan;
mod space;
mod store;
mod takes;

pub use boot::boot_id;
pub use directory_store::DirectoryStore;
pub use faulty_store::{Fault, FaultyStore};
pub use object_file::{ObjectFile, ObjectStat};
pub use placement::{Placement, PoolConfig, Taken, Tier};
pub use pool::recovery::LeftBehind;
pub use scan::FoundObject;
pub use space::{PoolHealth, PoolSpace};
pub use store::{At, BackingStore, EntryKind, OpenMode, Operation, Space};

/// Names of the threads that work ahead of need.
pub const BACKGROUND_THREADS: &[&str] = &[filler::THREAD];

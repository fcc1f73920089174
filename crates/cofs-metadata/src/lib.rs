//! The metadata driver: how the file-system operations reach the name space.
//!
//! [`MetadataDriver`] is the seam. [`LocalDriver`] answers from a name space in this process; a later driver
//! will answer from a service elsewhere, under a lease. Every [`Answer`] says how long it may be believed.
//!
//! Invariants every driver keeps:
//! - what a changing method acknowledged survives the end of this process;
//! - what it acknowledged before the last successful [`MetadataDriver::sync`] survives a power cut;
//! - a method does not wait for anything but its own service: the local ones complete on their first poll.
//!   `sync`, `close` and the reclaim list may take long: a caller that must not wait moves elsewhere first.

mod answer;
mod clock;
mod driver;
mod local;
mod sync_group;
mod ticker;

pub use answer::Answer;
pub use cofs_engine::{EngineHealth, EngineStats};
pub use cofs_namespace::{
    Fate, Leave, ListedEntry, Node, OpenInodes, Removed, Renamed, Settled, Unsynced, VolumeOptions, WithNodes,
};
pub use driver::{EntrySink, MetadataDriver};
pub use local::LocalDriver;

/// Names of the driver's threads that work in the background.
pub const BACKGROUND_THREADS: &[&str] = &[ticker::THREAD];

//! The engine: a transactional, ordered key-value store.
//!
//! The seam is narrow on purpose, so that the same name space runs over an embedded store, over memory
//! (tests, simulation) and over a replicated database. An engine knows bytes, not inodes.
//!
//! Invariants every engine keeps:
//! - a commit is atomic: all of its changes are seen, or none;
//! - what `commit` acknowledged as [`Outcome::Committed`] survives the end of this process (`kill -9`);
//! - after a power cut, the commits that survive are a prefix of those made, and it includes everything
//!   acknowledged before the last successful `sync`;
//! - a failed sync poisons the engine: no later call reports success. A failed commit is not seen, and the next may succeed.
//!
//! The engines: [`EmbeddedEngine`] (RocksDB, the default), [`MemoryEngine`] (tests and simulation, with a
//! model of a power cut), [`FaultEngine`] (any other engine, failing to order) and [`OverlayEngine`] (any other engine, only read, with
//! the changes in memory). The same conformance suite runs against all of them (`tests/conformance.rs`).

mod embedded;
mod engine;
mod fault;
mod memory;
mod overlay;
mod small_file;

pub use embedded::{BACKGROUND_THREADS, EmbeddedEngine, EmbeddedOptions, KeyShape};
pub use engine::{
    Batch, Bytes, Change, Durability, Engine, EngineError, EngineHealth, EngineStats, Guard, Key, Outcome,
    Show, Visit,
};
pub use fault::{Call, Fault, FaultEngine, FaultPlan};
pub use memory::MemoryEngine;
pub use overlay::OverlayEngine;
pub use small_file::{open_regular, read_small, regular};

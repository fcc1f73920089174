//! The nouns: what stands in the store, read and written through a transaction.

pub mod accesses;
pub mod allocator;
pub mod directories;
pub mod entries;
pub mod gathered;
pub mod inline;
pub mod inodes;
pub mod labels;
pub mod pool_ends;
pub mod sets;
mod spare;
pub mod volume;
pub mod xattrs;
pub mod young;

pub use gathered::Gathered;
pub use young::Young;

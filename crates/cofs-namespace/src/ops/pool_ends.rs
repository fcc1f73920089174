//! How far the pools' object numbers were given out.

use cofs_types::{FsResult, PoolEnd};

use crate::Namespace;

impl Namespace {
    /// What was noted last, ascending by pool; nothing of a pool of which nothing is known.
    pub fn pool_ends(&self) -> Vec<PoolEnd> {
        self.pool_ends.noted()
    }

    /// Notes how far numbers were given out: to be called before an object from the noted end on is named, and when a pool was
    /// closed in order. Nothing is committed if nothing differs.
    pub fn note_pool_ends(&self, ends: &[PoolEnd]) -> FsResult<()> {
        self.pool_ends.note(&self.store, ends)
    }
}

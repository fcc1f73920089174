//! Removed inodes that someone still holds without having them open: a current directory, an `O_PATH`
//! descriptor. Their last attributes answer fstat(2) until the kernel forgets them.
//!
//! Bounded by [`limits::GHOSTS_MAX`]; one that fell out answers `Stale`.

use cofs_types::{Attributes, InodeId, limits};
use quick_cache::sync::Cache;

pub(crate) struct Ghosts {
    cache: Cache<InodeId, Attributes>,
}

impl Ghosts {
    pub(crate) fn new() -> Self {
        Self { cache: Cache::new(limits::GHOSTS_MAX) }
    }

    pub(crate) fn put(&self, attributes: &Attributes) {
        self.cache.insert(attributes.ino, *attributes);
    }

    pub(crate) fn get(&self, ino: InodeId) -> Option<Attributes> {
        self.cache.get(&ino)
    }

    pub(crate) fn forget(&self, ino: InodeId) {
        self.cache.remove(&ino);
    }

    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }
}

//! Times that wait in memory to be committed, by inode. After a crash they are as old as the last flush.
//!
//! Invariant: who commits a record that shows what waits here takes it away under the record's lock, and only
//! if it is what he has seen; a reader that comes between the two finds that the record has changed.

use std::{
    collections::hash_map::Entry,
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_types::InodeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

const MAPS: usize = 16;

/// A bounded number of times: whoever finds it full flushes some.
pub struct Gathered<T> {
    maps: [Mutex<FxHashMap<InodeId, T>>; MAPS],
    /// Nearly always 0 where nobody reads: then a look costs no lock.
    len: AtomicUsize,
    max: usize,
}

impl<T: Copy + Eq> Gathered<T> {
    pub fn new(max: usize) -> Self {
        Self { maps: Default::default(), len: AtomicUsize::new(0), max }
    }

    fn map(&self, ino: InodeId) -> &Mutex<FxHashMap<InodeId, T>> {
        &self.maps[ino.sequence() as usize % MAPS]
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    pub fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) >= self.max
    }

    /// What waits for `ino` becomes what `after` makes of it.
    pub fn note(&self, ino: InodeId, after: impl FnOnce(Option<T>) -> T) {
        match self.map(ino).lock().entry(ino) {
            Entry::Occupied(mut before) => {
                let after = after(Some(*before.get()));
                before.insert(after);
            }
            Entry::Vacant(vacant) => {
                vacant.insert(after(None));
                self.len.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub fn get(&self, ino: InodeId) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.map(ino).lock().get(&ino).copied()
    }

    /// What waits for any of `inos`.
    pub fn of(&self, inos: impl Iterator<Item = InodeId>) -> FxHashMap<InodeId, T> {
        if self.is_empty() {
            return FxHashMap::default();
        }
        inos.filter_map(|ino| Some((ino, self.get(ino)?))).collect()
    }

    /// Forgets what waits for `ino` if it is what was `seen`: what came later stays.
    pub fn take(&self, ino: InodeId, seen: T) {
        let mut map = self.map(ino).lock();
        if map.get(&ino) == Some(&seen) {
            map.remove(&ino);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets an inode that is gone.
    pub fn forget(&self, ino: InodeId) {
        if !self.is_empty() && self.map(ino).lock().remove(&ino).is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.maps.iter().map(|map| map.lock().len()).sum()
    }

    /// All inodes, ascending: neighbours lie together in the store.
    pub fn all(&self) -> Vec<InodeId> {
        let keys = self.maps.iter().flat_map(|map| map.lock().keys().copied().collect::<Vec<_>>());
        let mut all: Vec<InodeId> = keys.collect();
        all.sort_unstable();
        all
    }

    pub fn some(&self, max: usize) -> Vec<InodeId> {
        let mut found = Vec::with_capacity(max);
        for map in &self.maps {
            found.extend(map.lock().keys().take(max - found.len()));
        }
        found
    }
}

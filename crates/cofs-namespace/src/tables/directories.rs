//! What a directory has besides its inode: the record `S`, and its own times, gathered in memory.
//!
//! A create, link or unlink does not write its directory: that its times changed is noted here and committed
//! to `S` with the next flush. The times that count are the gathered ones, else those of `S`, else the
//! inode's. Whoever writes a directory's inode folds them into it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use cofs_types::{FsError, FsResult, InodeId, Timestamp, limits};
use parking_lot::Mutex;

use crate::{
    schema::{Shard, Times, key},
    tx::{Store, Tx, verb},
};

/// So far a directory has one shard.
const SHARD: u16 = 0;
const MAPS: usize = 16;

/// Times of directories that wait to be committed. Bounded by `limits::DIRTY_DIRECTORIES_MAX`: whoever finds it
/// full flushes some.
#[derive(Default)]
pub struct Gathered {
    maps: [Mutex<HashMap<InodeId, Times>>; MAPS],
    len: AtomicUsize,
}

impl Gathered {
    fn map(&self, dir: InodeId) -> &Mutex<HashMap<InodeId, Times>> {
        &self.maps[dir.sequence() as usize % MAPS]
    }

    pub fn touch(&self, dir: InodeId, now: Timestamp) {
        let times = Times::both(now);
        let mut map = self.map(dir).lock();
        if let Some(known) = map.get_mut(&dir) {
            *known = known.later(times);
        } else {
            map.insert(dir, times);
            self.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn get(&self, dir: InodeId) -> Option<Times> {
        self.map(dir).lock().get(&dir).copied()
    }

    /// Forgets the times of `dir` if they are what was `seen`: later ones stay.
    pub fn take(&self, dir: InodeId, seen: Option<Times>) {
        let Some(seen) = seen else { return };
        let mut map = self.map(dir).lock();
        if map.get(&dir) == Some(&seen) {
            map.remove(&dir);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets a directory that is gone.
    fn forget(&self, dir: InodeId) {
        if self.map(dir).lock().remove(&dir).is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) >= limits::DIRTY_DIRECTORIES_MAX
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.maps.iter().map(|map| map.lock().len()).sum()
    }

    fn all(&self) -> Vec<InodeId> {
        self.maps.iter().flat_map(|map| map.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    fn some(&self, max: usize) -> Vec<InodeId> {
        let mut found = Vec::with_capacity(max);
        for map in &self.maps {
            found.extend(map.lock().keys().take(max - found.len()));
        }
        found
    }
}

pub fn shard(tx: &mut Tx<'_>, dir: InodeId) -> FsResult<Shard> {
    tx.get(&key::shard(dir, SHARD))?.map_or(Ok(Shard::default()), |value| Shard::decode(&value))
}

pub fn put_shard(tx: &mut Tx<'_>, dir: InodeId, shard: &Shard) {
    tx.put(&key::shard(dir, SHARD), shard.encode());
}

pub fn shard_key(dir: InodeId) -> [u8; 13] {
    key::shard(dir, SHARD)
}

/// `dir` has got (1) or lost (-1) a subdirectory; 0: only its times change.
pub fn count_subdirectories(tx: &mut Tx<'_>, dir: InodeId, delta: i32, now: Timestamp) -> FsResult<()> {
    if delta == 0 {
        tx.touch(dir, now);
        return Ok(());
    }
    let mut shard = shard(tx, dir)?;
    shard.subdirectories = shard
        .subdirectories
        .checked_add_signed(delta)
        .ok_or_else(|| FsError::corrupt(format!("directory {dir}: count of subdirectories")))?;
    let times = Times::both(now);
    shard.times = Some(shard.times.map_or(times, |old| old.later(times)));
    put_shard(tx, dir, &shard);
    Ok(())
}

impl Store {
    /// Commits the gathered times of all directories.
    pub fn flush_directories(&self) -> FsResult<()> {
        self.gathered.all().chunks(limits::DIRECTORY_TIMES_BATCH).try_for_each(|dirs| self.flush_batch(dirs))
    }

    /// Makes room where too many wait.
    pub fn relieve_gathered(&self) -> FsResult<()> {
        if !self.gathered.is_full() {
            return Ok(());
        }
        self.flush_batch(&self.gathered.some(limits::DIRECTORY_TIMES_BATCH))
    }

    fn flush_batch(&self, dirs: &[InodeId]) -> FsResult<()> {
        self.run(&verb!("flush"), |tx| {
            for &dir in dirs {
                let stands = tx.get(&key::inode(dir))?.is_some();
                let mut shard = shard(tx, dir)?;
                let seen = self.gathered.get(dir);
                match seen {
                    Some(_) if !stands => self.gathered.forget(dir),
                    Some(times) => {
                        shard.times = Some(shard.times.map_or(times, |old| old.later(times)));
                        put_shard(tx, dir, &shard);
                        tx.fold(dir, seen);
                    }
                    None => {}
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

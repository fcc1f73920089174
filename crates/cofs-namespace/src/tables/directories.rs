//! What a directory has besides its inode: the record `S`, and its own times, gathered in memory.
//!
//! A create, link or unlink does not write its directory: that its times changed is noted here and committed
//! to `S` with the next flush. The times that count are the gathered ones, else those of `S`, else the
//! inode's. Whoever writes a directory's inode folds them into it.

use cofs_types::{FsError, FsResult, InodeId, Timestamp, limits};

use crate::{
    schema::{Shard, Times, key},
    tx::{Store, Tx, verb},
};

/// So far a directory has one shard.
const SHARD: u16 = 0;

pub fn shard(tx: &mut Tx<'_>, dir: InodeId) -> FsResult<Shard> {
    tx.see(&key::shard(dir, SHARD), |value| value.map_or(Ok(Shard::default()), Shard::decode))
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
        let all = self.gathered.all();
        all.chunks(limits::GATHERED_TIMES_BATCH).try_for_each(|dirs| self.flush_batch(dirs))
    }

    /// Makes room where too many wait.
    pub fn relieve_gathered(&self) -> FsResult<()> {
        if !self.gathered.is_full() {
            return Ok(());
        }
        self.flush_batch(&self.gathered.some(limits::GATHERED_TIMES_BATCH))
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

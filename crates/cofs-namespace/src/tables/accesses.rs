//! Access times, gathered in memory.
//!
//! That an inode was read is noted here and committed to its record with the next flush. The time that counts is
//! the gathered one, else the record's: whoever decodes an inode in a transaction sees it, and whoever writes the
//! inode folds it in.

use cofs_types::{FsResult, InodeId, Timestamp, limits};

use super::inodes;
use crate::tx::{Store, verb};

impl Store {
    /// The access time of `ino`, whose record stands, becomes `now`. Errors: those of a flush, where too many wait.
    pub fn note_access(&self, ino: InodeId, now: Timestamp) -> FsResult<()> {
        self.check_open()?;
        if self.accesses.is_full() {
            self.flush_access_batch(&self.accesses.some(limits::GATHERED_TIMES_BATCH))?;
        }
        self.accesses.note(ino, |_| now);
        Ok(())
    }

    /// Commits the gathered access times of all inodes.
    pub fn flush_accesses(&self) -> FsResult<()> {
        let all = self.accesses.all();
        all.chunks(limits::GATHERED_TIMES_BATCH).try_for_each(|inos| self.flush_access_batch(inos))
    }

    fn flush_access_batch(&self, inos: &[InodeId]) -> FsResult<()> {
        self.run(&verb!("flush_accesses"), |tx| {
            for &ino in inos {
                match inodes::bare(tx, ino)? {
                    Some(inode) if tx.saw_access(ino) => inodes::put(tx, ino, &inode),
                    Some(_) => {} // folded by someone else
                    None => self.accesses.forget(ino),
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

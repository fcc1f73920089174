//! The end of inodes that were unlinked while open, and the list of those.

use cofs_types::{FsError, FsResult, InodeId, Timestamp};

use crate::{
    Namespace, Unsynced,
    schema::{Key, Writing, key, ranges},
    tables::{inodes, sets},
    tx::verb,
};

impl Namespace {
    /// The last close of an unlinked inode: it goes, its object to the reclaim list. Nothing happens if it has
    /// a name again, or is gone, or is open again; `false` in the last case: whoever closes it is to release it.
    pub fn release_unlinked(&self, _now: Timestamp, ino: InodeId) -> FsResult<bool> {
        self.commit(&verb!("release"), |tx| {
            let Some(inode) = inodes::bare(tx, ino)? else { return Ok(true) };
            if inode.nlink > 0 {
                return Ok(true);
            }
            if self.store.opens.is_open(ino) {
                return Ok(false);
            }
            let mut removal = sets::removal(tx, ino, &inode)?;
            removal.push(cofs_engine::Change::delete(key::unlinked(ino)));
            tx.depart(ino, inode, removal);
            Ok(true)
        })
    }

    /// At most `max` of the inodes that stand in `U`, behind `after`, ascending.
    pub fn unlinked_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        self.store.set(&ranges::unlinked(after), max, |key| match key {
            Key::Unlinked(ino) => Some(ino),
            _ => None,
        })
    }

    /// At most `max` of the inodes that stand in `W`, behind `after`, ascending; without those that are closed.
    pub fn writing_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        self.writing(after, max, |ino, writing| (writing == Writing::Open).then_some(ino))
    }

    /// At most `max` of the closed files whose objects may not be on stable storage, behind `after`, ascending.
    pub fn unsynced_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<(InodeId, Unsynced)>> {
        self.writing(after, max, |ino, writing| match writing {
            Writing::Open => None,
            Writing::Closed(unsynced) => Some((ino, unsynced)),
        })
    }

    fn writing<T>(
        &self,
        after: Option<InodeId>,
        max: usize,
        of: impl Fn(InodeId, Writing) -> Option<T>,
    ) -> FsResult<Vec<T>> {
        self.store.set_of(&ranges::writing(after), max, |key, value| match key {
            // A damaged mark is for `fsck`; it stands there, so that nobody knows better than the object.
            Key::Writing(ino) => Ok(of(ino, Writing::decode(value).unwrap_or(Writing::Open))),
            _ => Err(FsError::corrupt("a key outside of its range")),
        })
    }
}

//! The end of inodes that were unlinked while open, and the list of those.

use cofs_types::{FsResult, InodeId, Timestamp};

use crate::{
    Namespace,
    schema::{Key, key, ranges},
    tables::{inodes, sets},
    tx::verb,
};

impl Namespace {
    /// The last close of an unlinked inode: it goes, its object to the reclaim list. Nothing happens if it has
    /// a name again, is open again, or is gone.
    pub fn release_unlinked(&self, _now: Timestamp, ino: InodeId) -> FsResult<()> {
        self.commit(&verb!("release"), |tx| {
            let Some(inode) = inodes::bare(tx, ino)? else { return Ok(()) };
            if inode.nlink > 0 || self.store.opens.is_open(ino) {
                return Ok(());
            }
            let mut removal = sets::removal(tx, ino, &inode)?;
            removal.push(cofs_engine::Change::Delete { key: key::unlinked(ino).to_vec() });
            tx.depart(ino, inode, removal);
            Ok(())
        })
    }

    /// At most `max` of the inodes that stand in `U`, behind `after`, ascending.
    pub fn unlinked_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        self.store.set(&ranges::unlinked(after), max, |key| match key {
            Key::Unlinked(ino) => Some(ino),
            _ => None,
        })
    }

    /// At most `max` of the inodes that stand in `W`, behind `after`, ascending.
    pub fn writing_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Vec<InodeId>> {
        self.store.set(&ranges::writing(after), max, |key| match key {
            Key::Writing(ino) => Some(ino),
            _ => None,
        })
    }
}

//! The sets of inodes open for writing (`W`) and unlinked while open (`U`), the reclaim list (`R`), and the
//! removal of an inode with all that belongs to it.

use std::ops::ControlFlow;

use cofs_engine::Change;
use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, ObjectId};

use super::{directories, inline, xattrs};
use crate::{
    Leave, Unsynced,
    schema::{Inode, Key, MARK, Range, Writing, key},
    tx::{Store, Tx},
};

pub fn enter_writing(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode) {
    inode.writing = true;
    tx.put_covered(&key::writing(ino), MARK);
}

/// A file that is closed is not written, so that its record tells size and times; its mark may stay.
pub fn leave_writing(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode, leave: Leave) -> FsResult<()> {
    match leave {
        Leave::Stays => {}
        Leave::Closed(unsynced) => {
            if std::mem::take(&mut inode.writing) {
                tx.put_covered(&key::writing(ino), Writing::Closed(unsynced).encode());
            }
        }
        Leave::Synced => {
            if std::mem::take(&mut inode.writing) || marked_closed(tx, ino)?.is_some() {
                tx.delete_covered(&key::writing(ino));
            }
        }
    }
    Ok(())
}

/// The mark of a closed file, whose inode has been read.
pub fn marked_closed(tx: &Tx<'_>, ino: InodeId) -> FsResult<Option<Unsynced>> {
    let Some(value) = tx.get_covered(&key::writing(ino))? else { return Ok(None) };
    Ok(match Writing::decode(&value) {
        Ok(Writing::Closed(unsynced)) => Some(unsynced),
        Ok(Writing::Open) | Err(_) => None,
    })
}

pub fn reclaim(object: ObjectId) -> Change {
    Change::put(key::reclaim(object), MARK)
}

/// The changes that take an inode away: its record, its data, its object onto the reclaim list.
pub fn removal(tx: &Tx<'_>, ino: InodeId, inode: &Inode) -> FsResult<Vec<Change>> {
    let mut changes = vec![Change::delete(key::inode(ino))];
    match inode.layout {
        // A closed file may be marked, which its record does not tell.
        Layout::Object(object) => changes.extend([reclaim(object), Change::delete(key::writing(ino))]),
        Layout::Inline => changes.extend(inline::removal(ino, inode.size_bytes)),
    }
    if inode.kind == FileKind::Directory {
        changes.push(Change::delete(directories::shard_key(ino)));
    }
    xattrs::removal(tx, ino, inode, &mut changes)?;
    Ok(changes)
}

impl Store {
    /// At most `max` things that the keys in `range` name.
    pub fn set<T>(&self, range: &Range, max: usize, name: impl Fn(Key<'_>) -> Option<T>) -> FsResult<Vec<T>> {
        self.set_of(range, max, |key, _| {
            name(key).map(Some).ok_or_else(|| FsError::corrupt("a key outside of its range"))
        })
    }

    /// At most `max` of what `of` makes of the records in `range`; those of which it makes nothing do not count.
    pub fn set_of<T>(
        &self,
        range: &Range,
        max: usize,
        of: impl Fn(Key<'_>, &[u8]) -> FsResult<Option<T>>,
    ) -> FsResult<Vec<T>> {
        let mut found = Vec::new();
        self.scan(range, &mut |key, value| {
            if found.len() == max {
                return Ok(ControlFlow::Break(()));
            }
            found.extend(of(Key::parse(key)?, value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

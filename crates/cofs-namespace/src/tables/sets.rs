//! The sets of inodes open for writing (`W`) and unlinked while open (`U`), the reclaim list (`R`), and the
//! removal of an inode with all that belongs to it.

use std::ops::ControlFlow;

use cofs_engine::Change;
use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, ObjectId};

use super::{directories, inline, xattrs};
use crate::{
    schema::{Inode, Key, MARK, Range, key},
    tx::{Store, Tx},
};

pub fn enter_writing(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode) {
    inode.writing = true;
    tx.put_covered(&key::writing(ino), MARK);
}

pub fn leave_writing(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode) {
    if std::mem::take(&mut inode.writing) {
        tx.delete_covered(&key::writing(ino));
    }
}

pub fn reclaim(object: ObjectId) -> Change {
    Change::put(key::reclaim(object), MARK)
}

/// The changes that take an inode away: its record, its data, its object onto the reclaim list.
pub fn removal(tx: &Tx<'_>, ino: InodeId, inode: &Inode) -> FsResult<Vec<Change>> {
    let mut changes = vec![Change::delete(key::inode(ino))];
    match inode.layout {
        Layout::Object(object) => changes.push(reclaim(object)),
        Layout::Inline => changes.extend(inline::removal(ino, inode.size_bytes)),
    }
    if inode.kind == FileKind::Directory {
        changes.push(Change::delete(directories::shard_key(ino)));
    }
    if inode.writing {
        changes.push(Change::delete(key::writing(ino)));
    }
    xattrs::removal(tx, ino, inode, &mut changes)?;
    Ok(changes)
}

impl Store {
    /// At most `max` things that the keys in `range` name.
    pub fn set<T>(&self, range: &Range, max: usize, name: impl Fn(Key<'_>) -> Option<T>) -> FsResult<Vec<T>> {
        let mut found = Vec::new();
        self.scan(range, &mut |key, _| {
            if found.len() == max {
                return Ok(ControlFlow::Break(()));
            }
            found.push(name(Key::parse(key)?).ok_or_else(|| FsError::corrupt("a key outside of its range"))?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

//! rmdir(2).

use cofs_types::{Credentials, FileKind, FsError, FsResult, InodeId, Name, Timestamp};

use super::unlink::removable;
use crate::{
    Fate, Namespace, Node, Removed,
    schema::Inode,
    tables::{directories, entries, inodes, sets},
    tx::{Tx, verb},
};

/// Removes a directory, whose entry the caller takes away or lets lead elsewhere. That it is empty is seen
/// at commit.
pub fn remove_directory(tx: &mut Tx<'_>, ino: InodeId, inode: Inode, now: Timestamp) -> FsResult<Node> {
    let mut loaded = inodes::to_change(tx, ino, inode)?;
    (loaded.inode.nlink, loaded.inode.ctime) = (0, now);
    let node = loaded.node();
    let removal = sets::removal(tx, ino, &loaded.inode)?;
    tx.require_empty(ino);
    tx.depart(ino, loaded.inode, removal);
    Ok(node)
}

impl Namespace {
    /// Removes an empty directory; its inode stays while it is open. Errors: `NotFound`, `NotDirectory`,
    /// `NotEmpty`, permissions.
    pub fn rmdir(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Removed> {
        let (node, fate) = self.commit_removal(&verb!("rmdir"), |tx| {
            let (found, inode) = removable(tx, &self.hasher, c, (parent, name))?;
            if inode.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            entries::remove(tx, parent, &found);
            directories::count_subdirectories(tx, parent, -1, now)?;
            remove_directory(tx, found.ino, inode, now)
        })?;
        Ok(Removed { node, fate: fate.unwrap_or(Fate::Gone) })
    }
}

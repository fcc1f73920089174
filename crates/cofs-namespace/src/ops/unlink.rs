//! unlink(2), and what happens to an inode that loses a name.

use cofs_types::{Credentials, FileKind, FsError, FsResult, InodeId, Name, Timestamp};

use super::access;
use crate::{
    Fate, Namespace, Node, Removed,
    schema::{Inode, NameHasher},
    tables::{entries, inodes, sets},
    tx::{Tx, verb},
};

/// An entry's inode, which must stand.
pub fn entry_inode(tx: &mut Tx<'_>, found: &entries::Found) -> FsResult<Inode> {
    inodes::bare(tx, found.ino)?
        .ok_or_else(|| inodes::corrupt(found.ino, "an entry leads to it, but it is gone"))
}

/// The entry `name` of a directory that `c` may take it out of, and its inode. Errors: `NotFound`, `NotDirectory`,
/// permissions.
pub fn removable(
    tx: &mut Tx<'_>,
    hasher: &NameHasher,
    c: &Credentials<'_>,
    (parent, name): (InodeId, &Name),
) -> FsResult<(entries::Found, Inode)> {
    let dir = inodes::directory(tx, parent)?;
    access::check(tx, c, parent, &dir, access::EXECUTE)?;
    let found = entries::find_standing(tx, hasher, parent, name)?.ok_or(FsError::NotFound)?;
    let inode = entry_inode(tx, &found)?;
    access::check_removal(tx, c, (parent, &dir), &inode)?;
    Ok((found, inode))
}

/// Takes one name from an inode that is no directory. Whether it goes with the last one is decided at commit.
pub fn lose_name(tx: &mut Tx<'_>, ino: InodeId, mut inode: Inode, now: Timestamp) -> FsResult<Node> {
    inode.nlink = inode
        .nlink
        .checked_sub(1)
        .ok_or_else(|| inodes::corrupt(ino, "an entry leads to it, but it counts none"))?;
    inode.ctime = now;
    inode.linkable = false;
    let node = inodes::node(ino, &inode, 0);
    if inode.nlink > 0 {
        inodes::put(tx, ino, &inode);
    } else {
        let removal = sets::removal(tx, ino, &inode)?;
        tx.depart(ino, inode, removal);
    }
    Ok(node)
}

impl Namespace {
    /// Takes a name away, and with the last one the inode, unless it is open. Errors: `NotFound`,
    /// `IsDirectory`, `NotDirectory`, permissions.
    pub fn unlink(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Removed> {
        let (node, fate) = self.commit_removal(&verb!("unlink"), |tx| {
            let (found, inode) = removable(tx, &self.hasher, c, (parent, name))?;
            if inode.kind == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            entries::remove(tx, parent, &found);
            tx.touch(parent, now);
            lose_name(tx, found.ino, inode, now)
        })?;
        Ok(Removed { node, fate: fate.unwrap_or(Fate::Linked) })
    }
}

//! link(2).

use cofs_types::{Credentials, FileKind, FsError, FsResult, InodeId, Name, Timestamp, limits};

use super::access;
use crate::{
    Namespace, Node,
    schema::{Occupant, key},
    tables::{
        entries::{self, Probe},
        inodes,
    },
    tx::verb,
};

impl Namespace {
    /// A further name for an inode, or the first one of an O_TMPFILE inode, which leaves `U`. Errors: `Exists`,
    /// `NotPermitted` (a directory), `NotFound` (its last name is gone), `TooManyLinks`, `Stale`, permissions.
    pub fn link(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        parent: InodeId,
        name: &Name,
    ) -> FsResult<Node> {
        self.commit(&verb!("link", grows), |tx| {
            let dir = inodes::directory(tx, parent)?;
            access::check(tx, c, parent, &dir, access::EXECUTE)?;
            let mut inode = inodes::expect(tx, ino)?;
            let free = entries::probe(tx, &self.hasher, parent, name)?;
            if let Probe::Found(_) = free {
                return Err(FsError::Exists);
            }
            access::check(tx, c, parent, &dir, access::WRITE)?;
            if inode.kind == FileKind::Directory {
                return Err(FsError::NotPermitted);
            }
            if inode.nlink == 0 && !inode.linkable {
                return Err(FsError::NotFound);
            }
            if inode.nlink >= limits::LINKS_MAX {
                return Err(FsError::TooManyLinks);
            }
            if inode.nlink == 0 {
                inode.linkable = false;
                tx.delete_covered(&key::unlinked(ino));
            }
            inode.nlink += 1;
            inode.ctime = now;
            inodes::put(tx, ino, &inode);
            entries::place(tx, &self.hasher, parent, &free, Occupant { name, ino, kind: inode.kind })?;
            tx.touch(parent, now);
            Ok(inodes::node(ino, &inode, 0))
        })
    }
}

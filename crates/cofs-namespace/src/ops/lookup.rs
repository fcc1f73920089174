//! From a name or a number to an inode.

use bytes::Bytes;
use cofs_types::{Credentials, FileKind, FsError, FsResult, InodeId, Name};

use crate::{
    Namespace, Node,
    ops::access,
    tables::{entries, inodes},
};

impl Namespace {
    /// The inode behind a name, both as of one state. Errors: `NotFound`, `NotDirectory`, `Stale` (no such
    /// parent), `PermissionDenied`.
    pub fn lookup(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> FsResult<Node> {
        self.store.read(|tx| {
            if access::unchecked(c) {
                let dir = inodes::directory(tx, parent)?;
                access::check(tx, c, parent, &dir, access::EXECUTE)?;
            }
            let Some(found) = entries::find(tx, &self.hasher, parent, name)? else {
                inodes::directory(tx, parent)?;
                return Err(FsError::NotFound);
            };
            let loaded = inodes::load(tx, found.ino)?;
            Ok(loaded
                .ok_or_else(|| inodes::corrupt(found.ino, "an entry leads to it, but it is gone"))?
                .node())
        })
    }

    /// The inode by its number. `Stale` if there is none. It waits for a removal under way: who registers an
    /// inode as open ([`crate::OpenInodes`]) and then gets it here, has it.
    pub fn node(&self, ino: InodeId) -> FsResult<Node> {
        self.store.node(ino)
    }

    /// Where `..` of a directory leads; the root is its own parent. Errors: `NotDirectory`, `Stale`.
    pub fn parent(&self, ino: InodeId) -> FsResult<Node> {
        self.store.read(|tx| {
            let inode = inodes::expect(tx, ino)?;
            if inode.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            let parent = inode.parent.ok_or_else(|| inodes::corrupt(ino, "a directory without a parent"))?;
            Ok(inodes::load(tx, parent)?.ok_or(FsError::Stale)?.node())
        })
    }

    /// A symlink's target. Errors: `InvalidArgument` for anything else, `Stale`.
    pub fn readlink(&self, ino: InodeId) -> FsResult<Bytes> {
        self.store.read(|tx| {
            let inode = inodes::expect(tx, ino)?;
            match inode.kind {
                FileKind::Symlink => Ok(inode.target),
                _ => Err(FsError::InvalidArgument("only a symlink has a target")),
            }
        })
    }
}

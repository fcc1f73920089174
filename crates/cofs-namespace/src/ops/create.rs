//! New inodes of every kind, with a name or (O_TMPFILE) without.

use bytes::Bytes;
use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Name, NewInode, Timestamp, XattrName, limits,
};

use super::access;
use crate::{
    Namespace, Node, acl,
    schema::{Inode, MARK, Occupant, key},
    tables::{
        directories,
        entries::{self, Probe},
        inodes, xattrs,
    },
    tx::{Tx, verb},
};

/// What the kinds ask of each other, before anything is looked at.
fn check_new(c: &Credentials<'_>, new: &NewInode<'_>) -> FsResult<()> {
    match (new.kind, new.target.len()) {
        (FileKind::Symlink, 0) => return Err(FsError::NotFound), // symlink(2): ENOENT for an empty target
        (FileKind::Symlink, len) if len > limits::SYMLINK_BYTES_MAX => return Err(FsError::NameTooLong),
        (FileKind::Symlink, _) | (_, 0) => {}
        _ => return Err(FsError::InvalidArgument("only a symlink has a target")),
    }
    // A whiteout, which is no device, anybody may make (Linux 5.8).
    let whiteout = new.kind == FileKind::CharDevice && new.rdev == 0;
    let device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) && !whiteout;
    if device && access::restricted(c) { Err(FsError::NotPermitted) } else { Ok(()) }
}

/// The permissions asked for, without what the caller may not have: set-id bits of a directory are not the
/// creator's choice, and set-group-id of a program goes to members only (Linux, `mode_strip_sgid`).
fn permissions_asked(c: &Credentials<'_>, dir: &Inode, new: &NewInode<'_>) -> u16 {
    const PROGRAM: u16 = access::SET_GID | access::GROUP_EXECUTE;
    let asked = new.permissions & 0o7777;
    let inherits = dir.permissions & access::SET_GID != 0;
    if new.kind == FileKind::Directory {
        asked & !(access::SET_UID | access::SET_GID)
    } else if inherits && asked & PROGRAM == PROGRAM && access::loses_set_gid(c, dir.gid) {
        asked & !access::SET_GID
    } else {
        asked
    }
}

/// The new inode, without a name yet. Its large ACLs, if any, are put.
pub(super) fn born(
    tx: &mut Tx<'_>,
    c: &Credentials<'_>,
    now: Timestamp,
    (parent, dir): (InodeId, &Inode),
    (ino, new): (InodeId, &NewInode<'_>),
) -> FsResult<Inode> {
    let default = access::acl(tx, parent, dir, access::ACL_DEFAULT)?;
    let inherited = acl::inherit(default.as_ref(), new.kind, permissions_asked(c, dir, new), new.umask);
    let set_gid = dir.permissions & access::SET_GID != 0;
    let mut inode =
        Inode::new(new.kind, inherited.permissions, (c.uid, if set_gid { dir.gid } else { c.gid }), now);
    match new.kind {
        FileKind::Directory => {
            inode.parent = Some(parent);
            inode.permissions |= if set_gid { access::SET_GID } else { 0 };
        }
        FileKind::CharDevice | FileKind::BlockDevice => inode.rdev = new.rdev,
        FileKind::Symlink => inode.target = Bytes::copy_from_slice(new.target),
        _ => {}
    }
    for (name, acl) in [(access::ACL_ACCESS, &inherited.access), (access::ACL_DEFAULT, &inherited.default)] {
        if let Some(acl) = acl {
            xattrs::set(tx, ino, &mut inode, XattrName::new(name)?, Some(&acl.encode()))?;
        }
    }
    Ok(inode)
}

impl Namespace {
    /// A new inode of any kind under a new name: one commit of entry and inode. Errors: `Exists`, `NotFound` (the
    /// directory is removed), `NotDirectory`, `NameTooLong` (a symlink's target), permissions.
    pub fn create(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        name: &Name,
        new: &NewInode<'_>,
    ) -> FsResult<Node> {
        check_new(c, new)?;
        let mut number = None;
        self.commit(&verb!("create", grows), |tx| {
            let dir = inodes::directory(tx, parent)?;
            access::check(tx, c, parent, &dir, access::EXECUTE)?;
            let free = entries::probe(tx, &self.hasher, parent, name)?;
            if let Probe::Found(_) = free {
                return Err(FsError::Exists);
            }
            access::check(tx, c, parent, &dir, access::WRITE)?;
            let ino = self.number(&mut number, parent)?;
            let mut inode = born(tx, c, now, (parent, &dir), (ino, new))?;
            let directory = new.kind == FileKind::Directory;
            if directory {
                tx.store.young.add(ino);
            }
            inode.nlink = if directory { 2 } else { 1 };
            entries::place(tx, &self.hasher, parent, &free, Occupant { name, ino, kind: new.kind })?;
            inodes::insert(tx, ino, &inode);
            directories::count_subdirectories(tx, parent, i32::from(directory), now)?;
            tx.count_files(1);
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// A regular file without a name (O_TMPFILE), in `U` until its last close; `linkable`: it may get one.
    /// Errors: as [`create`](Self::create).
    pub fn create_unlinked(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        parent: InodeId,
        new: &NewInode<'_>,
        linkable: bool,
    ) -> FsResult<Node> {
        check_new(c, new)?;
        if new.kind == FileKind::Directory {
            return Err(FsError::InvalidArgument("a directory has a name"));
        }
        let mut number = None;
        self.commit(&verb!("create_unlinked", grows), |tx| {
            let dir = inodes::directory(tx, parent)?;
            access::check(tx, c, parent, &dir, access::WRITE | access::EXECUTE)?;
            let ino = self.number(&mut number, parent)?;
            let mut inode = born(tx, c, now, (parent, &dir), (ino, new))?;
            inode.linkable = linkable;
            inodes::insert(tx, ino, &inode);
            tx.insert_covered(&key::unlinked(ino), MARK);
            tx.count_files(1);
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// One number for all attempts of a transaction.
    pub(super) fn number(&self, number: &mut Option<InodeId>, dir: InodeId) -> FsResult<InodeId> {
        if number.is_none() {
            *number = Some(self.allocator.take(&self.store, dir)?);
        }
        number.ok_or(FsError::LimitReached("inode numbers"))
    }
}

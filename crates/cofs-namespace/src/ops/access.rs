//! Permissions, where nobody has checked them before, and access(2).

use cofs_types::{Authority, Credentials, FileKind, FsError, FsResult, InodeId, XattrName};

use crate::{
    Namespace,
    acl::{Acl, Rwx},
    schema::Inode,
    tables::{inodes, xattrs},
    tx::Tx,
};

pub const READ: Rwx = 4;
pub const WRITE: Rwx = 2;
pub const EXECUTE: Rwx = 1;

pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

pub const STICKY: u16 = 0o1000;
pub const SET_GID: u16 = 0o2000;
pub const SET_UID: u16 = 0o4000;
pub const GROUP_EXECUTE: u16 = 0o010;

/// Whether the caller still has to be checked.
pub fn unchecked(c: &Credentials<'_>) -> bool {
    c.authority == Authority::Unchecked
}

/// Whether the caller has to be checked and is not the superuser.
pub fn restricted(c: &Credentials<'_>) -> bool {
    unchecked(c) && c.uid != 0
}

/// The ACL under `name`, if the inode has one.
pub fn acl(tx: &Tx<'_>, ino: InodeId, inode: &Inode, name: &[u8]) -> FsResult<Option<Acl>> {
    if inode.xattrs.is_empty() && inode.large_xattrs == 0 {
        return Ok(None);
    }
    match xattrs::get(tx, ino, inode, XattrName::new(name)?)? {
        Some(value) => Acl::parse(&value).map_err(|_| inodes::corrupt(ino, "its ACL")),
        None => Ok(None),
    }
}

/// Whether `c` may do all of `wanted`, whatever its authority.
fn permits(tx: &Tx<'_>, c: &Credentials<'_>, ino: InodeId, inode: &Inode, wanted: Rwx) -> FsResult<bool> {
    if c.uid == 0 {
        let executable = inode.kind == FileKind::Directory || inode.permissions & 0o111 != 0;
        return Ok(wanted & EXECUTE == 0 || executable);
    }
    let acl = acl(tx, ino, inode, ACL_ACCESS)?.unwrap_or_else(|| Acl::from_mode(inode.permissions));
    Ok(acl.permits(inode.uid, inode.gid, c, wanted))
}

/// `PermissionDenied` unless `c` may do all of `wanted`, or has been checked before.
pub fn check(tx: &Tx<'_>, c: &Credentials<'_>, ino: InodeId, inode: &Inode, wanted: Rwx) -> FsResult<()> {
    if !unchecked(c) || permits(tx, c, ino, inode, wanted)? { Ok(()) } else { Err(FsError::PermissionDenied) }
}

/// Whether `c` may take `victim`'s name out of `dir`: write and search the directory, and own one of the two
/// where it is sticky.
pub fn check_removal(
    tx: &Tx<'_>,
    c: &Credentials<'_>,
    (ino, dir): (InodeId, &Inode),
    victim: &Inode,
) -> FsResult<()> {
    check(tx, c, ino, dir, WRITE | EXECUTE)?;
    let stranger = c.uid != victim.uid && c.uid != dir.uid;
    if restricted(c) && dir.permissions & STICKY != 0 && stranger {
        Err(FsError::NotPermitted)
    } else {
        Ok(())
    }
}

/// `NotPermitted` unless `c` owns the inode, is the superuser, or has been checked before.
pub fn check_owner(c: &Credentials<'_>, inode: &Inode) -> FsResult<()> {
    if restricted(c) && c.uid != inode.uid { Err(FsError::NotPermitted) } else { Ok(()) }
}

/// Whether `c` may not give set-group-id to what belongs to `gid`.
pub fn loses_set_gid(c: &Credentials<'_>, gid: u32) -> bool {
    restricted(c) && !c.in_group(gid)
}

impl Namespace {
    /// access(2): `mask` has R 4, W 2, X 1. Checked whatever the authority of `c`. Errors: `PermissionDenied`,
    /// `Stale`.
    pub fn access(&self, c: &Credentials<'_>, ino: InodeId, mask: u32) -> FsResult<()> {
        let wanted = (mask & 7) as Rwx;
        self.store.read(|tx| {
            let inode = inodes::expect(tx, ino)?;
            if permits(tx, c, ino, &inode, wanted)? { Ok(()) } else { Err(FsError::PermissionDenied) }
        })
    }
}

//! Extended attributes: getxattr, setxattr, listxattr, removexattr.

use bytes::Bytes;
use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Timestamp, XattrMode, XattrName, limits,
};

use super::access;
use crate::{
    Namespace,
    acl::{Acl, Rwx},
    schema::Inode,
    tables::{inodes, xattrs},
    tx::{Tx, verb},
};

/// The name spaces of xattr(7).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    User,
    Trusted,
    Security,
    AclAccess,
    AclDefault,
}

impl Class {
    /// `NotSupported` for a prefix that cofs does not know.
    fn of(name: &XattrName) -> FsResult<Self> {
        let name = name.as_bytes();
        match name {
            access::ACL_ACCESS => return Ok(Self::AclAccess),
            access::ACL_DEFAULT => return Ok(Self::AclDefault),
            _ => {}
        }
        let classes =
            [(&b"user."[..], Self::User), (b"trusted.", Self::Trusted), (b"security.", Self::Security)];
        let (prefix, class) =
            classes.into_iter().find(|(prefix, _)| name.starts_with(prefix)).ok_or(FsError::NotSupported)?;
        if name.len() == prefix.len() {
            return Err(FsError::InvalidArgument("an extended attribute's name goes on behind its prefix"));
        }
        Ok(class)
    }

    fn is_acl(self) -> bool {
        matches!(self, Self::AclAccess | Self::AclDefault)
    }
}

fn has_user_attributes(inode: &Inode) -> bool {
    matches!(inode.kind, FileKind::Regular | FileKind::Directory)
}

fn check_get(tx: &Tx<'_>, c: &Credentials<'_>, ino: InodeId, inode: &Inode, class: Class) -> FsResult<()> {
    match class {
        Class::User if !has_user_attributes(inode) => Err(FsError::NoAttribute),
        Class::User => access::check(tx, c, ino, inode, access::READ),
        Class::Trusted if access::restricted(c) => Err(FsError::NoAttribute),
        _ => Ok(()),
    }
}

/// xattr(7), and Linux's `xattr_permission`.
fn check_change(tx: &Tx<'_>, c: &Credentials<'_>, ino: InodeId, inode: &Inode, class: Class) -> FsResult<()> {
    const WRITE: Rwx = access::WRITE;
    match class {
        Class::User if !has_user_attributes(inode) => Err(FsError::NotPermitted),
        Class::User if inode.kind == FileKind::Directory && inode.permissions & access::STICKY != 0 => {
            access::check_owner(c, inode)?;
            access::check(tx, c, ino, inode, WRITE)
        }
        Class::User => access::check(tx, c, ino, inode, WRITE),
        Class::Trusted | Class::Security if access::restricted(c) => Err(FsError::NotPermitted),
        Class::Trusted | Class::Security => Ok(()),
        Class::AclAccess | Class::AclDefault if inode.kind == FileKind::Symlink => Err(FsError::NotSupported),
        Class::AclAccess | Class::AclDefault => access::check_owner(c, inode),
    }
}

/// Only directories have a default ACL. Linux says so before it asks who wants it (`set_posix_acl`).
fn check_default_acl(inode: &Inode, class: Class) -> FsResult<()> {
    match (class, inode.kind) {
        (Class::AclDefault, FileKind::Directory | FileKind::Symlink) => Ok(()),
        (Class::AclDefault, _) => Err(FsError::PermissionDenied),
        _ => Ok(()),
    }
}

/// An ACL's canonical value, `None` if it need not be kept. The access ACL becomes the mode.
fn acl_value(
    c: &Credentials<'_>,
    inode: &mut Inode,
    class: Class,
    value: &[u8],
    kill_set_gid: bool,
) -> FsResult<Option<Vec<u8>>> {
    let Some(acl) = Acl::parse(value)? else { return Ok(None) };
    if class == Class::AclDefault {
        return Ok(Some(acl.encode()));
    }
    inode.permissions = inode.permissions & 0o7000 | acl.mode_bits();
    if kill_set_gid || access::loses_set_gid(c, inode.gid) {
        inode.permissions &= !access::SET_GID;
    }
    Ok((!acl.is_trivial()).then(|| acl.encode()))
}

/// `NoSpace` if the names of all attributes, with `name`, would be more than listxattr(2) can return.
fn check_list(tx: &Tx<'_>, ino: InodeId, inode: &Inode, name: &XattrName) -> FsResult<()> {
    let mut bytes = name.as_bytes().len() + 1;
    xattrs::names(tx, ino, inode, &mut |name| bytes += name.len() + 1)?;
    if bytes > limits::XATTR_LIST_BYTES_MAX { Err(FsError::NoSpace) } else { Ok(()) }
}

impl Namespace {
    /// An attribute's value. Errors: `NoAttribute`, `NotSupported` (an unknown prefix, or a security label where the
    /// volume has none), `PermissionDenied`, `Stale`.
    pub fn getxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> FsResult<Bytes> {
        let class = Class::of(name)?;
        if self.labels.excludes(name) {
            return Err(FsError::NotSupported);
        }
        self.store.read(|tx| {
            let inode = inodes::expect(tx, ino)?;
            check_get(tx, c, ino, &inode, class)?;
            xattrs::get(tx, ino, &inode, name)?.ok_or(FsError::NoAttribute)
        })
    }

    /// Sets an attribute. `system.posix_acl_access` and `_default` must be valid ACLs, are kept in their
    /// canonical form, and the first changes the mode; one that says no more than the mode is not kept.
    /// `kill_set_gid`: who sets this ACL may not keep set-group-id. Errors: `Exists`, `NoAttribute` (by `mode`),
    /// `ValueTooLarge`, `NoSpace` (too many names), `NotSupported`, `NotPermitted`, `PermissionDenied`,
    /// `InvalidArgument`, `Stale`.
    #[allow(clippy::too_many_arguments)]
    pub fn setxattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        name: &XattrName,
        value: &[u8],
        mode: XattrMode,
        kill_set_gid: bool,
    ) -> FsResult<()> {
        let class = Class::of(name)?;
        if value.len() > limits::XATTR_VALUE_BYTES_MAX {
            return Err(FsError::ValueTooLarge);
        }
        self.commit(&verb!("setxattr", grows), |tx| {
            let mut loaded = inodes::load_to_change(tx, ino)?;
            let inode = &mut loaded.inode;
            check_default_acl(inode, class)?;
            check_change(tx, c, ino, inode, class)?;
            let stands = xattrs::get(tx, ino, inode, name)?.is_some();
            match (mode, stands) {
                (XattrMode::Create | XattrMode::Never, true) => return Err(FsError::Exists),
                (XattrMode::Replace | XattrMode::Never, false) => return Err(FsError::NoAttribute),
                (_, false) => check_list(tx, ino, inode, name)?,
                (_, true) => {}
            }
            let canonical;
            let value = if class.is_acl() {
                canonical = acl_value(c, inode, class, value, kill_set_gid)?;
                canonical.as_deref()
            } else {
                Some(value)
            };
            xattrs::set(tx, ino, inode, name, value)?;
            self.labels.note(tx, name)?;
            inode.ctime = now;
            inodes::save(tx, &loaded);
            Ok(())
        })
    }

    /// The names of all attributes, each followed by a NUL (listxattr(2)), `trusted.*` among them: who may not
    /// see those is for the caller to know. `Stale` if there is no such inode.
    pub fn listxattr(&self, ino: InodeId) -> FsResult<Bytes> {
        self.store.read(|tx| {
            let inode = inodes::expect(tx, ino)?;
            let mut list = Vec::new();
            xattrs::names(tx, ino, &inode, &mut |name| {
                list.extend_from_slice(name);
                list.push(0);
            })?;
            Ok(list.into())
        })
    }

    /// Removes an attribute; to remove an ACL that is not there is no error, and no change. Errors: `NoAttribute`, and as
    /// [`setxattr`](Self::setxattr).
    pub fn removexattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        name: &XattrName,
    ) -> FsResult<()> {
        let class = Class::of(name)?;
        self.commit(&verb!("removexattr"), |tx| {
            let mut loaded = inodes::load_to_change(tx, ino)?;
            let inode = &mut loaded.inode;
            check_change(tx, c, ino, inode, class)?;
            if xattrs::get(tx, ino, inode, name)?.is_none() {
                return if class.is_acl() { Ok(()) } else { Err(FsError::NoAttribute) };
            }
            xattrs::set(tx, ino, inode, name, None)?;
            inode.ctime = now;
            inodes::save(tx, &loaded);
            Ok(())
        })
    }
}

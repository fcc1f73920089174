//! chmod, chown, utimes, truncate (of inline files).

use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Layout, SetAttributes, SetTime, Timestamp, XattrName,
    limits,
};

use super::access;
use crate::{
    Namespace, Node,
    schema::Inode,
    tables::{inline, inodes, xattrs},
    tx::{Tx, verb},
};

/// Without the set-id bits that do not outlive a change of owner or content (Linux,
/// `setattr_should_drop_suidgid`).
pub fn without_set_id(permissions: u16) -> u16 {
    let group = if permissions & access::GROUP_EXECUTE != 0 { access::SET_GID } else { 0 };
    permissions & !(access::SET_UID | group)
}

/// What a change of the content does besides: set-id bits go if the changer may not keep them, capabilities
/// go always.
pub fn content_changed(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode, kill_set_id: bool) -> FsResult<()> {
    if kill_set_id {
        inode.permissions = without_set_id(inode.permissions);
    }
    xattrs::drop_capability(tx, ino, inode)
}

/// The rules of ownership, where nobody has checked them before (Linux, `setattr_prepare`).
fn check_allowed(
    tx: &Tx<'_>,
    c: &Credentials<'_>,
    ino: InodeId,
    inode: &Inode,
    change: &SetAttributes,
) -> FsResult<()> {
    if !access::restricted(c) {
        return Ok(());
    }
    let owns = c.uid == inode.uid;
    let keeps_owner = change.uid.is_none_or(|uid| owns && uid == inode.uid);
    let may_give = change.gid.is_none_or(|gid| owns && (gid == inode.gid || c.in_group(gid)));
    let sets_times = [change.atime, change.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_))));
    let needs_owner = change.permissions.is_some() || sets_times || change.ctime.is_some();
    if !keeps_owner || !may_give || needs_owner && !owns {
        return Err(FsError::NotPermitted);
    }
    let touches = change.atime.is_some() || change.mtime.is_some();
    if change.size_bytes.is_some() || touches && !owns {
        access::check(tx, c, ino, inode, access::WRITE)?;
    }
    Ok(())
}

impl Namespace {
    /// Changes attributes; ctime becomes `now` unless it is set as well. A size only for inline files, up to
    /// the volume's inline maximum: a larger one needs [`outgrow`](Self::outgrow) first, and a file in an object
    /// is truncated there and then [settled](Self::settle). Errors: `InvalidArgument` where that is not so,
    /// `IsDirectory`, `NotPermitted`, `PermissionDenied`, `Stale`.
    pub fn setattr(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        ino: InodeId,
        change: &SetAttributes,
    ) -> FsResult<Node> {
        self.commit(&verb!("setattr"), |tx| {
            let mut loaded = inodes::load_to_change(tx, ino)?;
            let inode = &mut loaded.inode;
            check_allowed(tx, c, ino, inode, change)?;
            if let Some(size_bytes) = change.size_bytes {
                self.resize(tx, ino, inode, size_bytes)?;
                inode.mtime = now;
                content_changed(tx, ino, inode, change.kill_set_id)?;
            }
            if *change == SetAttributes::KILL_SET_ID && inode.kind != FileKind::Directory {
                inode.permissions = without_set_id(inode.permissions);
            }
            chown(tx, c, ino, inode, change)?;
            if let Some(permissions) = change.permissions {
                chmod(tx, c, ino, inode, permissions)?;
            }
            let at = |time| match time {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            inode.atime = change.atime.map_or(inode.atime, at);
            inode.mtime = change.mtime.map_or(inode.mtime, at);
            inode.ctime = change.ctime.unwrap_or(now);
            inodes::save(tx, &loaded);
            Ok(loaded.node())
        })
    }

    fn resize(&self, tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode, size_bytes: u64) -> FsResult<()> {
        match (inode.kind, inode.layout) {
            (FileKind::Directory, _) => return Err(FsError::IsDirectory),
            (FileKind::Regular, Layout::Inline) => {}
            _ => return Err(FsError::InvalidArgument("only an inline file gets its size here")),
        }
        if size_bytes > limits::FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        if size_bytes > u64::from(self.options.inline_bytes_max) {
            return Err(FsError::InvalidArgument("a file of this size must go to an object first"));
        }
        inline::cut(tx, ino, size_bytes, inode.size_bytes)?;
        inode.size_bytes = size_bytes;
        Ok(())
    }

    /// Sets the access time, and nothing else, of an inode that stands: every answer shows it from here on, and
    /// the next flush commits it. Errors: where too many wait, those of their commit.
    pub fn touch_atime(&self, now: Timestamp, ino: InodeId) -> FsResult<()> {
        self.store.note_access(ino, now)
    }
}

/// A new owner or group takes set-id bits and capabilities away, whoever gives it, but not a directory's.
fn chown(
    tx: &mut Tx<'_>,
    c: &Credentials<'_>,
    ino: InodeId,
    inode: &mut Inode,
    change: &SetAttributes,
) -> FsResult<()> {
    if change.uid.is_none() && change.gid.is_none() {
        return Ok(());
    }
    // Without group-execute it is not a program's, and goes only if the caller could not have set it.
    if inode.kind != FileKind::Directory && access::loses_set_gid(c, inode.gid) {
        inode.permissions &= !access::SET_GID;
    }
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    if inode.kind == FileKind::Directory {
        return Ok(());
    }
    content_changed(tx, ino, inode, true)
}

fn chmod(
    tx: &mut Tx<'_>,
    c: &Credentials<'_>,
    ino: InodeId,
    inode: &mut Inode,
    permissions: u16,
) -> FsResult<()> {
    if inode.kind == FileKind::Symlink {
        return Err(FsError::NotSupported);
    }
    inode.permissions = permissions & 0o7777;
    if access::loses_set_gid(c, inode.gid) {
        inode.permissions &= !access::SET_GID;
    }
    match access::acl(tx, ino, inode, access::ACL_ACCESS)? {
        Some(acl) => {
            let value = acl.with_mode(inode.permissions).encode();
            xattrs::set(tx, ino, inode, XattrName::new(access::ACL_ACCESS)?, Some(&value))
        }
        None => Ok(()),
    }
}

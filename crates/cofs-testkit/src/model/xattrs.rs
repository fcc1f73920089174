//! Extended attributes and, among them, ACLs.

use cofs_namespace::acl::Acl;
use cofs_types::{FileKind, XattrMode};
use rustix::io::Errno;

use super::{Ino, Model};
use crate::{
    answer::{Answer, Result},
    ops::{ACL_ACCESS, ACL_DEFAULT, Who},
};

impl Model {
    /// `xattr_permission`: `wanted` is 4 to read, 2 to write.
    fn may_xattr(&self, who: Who, ino: Ino, name: &[u8], wanted: u8) -> Result<()> {
        let refused = if wanted == 2 { Errno::PERM } else { Errno::NODATA };
        let inode = self.inode(ino);
        if name.starts_with(b"trusted.") {
            return if who.is_root() { Ok(()) } else { Err(refused) };
        }
        if !matches!(inode.kind, FileKind::Regular | FileKind::Directory) {
            return Err(refused);
        }
        if inode.kind == FileKind::Directory && inode.permissions & 0o1000 != 0 && wanted == 2 {
            self.must_own(who, ino)?;
        }
        self.may(who, ino, wanted)
    }

    pub(super) fn set_xattr(
        &mut self,
        who: Who,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        if is_acl(name) {
            return self.set_acl(who, ino, name, Acl::parse(value));
        }
        self.may_xattr(who, ino, name, 2)?;
        let now = self.now;
        let inode = self.inode_mut(ino);
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create | XattrMode::Never, true) => return Err(Errno::EXIST),
            (XattrMode::Replace | XattrMode::Never, false) => return Err(Errno::NODATA),
            _ => {}
        }
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.ctime = now;
        Ok(Answer::Done)
    }

    fn set_acl(
        &mut self,
        who: Who,
        ino: Ino,
        name: &[u8],
        acl: cofs_types::FsResult<Option<Acl>>,
    ) -> Result<Answer> {
        let kind = self.inode(ino).kind;
        if kind == FileKind::Symlink {
            return Ok(Answer::Skip);
        }
        if name == ACL_DEFAULT && kind != FileKind::Directory {
            return match acl {
                Ok(None) => Ok(Answer::Skip),
                _ => Err(Errno::ACCESS),
            };
        }
        self.must_own(who, ino)?;
        let acl = acl.map_err(|_| Errno::INVAL)?;
        let keep = self.keeps_set_gid(who, self.inode(ino).gid);
        let now = self.now;
        let inode = self.inode_mut(ino);
        if name == ACL_ACCESS
            && let Some(acl) = &acl
        {
            inode.permissions = inode.permissions & 0o7000 | acl.mode_bits();
            if !keep {
                inode.permissions &= !0o2000;
            }
        }
        inode.ctime = now;
        match acl.filter(|acl| name == ACL_DEFAULT || !acl.is_trivial()) {
            Some(acl) => drop(inode.xattrs.insert(name.to_vec(), acl.encode())),
            None => drop(inode.xattrs.remove(name)),
        }
        Ok(Answer::Done)
    }

    pub(super) fn get_xattr(&self, who: Who, path: &[u8], name: &[u8]) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        if is_acl(name) && self.inode(ino).kind == FileKind::Symlink {
            return Ok(Answer::Skip);
        }
        if !is_acl(name) {
            self.may_xattr(who, ino, name, 4)?;
        }
        self.inode(ino).xattrs.get(name).cloned().map(Answer::Bytes).ok_or(Errno::NODATA)
    }

    pub(super) fn remove_xattr(&mut self, who: Who, path: &[u8], name: &[u8]) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        if is_acl(name) {
            // Whether the removal of what is not there fails differs between file systems.
            let there = self.inode(ino).xattrs.contains_key(name);
            return if there { self.set_acl(who, ino, name, Ok(None)) } else { Ok(Answer::Skip) };
        }
        self.may_xattr(who, ino, name, 2)?;
        let now = self.now;
        let inode = self.inode_mut(ino);
        inode.xattrs.remove(name).ok_or(Errno::NODATA)?;
        inode.ctime = now;
        Ok(Answer::Done)
    }

    pub(super) fn list_xattrs(&self, who: Who, path: &[u8]) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        Ok(Answer::Names(self.inode(ino).xattrs.keys().cloned().collect()))
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

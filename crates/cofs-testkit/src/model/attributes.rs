//! chmod, chown and utimensat.

use cofs_types::{FileKind, Timestamp};
use rustix::io::Errno;

use super::{Model, permit::drop_set_id};
use crate::{
    answer::{Answer, Result},
    ops::{ACL_ACCESS, Who},
};

impl Model {
    pub(super) fn chmod(&mut self, who: Who, path: &[u8], permissions: u16) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        if self.inode(ino).kind == FileKind::Symlink {
            return Ok(Answer::Skip);
        }
        self.must_own(who, ino)?;
        let keep = self.keeps_set_gid(who, self.inode(ino).gid);
        let now = self.now;
        let inode = self.inode_mut(ino);
        inode.permissions = if keep { permissions } else { permissions & !0o2000 };
        inode.ctime = now;
        if let Some(acl) = inode.acl(ACL_ACCESS) {
            inode.xattrs.insert(ACL_ACCESS.to_vec(), acl.with_mode(permissions).encode());
        }
        Ok(Answer::Done)
    }

    pub(super) fn chown(
        &mut self,
        who: Who,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        let (c, now) = (who.credentials(), self.now);
        let strict = !self.keeps_set_gid(who, self.inode(ino).gid);
        let inode = self.inode_mut(ino);
        let owns = c.uid == inode.uid;
        let uid_ok = uid.is_none_or(|uid| owns && uid == inode.uid);
        let gid_ok = gid.is_none_or(|gid| owns && (gid == inode.gid || c.in_group(gid)));
        let allowed = who.is_root() || uid_ok && gid_ok;
        if !allowed {
            return Err(Errno::PERM);
        }
        if uid.is_none() && gid.is_none() {
            // Changes nothing but the time of change, if that: file systems differ.
            return Ok(Answer::Skip);
        }
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        inode.ctime = now;
        if inode.kind != FileKind::Directory {
            drop_set_id(inode, strict);
        }
        Ok(Answer::Done)
    }

    pub(super) fn utimens(
        &mut self,
        who: Who,
        path: &[u8],
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        self.must_own(who, ino)?;
        let now = self.now;
        let inode = self.inode_mut(ino);
        (inode.atime, inode.mtime, inode.ctime) = (atime, mtime, now);
        Ok(Answer::Done)
    }
}

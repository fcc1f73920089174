//! Who may do what: modes, ACLs, ownership and the sticky bit.

use cofs_namespace::acl::Acl;
use cofs_types::FileKind;
use rustix::io::Errno;

use super::{Ino, Inode, Model};
use crate::{
    answer::Result,
    ops::{ACL_ACCESS, Who},
};

impl Inode {
    pub(super) fn acl(&self, name: &[u8]) -> Option<Acl> {
        self.xattrs.get(name).and_then(|value| Acl::parse(value).ok().flatten())
    }
}

impl Model {
    /// `inode_permission`: R 4, W 2, X 1.
    pub(super) fn may(&self, who: Who, ino: Ino, wanted: u8) -> Result<()> {
        let inode = self.inode(ino);
        let granted = if who.is_root() {
            wanted & 1 == 0 || inode.kind == FileKind::Directory || inode.permissions & 0o111 != 0
        } else {
            let skipped = self.rules.no_acl_without_group_bits && inode.permissions & 0o070 == 0;
            let acl = inode.acl(ACL_ACCESS).filter(|_| !skipped);
            let acl = acl.unwrap_or_else(|| Acl::from_mode(inode.permissions));
            acl.permits(inode.uid, inode.gid, &who.credentials(), wanted)
        };
        if granted { Ok(()) } else { Err(Errno::ACCESS) }
    }

    pub(super) fn must_own(&self, who: Who, ino: Ino) -> Result<()> {
        if who.is_root() || who.credentials().uid == self.inode(ino).uid { Ok(()) } else { Err(Errno::PERM) }
    }

    /// `may_delete`, but for the kinds: the right to take an entry from `dir`.
    pub(super) fn may_remove(&self, who: Who, dir: Ino, victim: Ino) -> Result<()> {
        self.may(who, dir, 3)?;
        let (dir, victim) = (self.inode(dir), self.inode(victim));
        let uid = who.credentials().uid;
        let sticky = dir.permissions & 0o1000 != 0;
        if sticky && !who.is_root() && uid != victim.uid && uid != dir.uid {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// `in_group_or_capable`.
    pub(super) fn keeps_set_gid(&self, who: Who, gid: u32) -> bool {
        who.is_root() || who.credentials().in_group(gid)
    }

    /// Takes the set-id bits that a change of a regular file's bytes by `who` costs it.
    pub(super) fn kill_set_id(&mut self, who: Who, ino: Ino) {
        if who.is_root() {
            return;
        }
        let strict = self.rules.strict_set_gid && !self.keeps_set_gid(who, self.inode(ino).gid);
        let inode = self.inode_mut(ino);
        drop_set_id(inode, strict);
    }
}

/// Set-user-id goes; set-group-id goes where the group may execute, or `always_gid`.
pub(super) fn drop_set_id(inode: &mut Inode, always_gid: bool) {
    inode.permissions &= !0o4000;
    if always_gid || inode.permissions & 0o010 != 0 {
        inode.permissions &= !0o2000;
    }
}

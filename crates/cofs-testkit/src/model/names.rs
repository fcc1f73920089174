//! Creating, linking, removing and renaming.

use cofs_namespace::acl::inherit;
use cofs_types::{FileKind, RenameMode};
use rustix::io::Errno;

use super::{Ino, Model};
use crate::{
    answer::{Answer, Result},
    ops::{ACL_ACCESS, ACL_DEFAULT, UMASK, Who},
};

impl Model {
    pub(super) fn make(
        &mut self,
        who: Who,
        path: &[u8],
        kind: FileKind,
        permissions: u16,
        target: &[u8],
    ) -> Result<Answer> {
        let (dir, name) = self.parent_of(who, path)?;
        self.may(who, dir, 1)?;
        self.must_be_free(who, dir, name)?;
        let ino = self.born(who, dir, kind, permissions);
        self.inode_mut(ino).target = target.to_vec();
        self.attach(dir, name, ino);
        Ok(Answer::Done)
    }

    fn must_be_free(&self, who: Who, dir: Ino, name: &[u8]) -> Result<()> {
        if self.inode(dir).entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.may(who, dir, 3)
    }

    /// A new inode with the owners, permissions and ACLs that it gets in `dir`.
    pub(super) fn born(&mut self, who: Who, dir: Ino, kind: FileKind, asked: u16) -> Ino {
        let c = who.credentials();
        let parent = self.inode(dir);
        let asked = if kind == FileKind::Directory { asked & 0o1777 } else { asked };
        let mut got = inherit(parent.acl(ACL_DEFAULT).as_ref(), kind, asked, UMASK);
        let mut gid = c.gid;
        if parent.permissions & 0o2000 != 0 {
            gid = parent.gid;
            if kind == FileKind::Directory {
                got.permissions |= 0o2000;
            } else if asked & 0o2010 == 0o2010 && !self.keeps_set_gid(who, gid) {
                got.permissions &= !0o2000;
            }
        }
        let ino = self.insert(kind, got.permissions, c.uid, gid, dir);
        let inode = self.inode_mut(ino);
        let acls = [(ACL_ACCESS, got.access), (ACL_DEFAULT, got.default)];
        for (name, acl) in acls.into_iter().filter_map(|(name, acl)| Some((name, acl?))) {
            inode.xattrs.insert(name.to_vec(), acl.encode());
        }
        ino
    }

    /// Puts an entry down and counts it.
    fn attach(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        let is_dir = self.inode(ino).kind == FileKind::Directory;
        self.inode_mut(ino).nlink += if is_dir { 2 } else { 1 };
        self.inode_mut(ino).parent = dir;
        self.inode_mut(dir).nlink += u32::from(is_dir);
        self.inode_mut(dir).entries.insert(name.to_vec(), ino);
        self.touch_directory(dir);
    }

    /// Takes an entry away; the inode stays.
    fn detach(&mut self, dir: Ino, name: &[u8]) {
        let Some(ino) = self.inode_mut(dir).entries.remove(name) else { return };
        let is_dir = self.inode(ino).kind == FileKind::Directory;
        self.inode_mut(ino).nlink -= if is_dir { 2 } else { 1 };
        self.inode_mut(dir).nlink -= u32::from(is_dir);
        self.inode_mut(ino).ctime = self.now;
        self.touch_directory(dir);
    }

    fn touch_directory(&mut self, dir: Ino) {
        let now = self.now;
        let dir = self.inode_mut(dir);
        (dir.mtime, dir.ctime) = (now, now);
    }

    pub(super) fn link(&mut self, who: Who, from: &[u8], to: &[u8]) -> Result<Answer> {
        let (from_dir, from_name) = self.parent_of(who, from)?;
        let (dir, name) = self.parent_of(who, to)?;
        self.may(who, from_dir, 1)?;
        let ino = *self.inode(from_dir).entries.get(from_name).ok_or(Errno::NOENT)?;
        self.may(who, dir, 1)?;
        if self.inode(dir).entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.rules.protected_hardlinks && !self.safe_to_link(who, ino) {
            return Err(Errno::PERM);
        }
        let late = self.rules.set_id_seen_late && self.inode(ino).set_id_lost;
        if self.rules.protected_hardlinks && late && self.must_own(who, ino).is_err() {
            return Ok(Answer::Skip);
        }
        self.link_inode(who, ino, dir, name)
    }

    /// `safe_hardlink_source`.
    fn safe_to_link(&self, who: Who, ino: Ino) -> bool {
        let inode = self.inode(ino);
        let set_id = inode.permissions & 0o4000 != 0 || inode.permissions & 0o2010 == 0o2010;
        self.must_own(who, ino).is_ok()
            || inode.kind == FileKind::Regular && !set_id && self.may(who, ino, 6).is_ok()
    }

    pub(super) fn link_slot(&mut self, who: Who, slot: usize, to: &[u8]) -> Result<Answer> {
        let Some(ino) = self.slots.get(slot).copied().flatten().map(|s| s.ino) else {
            return Ok(Answer::Skip);
        };
        let (dir, name) = self.parent_of(who, to)?;
        self.may(who, dir, 1)?;
        self.must_be_free(who, dir, name)?;
        self.link_inode(who, ino, dir, name)
    }

    fn link_inode(&mut self, who: Who, ino: Ino, dir: Ino, name: &[u8]) -> Result<Answer> {
        self.may(who, dir, 3)?;
        let inode = self.inode(ino);
        if inode.kind == FileKind::Directory {
            return Err(Errno::PERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return Err(Errno::NOENT);
        }
        self.inode_mut(ino).linkable = false;
        self.inode_mut(ino).ctime = self.now;
        self.attach(dir, name, ino);
        Ok(Answer::Done)
    }

    pub(super) fn remove(&mut self, who: Who, path: &[u8], directory: bool) -> Result<Answer> {
        let (dir, name) = self.parent_of(who, path)?;
        self.may(who, dir, 1)?;
        let ino = *self.inode(dir).entries.get(name).ok_or(Errno::NOENT)?;
        self.may_remove(who, dir, ino)?;
        self.kinds_agree(directory, ino)?;
        if !self.inode(ino).entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.detach(dir, name);
        self.forget_if_unused(ino);
        Ok(Answer::Done)
    }

    /// What replaces (or removes) a directory must be one (be meant for one), and the other way round.
    fn kinds_agree(&self, directory: bool, victim: Ino) -> Result<()> {
        match (directory, self.inode(victim).kind == FileKind::Directory) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            _ => Ok(()),
        }
    }

    pub(super) fn rename(&mut self, who: Who, from: &[u8], to: &[u8], mode: RenameMode) -> Result<Answer> {
        let (old_dir, old_name) = self.parent_of(who, from)?;
        let (new_dir, new_name) = self.parent_of(who, to)?;
        self.may(who, old_dir, 1)?;
        self.may(who, new_dir, 1)?;
        let source = *self.inode(old_dir).entries.get(old_name).ok_or(Errno::NOENT)?;
        let target = self.inode(new_dir).entries.get(new_name).copied();
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::Whiteout { replace: false }, Some(_)) => {
                return Err(Errno::EXIST);
            }
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        self.no_loop(source, new_dir, Errno::INVAL)?;
        if let Some(target) = target {
            let exchange = mode == RenameMode::Exchange;
            self.no_loop(target, old_dir, if exchange { Errno::INVAL } else { Errno::NOTEMPTY })?;
        }
        if target == Some(source) {
            return Ok(Answer::Done);
        }
        self.may_rename(who, (old_dir, source), (new_dir, target), mode)?;
        self.do_rename((old_dir, old_name), (new_dir, new_name), mode);
        if let RenameMode::Whiteout { .. } = mode {
            let whiteout = self.born(who, old_dir, FileKind::CharDevice, 0);
            self.attach(old_dir, old_name, whiteout);
        }
        Ok(Answer::Done)
    }

    /// `ancestor` must not lie on the way from the root to `dir`.
    fn no_loop(&self, ancestor: Ino, dir: Ino, errno: Errno) -> Result<()> {
        let mut at = dir;
        while at != ancestor {
            if at == super::ROOT {
                return Ok(());
            }
            at = self.inode(at).parent;
        }
        Err(errno)
    }

    fn may_rename(
        &self,
        who: Who,
        (old_dir, source): (Ino, Ino),
        (new_dir, target): (Ino, Option<Ino>),
        mode: RenameMode,
    ) -> Result<()> {
        let is_dir = |ino: Ino| self.inode(ino).kind == FileKind::Directory;
        self.may_remove(who, old_dir, source)?;
        match target {
            None => self.may(who, new_dir, 3)?,
            Some(target) => {
                self.may_remove(who, new_dir, target)?;
                if mode != RenameMode::Exchange {
                    self.kinds_agree(is_dir(source), target)?;
                }
            }
        }
        if old_dir != new_dir {
            // `..` is about to change.
            if is_dir(source) {
                self.may(who, source, 2)?;
            }
            if let Some(target) = target.filter(|t| mode == RenameMode::Exchange && is_dir(*t)) {
                self.may(who, target, 2)?;
            }
        }
        match target {
            Some(target) if mode != RenameMode::Exchange && !self.inode(target).entries.is_empty() => {
                Err(Errno::NOTEMPTY)
            }
            _ => Ok(()),
        }
    }

    fn do_rename(
        &mut self,
        (old_dir, old_name): (Ino, &[u8]),
        (new_dir, new_name): (Ino, &[u8]),
        mode: RenameMode,
    ) {
        let now = self.now;
        let source = self.inode(old_dir).entries.get(old_name).copied();
        let target = self.inode(new_dir).entries.get(new_name).copied();
        self.detach(old_dir, old_name);
        if target.is_some() {
            self.detach(new_dir, new_name);
        }
        if let Some(source) = source {
            self.attach(new_dir, new_name, source);
            self.inode_mut(source).ctime = now;
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => self.attach(old_dir, old_name, target),
            Some(target) => self.forget_if_unused(target),
            None => {}
        }
    }

    pub(super) fn readdir(&self, who: Who, path: &[u8]) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        self.must_be_directory(ino)?;
        self.may(who, ino, 4)?;
        let entries = self.inode(ino).entries.iter();
        Ok(Answer::Listing(entries.map(|(name, ino)| (name.clone(), self.inode(*ino).kind)).collect()))
    }

    pub(super) fn readlink(&self, who: Who, path: &[u8]) -> Result<Answer> {
        let inode = self.inode(self.resolve(who, path)?);
        if inode.kind != FileKind::Symlink {
            return Err(Errno::INVAL);
        }
        Ok(Answer::Bytes(inode.target.clone()))
    }
}

//! A reference model of a POSIX tree as Linux has it: small, slow, pure.
//!
//! Errors and the order of the checks that find them follow the kernel (`fs/namei.c`, `fs/attr.c`,
//! `fs/xattr.c`, `fs/posix_acl.c`), which the comparison with a real directory confirms. ACLs use
//! `cofs_namespace::acl`, which that comparison thereby tests too.

mod attributes;
mod data;
mod files;
mod names;
mod permit;
mod xattrs;

use std::{collections::BTreeMap, path::Path};

use cofs_types::{FileKind, Timestamp};
pub use data::Sparse;
pub use files::READ_ALL_BYTES_MAX;
use rustix::io::Errno;

use crate::{
    answer::{Answer, Result, View},
    ops::{Op, SLOTS, Step, Who, names},
};

type Ino = u64;
const ROOT: Ino = 1;

/// Where file systems may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// `fs.protected_hardlinks`: the kernel, not the file system, refuses links to others' files.
    pub protected_hardlinks: bool,
    /// Linux looks at no ACL where the mode's group class (the ACL's mask) grants nothing, so that a named
    /// user becomes one of the others; acl(5) has it that he gets nothing.
    pub no_acl_without_group_bits: bool,
    /// A write by one outside the file's group takes the set-group-id bit even where the group may not
    /// execute (the kernel's own rule; a FUSE server is not told who writes).
    pub strict_set_gid: bool,
    /// Of a FUSE file system the kernel learns that a truncating open took the set-id bits only when it asks for
    /// the attributes again; until then its own protection of hard links goes by the old bits.
    pub set_id_seen_late: bool,
}

#[derive(Clone, Debug)]
struct Inode {
    kind: FileKind,
    permissions: u16,
    nlink: u32,
    uid: u32,
    gid: u32,
    atime: Timestamp,
    /// As it was when the inode last changed in another way than by being read, or all was synced.
    atime_oldest: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    data: Sparse,
    target: Vec<u8>,
    /// Of a directory.
    entries: BTreeMap<Vec<u8>, Ino>,
    parent: Ino,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Made by `O_TMPFILE` and never linked since.
    linkable: bool,
    /// A truncating open has taken its set-id bits.
    set_id_lost: bool,
}

impl Inode {
    fn keep_atime(&mut self) {
        self.atime_oldest = self.atime;
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    ino: Ino,
    write: bool,
}

/// The tree and its open files.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    slots: [Option<Slot>; SLOTS],
    rules: Rules,
    now: Timestamp,
}

impl Rules {
    /// Those of the running kernel and the file system that `directory` lies on.
    pub fn of(directory: &Path) -> Self {
        const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;
        let fuse = rustix::fs::statfs(directory).is_ok_and(|s| s.f_type as u32 == FUSE_SUPER_MAGIC);
        Self {
            protected_hardlinks: crate::directory::protected_hardlinks(),
            no_acl_without_group_bits: true,
            strict_set_gid: !fuse,
            set_id_seen_late: fuse,
        }
    }
}

impl Model {
    /// An empty tree whose root belongs to the superuser.
    pub fn new(rules: Rules, root_permissions: u16, now: Timestamp) -> Self {
        let mut model = Self { inodes: BTreeMap::new(), next: ROOT, slots: [None; SLOTS], rules, now };
        let root = model.insert(FileKind::Directory, root_permissions, 0, 0, ROOT);
        model.inode_mut(root).nlink = 2;
        model
    }

    /// Does one step at the time `now`.
    pub fn apply(&mut self, step: &Step, now: Timestamp) -> Answer {
        self.now = now;
        let answer = self.dispatch(step.who, &step.op).into();
        // What changes an inode carries its access time along.
        self.inodes.values_mut().filter(|inode| inode.ctime == now).for_each(Inode::keep_atime);
        answer
    }

    /// A read that returned bytes: relatime (mount(8)).
    fn accessed(&mut self, ino: Ino) {
        const DAY_SECS: i64 = 86_400;
        let now = self.now;
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let changed_since = inode.atime <= inode.mtime || inode.atime <= inode.ctime;
        if changed_since || now.secs - inode.atime.secs >= DAY_SECS {
            inode.atime = now;
        }
    }

    /// Inodes that still exist, the root and open-unlinked ones included.
    pub fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// Forgets all open files, as a crash does.
    pub fn close_all(&mut self) {
        (0..SLOTS).for_each(|slot| self.close(slot));
    }

    fn dispatch(&mut self, who: Who, op: &Op) -> Result<Answer> {
        match op {
            Op::Make { path, kind, permissions } => self.make(who, path, *kind, *permissions, &[]),
            Op::Symlink { path, target } => self.make(who, path, FileKind::Symlink, 0o777, target),
            Op::Link { from, to } => self.link(who, from, to),
            Op::LinkSlot { slot, to } => self.link_slot(who, *slot, to),
            Op::Unlink { path } => self.remove(who, path, false),
            Op::Rmdir { path } => self.remove(who, path, true),
            Op::Rename { from, to, mode } => self.rename(who, from, to, *mode),
            Op::Readdir { path } => self.readdir(who, path),
            Op::Readlink { path } => self.readlink(who, path),
            Op::Stat { path } => Ok(Answer::Stat(self.view(self.resolve(who, path)?))),
            Op::Chmod { path, permissions } => self.chmod(who, path, *permissions),
            Op::Chown { path, uid, gid } => self.chown(who, path, *uid, *gid),
            Op::Utimens { path, atime, mtime } => self.utimens(who, path, *atime, *mtime),
            Op::SetXattr { path, name, value, mode } => self.set_xattr(who, path, name, value, *mode),
            Op::GetXattr { path, name } => self.get_xattr(who, path, name),
            Op::RemoveXattr { path, name } => self.remove_xattr(who, path, name),
            Op::ListXattr { path } => self.list_xattrs(who, path),
            Op::Sync => {
                self.inodes.values_mut().for_each(Inode::keep_atime);
                Ok(Answer::Done)
            }
            file => Ok(self.file_op(who, file)?),
        }
    }

    fn inode(&self, ino: Ino) -> &Inode {
        &self.inodes[&ino]
    }

    fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an entry leads to an inode")
    }

    fn insert(&mut self, kind: FileKind, permissions: u16, uid: u32, gid: u32, parent: Ino) -> Ino {
        let ino = self.next;
        self.next += 1;
        let inode = Inode {
            kind,
            permissions,
            nlink: 0,
            uid,
            gid,
            atime: self.now,
            atime_oldest: self.now,
            mtime: self.now,
            ctime: self.now,
            data: Sparse::default(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            parent,
            xattrs: BTreeMap::new(),
            linkable: false,
            set_id_lost: false,
        };
        self.inodes.insert(ino, inode);
        ino
    }

    /// Drops an inode that has neither name nor opener.
    fn forget_if_unused(&mut self, ino: Ino) {
        let open = self.slots.iter().flatten().any(|slot| slot.ino == ino);
        if !open && self.inode(ino).nlink == 0 {
            self.inodes.remove(&ino);
        }
    }

    fn view(&self, ino: Ino) -> View {
        let i = self.inode(ino);
        let size_bytes = match i.kind {
            FileKind::Regular => i.data.size(),
            FileKind::Symlink => i.target.len() as u64,
            _ => 0,
        };
        View {
            kind: i.kind,
            permissions: i.permissions,
            nlink: i.nlink,
            uid: i.uid,
            gid: i.gid,
            rdev: 0,
            size_bytes,
            atime: i.atime,
            atime_oldest: i.atime_oldest,
            mtime: i.mtime,
            ctime: i.ctime,
        }
    }

    /// The inode at `path`, with the right to search every directory on the way.
    fn resolve(&self, who: Who, path: &[u8]) -> Result<Ino> {
        names(path).try_fold(ROOT, |dir, name| {
            self.must_be_directory(dir)?;
            self.may(who, dir, 1)?;
            self.inode(dir).entries.get(name).copied().ok_or(Errno::NOENT)
        })
    }

    /// The directory of `path`'s last name, not yet searched, and the name.
    fn parent_of(&self, who: Who, path: &[u8]) -> Result<(Ino, &'static [u8])> {
        let (last, parents) = path.split_last().ok_or(Errno::INVAL)?;
        let dir = self.resolve(who, parents)?;
        self.must_be_directory(dir)?;
        Ok((dir, names(&[*last]).next().ok_or(Errno::INVAL)?))
    }

    fn must_be_directory(&self, ino: Ino) -> Result<()> {
        if self.inode(ino).kind == FileKind::Directory { Ok(()) } else { Err(Errno::NOTDIR) }
    }
}

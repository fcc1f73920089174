//! The name space as a subject, over any engine, with its objects in memory.
//!
//! This does in a few lines what the file-system layer does above the name space: it moves a file that
//! outgrows the inline maximum to an object and back, keeps the open-for-writing set and releases unlinked
//! inodes at their last close. Each operation is one transaction on its way to the model's answer.

use std::{collections::BTreeMap, sync::Arc};

use cofs_engine::Engine;
use cofs_namespace::{
    Fate, Leave, ListedEntry, Namespace, Node, OpenInodes, Removed, Settled, Unsynced, VolumeOptions,
    WithNodes,
};
use cofs_types::{
    Authority, Credentials, FallocateMode, FileKind, FsError, FsResult, InodeId, Kills, Layout, Name,
    NewInode, ObjectId, SetAttributes, SetTime, Timestamp, XattrName,
};
use parking_lot::Mutex;

use crate::{
    answer::{Answer, errno_of},
    compare::Subject,
    model::{READ_ALL_BYTES_MAX, Sparse},
    ops::{Op, SLOTS, Step, UMASK, Who, names, pattern},
};

/// Entries taken from one listing before it is asked to go on from the last cookie.
const LISTING_PIECE: usize = 3;

/// How often each inode is open.
#[derive(Default)]
struct Opens(Mutex<BTreeMap<InodeId, usize>>);

impl OpenInodes for Opens {
    fn is_open(&self, ino: InodeId) -> bool {
        self.0.lock().contains_key(&ino)
    }
}

#[derive(Clone, Copy)]
struct Slot {
    ino: InodeId,
    write: bool,
}

/// A volume over an engine.
pub struct NamespaceSubject {
    ns: Arc<Namespace>,
    opens: Arc<Opens>,
    slots: [Option<Slot>; SLOTS],
    objects: BTreeMap<ObjectId, Sparse>,
    objects_made: u64,
}

impl NamespaceSubject {
    /// Formats an empty engine, and opens the volume.
    pub fn format(
        engine: Arc<dyn Engine>,
        inline_bytes_max: u32,
        root: u16,
        now: Timestamp,
    ) -> FsResult<Self> {
        let options = VolumeOptions { inline_bytes_max, hash_key: [7; 16] };
        Namespace::format(&*engine, &options, (0, 0, root), now)?;
        Self::open(engine)
    }

    /// Opens a volume that is there. Its objects, if it had any, are not.
    pub fn open(engine: Arc<dyn Engine>) -> FsResult<Self> {
        let opens = Arc::new(Opens::default());
        let ns = Arc::new(Namespace::open(engine, Arc::<Opens>::clone(&opens))?);
        Ok(Self { ns, opens, slots: [None; SLOTS], objects: BTreeMap::new(), objects_made: 0 })
    }

    /// Another user of the same name space, for another thread. Objects are not shared: nothing may outgrow the
    /// inline maximum.
    pub fn sharing(&self) -> Self {
        let (ns, opens) = (Arc::clone(&self.ns), Arc::<Opens>::clone(&self.opens));
        Self { ns, opens, slots: [None; SLOTS], objects: BTreeMap::new(), objects_made: 0 }
    }

    pub fn namespace(&self) -> &Namespace {
        &self.ns
    }

    /// The objects of another subject that had the same volume open.
    pub fn take_objects(&mut self, other: &mut Self) {
        self.objects = std::mem::take(&mut other.objects);
    }

    /// Closes all slots, whatever becomes of one, and removes what only they held. Errors: the first.
    pub fn close_all(&mut self, now: Timestamp) -> FsResult<()> {
        (0..SLOTS).map(|slot| self.close(slot, now)).fold(Ok(()), FsResult::and)
    }

    /// What the mount after a crash does: inodes that were unlinked while open go.
    pub fn recover(&mut self, now: Timestamp) -> FsResult<()> {
        for ino in self.ns.unlinked_set(None, usize::MAX)? {
            self.ns.release_unlinked(now, ino)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, who: Who, op: &Op, now: Timestamp) -> FsResult<Answer> {
        let c = &who.credentials();
        match op {
            Op::Make { path, kind, permissions } => self.make(c, path, *kind, *permissions, &[], now),
            Op::Symlink { path, target } => self.make(c, path, FileKind::Symlink, 0o777, target, now),
            Op::Link { from, to } => {
                let ((from, old), (to, new)) = (self.parent_of(c, from)?, self.parent_of(c, to)?);
                let ino = self.ns.lookup(c, from, old)?.attributes.ino;
                self.ns.link(c, now, ino, to, new).map(done)
            }
            Op::LinkSlot { slot, to } => {
                let (to, new) = self.parent_of(c, to)?;
                self.ns.link(c, now, self.slot(*slot)?.ino, to, new).map(done)
            }
            Op::Unlink { path } | Op::Rmdir { path } => {
                let (dir, name) = self.parent_of(c, path)?;
                let removed = match op {
                    Op::Unlink { .. } => self.ns.unlink(c, now, dir, name)?,
                    _ => self.ns.rmdir(c, now, dir, name)?,
                };
                self.after_removal(&removed, now)?;
                self.reclaim()
            }
            Op::Rename { from, to, mode } => {
                let (from, to) = (self.parent_of(c, from)?, self.parent_of(c, to)?);
                if let Some(removed) = self.ns.rename(c, now, from, to, *mode)?.replaced {
                    self.after_removal(&removed, now)?;
                }
                self.reclaim()
            }
            Op::Sync => self.ns.sync(now).map(done),
            Op::Readdir { path } => self.readdir(c, path),
            Op::Readlink { path } => self.readlink(c, path),
            Op::Stat { path } => Ok(stat(&self.walk(c, path)?)),
            Op::Open { .. } | Op::Tmpfile { .. } | Op::ReadAll { .. } => self.open_op(who, op, now),
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. } | Op::ListXattr { .. } => {
                self.xattr(who, op, now)
            }
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => self.change(c, op, now),
            _ => self.slot_op(who, op, now),
        }
    }

    fn walk(&self, c: &Credentials<'_>, path: &[u8]) -> FsResult<Node> {
        let root = self.ns.node(InodeId::ROOT)?;
        names(path).try_fold(root, |node, name| self.ns.lookup(c, node.attributes.ino, Name::new(name)?))
    }

    fn parent_of(&self, c: &Credentials<'_>, path: &[u8]) -> FsResult<(InodeId, &'static Name)> {
        let (last, parents) = path.split_last().ok_or(FsError::InvalidArgument("the root has no parent"))?;
        let dir = self.walk(c, parents)?.attributes;
        if dir.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok((dir.ino, Name::new(names(&[*last]).next().unwrap_or_default())?))
    }

    fn make(
        &mut self,
        c: &Credentials<'_>,
        path: &[u8],
        kind: FileKind,
        permissions: u16,
        target: &[u8],
        now: Timestamp,
    ) -> FsResult<Answer> {
        let (dir, name) = self.parent_of(c, path)?;
        let new = NewInode { kind, permissions, umask: UMASK, rdev: 0, target };
        self.ns.create(c, now, dir, name, &new).map(done)
    }

    fn readdir(&self, c: &Credentials<'_>, path: &[u8]) -> FsResult<Answer> {
        let dir = self.walk(c, path)?.attributes;
        if dir.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        self.ns.access(c, dir.ino, 4)?;
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let mut piece = 0;
            self.ns.list(
                dir.ino,
                cookie,
                WithNodes::All,
                LISTING_PIECE + 1,
                &mut |entry: &ListedEntry<'_>| {
                    if piece == LISTING_PIECE {
                        return false;
                    }
                    piece += 1;
                    cookie = entry.cookie;
                    entries.push((entry.name.as_bytes().to_vec(), entry.kind));
                    true
                },
            )?;
            if piece < LISTING_PIECE {
                break;
            }
        }
        entries.sort();
        Ok(Answer::Listing(entries))
    }

    fn readlink(&self, c: &Credentials<'_>, path: &[u8]) -> FsResult<Answer> {
        let node = self.walk(c, path)?;
        Ok(Answer::Bytes(self.ns.readlink(node.attributes.ino)?.to_vec()))
    }

    fn change(&mut self, c: &Credentials<'_>, op: &Op, now: Timestamp) -> FsResult<Answer> {
        let (path, change) = match op {
            Op::Chmod { path, permissions } => {
                (path, SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() })
            }
            Op::Chown { path, uid, gid } => {
                (path, SetAttributes { uid: *uid, gid: *gid, ..SetAttributes::default() })
            }
            Op::Utimens { path, atime, mtime } => {
                let (atime, mtime) = (Some(SetTime::To(*atime)), Some(SetTime::To(*mtime)));
                (path, SetAttributes { atime, mtime, ..SetAttributes::default() })
            }
            _ => return Ok(Answer::Skip),
        };
        let ino = self.walk(c, path)?.attributes.ino;
        self.ns.setattr(c, now, ino, &change).map(done)
    }

    fn xattr(&mut self, who: Who, op: &Op, now: Timestamp) -> FsResult<Answer> {
        let c = &who.credentials();
        match op {
            Op::SetXattr { path, name, value, mode } => {
                let node = self.walk(c, path)?.attributes;
                let kill = !who.is_root() && !c.in_group(node.gid);
                self.ns.setxattr(c, now, node.ino, XattrName::new(name)?, value, *mode, kill).map(done)
            }
            Op::GetXattr { path, name } => {
                let ino = self.walk(c, path)?.attributes.ino;
                Ok(Answer::Bytes(self.ns.getxattr(c, ino, XattrName::new(name)?)?.to_vec()))
            }
            Op::RemoveXattr { path, name } => {
                let ino = self.walk(c, path)?.attributes.ino;
                self.ns.removexattr(c, now, ino, XattrName::new(name)?).map(done)
            }
            Op::ListXattr { path } => {
                let list = self.ns.listxattr(self.walk(c, path)?.attributes.ino)?;
                let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
                let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
                names.sort();
                Ok(Answer::Names(names))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn open_op(&mut self, who: Who, op: &Op, now: Timestamp) -> FsResult<Answer> {
        let c = &who.credentials();
        match op {
            Op::Open { slot, path, write, truncate } => {
                let node = self.walk(c, path)?.attributes;
                match node.kind {
                    FileKind::Directory => return Err(FsError::IsDirectory),
                    FileKind::Symlink => return Err(FsError::TooManySymlinks),
                    _ => self.ns.access(c, node.ino, if *write { 6 } else { 4 })?,
                }
                self.close(*slot, now)?;
                self.put_slot(*slot, node.ino, *write);
                if *truncate { self.truncate(who, node.ino, 0, now) } else { Ok(Answer::Done) }
            }
            Op::Tmpfile { slot, path, permissions, linkable } => {
                let dir = self.walk(c, path)?.attributes.ino;
                let kind = FileKind::Regular;
                let new = NewInode { kind, permissions: *permissions, umask: UMASK, rdev: 0, target: &[] };
                let node = self.ns.create_unlinked(c, now, dir, &new, *linkable)?;
                let closed = self.close(*slot, now);
                // Whatever became of the other: this one is open, and goes only with a close.
                self.put_slot(*slot, node.attributes.ino, true);
                closed.map(|()| Answer::Done)
            }
            Op::ReadAll { path } => {
                let ino = self.walk(c, path)?.attributes.ino;
                self.access(ino, 0, READ_ALL_BYTES_MAX, now)
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn slot(&self, slot: usize) -> FsResult<Slot> {
        self.slots.get(slot).copied().flatten().ok_or(FsError::BadHandle)
    }

    fn put_slot(&mut self, slot: usize, ino: InodeId, write: bool) {
        *self.opens.0.lock().entry(ino).or_default() += 1;
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Slot { ino, write });
        }
    }

    fn close(&mut self, slot: usize, now: Timestamp) -> FsResult<()> {
        let Some(Slot { ino, .. }) = self.slots.get_mut(slot).and_then(Option::take) else { return Ok(()) };
        let last = {
            let mut opens = self.opens.0.lock();
            let left = opens.get(&ino).map_or(0, |count| count - 1);
            if left == 0 {
                opens.remove(&ino)
            } else {
                opens.insert(ino, left)
            };
            left == 0
        };
        if !last {
            return Ok(());
        }
        let node = self.ns.node(ino)?;
        if node.attributes.nlink == 0 {
            self.ns.release_unlinked(now, ino)?;
        } else if let Layout::Object(object) = node.layout {
            self.last_close(&node, object, now)?;
        }
        self.reclaim().map(drop)
    }

    /// Its last close may have come between the commit and the answer, and not have known.
    fn after_removal(&self, removed: &Removed, now: Timestamp) -> FsResult<()> {
        let ino = removed.node.attributes.ino;
        if removed.fate == Fate::Kept && !self.opens.is_open(ino) {
            // Who opens it before this comes there sees at his close that it has no name.
            self.ns.release_unlinked(now, ino)?;
        }
        Ok(())
    }

    /// A file that ended small goes back inline; else its size and times are settled.
    fn last_close(&mut self, node: &Node, object: ObjectId, now: Timestamp) -> FsResult<()> {
        let a = &node.attributes;
        let data = self.objects.get(&object).cloned().unwrap_or_default();
        if data.size() <= u64::from(self.ns.options().inline_bytes_max) {
            let bytes = data.read(0, data.size() as usize);
            return self.ns.inlay(now, a.ino, &bytes, Some((a.mtime, a.ctime))).map(drop);
        }
        let settled = Settled { size_bytes: data.size(), blocks_512: a.blocks_512, ..Settled::default() };
        // As a real close does: a mark stays that nothing but a sync, or the file's end, takes away.
        let leave = Leave::Closed(Unsynced { second: 1, run: 1 });
        self.ns.settle(a.ino, &settled, leave).map(drop)
    }

    /// Objects on the reclaim list exist, and are removed.
    fn reclaim(&mut self) -> FsResult<Answer> {
        let list = self.ns.reclaim_list(usize::MAX)?;
        for object in &list {
            if self.objects.remove(object).is_none() {
                return Err(FsError::corrupt(format!("object {object} was reclaimed, but never made")));
            }
        }
        if !list.is_empty() {
            self.ns.reclaimed(&list)?;
        }
        Ok(Answer::Done)
    }

    fn slot_op(&mut self, who: Who, op: &Op, now: Timestamp) -> FsResult<Answer> {
        match op {
            Op::Close { slot } => self.close(*slot, now).map(done),
            Op::StatSlot { slot } => Ok(stat(&self.ns.node(self.slot(*slot)?.ino)?)),
            Op::Read { slot, offset, len } => self.access(self.slot(*slot)?.ino, *offset, *len, now),
            Op::Write { slot, offset, len, fill } => {
                let ino = self.writable(*slot)?;
                self.write(who, ino, *offset, &pattern(*fill, *offset, *len), now)
            }
            Op::Truncate { slot, size } => self.truncate(who, self.writable(*slot)?, *size, now),
            Op::Fallocate { slot, mode, offset, len } => {
                self.fallocate(who, self.writable(*slot)?, *mode, (*offset, *len), now)
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn writable(&self, slot: usize) -> FsResult<InodeId> {
        let slot = self.slot(slot)?;
        if slot.write { Ok(slot.ino) } else { Err(FsError::BadHandle) }
    }

    /// A read that shows in the access time, by relatime.
    fn access(&self, ino: InodeId, offset: u64, len: usize, now: Timestamp) -> FsResult<Answer> {
        let bytes = self.read(ino, offset, len)?;
        let a = self.ns.node(ino)?.attributes;
        if !bytes.is_empty() && a.atime.relatime_due(a.mtime, a.ctime, now) {
            self.ns.touch_atime(now, ino)?;
        }
        Ok(Answer::Bytes(bytes))
    }

    fn read(&self, ino: InodeId, offset: u64, len: usize) -> FsResult<Vec<u8>> {
        match self.ns.node(ino)?.layout {
            Layout::Object(object) => {
                Ok(self.objects.get(&object).map_or(Vec::new(), |o| o.read(offset, len)))
            }
            Layout::Inline => {
                let mut out = vec![0xaa; len];
                let (got, _) = self.ns.inline_read(ino, offset, &mut out)?;
                out.truncate(got);
                Ok(out)
            }
        }
    }

    fn write(
        &mut self,
        who: Who,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> FsResult<Answer> {
        if self.ns.node(ino)?.layout == Layout::Inline {
            match self.ns.inline_write(
                now,
                ino,
                offset,
                data,
                if who.is_root() { Kills::Capabilities } else { Kills::SetIdToo },
            ) {
                Err(FsError::FileTooLarge) => self.outgrow(ino, now)?,
                result => return result.map(done),
            }
        }
        self.change_object(who, ino, now, |object| object.write(offset, data))
    }

    fn truncate(&mut self, who: Who, ino: InodeId, size: u64, now: Timestamp) -> FsResult<Answer> {
        let small = size <= u64::from(self.ns.options().inline_bytes_max);
        if self.ns.node(ino)?.layout == Layout::Inline {
            if small {
                return self.set_size(who, ino, size, now);
            }
            self.outgrow(ino, now)?;
        }
        self.change_object(who, ino, now, |object| object.truncate(size))
    }

    /// As by one who holds the file open: what it may do was checked then.
    fn set_size(&mut self, who: Who, ino: InodeId, size: u64, now: Timestamp) -> FsResult<Answer> {
        let kill_set_id = !who.is_root();
        let change = SetAttributes { size_bytes: Some(size), kill_set_id, ..SetAttributes::default() };
        let c = Credentials { authority: Authority::Checked, ..who.credentials() };
        self.ns.setattr(&c, now, ino, &change).map(done)
    }

    fn fallocate(
        &mut self,
        who: Who,
        ino: InodeId,
        mode: FallocateMode,
        (offset, len): (u64, u64),
        now: Timestamp,
    ) -> FsResult<Answer> {
        let node = self.ns.node(ino)?;
        let size = node.attributes.size_bytes;
        let grows = match mode {
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => !keep_size,
            FallocateMode::PunchHole => false,
        };
        let new_size = (grows && offset + len > size).then_some(offset + len);
        let zero_len = if matches!(mode, FallocateMode::Allocate { .. }) { 0 } else { len };
        if node.layout == Layout::Inline {
            if new_size.is_none_or(|size| size <= u64::from(self.ns.options().inline_bytes_max)) {
                self.remove_privileges(who, &node, now)?;
                return self.ns.inline_zero(now, ino, offset, zero_len, new_size).map(done);
            }
            self.outgrow(ino, now)?;
        }
        self.change_object(who, ino, now, |object| {
            object.zero(offset, offset + zero_len);
            object.truncate(new_size.unwrap_or(size));
        })
    }

    /// As the kernel does before it changes the bytes of a file (`file_remove_privs`).
    fn remove_privileges(&mut self, who: Who, node: &Node, now: Timestamp) -> FsResult<()> {
        let permissions = node.attributes.permissions;
        if who.is_root() || (permissions & 0o4000 == 0 && permissions & 0o2010 != 0o2010) {
            return Ok(());
        }
        let c = Credentials { authority: Authority::Checked, ..who.credentials() };
        self.ns.setattr(&c, now, node.attributes.ino, &SetAttributes::KILL_SET_ID).map(drop)
    }

    fn outgrow(&mut self, ino: InodeId, now: Timestamp) -> FsResult<()> {
        let bytes = self.read(ino, 0, READ_ALL_BYTES_MAX)?;
        let mut data = Sparse::default();
        data.write(0, &bytes);
        self.objects_made += 1;
        let object = ObjectId::from_raw(self.objects_made);
        self.objects.insert(object, data);
        self.ns.outgrow(now, ino, object).map(drop)
    }

    fn change_object(
        &mut self,
        who: Who,
        ino: InodeId,
        now: Timestamp,
        change: impl FnOnce(&mut Sparse),
    ) -> FsResult<Answer> {
        let node = self.ns.node(ino)?;
        let Layout::Object(object) = node.layout else {
            return Err(FsError::corrupt("outgrown, but inline"));
        };
        if !node.writing {
            self.ns.begin_writing(ino)?;
        }
        let data = self.objects.get_mut(&object).ok_or(FsError::corrupt("the object is not there"))?;
        change(data);
        let settled = Settled {
            size_bytes: data.size(),
            blocks_512: data.size().div_ceil(512),
            mtime: Some(now),
            atime: None,
            ctime: Some(now),
            kill_set_id: !who.is_root(),
            drop_capability: true,
        };
        self.ns.settle(ino, &settled, Leave::Stays).map(done)
    }
}

impl Subject for NamespaceSubject {
    fn apply(&mut self, step: &Step, now: Timestamp) -> Answer {
        self.dispatch(step.who, &step.op, now).unwrap_or_else(|error| Answer::Error(errno_of(&error)))
    }
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}

fn stat(node: &Node) -> Answer {
    Answer::Stat((&node.attributes).into())
}

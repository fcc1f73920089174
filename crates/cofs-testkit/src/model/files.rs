//! Open files: reading, writing and what else changes their bytes.

use cofs_types::{FallocateMode, FileKind, Timestamp};
use rustix::io::Errno;

use super::{Ino, Model, Slot};
use crate::{
    answer::{Answer, Result},
    ops::{Op, Step, Who, pattern},
};

/// The most that a whole file is read of: beyond, only its head.
pub const READ_ALL_BYTES_MAX: usize = 1 << 17;

impl Model {
    pub(super) fn file_op(&mut self, who: Who, op: &Op) -> Result<Answer> {
        match op {
            Op::Open { slot, path, write, truncate } => self.open(who, *slot, path, *write, *truncate),
            Op::Tmpfile { slot, path, permissions, linkable } => {
                self.tmpfile(who, *slot, path, *permissions, *linkable)
            }
            Op::ReadAll { path } => {
                let ino = self.resolve(who, path)?;
                Ok(Answer::Bytes(self.read(ino, 0, READ_ALL_BYTES_MAX)))
            }
            _ => Ok(self.slot_op(who, op)),
        }
    }

    fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        let bytes = self.inode(ino).data.read(offset, len);
        if !bytes.is_empty() {
            self.accessed(ino);
        }
        bytes
    }

    fn slot_op(&mut self, who: Who, op: &Op) -> Answer {
        let (Op::Close { slot }
        | Op::Write { slot, .. }
        | Op::Read { slot, .. }
        | Op::Truncate { slot, .. }
        | Op::Fallocate { slot, .. }
        | Op::StatSlot { slot }) = op
        else {
            return Answer::Skip;
        };
        let Some(open) = self.slots.get(*slot).copied().flatten() else { return Answer::Skip };
        match op {
            Op::Close { slot } => self.close(*slot),
            Op::StatSlot { .. } => return Answer::Stat(self.view(open.ino)),
            Op::Read { offset, len, .. } => {
                return Answer::Bytes(self.read(open.ino, *offset, *len));
            }
            _ if !open.write => return Answer::Skip,
            Op::Write { offset, len, fill, .. } => {
                self.inode_mut(open.ino).data.write(*offset, &pattern(*fill, *offset, *len));
                self.changed(who, open.ino);
            }
            Op::Truncate { size, .. } => {
                self.inode_mut(open.ino).data.truncate(*size);
                self.changed(who, open.ino);
            }
            Op::Fallocate { mode, offset, len, .. } => self.fallocate(who, open.ino, *mode, *offset, *len),
            _ => return Answer::Skip,
        }
        Answer::Done
    }

    /// The state between the two changes of a `fallocate` that costs a file its set-id bits: the kernel takes them away first, by a
    /// request of its own (`file_remove_privs`). `None`: it is one change.
    pub fn privileges_removed(&self, step: &Step, now: Timestamp) -> Option<Self> {
        let Op::Fallocate { slot, .. } = step.op else { return None };
        let open = self.slots.get(slot).copied().flatten().filter(|open| open.write)?;
        let mut between = self.clone();
        between.kill_set_id(step.who, open.ino);
        let inode = between.inode_mut(open.ino);
        inode.ctime = now;
        inode.keep_atime();
        (inode.permissions != self.inode(open.ino).permissions).then_some(between)
    }

    fn changed(&mut self, who: Who, ino: Ino) {
        let now = self.now;
        let inode = self.inode_mut(ino);
        (inode.mtime, inode.ctime) = (now, now);
        self.kill_set_id(who, ino);
    }

    fn fallocate(&mut self, who: Who, ino: Ino, mode: FallocateMode, offset: u64, len: u64) {
        let data = &mut self.inode_mut(ino).data;
        let end = offset + len;
        let keep_size = match mode {
            FallocateMode::Allocate { keep_size } => keep_size,
            FallocateMode::PunchHole => true,
            FallocateMode::ZeroRange { keep_size } => keep_size,
        };
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            data.zero(offset, end);
        }
        if !keep_size && end > data.size() {
            data.truncate(end);
        }
        self.changed(who, ino);
    }

    fn open(&mut self, who: Who, slot: usize, path: &[u8], write: bool, truncate: bool) -> Result<Answer> {
        let ino = self.resolve(who, path)?;
        match self.inode(ino).kind {
            FileKind::Regular => {}
            FileKind::Symlink => return Err(Errno::LOOP),
            FileKind::Directory if write => return Err(Errno::ISDIR),
            // A FIFO would wait for its other end, and directories are not read through slots.
            _ => return Ok(Answer::Skip),
        }
        self.may(who, ino, if write { 6 } else { 4 })?;
        self.close(slot);
        self.put_slot(slot, ino, write);
        if truncate {
            let before = self.inode(ino).permissions;
            self.inode_mut(ino).data.truncate(0);
            self.changed(who, ino);
            let inode = self.inode_mut(ino);
            inode.set_id_lost |= inode.permissions != before;
        }
        Ok(Answer::Done)
    }

    fn tmpfile(
        &mut self,
        who: Who,
        slot: usize,
        path: &[u8],
        permissions: u16,
        linkable: bool,
    ) -> Result<Answer> {
        let dir = self.resolve(who, path)?;
        self.must_be_directory(dir)?;
        self.may(who, dir, 3)?;
        self.close(slot);
        let ino = self.born(who, dir, FileKind::Regular, permissions);
        self.inode_mut(ino).linkable = linkable;
        self.put_slot(slot, ino, true);
        Ok(Answer::Done)
    }

    fn put_slot(&mut self, slot: usize, ino: Ino, write: bool) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Slot { ino, write });
        }
    }

    pub(super) fn close(&mut self, slot: usize) {
        if let Some(open) = self.slots.get_mut(slot).and_then(Option::take) {
            self.forget_if_unused(open.ino);
        }
    }
}

//! The passes over inodes: into the table at first; against what was counted at the end.

use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, ObjectId};

use super::{
    Pass, Problem, decode_inode,
    table::{Flag, Index},
};
use crate::{
    schema::{Inode, Key, MARK, ranges},
    tables::labels::LABEL,
};

impl Pass<'_> {
    pub(super) fn reclaim_list(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::reclaim(), &mut |key, value| {
            match Key::parse(key) {
                Ok(Key::Reclaim(object)) if value == MARK => {
                    self.reclaim.insert(object);
                }
                _ => self.unreadable(key, value, "reclaim list"),
            }
            Ok(())
        })?;
        self.found.summary.reclaim = self.reclaim.len() as u64;
        Ok(())
    }

    pub(super) fn inodes(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::inodes(), &mut |key, value| {
            match (Key::parse(key), decode_inode(value)) {
                (Ok(Key::Inode(ino)), Ok(inode)) => {
                    self.lost_below(Some(ino));
                    self.inode(ino, &inode);
                }
                (Ok(Key::Inode(ino)), Err(error)) => self.unreadable_inode(ino, key, value, &error),
                (_, Err(error)) => self.unreadable(key, value, &error.to_string()),
                _ => self.unreadable(key, value, "key of an inode"),
            }
            Ok(())
        })?;
        self.lost_below(None);
        Ok(())
    }

    /// Of one that is made anew nothing else is told.
    fn unreadable_inode(&mut self, ino: InodeId, key: &[u8], value: &[u8], error: &FsError) {
        let rebuilt = self.rebuilt.binary_search_by_key(&ino, |one| one.0).is_ok();
        if self.newer.note(key, value) || rebuilt {
            return;
        }
        if self.lost.unreadable(ino) {
            self.unreadable(key, value, &error.to_string());
        }
    }

    pub(super) fn inode(&mut self, ino: InodeId, inode: &Inode) {
        self.table.push(ino, inode);
        self.found.summary.inodes += 1;
        self.found.summary.directories += u64::from(inode.kind == FileKind::Directory);
        if ino == InodeId::ROOT && inode.kind == FileKind::Directory && inode.parent != Some(ino) {
            // No entry tells: and what lies in it would seem to lie in itself.
            self.found.add(Problem::WrongParent { ino, stored: inode.parent, found: ino });
            if let Some(root) = self.table.find(ino) {
                self.table.set_parent(root, ino);
            }
        }
        if inode.xattrs.iter().any(|(name, _)| name == LABEL) {
            self.labelled.get_or_insert(ino);
        }
        if let Layout::Object(object) = inode.layout {
            self.in_use(object, ino);
        }
    }

    fn in_use(&mut self, object: ObjectId, ino: InodeId) {
        if self.reclaim.contains(&object) {
            self.found.add(Problem::ReclaimInUse { object, ino });
        }
    }

    /// Directories without a name, and those that lie in themselves.
    pub(super) fn reachability(&mut self) {
        for (ino, parent) in self.table.cycles() {
            self.found.add(Problem::Cycle { ino, parent });
        }
    }

    /// Each inode once more, against what was counted of it.
    pub(super) fn counts(&mut self) -> FsResult<()> {
        let checker = self.checker;
        let mut index: Index = 0;
        checker.scan(&ranges::inodes(), &mut |key, value| {
            if let (Ok(Key::Inode(ino)), Ok(inode)) = (Key::parse(key), decode_inode(value)) {
                index = self.count_lost_below(index, Some(ino))?;
                self.count(index, ino, &inode)?;
                index += 1;
            }
            Ok(())
        })?;
        self.count_lost_below(index, None).map(drop)
    }

    pub(super) fn count(&mut self, index: Index, ino: InodeId, inode: &Inode) -> FsResult<()> {
        let directory = inode.kind == FileKind::Directory;
        let named = match directory {
            true if ino == InodeId::ROOT || self.table.has(index, Flag::Named) => 2,
            true => 0,
            false => self.table.count(index),
        };
        let unlinked = self.table.has(index, Flag::Unlinked);
        if named == 0 && !unlinked {
            self.found.add(Problem::Unreachable { ino });
        } else if inode.nlink != named {
            self.found.add(Problem::LinkCount { ino, stored: inode.nlink, found: named });
        }
        if unlinked && named > 0 {
            self.found.add(Problem::StrayUnlinked { ino });
        }
        if directory && self.table.count(index) > 0 && !self.table.has(index, Flag::Shard) {
            let found = self.table.count(index);
            self.found.add(Problem::Subdirectories { dir: ino, stored: 0, found });
        }
        let marked = self.table.has(index, Flag::Writing);
        if marked != inode.writing {
            self.found.add(Problem::Writing { ino, marked });
        }
        self.large_xattrs(ino, inode)
    }

    fn large_xattrs(&mut self, ino: InodeId, inode: &Inode) -> FsResult<()> {
        if inode.large_xattrs == 0 {
            return Ok(());
        }
        let mut found = 0;
        self.checker.scan(&ranges::xattrs(ino), &mut |_, _| {
            found += 1;
            Ok(())
        })?;
        if found != inode.large_xattrs {
            self.found.add(Problem::LargeXattrs { ino, stored: inode.large_xattrs, found });
        }
        Ok(())
    }
}

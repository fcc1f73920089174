//! Inodes that are lost: something leads to them, and their record is not there or cannot be read.
//!
//! What they were is told by what leads to them: their names, and the entries that stand in them. The check goes on as
//! if they were there again, and the repair makes them before all else; so what belongs to them keeps its place.
//! Owner, permissions and times are gone: such an inode is root's alone.

use std::collections::BTreeMap;

use cofs_types::{FileKind, FsResult, InodeId, Timestamp, limits};

use super::{Pass, Problem, table::Index};
use crate::schema::{Inode, Occupant};

/// What a lost inode was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// `parent`: where its name stands.
    Directory { parent: Option<InodeId> },
}

impl Was {
    /// The inode made anew.
    pub(super) fn inode(&self, now: Timestamp) -> Inode {
        match self {
            Self::Directory { parent } => {
                let directory = Inode::new(FileKind::Directory, 0o700, (0, 0), now);
                Inode { nlink: 2, parent: *parent, ..directory }
            }
        }
    }
}

/// What leads to an inode that is lost.
#[derive(Default)]
struct Trace {
    /// As its first name says.
    kind: Option<FileKind>,
    parent: Option<InodeId>,
    /// Names stand in it.
    has_entries: bool,
}

impl Trace {
    fn was(&self) -> Option<Was> {
        let parent = self.parent;
        (self.has_entries || self.kind == Some(FileKind::Directory)).then_some(Was::Directory { parent })
    }
}

/// Lost inodes by number, no more than `limits::CHECK_PROBLEMS_MAX`.
#[derive(Default)]
pub(super) struct Traces {
    traces: BTreeMap<InodeId, Trace>,
    /// There are more: of what belongs to these nothing can be said.
    pub(super) more: bool,
}

impl Traces {
    /// `None`: one too many.
    fn of(&mut self, ino: InodeId) -> Option<&mut Trace> {
        if self.traces.len() >= limits::CHECK_PROBLEMS_MAX && !self.traces.contains_key(&ino) {
            self.more = true;
            return None;
        }
        Some(self.traces.entry(ino).or_default())
    }

    /// Notes that the record cannot be read. Whether it is among those that are noted.
    pub(super) fn unreadable(&mut self, ino: InodeId) -> bool {
        self.of(ino).is_some()
    }

    pub(super) fn has_entries(&mut self, dir: InodeId) -> bool {
        self.of(dir).map(|trace| trace.has_entries = true).is_some()
    }

    pub(super) fn named(&mut self, dir: InodeId, occupant: &Occupant<'_>) -> bool {
        let Some(trace) = self.of(occupant.ino) else { return false };
        if trace.kind.is_none() {
            trace.kind = Some(occupant.kind);
            trace.parent = Some(dir).filter(|dir| *dir != occupant.ino);
        }
        true
    }

    /// Those that can be made anew, ascending.
    pub(super) fn rebuilt(&self) -> Vec<(InodeId, Was)> {
        self.traces.iter().filter_map(|(ino, trace)| Some((*ino, trace.was()?))).collect()
    }
}

impl Pass<'_> {
    /// Takes those below `ino` (all, without one) that are made anew into the table, in their places.
    pub(super) fn lost_below(&mut self, ino: Option<InodeId>) {
        while let Some((lost, was)) = self.rebuilt.get(self.taken).copied()
            && ino.is_none_or(|ino| lost < ino)
        {
            self.taken += 1;
            self.inode(lost, &was.inode(Timestamp::default()));
            self.found.add(Problem::Lost { ino: lost, was });
        }
    }

    /// The same against what was counted of them. Where the table goes on.
    pub(super) fn count_lost_below(&mut self, mut index: Index, ino: Option<InodeId>) -> FsResult<Index> {
        while let Some(lost) = self.table.ino(index)
            && ino.is_none_or(|ino| lost < ino)
        {
            if let Ok(at) = self.rebuilt.binary_search_by_key(&lost, |one| one.0)
                && let Some((_, was)) = self.rebuilt.get(at).copied()
            {
                self.count(index, lost, &was.inode(Timestamp::default()))?;
            }
            index += 1;
        }
        Ok(index)
    }

    /// Notes what an entry says of inodes that are not there. Whether all of it is noted.
    pub(super) fn trace(&mut self, dir: InodeId, occupant: &Occupant<'_>) -> bool {
        let parent = self.table.find(dir);
        let dir_noted = parent.is_some() || self.lost.has_entries(dir);
        // In what is no directory nothing has a name.
        let names = parent.is_none_or(|parent| self.table.is_directory(parent));
        let ino_noted = !names || self.table.find(occupant.ino).is_some() || self.lost.named(dir, occupant);
        dir_noted && ino_noted
    }
}

//! Inodes that are lost: something leads to them, and their record is not there or cannot be read.
//!
//! What they were is told by what leads to them: their names, the entries that stand in them, their inline data, the tag of
//! their object. The check goes on as if they were there again, and the repair makes them before all else; so what belongs
//! to them keeps its place. Owner, permissions and attributes are gone: such an inode is root's alone. Of symlinks and special
//! files, and of files without any bytes, nothing is left but the name.

use std::collections::{BTreeMap, HashSet};

use cofs_types::{FileKind, FsResult, InodeId, Layout, ObjectId, Timestamp, limits};

use super::{Pass, Problem, table::Index};
use crate::schema::{Inode, Key, Occupant, decode_chunk, ranges};

/// What a lost inode was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// `parent`: where its name stands.
    Directory {
        parent: Option<InodeId>,
    },
    Inline {
        size_bytes: u64,
    },
    Object(Salvage),
}

/// An object in a pool, and whose it is by its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Salvage {
    pub owner: InodeId,
    pub object: ObjectId,
    pub size_bytes: u64,
    pub blocks_512: u64,
    pub mtime: Timestamp,
}

/// Asked for the objects that are tagged with one of these inodes (ascending).
pub type FindObjects<'a> = &'a dyn Fn(&[InodeId]) -> FsResult<Vec<Salvage>>;

impl Was {
    /// The inode made anew.
    pub(super) fn inode(&self, now: Timestamp) -> Inode {
        let file = Inode { nlink: 1, ..Inode::new(FileKind::Regular, 0o600, (0, 0), now) };
        match *self {
            Self::Directory { parent } => {
                let directory = Inode::new(FileKind::Directory, 0o700, (0, 0), now);
                Inode { nlink: 2, parent, ..directory }
            }
            Self::Inline { size_bytes } => Inode { size_bytes, ..file },
            Self::Object(Salvage { object, size_bytes, blocks_512, mtime, .. }) => {
                Inode { layout: Layout::Object(object), size_bytes, blocks_512, mtime, ..file }
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
    fn directory(&self) -> Option<Was> {
        let parent = self.parent;
        (self.has_entries || self.kind == Some(FileKind::Directory)).then_some(Was::Directory { parent })
    }

    /// One without a name may be a file.
    fn may_be_file(&self) -> bool {
        self.kind.is_none_or(|kind| kind == FileKind::Regular)
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
}

impl Pass<'_> {
    /// Those that can be made anew, ascending.
    pub(super) fn rebuilt(&self) -> FsResult<Vec<(InodeId, Was)>> {
        let (mut rebuilt, mut others) = (Vec::new(), Vec::new());
        for (&ino, trace) in &self.lost.traces {
            let was = match trace.directory() {
                None if trace.may_be_file() => {
                    self.inline_end(ino)?.map(|size_bytes| Was::Inline { size_bytes })
                }
                directory => directory,
            };
            match was {
                Some(was) => rebuilt.push((ino, was)),
                None if trace.may_be_file() => others.push(ino),
                None => {}
            }
        }
        rebuilt.extend(self.salvaged(&others)?);
        rebuilt.sort_unstable_by_key(|one| one.0);
        Ok(rebuilt)
    }

    /// Where a file's inline data end; `None` if there are none.
    fn inline_end(&self, ino: InodeId) -> FsResult<Option<u64>> {
        let mut end = None;
        self.checker.scan(&ranges::inline(ino), &mut |key, value| {
            let bytes = decode_chunk(value, limits::INLINE_CHUNK_BYTES);
            if let (Ok(Key::Inline { chunk, .. }), Ok(bytes)) = (Key::parse(key), bytes) {
                let chunk_end = u64::from(chunk) * limits::INLINE_CHUNK_BYTES as u64 + bytes.len() as u64;
                end = Some(chunk_end).filter(|end| *end <= u64::from(limits::INLINE_BYTES_LIMIT)).or(end);
            }
            Ok(())
        })?;
        Ok(end)
    }

    /// Of each inode that has one, its object: the youngest that nobody else has and that is not to be deleted.
    fn salvaged(&self, inos: &[InodeId]) -> FsResult<BTreeMap<InodeId, Was>> {
        let mut found = match self.checker.find_objects {
            Some(find) if !inos.is_empty() => find(inos)?,
            _ => Vec::new(),
        };
        found.retain(|one| one.size_bytes > 0 && !self.reclaim.contains(&one.object));
        found.sort_unstable_by_key(|one| one.object);
        let mut in_use = HashSet::new();
        if !found.is_empty() {
            self.checker.objects(&mut |_, object, _| {
                if found.binary_search_by_key(&object, |one| one.object).is_ok() {
                    in_use.insert(object);
                }
                Ok(())
            })?;
        }
        found.retain(|one| !in_use.contains(&one.object));
        found.sort_by_key(|one| one.mtime);
        // The last one of an inode stays.
        Ok(found.into_iter().map(|one| (one.owner, Was::Object(one))).collect())
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

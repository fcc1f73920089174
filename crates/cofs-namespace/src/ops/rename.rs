//! renameat2(2).
//!
//! Moves of directories from one directory to another are made one at a time (the `tree` lock), so that the
//! way up from the new parent, which must not lead through what is moved, does not change under the check.

use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Name, NewInode, RenameMode, Timestamp, limits,
};

use super::{
    access, create,
    rmdir::remove_directory,
    unlink::{entry_inode, lose_name},
};
use crate::{
    Fate, Namespace, Node, Removed, Renamed,
    schema::{Inode, NameHasher, Occupant, key},
    tables::{
        directories,
        entries::{self, Found},
        inodes,
    },
    tx::{Tx, verb},
};

/// What an attempt came to.
enum Step {
    Done {
        replaced: Option<Node>,
    },
    /// It moves a directory to another directory, and that needs the tree lock.
    NeedsTree,
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Wish<'a> {
    by: &'a Credentials<'a>,
    now: Timestamp,
    from: (InodeId, &'a Name),
    to: (InodeId, &'a Name),
    mode: RenameMode,
}

/// One side of a rename: an entry and its inode, in a directory.
struct Side<'a> {
    dir: InodeId,
    name: &'a Name,
    found: Found,
    inode: Inode,
}

impl Side<'_> {
    fn is_directory(&self) -> bool {
        self.inode.kind == FileKind::Directory
    }

    fn occupant<'b>(&self, name: &'b Name) -> Occupant<'b> {
        Occupant { name, ino: self.found.ino, kind: self.inode.kind }
    }
}

/// Whether `ancestor` is `dir` or above it.
fn is_above(tx: &Tx<'_>, ancestor: InodeId, dir: InodeId) -> FsResult<bool> {
    let mut at = dir;
    for _ in 0..limits::DIRECTORY_DEPTH_MAX {
        if at == ancestor {
            return Ok(true);
        }
        if at == InodeId::ROOT {
            return Ok(false);
        }
        // Not part of what the commit validates: the tree lock keeps the way up as it is.
        let value = tx.get_covered(&key::inode(at))?.ok_or(FsError::NotFound)?;
        at = Inode::decode(&value)?
            .parent
            .ok_or_else(|| inodes::corrupt(at, "a directory without a parent"))?;
    }
    Err(inodes::corrupt(dir, "the way up from it has no end"))
}

/// An inode goes from one directory to another, or gets another name.
fn arrive(tx: &mut Tx<'_>, side: &Side<'_>, dir: InodeId, now: Timestamp) -> FsResult<()> {
    let mut loaded = inodes::to_change(tx, side.found.ino, side.inode.clone())?;
    loaded.inode.ctime = now;
    if side.is_directory() {
        loaded.inode.parent = Some(dir);
    }
    inodes::save(tx, &loaded);
    Ok(())
}

/// `from` loses and `to` gains so many subdirectories; the times of both change.
fn count(tx: &mut Tx<'_>, from: (InodeId, i32), to: (InodeId, i32), now: Timestamp) -> FsResult<()> {
    if from.0 == to.0 {
        return directories::count_subdirectories(tx, to.0, from.1 + to.1, now);
    }
    directories::count_subdirectories(tx, from.0, from.1, now)?;
    directories::count_subdirectories(tx, to.0, to.1, now)
}

fn exchange(tx: &mut Tx<'_>, from: &Side<'_>, to: &Side<'_>, now: Timestamp) -> FsResult<()> {
    entries::repoint(tx, from.dir, &from.found, to.occupant(from.name));
    entries::repoint(tx, to.dir, &to.found, from.occupant(to.name));
    arrive(tx, from, to.dir, now)?;
    arrive(tx, to, from.dir, now)?;
    let moved = i32::from(from.is_directory()) - i32::from(to.is_directory());
    count(tx, (from.dir, -moved), (to.dir, moved), now)
}

/// What stands for a name that is to be seen as absent, in a layer of overlayfs.
const WHITEOUT: NewInode<'_> =
    NewInode { kind: FileKind::CharDevice, permissions: 0, umask: 0, rdev: 0, target: &[] };

/// A whiteout that is to be made.
struct Whiteout<'a> {
    ino: InodeId,
    by: &'a Credentials<'a>,
    dir: &'a Inode,
}

impl Whiteout<'_> {
    /// Gives it the name that `left` leaves.
    fn put(&self, tx: &mut Tx<'_>, left: &Side<'_>, now: Timestamp) -> FsResult<()> {
        let mut inode = create::born(tx, self.by, now, (left.dir, self.dir), (self.ino, &WHITEOUT))?;
        inode.nlink = 1;
        let occupant = Occupant { name: left.name, ino: self.ino, kind: inode.kind };
        entries::repoint(tx, left.dir, &left.found, occupant);
        inodes::put(tx, self.ino, &inode);
        tx.count_files(1);
        Ok(())
    }
}

/// `from` takes the new name; what stood there loses it. The old name is a new `whiteout`'s, or free.
fn replace(
    tx: &mut Tx<'_>,
    hasher: &NameHasher,
    from: &Side<'_>,
    (dir, name): (InodeId, &Name),
    victim: Option<Side<'_>>,
    whiteout: Option<Whiteout<'_>>,
    now: Timestamp,
) -> FsResult<Option<Node>> {
    let (came, went) =
        (i32::from(from.is_directory()), i32::from(victim.as_ref().is_some_and(Side::is_directory)));
    match whiteout {
        // At once in its place: a free one might be taken by the new name.
        Some(whiteout) => whiteout.put(tx, from, now)?,
        None => entries::remove(tx, from.dir, &from.found),
    }
    match &victim {
        Some(victim) => entries::repoint(tx, dir, &victim.found, from.occupant(name)),
        None => entries::insert(tx, hasher, dir, from.occupant(name))?,
    }
    arrive(tx, from, dir, now)?;
    count(tx, (from.dir, -came), (dir, came - went), now)?;
    match victim {
        None => Ok(None),
        Some(victim) if victim.is_directory() => {
            remove_directory(tx, victim.found.ino, victim.inode, now).map(Some)
        }
        Some(victim) => lose_name(tx, victim.found.ino, victim.inode, now).map(Some),
    }
}

/// What the kinds say: a directory replaces a directory, anything else anything else.
fn check_kinds(from: &Side<'_>, victim: &Side<'_>) -> FsResult<()> {
    match (from.is_directory(), victim.is_directory()) {
        (false, true) => Err(FsError::IsDirectory),
        (true, false) => Err(FsError::NotDirectory),
        _ => Ok(()),
    }
}

impl Namespace {
    /// Gives an inode another name, in the same or another directory, in the place of what stands there; or
    /// exchanges two; or leaves a whiteout. Nothing happens where both names lead to one inode. Errors: `NotFound`, `Exists`
    /// (where nothing is to be replaced), `IsDirectory`, `NotDirectory`, `NotEmpty`, `InvalidArgument` (a directory into itself),
    /// permissions.
    pub fn rename(
        &self,
        c: &Credentials<'_>,
        now: Timestamp,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        let adds = matches!(mode, RenameMode::Whiteout { .. });
        let verb = if adds { verb!("rename", grows) } else { verb!("rename") };
        let wish = Wish { by: c, now, from, to, mode };
        let mut number = None;
        let mut step = self.commit_removal(&verb, |tx| self.try_rename(tx, &wish, &mut number, false))?;
        if let (Step::NeedsTree, _) = step {
            let _tree = self.tree.lock();
            step = self.commit_removal(&verb, |tx| self.try_rename(tx, &wish, &mut number, true))?;
        }
        match step {
            (Step::Done { replaced: Some(node) }, fate) => {
                Ok(Renamed { replaced: Some(Removed { node, fate: fate.unwrap_or(Fate::Linked) }) })
            }
            _ => Ok(Renamed { replaced: None }),
        }
    }

    fn try_rename(
        &self,
        tx: &mut Tx<'_>,
        wish: &Wish<'_>,
        number: &mut Option<InodeId>,
        tree_locked: bool,
    ) -> FsResult<Step> {
        let Wish { by: c, now, from, to, mode } = *wish;
        let from_dir = inodes::directory(tx, from.0)?;
        let to_dir = if from.0 == to.0 { from_dir.clone() } else { inodes::directory(tx, to.0)? };
        access::check(tx, c, from.0, &from_dir, access::EXECUTE)?;
        access::check(tx, c, to.0, &to_dir, access::EXECUTE)?;
        let source = self.side(tx, from)?.ok_or(FsError::NotFound)?;
        let target = self.side(tx, to)?;
        match (mode, &target) {
            (RenameMode::NoReplace | RenameMode::Whiteout { replace: false }, Some(_)) => {
                return Err(FsError::Exists);
            }
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            _ => {}
        }
        let exchanged = target.as_ref().filter(|_| mode == RenameMode::Exchange);
        let directory_moves = source.is_directory() || exchanged.is_some_and(Side::is_directory);
        if from.0 != to.0 && directory_moves {
            if !tree_locked {
                return Ok(Step::NeedsTree);
            }
            check_no_cycle(tx, &source, to.0)?;
            exchanged.map_or(Ok(()), |target| check_no_cycle(tx, target, from.0))?;
        }
        let replaced = target.as_ref().filter(|_| mode != RenameMode::Exchange);
        replaced.map_or(Ok(()), |victim| check_not_above(tx, victim, from.0))?;
        if target.as_ref().is_some_and(|target| target.found.ino == source.found.ino) {
            return Ok(Step::Done { replaced: None });
        }
        access::check_removal(tx, c, (from.0, &from_dir), &source.inode)?;
        match &target {
            Some(target) => access::check_removal(tx, c, (to.0, &to_dir), &target.inode)?,
            None => access::check(tx, c, to.0, &to_dir, access::WRITE | access::EXECUTE)?,
        }
        replaced.map_or(Ok(()), |victim| check_kinds(&source, victim))?;
        for side in [Some(&source), exchanged].into_iter().flatten() {
            if from.0 != to.0 && side.is_directory() {
                access::check(tx, c, side.found.ino, &side.inode, access::WRITE)?; // its `..` changes
            }
        }
        if let (RenameMode::Exchange, Some(target)) = (mode, &target) {
            exchange(tx, &source, target, now)?;
            return Ok(Step::Done { replaced: None });
        }
        let whiteout = match mode {
            RenameMode::Whiteout { .. } => {
                Some(Whiteout { ino: self.number(number, from.0)?, by: c, dir: &from_dir })
            }
            _ => None,
        };
        let replaced = replace(tx, &self.hasher, &source, to, target, whiteout, now)?;
        Ok(Step::Done { replaced })
    }

    fn side<'a>(&self, tx: &mut Tx<'_>, (dir, name): (InodeId, &'a Name)) -> FsResult<Option<Side<'a>>> {
        let Some(found) = entries::find(tx, &self.hasher, dir, name)? else { return Ok(None) };
        let inode = entry_inode(tx, &found)?;
        Ok(Some(Side { dir, name, found, inode }))
    }
}

/// What is replaced is not empty if the source lies in it: Linux says so first, whatever the source is.
fn check_not_above(tx: &Tx<'_>, victim: &Side<'_>, source_dir: InodeId) -> FsResult<()> {
    if victim.dir != source_dir && victim.is_directory() && is_above(tx, victim.found.ino, source_dir)? {
        return Err(FsError::NotEmpty);
    }
    Ok(())
}

fn check_no_cycle(tx: &Tx<'_>, moved: &Side<'_>, new_parent: InodeId) -> FsResult<()> {
    if moved.is_directory() && is_above(tx, moved.found.ino, new_parent)? {
        return Err(FsError::InvalidArgument("a directory cannot go into itself"));
    }
    Ok(())
}

//! After a crash of the process (and not of the machine, or of the file system below): what was created and never handed out is ready again, and what was handed
//! out is told of, since the commit that was to name it may be missing.
//!
//! Only the last window of numbers is looked at, at most [`crate::numbers::WINDOW_MAX`] of them, in the
//! background. An object in it that is empty and has no owner was never handed out: handing out tags
//! first, and a crash of the process loses no tag. Whether an object that has an owner is the owner's, only
//! the metadata know; until somebody has asked them the pool does not count as closed in order.

use std::{collections::HashMap, fs::File, io};

use cofs_types::{FsResult, InodeId, ObjectId, failpoint, limits::OBJECTS_READY_MAX};

use super::Pool;
use crate::{
    owner,
    path::{self, DirectoryNumber},
    ready::ReadyObject,
    store::{At, EntryKind, OpenMode, Operation},
};

/// An object that a crashed process had handed out to an inode, which has it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftBehind {
    pub object: ObjectId,
    pub owner: InodeId,
}

/// What the window holds.
#[derive(Default)]
struct Found {
    ready: Vec<ReadyObject>,
    handed_out: Vec<(u64, InodeId)>,
}

/// Looks at the window, if there is one. If it fails it may be called again.
pub fn recover(pool: &Pool) -> FsResult<()> {
    pool.read_reservations(|| pool.numbers.load(&*pool.store))?;
    let Some(window) = pool.numbers.unsettled() else { return Ok(()) };
    let mut number = DirectoryNumber::of(window.start);
    let last = DirectoryNumber::of(window.end.saturating_sub(1));
    let mut found = Found::default();
    while number <= last {
        let room = OBJECTS_READY_MAX - found.ready.len();
        let more =
            pool.run("look at an object directory", || recover_directory(pool, number, &window, room))?;
        found.ready.extend(more.ready);
        found.handed_out.extend(more.handed_out);
        number = number.next();
    }
    // What was found may be what is left of a file system that failed meanwhile.
    if pool.begin_run_if_another() {
        return Ok(());
    }
    tracing::debug!(pool = pool.config.id.0, objects = found.ready.len(), "taken up after a crash");
    let left = |(sequence, owner)| Ok(LeftBehind { object: pool.object_id(sequence)?, owner });
    let left: Vec<_> = found.handed_out.into_iter().map(left).collect::<FsResult<_>>()?;
    let any = !left.is_empty();
    // What a further crash would not find any more is not worth keeping: it would be nobody's for ever.
    let kept_from = pool.numbers.look_from_at_most();
    for object in found.ready.extract_if(.., |object| object.sequence < kept_from) {
        pool.remove(object.sequence)?;
    }
    // Before anything in the window can be handed out again: none of these is ever this process's own.
    *pool.left_behind.lock() = left;
    for object in found.ready {
        pool.ready.push(object);
    }
    pool.numbers.settled(any);
    failpoint("placement.recover.done");
    Ok(())
}

/// What one directory holds, with at most `room` that are ready.
fn recover_directory(
    pool: &Pool,
    number: DirectoryNumber,
    window: &std::ops::Range<u64>,
    room: usize,
) -> io::Result<Found> {
    let mut found = Found::default();
    let directory = pool.directories.open(&*pool.store, number);
    let opened = directory.and_then(|directory| Ok((directory.file(&*pool.store)?, directory)));
    let (below, directory) = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        other => other?,
    };
    // Whether the crashed process had synced it is not known.
    let turn = directory.entry_made();
    let mut sequences = Vec::new();
    pool.store.list(&below, &mut |name, kind| {
        let file = matches!(kind, EntryKind::File | EntryKind::Unknown);
        let index = path::parse_index(name).filter(|_| file);
        let sequence = index.map(|index| number.sequence(index));
        sequences.extend(sequence.filter(|sequence| window.contains(sequence)));
        Ok(())
    })?;
    sequences.sort_unstable();
    let owners = owner::read_log(&*pool.store, &below)?;
    for sequence in sequences {
        match look(pool, &below, sequence, &owners)? {
            Use::HandedOut(owner) => found.handed_out.push((sequence, owner)),
            Use::Ready if found.ready.len() < room => {
                found.ready.push(ReadyObject { sequence, directory: directory.clone(), turn, file: None });
            }
            Use::Ready | Use::Unknown => {}
        }
    }
    Ok(found)
}

enum Use {
    Ready,
    HandedOut(InodeId),
    /// It is gone, or not of our making.
    Unknown,
}

fn look(pool: &Pool, directory: &File, sequence: u64, owners: &HashMap<u64, InodeId>) -> io::Result<Use> {
    let name = path::name_of(sequence);
    let at = At::below(directory, &name);
    let file = match pool.store.open(at, OpenMode::Look) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Use::Unknown),
        other => other?,
    };
    pool.store.admit(Operation::Stat)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Use::Unknown);
    }
    let tag = owner::get_xattr(&*pool.store, &file)?;
    match tag.or_else(|| owners.get(&path::index(sequence)).copied()) {
        Some(owner) => Ok(Use::HandedOut(owner)),
        None if metadata.len() == 0 => Ok(Use::Ready),
        None => Ok(Use::Unknown),
    }
}

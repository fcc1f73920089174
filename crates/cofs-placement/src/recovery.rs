//! After a crash of the process: what was created and never handed out is ready again.
//!
//! Only the last window of numbers is looked at, at most [`crate::numbers::WINDOW_MAX`] of them, in the
//! background. An object in it that is empty and has no owner was never handed out: handing out tags
//! first, and a crash of the process loses no tag.

use std::{collections::HashMap, fs::File, io};

use cofs_types::{FsResult, InodeId, failpoint, limits::OBJECTS_READY_MAX};

use crate::{
    owner, path,
    path::DirectoryNumber,
    pool::Pool,
    ready::ReadyObject,
    store::{At, EntryKind, OpenMode, Operation},
};

/// Looks at the window, if there is one. If it fails it may be called again.
pub fn recover(pool: &Pool) -> FsResult<()> {
    pool.run("read the reservations of a pool", || pool.numbers.load(&*pool.store))?;
    let Some(window) = pool.numbers.unsettled() else { return Ok(()) };
    let mut number = DirectoryNumber::of(window.start);
    let last = DirectoryNumber::of(window.end.saturating_sub(1));
    let mut found = Vec::new();
    while number <= last {
        pool.run("look at an object directory", || recover_directory(pool, number, &window, &mut found))?;
        number = number.next();
    }
    tracing::debug!(pool = pool.config.id.0, objects = found.len(), "taken up after a crash");
    for object in found {
        pool.ready.push(object);
    }
    pool.numbers.settled();
    failpoint("placement.recover.done");
    Ok(())
}

fn recover_directory(
    pool: &Pool,
    number: DirectoryNumber,
    window: &std::ops::Range<u64>,
    found: &mut Vec<ReadyObject>,
) -> io::Result<()> {
    let directory = match pool.directories.open(&*pool.store, number) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    // Whether the crashed process had synced it is not known.
    let turn = directory.entry_made();
    let mut sequences = Vec::new();
    pool.store.list(directory.file(), &mut |name, kind| {
        let file = matches!(kind, EntryKind::File | EntryKind::Unknown);
        let index = path::parse_index(name).filter(|_| file);
        let sequence = index.map(|index| number.sequence(index));
        sequences.extend(sequence.filter(|sequence| window.contains(sequence)));
        Ok(())
    })?;
    sequences.sort_unstable();
    let owners = owner::read_log(&*pool.store, directory.file())?;
    for sequence in sequences {
        if found.len() < OBJECTS_READY_MAX && is_unused(pool, directory.file(), sequence, &owners)? {
            found.push(ReadyObject { sequence, directory: directory.clone(), turn, file: None });
        }
    }
    Ok(())
}

fn is_unused(
    pool: &Pool,
    directory: &File,
    sequence: u64,
    owners: &HashMap<u64, InodeId>,
) -> io::Result<bool> {
    let name = path::name_of(sequence);
    let at = At::below(directory, &name);
    let file = match pool.store.open(at, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    pool.store.admit(Operation::Stat)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != 0 || owners.contains_key(&path::index(sequence)) {
        return Ok(false);
    }
    Ok(owner::get_xattr(&*pool.store, &file)?.is_none())
}

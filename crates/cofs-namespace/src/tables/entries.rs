//! Directory entries: finding, placing and removing names. How names are given slots is told at
//! [`NameHasher`].

use bytes::Bytes;
use cofs_types::{FileKind, FsError, FsResult, InodeId, Name, limits};

use crate::{
    schema::{EntryRecord, NameHasher, Occupant, key},
    tx::Tx,
};

/// Where a name stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub ino: InodeId,
    pub kind: FileKind,
    slot: u64,
    continues: bool,
}

/// What the search of a name came to.
pub enum Probe {
    Found(Found),
    /// The name does not stand, and its home is free.
    Home(u64),
    /// The name does not stand, and its home is taken by another.
    Chain,
}

/// Whether a name is looked for that most likely stands: then its slot is read without asking first whether it can be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Standing,
    Unknown,
}

/// What `see` makes of a slot's record, if there is one.
fn look<T>(
    tx: &mut Tx<'_>,
    expected: Expected,
    (dir, slot): (InodeId, u64),
    see: impl FnOnce(&[u8]) -> FsResult<T>,
) -> FsResult<Option<T>> {
    let young = &tx.store.young;
    let free = || expected == Expected::Unknown && young.is_free(dir, slot);
    tx.see_unless(&key::entry(dir, slot), free, |value| value.map(see).transpose())
}

fn put(tx: &mut Tx<'_>, dir: InodeId, slot: u64, record: &EntryRecord<'_>) {
    tx.store.young.take(dir, slot);
    tx.put(&key::entry(dir, slot), record.encode());
}

/// Of a slot that is free.
fn fill(tx: &mut Tx<'_>, dir: InodeId, slot: u64, record: &EntryRecord<'_>) {
    tx.store.young.take(dir, slot);
    tx.insert(&key::entry(dir, slot), record.encode());
}

pub fn probe(tx: &mut Tx<'_>, hasher: &NameHasher, dir: InodeId, name: &Name) -> FsResult<Probe> {
    search(tx, hasher, Expected::Unknown, (dir, name))
}

fn search(
    tx: &mut Tx<'_>,
    hasher: &NameHasher,
    expected: Expected,
    (dir, name): (InodeId, &Name),
) -> FsResult<Probe> {
    let home = hasher.home(name);
    for slot in home..home + limits::ENTRY_CHAIN_MAX {
        let seen = look(tx, expected, (dir, slot), |value| {
            let EntryRecord { occupant, continues } = EntryRecord::decode(value)?;
            let found = occupant.filter(|occupant| occupant.name == name);
            Ok((found.map(|Occupant { ino, kind, .. }| Found { ino, kind, slot, continues }), continues))
        })?;
        match seen {
            None if slot == home => return Ok(Probe::Home(home)),
            None => return Ok(Probe::Chain),
            Some((Some(found), _)) => return Ok(Probe::Found(found)),
            Some((None, continues)) if !continues => break,
            Some(_) => {}
        }
    }
    Ok(Probe::Chain)
}

impl Probe {
    fn found(self) -> Option<Found> {
        match self {
            Self::Found(found) => Some(found),
            Self::Home(_) | Self::Chain => None,
        }
    }
}

pub fn find(tx: &mut Tx<'_>, hasher: &NameHasher, dir: InodeId, name: &Name) -> FsResult<Option<Found>> {
    Ok(probe(tx, hasher, dir, name)?.found())
}

/// As [`find`], a little quicker for a name that stands, and slower for one that does not.
pub fn find_standing(
    tx: &mut Tx<'_>,
    hasher: &NameHasher,
    dir: InodeId,
    name: &Name,
) -> FsResult<Option<Found>> {
    Ok(search(tx, hasher, Expected::Standing, (dir, name))?.found())
}

/// Puts a name that does not stand; `free` is what its probe said.
pub fn place(
    tx: &mut Tx<'_>,
    hasher: &NameHasher,
    dir: InodeId,
    free: &Probe,
    occupant: Occupant<'_>,
) -> FsResult<()> {
    let entry = EntryRecord { occupant: Some(occupant), continues: false };
    if let Probe::Home(home) = free {
        fill(tx, dir, *home, &entry);
        return Ok(());
    }
    let home = hasher.home(occupant.name);
    for slot in home..home + limits::ENTRY_CHAIN_MAX {
        let record = look(tx, Expected::Unknown, (dir, slot), |value| Ok(Bytes::copy_from_slice(value)))?;
        let Some(value) = record else {
            fill(tx, dir, slot, &entry);
            return Ok(());
        };
        let old = EntryRecord::decode(&value)?;
        if old.occupant.is_none() {
            put(tx, dir, slot, &EntryRecord { continues: old.continues, ..entry });
            return Ok(());
        }
        if !old.continues {
            put(tx, dir, slot, &EntryRecord { continues: true, ..old });
        }
    }
    Err(FsError::LimitReached("names of one hash in a directory"))
}

/// Puts a name that does not stand.
pub fn insert(tx: &mut Tx<'_>, hasher: &NameHasher, dir: InodeId, occupant: Occupant<'_>) -> FsResult<()> {
    let free = probe(tx, hasher, dir, occupant.name)?;
    match free {
        Probe::Found(_) => Err(FsError::Exists),
        free => place(tx, hasher, dir, &free, occupant),
    }
}

pub fn remove(tx: &mut Tx<'_>, dir: InodeId, found: &Found) {
    if found.continues {
        put(tx, dir, found.slot, &EntryRecord { occupant: None, continues: true });
    } else {
        tx.delete(&key::entry(dir, found.slot));
    }
}

/// Lets a name that stands lead elsewhere.
pub fn repoint(tx: &mut Tx<'_>, dir: InodeId, found: &Found, occupant: Occupant<'_>) {
    let entry = EntryRecord { occupant: Some(occupant), continues: found.continues };
    put(tx, dir, found.slot, &entry);
}

//! Putting problems right, each in a transaction of its own. What has no name gets one in `/lost+found`.
//!
//! A repair looks at the records again before it changes them, and never removes a file's only name while
//! its inode exists, but to give it a better one.

use std::{ops::ControlFlow, sync::Arc};

use cofs_engine::{Batch, Change, Durability, Engine, Outcome};
use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, Name, Timestamp, limits};

use super::Problem;
use crate::{
    OpenInodes,
    schema::{
        Counts, EntryRecord, HeaderPart, Inode, MARK, NameHasher, Occupant, Shard, decode_chunk,
        decode_number, encode_chunk, encode_number, key, ranges,
    },
    tables::{allocator::Allocator, entries, inodes, volume},
    tx::{Store, Tx, Verb, engine_failed, verb},
};

const REPAIR: Verb = verb!("repair");
const LOST_AND_FOUND: &str = "lost+found";

/// Nobody has anything open while a volume is repaired.
struct NothingOpen;

impl OpenInodes for NothingOpen {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

/// Puts `problems` right, in their order, and syncs. Takes the volume over from whoever has it open.
///
/// Errors: those of the engine; what was repaired before stays so.
pub fn repair(engine: &Arc<dyn Engine>, problems: &[Problem], now: Timestamp) -> FsResult<()> {
    repair_header(&**engine, problems)?;
    let opened = volume::open(Arc::clone(engine), Arc::new(NothingOpen))?;
    let repairer = Repairer {
        hasher: NameHasher::new(opened.options.hash_key),
        allocator: Allocator::new(opened.inodes_next),
        store: opened.store,
        now,
    };
    problems.iter().try_for_each(|problem| repairer.repair(problem))?;
    let counted = problems.iter().any(|problem| matches!(problem, Problem::FileCount { .. }));
    let counts = volume::counts(Counts {
        files: repairer.store.files(),
        clean: opened.was_clean,
        exact: counted || opened.exact,
    });
    repairer.store.commit(&REPAIR, vec![counts, repairer.allocator.give_back()])?;
    repairer.store.sync()
}

/// Up to where, if they are not: also those of inodes that come back, before any other inode gets one.
fn numbers_to_reserve(engine: &dyn Engine, problems: &[Problem]) -> FsResult<Option<u64>> {
    let stored = engine.get(&key::header(HeaderPart::Inodes)).map_err(engine_failed)?;
    let stored = stored.and_then(|value| decode_number(&value).ok());
    let needed = problems.iter().filter_map(|problem| match problem {
        Problem::Reservation { needed, .. } => Some(*needed),
        Problem::Lost { ino, .. } => Some(ino.sequence() + 1),
        _ => None,
    });
    Ok(needed.max().filter(|needed| stored.is_none_or(|stored| stored < *needed)))
}

/// Before anything else: without a header no volume opens.
fn repair_header(engine: &dyn Engine, problems: &[Problem]) -> FsResult<()> {
    let put = |part, value: Vec<u8>| Change::put(key::header(part), value);
    let stored = engine.get(&key::header(HeaderPart::Counts)).map_err(engine_failed)?;
    let clean = stored.is_some_and(|value| Counts::decode(&value).is_ok_and(|counts| counts.clean));
    let reserve = numbers_to_reserve(engine, problems)?;
    let changes: Vec<_> = problems
        .iter()
        .filter_map(|problem| match problem {
            Problem::FileCount { found, .. } => {
                let counts = Counts { files: *found, clean, exact: true };
                Some(put(HeaderPart::Counts, counts.encode()))
            }
            _ => None,
        })
        .chain(reserve.map(|needed| put(HeaderPart::Inodes, encode_number(needed))))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let batch = Batch { changes, durability: Durability::Synced, upkeep: true, ..Batch::default() };
    match engine.commit(&batch).map_err(engine_failed)? {
        Outcome::Committed => Ok(()),
        _ => Err(FsError::Unknown("the repair of the header".into())),
    }
}

struct Repairer {
    store: Store,
    hasher: NameHasher,
    allocator: Allocator,
    now: Timestamp,
}

impl Repairer {
    fn repair(&self, problem: &Problem) -> FsResult<()> {
        match problem {
            Problem::Unreachable { ino } => return self.connect(*ino),
            Problem::Cycle { ino, parent } => return self.take_out(*ino, *parent),
            _ => {}
        }
        self.store.run(&REPAIR, |tx| self.in_transaction(tx, problem)).map(drop)
    }

    fn in_transaction(&self, tx: &mut Tx<'_>, problem: &Problem) -> FsResult<()> {
        match problem {
            Problem::NoRoot => {
                let mut root = Inode::new(FileKind::Directory, 0o755, (0, 0), self.now);
                (root.nlink, root.parent) = (2, Some(InodeId::ROOT));
                inodes::put(tx, InodeId::ROOT, &root);
                Ok(())
            }
            Problem::Lost { ino, was } => {
                let value = tx.get(&key::inode(*ino))?;
                if value.is_none_or(|value| Inode::decode(&value).is_err()) {
                    inodes::put(tx, *ino, &was.inode(self.now));
                }
                Ok(())
            }
            Problem::UnknownRecord { key }
            | Problem::Undecodable { key, .. }
            | Problem::StrayXattr { key } => {
                tx.delete(key);
                Ok(())
            }
            Problem::EntryWithoutDirectory { dir, slot } => {
                tx.delete(&key::entry(*dir, *slot));
                Ok(())
            }
            Problem::DanglingEntry { dir, slot, .. } | Problem::ExtraDirectoryEntry { dir, slot, .. } => {
                clear_slot(tx, *dir, *slot)
            }
            Problem::MisplacedEntry { dir, slot, name } => self.move_home(tx, *dir, *slot, name),
            Problem::EntryKind { dir, slot, kind, .. } => set_kind(tx, *dir, *slot, *kind),
            Problem::WrongParent { ino, found, .. } => change(tx, *ino, |inode| inode.parent = Some(*found)),
            Problem::LinkCount { ino, found, .. } => change(tx, *ino, |inode| inode.nlink = *found),
            Problem::LargeXattrs { ino, found, .. } => change(tx, *ino, |inode| inode.large_xattrs = *found),
            Problem::Subdirectories { dir, found, .. } => set_subdirectories(tx, *dir, *found),
            Problem::StrayShard { dir, shard } => {
                tx.delete(&key::shard(*dir, *shard));
                Ok(())
            }
            Problem::StrayInline { ino, chunk } => fit_inline(tx, *ino, *chunk),
            Problem::Writing { ino, .. } => agree_on_writing(tx, *ino),
            Problem::StrayUnlinked { ino } => {
                tx.delete(&key::unlinked(*ino));
                Ok(())
            }
            Problem::ReclaimInUse { object, .. } => {
                tx.delete(&key::reclaim(*object));
                Ok(())
            }
            Problem::Labelled { .. } => {
                tx.delete(&key::header(HeaderPart::Unlabelled));
                Ok(())
            }
            // The header is repaired, and these two are not one transaction.
            Problem::Reservation { .. } | Problem::FileCount { .. } => Ok(()),
            Problem::Unreachable { .. } | Problem::Cycle { .. } => Ok(()),
        }
    }

    fn move_home(&self, tx: &mut Tx<'_>, dir: InodeId, slot: u64, name: &Name) -> FsResult<()> {
        let Some(value) = tx.get(&key::entry(dir, slot))? else { return Ok(()) };
        let record = EntryRecord::decode(&value)?;
        let Some(occupant) = record.occupant.filter(|occupant| occupant.name == name) else { return Ok(()) };
        clear_slot(tx, dir, slot)?;
        match entries::insert(tx, &self.hasher, dir, occupant) {
            // Another has the name already: what stood here comes up as an inode without one, if it is.
            Err(FsError::Exists) => Ok(()),
            result => result,
        }
    }

    /// Gives an inode without a name the name `#<number>` in `/lost+found`.
    fn connect(&self, ino: InodeId) -> FsResult<()> {
        let refuge = self.lost_and_found(0)?;
        let name = format!("#{ino}");
        let name = Name::new(name.as_bytes())?;
        let connected = self.store.run(&REPAIR, |tx| {
            let Some(mut inode) = inodes::bare(tx, ino)? else { return Ok(()) };
            let directory = inode.kind == FileKind::Directory;
            (inode.nlink, inode.linkable) = (if directory { 2 } else { 1 }, false);
            if directory {
                inode.parent = Some(refuge);
                add_subdirectory(tx, refuge)?;
            }
            let kind = inode.kind;
            inodes::put(tx, ino, &inode);
            entries::insert(tx, &self.hasher, refuge, Occupant { name, ino, kind })
        });
        match connected {
            Err(FsError::Exists) => Ok(()),
            result => result.map(drop),
        }
    }

    /// `/lost+found`, made if need be; where that is no directory, `/lost+found.1`, and so on.
    fn lost_and_found(&self, taken: u32) -> FsResult<InodeId> {
        let name = match taken {
            0 => LOST_AND_FOUND.to_owned(),
            _ => format!("{LOST_AND_FOUND}.{taken}"),
        };
        let name = Name::new(name.as_bytes())?;
        let find = |tx: &mut Tx<'_>| entries::find(tx, &self.hasher, InodeId::ROOT, name);
        if let Some(found) = self.store.read(find)? {
            return match found.kind {
                FileKind::Directory => Ok(found.ino),
                _ => self.lost_and_found(taken + 1),
            };
        }
        let ino = self.allocator.take(&self.store, InodeId::ROOT)?;
        self.store.run(&REPAIR, |tx| {
            let mut inode = Inode::new(FileKind::Directory, 0o700, (0, 0), self.now);
            (inode.nlink, inode.parent) = (2, Some(InodeId::ROOT));
            inodes::put(tx, ino, &inode);
            add_subdirectory(tx, InodeId::ROOT)?;
            tx.count_files(1);
            let occupant = Occupant { name, ino, kind: FileKind::Directory };
            entries::insert(tx, &self.hasher, InodeId::ROOT, occupant)
        })?;
        Ok(ino)
    }

    /// Takes a directory's name in `parent` away, so that it comes up as one without.
    fn take_out(&self, ino: InodeId, parent: InodeId) -> FsResult<()> {
        let mut at = None;
        self.store.scan(&ranges::entries(parent, 0), &mut |key, value| {
            let leads = EntryRecord::decode(value).is_ok_and(|r| r.occupant.is_some_and(|o| o.ino == ino));
            if let (true, Ok(crate::schema::Key::Entry { slot, .. })) =
                (leads, crate::schema::Key::parse(key))
            {
                at = Some(slot);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Some(slot) = at else { return Ok(()) };
        self.store.run(&REPAIR, |tx| clear_slot(tx, parent, slot)).map(drop)
    }
}

/// Takes what stands in a slot away; a chain that goes on stays whole.
fn clear_slot(tx: &mut Tx<'_>, dir: InodeId, slot: u64) -> FsResult<()> {
    let key = key::entry(dir, slot);
    let Some(value) = tx.get(&key)? else { return Ok(()) };
    if EntryRecord::decode(&value)?.continues {
        tx.put(&key, EntryRecord { occupant: None, continues: true }.encode());
    } else {
        tx.delete(&key);
    }
    Ok(())
}

fn set_kind(tx: &mut Tx<'_>, dir: InodeId, slot: u64, kind: FileKind) -> FsResult<()> {
    let key = key::entry(dir, slot);
    let Some(value) = tx.get(&key)? else { return Ok(()) };
    let mut record = EntryRecord::decode(&value)?;
    if let Some(occupant) = &mut record.occupant {
        occupant.kind = kind;
    }
    tx.put(&key, record.encode());
    Ok(())
}

fn change(tx: &mut Tx<'_>, ino: InodeId, change: impl FnOnce(&mut Inode)) -> FsResult<()> {
    let Some(mut inode) = inodes::bare(tx, ino)? else { return Ok(()) };
    change(&mut inode);
    inodes::put(tx, ino, &inode);
    Ok(())
}

fn shard(tx: &mut Tx<'_>, dir: InodeId) -> FsResult<Shard> {
    tx.get(&key::shard(dir, 0))?.map_or(Ok(Shard::default()), |value| Shard::decode(&value))
}

fn set_subdirectories(tx: &mut Tx<'_>, dir: InodeId, subdirectories: u32) -> FsResult<()> {
    let figures = Shard { subdirectories, ..shard(tx, dir)? };
    tx.put(&key::shard(dir, 0), figures.encode());
    Ok(())
}

fn add_subdirectory(tx: &mut Tx<'_>, dir: InodeId) -> FsResult<()> {
    let subdirectories = shard(tx, dir)?.subdirectories.saturating_add(1);
    set_subdirectories(tx, dir, subdirectories)
}

/// Cuts a chunk down to its file, or takes it away.
fn fit_inline(tx: &mut Tx<'_>, ino: InodeId, chunk: u32) -> FsResult<()> {
    let start = u64::from(chunk) * limits::INLINE_CHUNK_BYTES as u64;
    let inode = inodes::bare(tx, ino)?.filter(|inode| inode.layout == Layout::Inline);
    let room = inode.map_or(0, |inode| inode.size_bytes.saturating_sub(start)) as usize;
    let key = key::inline(ino, chunk);
    let Some(value) = tx.get(&key)? else { return Ok(()) };
    match decode_chunk(&value, limits::INLINE_CHUNK_BYTES)?.get(..room).filter(|bytes| !bytes.is_empty()) {
        Some(bytes) => tx.put(&key, encode_chunk(bytes)),
        None => tx.delete(&key),
    }
    Ok(())
}

/// A file in an object that anything says is open for writing is looked at after the crash; others cannot be.
fn agree_on_writing(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<()> {
    let Some(mut inode) = inodes::bare(tx, ino)? else {
        tx.delete(&key::writing(ino));
        return Ok(());
    };
    inode.writing = matches!(inode.layout, Layout::Object(_));
    if inode.writing {
        tx.put(&key::writing(ino), MARK);
    } else {
        tx.delete(&key::writing(ino));
    }
    inodes::put(tx, ino, &inode);
    Ok(())
}

//! The intake: where commits go before RocksDB has them.
//!
//! A commit is one record at the end of the journal and its changes in a memtable: one store into a mapped file (or one
//! `write(2)`) and a few insertions. Where it is a `write(2)`, commits that wait for it become one record (`turns.rs`).
//! A full segment of the journal is ended and the next one, made ready ahead of need, is begun; in the background the
//! ended segment's memtable is drained into RocksDB, sorted and in large batches, so that a key that was changed
//! often goes there once. See docs/adr/0006-a-journal-in-front-of-rocksdb.md.
//!
//! Invariants:
//! - a layer (a segment and its memtable) is readable until what is below has all of it; readers ask the layers first,
//!   the newest first, and then what is below;
//! - a segment is below whole or not at all, after all that are older, and RocksDB says up to which ([`below`](super::below)): so it need not be on stable storage
//!   itself when it goes there. What the journal has of those does not count any more; of what follows, the commits that a power cut leaves are a prefix;
//! - a segment's file is used again only when RocksDB has put its commits on stable storage, and the next segment's
//!   header says so. Draining a layer twice, after a crash, is harmless: a record has values, not differences;
//! - order of locks: the turn, `writer`, `work`, `layers`, a memtable, its scans.

mod drain;
mod end;
mod entries;
mod filter;
mod lull;
mod mapping;
mod memtable;
mod order;
mod overlay;
mod pace;
mod pool;
mod rank;
mod record;
mod recovery;
mod segment;
mod space;
#[cfg(test)]
mod tests;
mod together;
mod turns;
mod values;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;

use self::{
    drain::Slot,
    filter::KeyHash,
    lull::Lull,
    mapping::Mapping,
    memtable::{Cursor, Pool},
    overlay::Overlay,
    pace::Pace,
    rank::Rank,
    record::Record,
    segment::{Header, Segment, Tail},
    space::Space,
    turns::{Answer, Turns},
};
pub(super) use self::{
    drain::{Drain, THREAD as DRAIN_THREAD},
    end::NAME as END_NAME,
    memtable::Memtable,
    segment::NAME_PREFIX,
};
use super::{
    KeyShape, Poison,
    error::{from_errno, is_full},
};
use crate::{Batch, Bytes, Change, EngineError, EngineHealth, Guard, Outcome};

/// Files of the journal: one that is written, one that is made ready, two that are drained, and four that wait for a lull.
const SLOTS: u32 = 8;
/// With fewer it does not work.
const SLOTS_MIN: u32 = 2;
/// A commit that waits for nobody has written its record by then, or failed to.
const WRITER_BUSY: Duration = Duration::from_millis(100);
/// One for what an earlier process left, which may not be on stable storage.
const COMMITS_BEFORE: u64 = 1;
/// The part of a segment that only what makes room may have while space is short: there may be no reserve for that, nor another segment.
const KEPT_PART: u64 = 8;

/// A segment and what it holds.
struct Layer {
    segment: Segment,
    memtable: Arc<Memtable>,
}

impl Layer {
    fn new(segment: Segment, memtable: Memtable) -> Arc<Self> {
        Arc::new(Self { segment, memtable: Arc::new(memtable) })
    }
}

/// What readers ask before anything below, newest first. The first one is written to.
type Layers = SmallVec<[Arc<Layer>; SLOTS as usize]>;

struct Writer {
    /// The layer that commits go to; none in a store opened for reading.
    layer: Option<Arc<Layer>>,
    tail: Tail,
    /// Commits made, and those [before](COMMITS_BEFORE).
    commits: u64,
    /// A guard that holds: no commit has changed its key since it was checked.
    holds: Option<Guard>,
    /// Why the last commit could not be written.
    unwritten: Option<EngineError>,
}

impl Writer {
    /// Asks `holds` of the store; of a guard that is known to hold, nobody.
    fn all_hold(
        &mut self,
        guards: &[Guard],
        holds: impl Fn(&Guard) -> Result<bool, EngineError>,
    ) -> Result<bool, EngineError> {
        for guard in guards {
            if !self.knows(guard) && !holds(guard)? {
                return Ok(false);
            }
            self.learn(guard);
        }
        Ok(true)
    }

    /// Whether `error` is of the last commit's write, and not of what came before it.
    fn could_not_write(&self, error: &EngineError) -> bool {
        self.unwritten.as_ref().is_some_and(|unwritten| Arc::ptr_eq(&unwritten.what, &error.what))
    }

    /// Pages that the records to come will stand in, and that this thread is to prepare for that.
    fn pages_to_open(&self) -> Option<(Arc<Layer>, u64)> {
        let layer = self.layer.as_ref()?;
        layer.segment.pages_to_open(&self.tail).map(|from| (Arc::clone(layer), from))
    }

    fn knows(&self, guard: &Guard) -> bool {
        self.holds.as_ref() == Some(guard)
    }

    fn learn(&mut self, guard: &Guard) {
        if !self.knows(guard) {
            self.holds = Some(guard.clone());
        }
    }

    /// After a commit of `changes`.
    fn unlearn(&mut self, changes: &[Change]) {
        let changed = |guard: &Guard| changes.iter().any(|change| change.key() == guard.key);
        if self.holds.as_ref().is_some_and(changed) {
            self.holds = None;
        }
    }
}

/// A file that may be used again, and the segment that stands in it (0: none that counts).
struct Free {
    slot: u32,
    generation: u64,
}

/// What the drain is to do, and what it has done.
#[derive(Default)]
struct Work {
    spare: Option<Segment>,
    free: Vec<Free>,
    /// Of those, the ones that are mapped still.
    mapped: Vec<(u32, Mapping)>,
    /// Files that there are, numbered from 0; `SLOTS` as well where there is no space for more.
    slots: u32,
    /// The newest segment's generation.
    newest: u64,
    /// A file that could not be made ready, and will be tried again.
    again: Option<Slot>,
    space: Space,
    lull: Lull,
    /// No longer waiting for a lull before anything is drained.
    catching_up: bool,
    stopping: bool,
}

/// See the module's page.
pub(super) struct Intake {
    directory: PathBuf,
    segment_bytes: u64,
    keys: KeyShape,
    /// Records are stored into mapped files, not written by calls.
    stores: bool,
    turns: Turns,
    writer: Mutex<Writer>,
    layers: RwLock<Layers>,
    /// For the memtables of layers to come.
    pool: Pool,
    work: Mutex<Work>,
    /// Whether the space in `work` is short, for commits, which do not lock that.
    short: AtomicBool,
    /// `work` or `layers` has changed.
    changed: Condvar,
    committed: AtomicU64,
    /// `committed` at the last tick.
    ticked: AtomicU64,
    /// Nothing has been committed for a second or more, and the kernel may have put the journal's page on the disk: who stores into it next has it note the
    /// file's times, and may have to wait until the block of the disk is read in which those are.
    at_rest: AtomicBool,
    pace: Pace,
    /// Commits known to be on stable storage.
    synced: Mutex<u64>,
    poison: Arc<Poison>,
}

impl Intake {
    /// Reads the journal in `directory`, behind what is below, and goes on with it; it `may_store` records into mapped files.
    pub(super) fn open(
        directory: &Path,
        segment_bytes: u64,
        may_store: bool,
        keys: KeyShape,
        poison: Arc<Poison>,
        drained_through: u64,
    ) -> Result<Self, EngineError> {
        let preparing = |error: std::io::Error| recovery::failed("preparing", directory, &error);
        let mut found = recovery::read(directory, true, keys, drained_through)?;
        let header = found.next();
        let pool = Pool::default();
        let slot = found.free_slot();
        let prepared =
            Segment::prepare(directory, slot, header, segment_bytes, may_store, None).map_err(preparing);
        let tail = match prepared {
            Ok(segment) => {
                found.settle(directory)?;
                let memtable = Memtable::with_pool(segment_bytes, keys, &pool);
                found.layers.push(Layer::new(segment, memtable));
                found.newest = header.generation;
                Tail::default()
            }
            Err(error) if is_full(&error) => {
                found.go_on(directory, slot, segment_bytes, may_store).ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        if found.slots < SLOTS_MIN {
            // Two there must be, so that a file system that fills up later holds up nothing.
            let slot = found.free_slot();
            segment::allocate(directory, slot, segment_bytes).map_err(preparing)?;
            found.free.push(slot);
        }
        let (slots, layers): (_, Vec<_>) = (found.slots, found.layers.into_iter().rev().collect());
        let stores = layers.first().is_some_and(|layer| layer.segment.is_mapped());
        let free = found.free.into_iter().map(|slot| Free { slot, generation: 0 }).collect();
        let work = Work { free, slots, newest: found.newest, ..Work::default() };
        let mut intake = Self::new(directory, segment_bytes, layers, work, poison, true);
        intake.writer.get_mut().tail = tail;
        Ok(Self { pool, stores, keys, ..intake })
    }

    /// There was no space to open the store, but for so many bytes that are kept for that.
    pub(super) fn opened_without_room(&self, why: EngineError, bytes: u64) {
        self.change_space(&mut self.work.lock(), |space| space.opened_without_room(why, bytes));
    }

    /// There was no space to open the store, and the reserve, of so many bytes, was given up for that.
    pub(super) fn opened_with_reserve(&self, why: EngineError, bytes: u64) {
        self.change_space(&mut self.work.lock(), |space| space.opened_with_reserve(why, bytes));
    }

    /// Without a lock: the drain may hold that while it waits for the file system.
    pub(super) fn takes_more(&self) -> bool {
        !self.short.load(Ordering::Relaxed) && self.poison.get().is_none()
    }

    pub(super) fn health(&self) -> EngineHealth {
        if let Some(error) = self.poison.get() {
            return EngineHealth::Failed(error.clone());
        }
        // A commit that waits for the drain has the writer long; what that waits for is told then.
        let unwritten = self.writer.try_lock_for(WRITER_BUSY).and_then(|writer| writer.unwritten.clone());
        unwritten.map_or_else(|| self.work.lock().space.health(), EngineHealth::Stuck)
    }

    /// Reads the journal as it is at this moment, and changes nothing.
    pub(super) fn open_read_only(
        directory: &Path,
        keys: KeyShape,
        drained_through: u64,
    ) -> Result<Self, EngineError> {
        let found = recovery::read(directory, false, keys, drained_through)?;
        let layers = found.layers.into_iter().rev().collect();
        let work = Work { newest: found.newest, ..Work::default() };
        Ok(Self::new(directory, 0, layers, work, Arc::default(), false))
    }

    /// Whether there is a journal in `directory`.
    pub(super) fn is_there(directory: &Path) -> bool {
        Self::segments(directory).iter().any(|(_, generation)| *generation > 0)
    }

    /// The journal's files in `directory` and the generation of the segment in each; 0 where there is none, or where it can't be read.
    pub(super) fn segments(directory: &Path) -> Vec<(u32, u64)> {
        let generation =
            |slot| segment::header(directory, slot).ok().flatten().map_or(0, |header| header.generation);
        let slots = segment::slots(directory).unwrap_or_default();
        slots.into_iter().map(|slot| (slot, generation(slot))).collect()
    }

    fn new(
        directory: &Path,
        segment_bytes: u64,
        layers: Vec<Arc<Layer>>,
        work: Work,
        poison: Arc<Poison>,
        write: bool,
    ) -> Self {
        let layer = layers.first().filter(|_| write).cloned();
        Self {
            directory: directory.to_owned(),
            segment_bytes,
            keys: KeyShape::default(),
            stores: false,
            turns: Turns::default(),
            writer: Mutex::new(Writer {
                layer,
                tail: Tail::default(),
                commits: COMMITS_BEFORE,
                holds: None,
                unwritten: None,
            }),
            layers: RwLock::new(layers.into()),
            pool: Pool::default(),
            work: Mutex::new(work),
            short: AtomicBool::new(false),
            changed: Condvar::new(),
            committed: AtomicU64::new(COMMITS_BEFORE),
            ticked: AtomicU64::new(COMMITS_BEFORE),
            at_rest: AtomicBool::new(true),
            pace: Pace::default(),
            synced: Mutex::new(0),
            poison,
        }
    }

    /// Appends a commit to the journal and makes it visible, if `holds` says of all guards that they hold. It asks the store as of just
    /// before the commit, and is the same for all callers. Errors leave nothing behind: the next record is written to the same place.
    pub(super) fn commit(
        &self,
        batch: &Batch<'_>,
        holds: impl Fn(&Guard) -> Result<bool, EngineError>,
    ) -> Answer {
        let Batch { changes, upkeep, .. } = batch;
        let grows = !upkeep && !changes.is_empty() && !makes_room(changes);
        if grows && self.short.load(Ordering::Relaxed) {
            self.work.lock().space.grow()?;
        }
        let alone = || self.commit_alone(batch.guards, changes, &holds);
        if self.stores {
            return alone();
        }
        self.turns.answer(batch, alone, |wanted| self.commit_together(wanted, &holds))
    }

    fn commit_alone(
        &self,
        guards: &[Guard],
        changes: &[Change],
        holds: impl Fn(&Guard) -> Result<bool, EngineError>,
    ) -> Answer {
        let mut record = Record::of(changes).ok_or_else(too_large)?;
        let mut writer = self.writer.lock();
        if !writer.all_hold(guards, holds)? {
            return Ok(Outcome::GuardFailed);
        }
        if !changes.is_empty() {
            self.append(&mut writer, &mut record, changes, makes_room(changes))?;
        }
        let to_open = writer.pages_to_open();
        drop(writer);
        // Others go on meanwhile.
        if let Some((layer, from)) = to_open {
            layer.segment.open_pages(from);
        }
        Ok(Outcome::Committed)
    }

    /// Writes the record of `changes`, and makes them visible.
    fn append(
        &self,
        writer: &mut Writer,
        record: &mut Record<'_>,
        changes: &[Change],
        makes_room: bool,
    ) -> Result<(), EngineError> {
        // The first is how a life begins: without it nobody could make room.
        let is_first = writer.commits == COMMITS_BEFORE;
        let may_have_all = makes_room || is_first || !self.short.load(Ordering::Relaxed);
        let kept_bytes = if may_have_all { 0 } else { self.segment_bytes / KEPT_PART };
        let fits = writer.tail.at + record.len() + Record::END_BYTES + kept_bytes <= self.segment_bytes;
        if !fits && writer.tail.records > 0 {
            self.next_segment(writer, makes_room)?;
        }
        let Writer { layer, tail, commits, .. } = &mut *writer;
        let Some(layer) = layer else {
            return Err(from_errno("the metadata was opened for reading only", rustix::io::Errno::ROFS));
        };
        if let Err(error) = layer.segment.append_at(record, tail) {
            let error = self.failed("writing", &error);
            writer.unwritten = Some(error.clone());
            return Err(error);
        }
        layer.memtable.apply(changes);
        *commits += 1;
        self.committed.store(*commits, Ordering::Release);
        if self.at_rest.load(Ordering::Relaxed) {
            self.at_rest.store(false, Ordering::Relaxed);
        }
        if self.pace.is_behind() {
            self.pace.took(record.len(), self.room(tail));
        }
        writer.unwritten = None;
        writer.unlearn(changes);
        Ok(())
    }

    /// Bytes of the journal that commits may take while nothing is drained.
    fn room(&self, tail: &Tail) -> u64 {
        let others = u64::from(SLOTS).saturating_sub(self.layers.read().len() as u64);
        (others * self.segment_bytes + self.segment_bytes).saturating_sub(tail.at)
    }

    /// Whether and how long who is about to change something should wait first, so that nobody has to wait long later.
    pub(super) fn pause(&self) -> Option<Duration> {
        let pause = self.pace.pause();
        (!pause.is_zero() || self.at_rest.load(Ordering::Relaxed)).then_some(pause)
    }

    /// A second has passed.
    pub(super) fn tick(&self) {
        let committed = self.committed.load(Ordering::Relaxed);
        if self.ticked.swap(committed, Ordering::Relaxed) == committed {
            self.at_rest.store(true, Ordering::Relaxed);
        }
    }

    /// Begins it for a commit that `makes_room`, or does not.
    fn next_segment(&self, writer: &mut Writer, makes_room: bool) -> Result<(), EngineError> {
        let segment = self.take_spare(makes_room)?;
        let memtable = match &writer.layer {
            Some(ended) => {
                let written = ended.segment.append_at(&mut Record::end(), &mut writer.tail);
                written.map_err(|error| self.poison(self.failed("ending a part of", &error)))?;
                ended.memtable.next(self.segment_bytes, self.keys, &self.pool)
            }
            None => Memtable::with_pool(self.segment_bytes, self.keys, &self.pool),
        };
        let layer = Layer::new(segment, memtable);
        writer.layer = Some(Arc::clone(&layer));
        writer.tail = Tail::default();
        // Under the drain's lock, or it might miss this between its look and its sleep.
        let _work = self.work.lock();
        self.layers.write().insert(0, layer);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the drain has made a segment ready, which it mostly has. Errors: what keeps the drain from it.
    fn take_spare(&self, makes_room: bool) -> Result<Segment, EngineError> {
        let mut work = self.work.lock();
        loop {
            if let Some(error) = self.poison.get() {
                return Err(error.clone());
            }
            if let Some(spare) = work.spare.take() {
                return Ok(spare);
            }
            work.space.wait(makes_room)?;
            // The drain may be resting, and the reserve be wanted now.
            self.changed.notify_all();
            self.changed.wait(&mut work);
        }
    }

    fn change_space<T>(&self, work: &mut Work, change: impl FnOnce(&mut Space) -> T) -> T {
        let changed = change(&mut work.space);
        self.short.store(work.space.is_short(), Ordering::Relaxed);
        changed
    }

    /// `Some(None)`: known to be absent. `None`: what is below knows.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let (hash, key) = (KeyHash::of(key), Rank::of(key));
        self.layers.read().iter().find_map(|layer| layer.memtable.get(hash, &key))
    }

    /// As [`get`](Self::get), for who has a place for the value: whether there is one.
    pub(super) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let (hash, key) = (KeyHash::of(key), Rank::of(key));
        self.layers.read().iter().find_map(|layer| layer.memtable.get_into(hash, &key, value))
    }

    /// Shows the value of `key`, if it is known here. `see` copies it; while it does, commits may have to wait.
    pub(super) fn show(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        let (hash, key) = (KeyHash::of(key), Rank::of(key));
        let shown = self.layers.read().iter().find_map(|layer| layer.memtable.show(hash, &key, see));
        if let Some(Some(apart)) = &shown {
            see(Some(apart));
        }
        shown.is_some()
    }

    /// Looks at one state of the layers and of what `below` opens: cursors of the layers, newest first.
    pub(super) fn look<T>(&self, start: &[u8], end: &[u8], below: impl FnOnce() -> T) -> (Overlay, T) {
        let layers = self.layers.read();
        let cursor = |layer: &Arc<Layer>| Cursor::new(Arc::clone(&layer.memtable), start, end);
        let cursors = layers.iter().map(cursor).collect();
        // While the layers are held none of them is taken away: what is drained meanwhile is seen twice, not never.
        (Overlay { cursors }, below())
    }

    /// Puts all commits made so far on stable storage. Callers that wait for one another share a sync.
    pub(super) fn sync(&self, check: impl Fn() -> Result<(), EngineError>) -> Result<(), EngineError> {
        let wanted = self.committed.load(Ordering::Acquire);
        let mut synced = self.synced.lock();
        // Again, now that it is this caller's turn: the sync that it waited for may have failed.
        check()?;
        if *synced >= wanted {
            return Ok(());
        }
        let (commits, layers) = {
            let writer = self.writer.lock();
            (writer.commits, self.layers.read().clone())
        };
        self.sync_layers(&layers).map_err(|error| self.poison(self.failed("syncing", &error)))?;
        *synced = commits;
        Ok(())
    }

    /// Oldest first: what is left after a power cut is a prefix.
    fn sync_layers(&self, layers: &[Arc<Layer>]) -> std::io::Result<()> {
        let Some((newest, ended)) = layers.split_first() else { return Ok(()) };
        ended.iter().rev().try_for_each(|layer| layer.segment.sync_ended())?;
        newest.segment.sync()
    }

    /// Bytes in memory, estimated, and keys that RocksDB may not have (one that several layers have counts as often).
    pub(super) fn bytes_and_keys(&self) -> (usize, usize) {
        let layers = self.layers.read();
        let bytes = layers.iter().map(|layer| layer.memtable.bytes()).sum();
        (bytes, layers.iter().map(|layer| layer.memtable.keys()).sum())
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> EngineError {
        recovery::failed(doing, &self.directory, error)
    }

    /// From here on nothing is written any more; whoever waits is told.
    fn poison(&self, error: EngineError) -> EngineError {
        let error = self.poison.get_or_init(|| error).clone();
        let _work = self.work.lock();
        self.changed.notify_all();
        error
    }
}

fn too_large() -> EngineError {
    from_errno("a commit of metadata beyond 4 GiB", rustix::io::Errno::FBIG)
}

/// Whether a commit removes more than it adds: such ones have the journal's rest and the reserve when there is no space.
fn makes_room(changes: &[Change]) -> bool {
    let removals = changes.iter().filter(|change| matches!(change, Change::Delete { .. })).count();
    removals > changes.len() - removals
}

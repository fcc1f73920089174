//! The embedded engine: RocksDB in this process.
//!
//! How the crate's invariants are kept:
//! - *atomic*: a commit is one record of the journal, applied to a memtable under its lock ([`intake`]), which every reader asks
//!   first;
//! - *survives the process*: the journal's record is in the kernel's page cache before it is acknowledged;
//! - *a prefix survives the machine*: RocksDB holds all of the journal up to a segment, which it names, and nothing behind; from there on it is replayed up to its
//!   first hole;
//! - *poison*: a failed sync of the journal is kept and answers every later commit and sync. Reads go
//!   on. There is no healing in process: what a failed sync left in the kernel's cache can't be known, so
//!   the store must be opened anew (a remount), which replays the journal and has what it found written and synced once more;
//! - *healing*: what RocksDB cannot take (no space, an error of the disk) stays in the journal and is tried again.
//!   Commits go on while the journal has room, then they fail with the cause, and succeed again when it is gone. What RocksDB fails at in
//!   the background, compaction and its manifest, does not stop it either ([`background`]), nor is a store damaged by that if it is closed
//!   or killed before it has healed ([`doubt`]). A store on a full file system can be used, and opened, to remove files ([`reserve`]).
//!
//! Reads go down: the intake; the record cache ([`records`]), where the intake's small records go when they leave it, or [`recent`], where its
//! large ones go; RocksDB.
//! Commits touch the first alone.
//!
//! A reader who is impatient (`cofs_wait`) gets what is in memory, the kernel's included, and else an error ([`impatient`]). No
//! read changes access times below, which may have to be waited for as well ([`access_times`]).
//!
//! Guards are checked by the one that writes the journal. A guard that all commits carry (a fence) is read once, and holds until a
//! commit changes its key.

mod access_times;
mod allowance;
mod background;
mod below;
mod doubt;
mod error;
mod files;
mod impatient;
mod intake;
mod log;
mod manifest;
mod open;
mod options;
mod page_cache;
mod priority;
mod recent;
mod records;
mod removals;
mod reserve;

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use rocksdb::{Cache, DB, ReadOptions, properties};
use smallvec::SmallVec;

pub use options::{EmbeddedOptions, KeyShape};

/// Names of the threads that work behind the commits: making tables, and compacting them (RocksDB's own name).
pub const BACKGROUND_THREADS: &[&str] = &[intake::DRAIN_THREAD, "rocksdb:low"];

use crate::{
    Batch, Bytes, Change, Durability, Engine, EngineError, EngineStats, Guard, Outcome, Show, Visit,
};
use background::Ending;
use below::MARKS;
use error::{engine_error, from_errno};
use intake::{Drain, Intake};
use manifest::NotesLength;
use records::{Records, Ticket};

/// So many keys of the intake are put in order for who has no patience: a millisecond's work.
const ORDERED_WITHOUT_PATIENCE: usize = 4096;

/// So many keys that were removed a scan passes over, in the intake and below each, for who has no patience: the same.
const PASSED_OVER_WITHOUT_PATIENCE: u64 = 4096;

/// Errors after which nothing may be written: see the module's page.
type Poison = OnceLock<EngineError>;

/// See the module's page.
pub struct EmbeddedEngine {
    /// Before all that would wait for a pause of the background work. None in a store opened for reading.
    _ending: Option<Ending>,
    /// None in a store opened for reading. Before `db`, which it uses until it is dropped.
    _drain: Option<Drain>,
    intake: Arc<Intake>,
    db: Arc<DB>,
    /// None in a store opened for reading. After `db`, which goes before it.
    _notes_length: Option<NotesLength>,
    read_options: ReadOptions,
    /// For large values: the kernel has them cached, above and below.
    uncached: ReadOptions,
    records: Arc<Records>,
    poison: Arc<Poison>,
    block_cache: Cache,
    directory: PathBuf,
    read_only: bool,
}

impl EmbeddedEngine {
    /// Opens the store, or makes one where `options.create` says so.
    ///
    /// Errors say what, whom, why and what to do; their errno is ENOENT (nothing there), EBUSY (another
    /// process has it), EACCES, EINVAL (something else is there, or a newer version wrote it),
    /// EUCLEAN (damaged), or that of the failure below.
    pub fn open(options: &EmbeddedOptions) -> Result<Self, EngineError> {
        open::open(options)
    }

    /// Whether a directory is a store's, of whatever version and however sound.
    pub fn is_in(directory: &Path) -> bool {
        open::is_marked(directory)
    }

    /// Removes the files of a store that nobody has open, or of one that was never completed; anything else in its directory stays.
    pub fn remove(directory: &Path) -> io::Result<()> {
        files::remove(directory)
    }

    fn check_writable(&self) -> Result<(), EngineError> {
        if let Some(error) = self.poison.get() {
            return Err(error.clone());
        }
        if self.read_only {
            return Err(from_errno("the metadata was opened for reading only", rustix::io::Errno::ROFS));
        }
        Ok(())
    }

    fn holds(&self, guard: &Guard) -> Result<bool, EngineError> {
        Ok(self.get(&guard.key)?.as_deref() == guard.value.as_deref())
    }

    /// From memory: `Some(None)`, there is none. `None`: RocksDB knows.
    fn get_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.intake.get(key).or_else(|| self.records.get(key))
    }

    /// From RocksDB, in one pass over the blocks: the `None`s of `found`.
    fn multi_get_below(
        &self,
        ticket: Option<Ticket>,
        keys: &[&[u8]],
        found: &mut [Option<Option<Bytes>>],
    ) -> Result<(), EngineError> {
        let missing: Vec<_> = keys.iter().zip(found).filter(|(_, slot)| slot.is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let family = self.family()?;
        let wanted = missing.iter().map(|(key, _)| *key);
        let values = self.db.batched_multi_get_cf_opt(family, wanted, false, &self.read_options);
        nothing_refused()?;
        for ((key, slot), value) in missing.into_iter().zip(values) {
            let value = value.map_err(|e| engine_error("reading the metadata", &e))?;
            self.records.fill(ticket, key, value.as_deref());
            *slot = Some(value.map(|v| Bytes::copy_from_slice(&v)));
        }
        Ok(())
    }

    /// From RocksDB, past its cache: `keys` with their places.
    fn show_below(&self, keys: &[(usize, &[u8])], see: Show<'_>) -> Result<(), EngineError> {
        let failed = |error| engine_error("reading the metadata", &error);
        if let &[(at, key)] = keys {
            see(at, self.db.get_pinned_opt(key, &self.uncached).map_err(failed)?.as_deref());
            return Ok(());
        }
        if keys.is_empty() {
            return Ok(());
        }
        let wanted = keys.iter().map(|(_, key)| *key);
        let values = self.db.batched_multi_get_cf_opt(self.family()?, wanted, false, &self.uncached);
        nothing_refused()?;
        keys.iter().zip(values).try_for_each(|((at, _), value)| {
            see(*at, value.map_err(failed)?.as_deref());
            Ok(())
        })
    }

    /// The only one.
    fn family(&self) -> Result<&rocksdb::ColumnFamily, EngineError> {
        let family = self.db.cf_handle(rocksdb::DEFAULT_COLUMN_FAMILY_NAME);
        family
            .ok_or_else(|| from_errno("the metadata has no default column family", rustix::io::Errno::UCLEAN))
    }

    /// For builds that check. (What can't be read, or not without waiting where that is not allowed, tells nothing.)
    fn are_new(&self, changes: &[Change]) -> bool {
        let has_value = |key: &[u8]| match self.intake.get(key) {
            Some(known) => known.is_some(),
            None => matches!(self.db.get_pinned(key), Ok(Some(_))),
        };
        cofs_wait::is_impatient() || !changes.iter().any(|change| change.is_new() && has_value(change.key()))
    }

    fn get_below(&self, ticket: Option<Ticket>, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let value = self.db.get_pinned_opt(key, &self.read_options);
        let value = value.map_err(|e| engine_error("reading the metadata", &e))?;
        self.records.fill(ticket, key, value.as_deref());
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn property(&self, name: &properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    fn disk_bytes(&self) -> u64 {
        let Ok(files) = std::fs::read_dir(&self.directory) else { return 0 };
        let files = files.flatten().filter(|file| !reserve::is_its(&file.file_name()));
        let sizes = files.filter_map(|file| file.metadata().ok());
        sizes.filter(|metadata| metadata.is_file()).map(|metadata| metadata.len()).sum()
    }
}

/// Errors: EAGAIN where RocksDB was refused something just now, whatever it made of it. (A get of one key hands on each error but that of a
/// filter, without which it goes on; scans and gets of many keys are not relied on for that.)
fn nothing_refused() -> Result<(), EngineError> {
    if cofs_wait::was_refused() {
        return Err(from_errno("reading the metadata would have to wait", rustix::io::Errno::AGAIN));
    }
    Ok(())
}

impl Engine for EmbeddedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let ticket = self.records.ticket();
        self.get_in_memory(key).map_or_else(|| self.get_below(ticket, key), Ok)
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, EngineError> {
        let ticket = self.records.ticket();
        if let Some(there) = self.intake.get_into(key, value).or_else(|| self.records.get_into(key, value)) {
            return Ok(there);
        }
        let found = self.get_below(ticket, key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    /// For large values: of the record cache only those are asked for.
    fn show(&self, keys: &[&[u8]], see: Show<'_>) -> Result<(), EngineError> {
        let mut missing = SmallVec::<[_; 4]>::new();
        for (at, key) in keys.iter().enumerate() {
            if !self.intake.show(key, &mut |value| see(at, value))
                && !self.records.show_recent(key, |value| see(at, Some(value)))
            {
                missing.push((at, *key));
            }
        }
        self.show_below(&missing, see)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let ticket = self.records.ticket();
        let mut found: Vec<_> = keys.iter().map(|key| self.get_in_memory(key)).collect();
        self.multi_get_below(ticket, keys, &mut found)?;
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        // Behind those are the engine's own.
        let end = end.min(&MARKS);
        if start >= end {
            return Ok(());
        }
        let impatient = cofs_wait::is_impatient();
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        if impatient {
            options.set_max_skippable_internal_keys(PASSED_OVER_WITHOUT_PATIENCE);
        }
        let (mut overlay, mut below) = self.intake.look(start, end, || self.db.raw_iterator_opt(options));
        if impatient && overlay.unordered() > ORDERED_WITHOUT_PATIENCE {
            cofs_wait::refuse();
        }
        nothing_refused()?;
        below.seek(start);
        let mut removed = 0;
        loop {
            let above = overlay.peek();
            let flow = match (above, below.item()) {
                (None, None) => break,
                (Some((key, value)), item) if item.is_none_or(|(other, _)| key.as_slice() <= other) => {
                    if below.key() == Some(key.as_slice()) {
                        below.next();
                    }
                    overlay.advance(&key);
                    match value {
                        Some(value) => visit(&key, &value),
                        None if impatient && removed == PASSED_OVER_WITHOUT_PATIENCE => {
                            cofs_wait::refuse();
                            break;
                        }
                        None => {
                            removed += 1;
                            ControlFlow::Continue(())
                        }
                    }
                }
                (_, Some((key, value))) => {
                    let flow = visit(key, value);
                    below.next();
                    flow
                }
                (Some(_), None) => break, // taken by the arm above
            };
            if flow.is_break() {
                break;
            }
        }
        // Where it broke off, too: what is above may have been visited past what below could not be read.
        below.status().map_err(|e| {
            if impatient && e.kind() == rocksdb::ErrorKind::Incomplete {
                cofs_wait::refuse();
            }
            engine_error("scanning the metadata", &e)
        })?;
        nothing_refused()
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        self.check_writable()?;
        debug_assert!(self.are_new(&batch.changes), "a key that is said to be new has a value");
        let outcome = self.intake.commit(batch, |guard| self.holds(guard))?;
        // The journal is free by now: others go on while this commit waits for the disk.
        let committed = outcome == Outcome::Committed;
        if committed && batch.durability == Durability::Synced && self.sync().is_err() {
            return Ok(Outcome::Unknown);
        }
        Ok(outcome)
    }

    fn pause(&self) -> Option<Duration> {
        self.intake.pause()
    }

    fn tick(&self) {
        self.intake.tick();
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.check_writable()?;
        self.intake.sync(|| self.check_writable())
    }

    fn takes_more(&self) -> bool {
        self.intake.takes_more()
    }

    fn stats(&self) -> EngineStats {
        let (cache_hits, cache_misses) = self.records.hits_and_misses();
        let (intake_bytes, intake_keys) = self.intake.bytes_and_keys();
        let cached_bytes = (self.block_cache.get_usage() + self.records.bytes() + intake_bytes) as u64;
        EngineStats {
            name: "rocksdb",
            health: self.intake.health(),
            disk_bytes: self.disk_bytes(),
            memory_bytes: cached_bytes + self.property(properties::ESTIMATE_TABLE_READERS_MEM),
            keys_estimate: self.property(properties::ESTIMATE_NUM_KEYS) + intake_keys as u64,
            cache_hits,
            cache_misses,
        }
    }
}

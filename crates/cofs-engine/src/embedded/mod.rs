//! The embedded engine: RocksDB in this process.
//!
//! How the crate's invariants are kept:
//! - *atomic*: a commit is one RocksDB write batch, one record of its log. Records of the batch leave the
//!   record cache before the write and come back after it, so that no reader sees half of a commit;
//! - *survives the process*: a buffered commit is in the kernel (one `write(2)` to the log) before it is
//!   acknowledged;
//! - *a prefix survives the machine*: one log, replayed up to its first hole ("point in time"); the logs
//!   that an earlier process left unsynced are synced with the first `sync` of this one, or a later
//!   synced commit could stand behind a hole;
//! - *poison*: the first failed write or sync is kept and answers every later commit and sync. Reads go
//!   on. There is no healing in process: what a failed sync left in the kernel's cache can't be known, so
//!   the store must be opened anew (a remount), which replays the log as the disk has it. A store on a
//!   full file system can still be opened, to remove files ([`reserve`]).
//!
//! Guards are checked under the stripe locks of their keys ([`records`]): shared for a key that is only
//! guarded, so that all commits may carry the same guard (a fence) without waiting for each other.

mod error;
mod log;
mod open;
mod options;
mod records;
mod reserve;

use std::{path::PathBuf, sync::OnceLock};

use rocksdb::{Cache, DB, ReadOptions, WriteBatch, WriteOptions, properties};

pub use options::EmbeddedOptions;

use crate::{Batch, Bytes, Change, Durability, Engine, EngineError, EngineStats, Guard, Outcome, Visit};
use error::{engine_error, from_errno};
use log::SyncedLog;
use records::{Locked, Records, Ticket};

/// Errors after which nothing may be written: see the module's page.
type Poison = OnceLock<EngineError>;

/// See the module's page.
pub struct EmbeddedEngine {
    db: DB,
    read_options: ReadOptions,
    write_options: WriteOptions,
    records: Records,
    log: SyncedLog,
    poison: Poison,
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

    /// Whether a failed write or sync has ended all writing, and which.
    pub fn poisoned_by(&self) -> Option<&EngineError> {
        self.poison.get()
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

    fn poison(&self, error: EngineError) -> EngineError {
        self.poison.get_or_init(|| error).clone()
    }

    fn holds(&self, guard: &Guard) -> Result<bool, EngineError> {
        Ok(self.get(&guard.key)?.as_deref() == guard.value.as_deref())
    }

    fn guards_hold(&self, guards: &[Guard]) -> Result<bool, EngineError> {
        for guard in guards {
            if !self.holds(guard)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write(&self, locked: Locked<'_>, changes: &[Change]) -> Result<(), EngineError> {
        let batch = write_batch(changes);
        self.records.forget(changes);
        let written = self.db.write_opt(batch, &self.write_options);
        written.map_err(|e| self.poison(engine_error("writing the metadata's log", &e)))?;
        self.records.publish(locked, changes);
        self.log.note_commit();
        Ok(())
    }

    fn sync_log(&self) -> Result<(), EngineError> {
        self.log.sync(&self.db, || self.check_writable()).map_err(|e| self.poison(e))
    }

    /// Reads what the record cache lacks (the `None`s of `found`), in one pass over the blocks.
    fn multi_get_missing(
        &self,
        keys: &[&[u8]],
        found: &mut [Option<Option<Bytes>>],
    ) -> Result<(), EngineError> {
        let mut missing: Vec<(&[u8], Ticket, &mut Option<Option<Bytes>>)> = Vec::new();
        for (key, slot) in keys.iter().zip(found).filter(|(_, slot)| slot.is_none()) {
            missing.push((key, self.records.ticket(key), slot));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let Some(family) = self.db.cf_handle(rocksdb::DEFAULT_COLUMN_FAMILY_NAME) else {
            return Err(from_errno("the metadata has no default column family", rustix::io::Errno::UCLEAN));
        };
        let wanted = missing.iter().map(|(key, _, _)| *key);
        let values = self.db.batched_multi_get_cf_opt(family, wanted, false, &self.read_options);
        for ((key, ticket, slot), value) in missing.into_iter().zip(values) {
            let value = value.map_err(|e| engine_error("reading the metadata", &e))?;
            let value = value.map(|v| Bytes::copy_from_slice(&v));
            self.records.fill(ticket, key, &value);
            *slot = Some(value);
        }
        Ok(())
    }

    fn property(&self, name: &properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    fn disk_bytes(&self) -> u64 {
        let Ok(files) = std::fs::read_dir(&self.directory) else { return 0 };
        let files = files.flatten().filter(|file| file.file_name() != reserve::NAME);
        let sizes = files.filter_map(|file| file.metadata().ok());
        sizes.filter(|metadata| metadata.is_file()).map(|metadata| metadata.len()).sum()
    }
}

impl Drop for EmbeddedEngine {
    /// A large log is written out as a table, so that the next opening need not replay it. Nothing is lost
    /// if this fails: the log holds everything.
    fn drop(&mut self) {
        const WORTH_WRITING_OUT_BYTES: u64 = 8 << 20;
        let writable = self.check_writable().is_ok();
        if writable && self.property(properties::CUR_SIZE_ALL_MEM_TABLES) > WORTH_WRITING_OUT_BYTES {
            let _ = self.db.flush();
        }
    }
}

fn write_batch(changes: &[Change]) -> WriteBatch {
    /// Room for a record's tag and length bytes, and for the batch's own header (RocksDB, write_batch.cc).
    const OVERHEAD_BYTES: usize = 16;
    let record_bytes = |change: &Change| match change {
        Change::Put { key, value } => key.len() + value.len() + OVERHEAD_BYTES,
        Change::Delete { key } => key.len() + OVERHEAD_BYTES,
    };
    let total_bytes: usize = changes.iter().map(record_bytes).sum();
    let mut batch = WriteBatch::with_capacity_bytes(total_bytes + OVERHEAD_BYTES);
    for change in changes {
        match change {
            Change::Put { key, value } => batch.put(key, value),
            Change::Delete { key } => batch.delete(key),
        }
    }
    batch
}

impl Engine for EmbeddedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        if let Some(value) = self.records.get(key) {
            return Ok(value);
        }
        let ticket = self.records.ticket(key);
        let value = self.db.get_pinned_opt(key, &self.read_options);
        let value = value.map_err(|e| engine_error("reading the metadata", &e))?;
        let value = value.map(|v| Bytes::copy_from_slice(&v));
        self.records.fill(ticket, key, &value);
        Ok(value)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let mut found: Vec<Option<Option<Bytes>>> = keys.iter().map(|key| self.records.get(key)).collect();
        self.multi_get_missing(keys, &mut found)?;
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        if start >= end {
            return Ok(());
        }
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek(start);
        while let Some((key, value)) = iterator.item() {
            if visit(key, value).is_break() {
                return Ok(());
            }
            iterator.next();
        }
        iterator.status().map_err(|e| engine_error("scanning the metadata", &e))
    }

    fn commit(&self, batch: &Batch) -> Result<Outcome, EngineError> {
        self.check_writable()?;
        let locked = self.records.lock(batch);
        if !self.guards_hold(&batch.guards)? {
            return Ok(Outcome::GuardFailed);
        }
        if !batch.changes.is_empty() {
            self.write(locked, &batch.changes)?;
        }
        // The locks are free by now: others go on while this commit waits for the disk.
        if batch.durability == Durability::Synced && self.sync_log().is_err() {
            return Ok(Outcome::Unknown);
        }
        Ok(Outcome::Committed)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.check_writable()?;
        self.sync_log()
    }

    fn stats(&self) -> EngineStats {
        let (cache_hits, cache_misses) = self.records.hits_and_misses();
        let cached_bytes = self.block_cache.get_usage() as u64 + self.records.weight_bytes();
        EngineStats {
            name: "rocksdb",
            disk_bytes: self.disk_bytes(),
            memory_bytes: cached_bytes + self.property(properties::ESTIMATE_TABLE_READERS_MEM),
            keys_estimate: self.property(properties::ESTIMATE_NUM_KEYS),
            cache_hits,
            cache_misses,
        }
    }
}

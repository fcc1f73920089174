//! What stands below the intake: RocksDB, which gets its tables ready-made, and the record cache in front of it.
//!
//! A memtable that is done with is sorted already and stands in the journal until RocksDB has it, and has noted that ([`marks`]). So RocksDB's own log,
//! memtable and flush would write each record twice more for nothing: tables are built here and handed over (*ingested*), which
//! is atomic and on stable storage when it returns. Tables that cannot be built or handed over have changed nothing
//! below, so that it can be tried again when the file system has space, or works, again; where it is not certain what is on
//! the disk, they are kept until it is ([`doubt`]).
//!
//! Compaction that fails is tried again by RocksDB (see [`background`](super::background)). It is an error for the drain when it has fallen
//! behind, and not before.

mod cuts;
mod marks;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rocksdb::{
    DB, DBCompressionType, IngestExternalFileOptions, Options, SstFileWriter,
    properties::{self, PropName},
};
use rustix::io::Errno;

use self::cuts::{Cut, cut_at_gaps, cut_between, cuts};
pub(super) use self::marks::{KEYS as MARKS, drained_through};
use super::{
    KeyShape,
    background::Background,
    doubt,
    error::{engine_error, from_errno},
    intake::Memtable,
    log::InheritedLogs,
    options::TABLE_BYTES,
    records::Records,
    removals::{self, Held, Levels, Table},
    reserve,
};
use crate::{EngineError, Key};

/// Young tables that each reader has to ask; beyond it compaction must catch up first.
const YOUNG_TABLES_MAX: u64 = 40;

/// What compaction makes before it removes what that replaces: with less it may fail for want of space.
const ROOM_BYTES: u64 = 2 * TABLE_BYTES;
/// Of the error of an option that holds, but not beyond this life.
const NOT_PERSISTED: &str = "persist options";
/// Ranges to be merged, at most; what is beyond is left to compaction.
const REMOVED_MAX: usize = 1 << 14;
/// After a merge that failed, or had no room: first, and at most.
const PUT_OFF: Duration = Duration::from_secs(2);
const PUT_OFF_MAX: Duration = Duration::from_secs(64);

/// Names of tables in the making.
pub(super) const NEW_PREFIX: &str = "new-table-";

pub(super) struct Below {
    db: Arc<DB>,
    background: Arc<Background>,
    records: Arc<Records>,
    options: Options,
    /// For tables of large values.
    uncompressed: Options,
    directory: PathBuf,
    keys: KeyShape,
    /// Tables that were not taken are kept: RocksDB's manifest may name them.
    in_doubt: bool,
    /// None once what an earlier version of the format left in RocksDB's log is a table.
    inherited: Option<InheritedLogs>,
    /// Of RocksDB's background work, when that was last not behind.
    failures: u64,
    /// Where something was removed while space was short, and may still stand in tables.
    removed: Vec<Removed>,
    /// The same, where there was not enough room, or merging failed.
    put_off: PutOff,
    /// RocksDB compacts by itself.
    by_itself: bool,
}

/// A segment that is to be put below.
pub(super) struct Drained<'a> {
    pub(super) generation: u64,
    pub(super) memtable: &'a Memtable,
    /// Puts it on stable storage in the journal.
    pub(super) sync: &'a dyn Fn() -> Result<(), EngineError>,
}

/// To be tried again when more has been taken, and after a while: compaction may have had the room just then, and gives it back, or makes
/// some, without telling anybody.
#[derive(Default)]
struct PutOff {
    ranges: Vec<Removed>,
    /// For how long, and so until when.
    pause: Duration,
    until: Option<Instant>,
}

/// Between two keys so many were removed.
struct Removed {
    first: Key,
    last: Key,
    removals: usize,
}

impl Below {
    pub(super) fn new(
        (db, background, records): (Arc<DB>, Arc<Background>, Arc<Records>),
        directory: &Path,
        options: Options,
        keys: KeyShape,
        inherited: InheritedLogs,
    ) -> Self {
        remove_unfinished(directory);
        doubt::settle(directory);
        let mut uncompressed = options.clone();
        uncompressed.set_compression_type(DBCompressionType::None);
        let (directory, inherited) = (directory.to_owned(), Some(inherited));
        Self {
            db,
            background,
            records,
            options,
            uncompressed,
            directory,
            keys,
            in_doubt: false,
            inherited,
            failures: 0,
            removed: Vec::new(),
            put_off: PutOff::default(),
            by_itself: true,
        }
    }

    /// Puts all of a segment of the journal, which readers still find in its memtable, on stable storage below, and that it is there. Errors change
    /// nothing. Where space is `short`, what it removes is made fit for [`make_room`](Self::make_room).
    pub(super) fn take(&mut self, drained: &Drained<'_>, short: bool) -> Result<(), EngineError> {
        self.settle()?;
        let memtable = drained.memtable;
        let mut cuts = cuts(memtable, self.keys)?;
        let below = self.remove_dead(drained)?;
        if short {
            cut_between(&mut cuts, &below);
        } else {
            cut_at_gaps(&mut cuts, memtable, &below)?;
        }
        let mut new = New::default();
        let built = self
            .build(memtable, &cuts, Held::by(below), &mut new)
            .and_then(|()| marks::build(&self.options, new.mark(self.path(&new)), drained.generation));
        if short && built.is_ok() && new.ranges.iter().any(|range| range.removals > 0) {
            self.let_compact(false);
        } else if !short {
            self.let_compact(true);
        }
        let done = built.and_then(|()| self.hand_over(&new.files));
        for file in new.files {
            // Gone already if it was taken, unless it was copied; one that stays is built over.
            let _ = std::fs::remove_file(file);
        }
        done?;
        // That they cannot be removed does not matter.
        let _ = marks::remove_before(&self.db, drained.generation);
        self.removed.append(&mut self.put_off.ranges);
        if short {
            let room = REMOVED_MAX.saturating_sub(self.removed.len());
            self.removed.extend(new.ranges.into_iter().filter(|range| range.removals > 0).take(room));
        }
        let mut publishing = self.records.publish();
        memtable.visit(|key, value| {
            publishing.put(key, value);
            Ok(())
        })
    }

    /// Whether compaction has fallen too far behind to be given more. Errors: it is, and fails.
    pub(super) fn is_behind(&mut self) -> Result<bool, EngineError> {
        let failures = self.failures();
        let young_tables = self.number(&properties::num_files_at_level(0));
        self.background.priority.young_tables(young_tables);
        if young_tables < YOUNG_TABLES_MAX {
            self.failures = failures;
            return Ok(false);
        }
        if !self.removed.is_empty() {
            return Ok(true); // Making room comes first, and makes them fewer.
        }
        self.let_compact(true);
        if let Some(error) = self.background.failing() {
            return Err(error);
        }
        if failures == self.failures {
            return Ok(true);
        }
        // Of what it does not begin for want of space RocksDB tells in its log only. It tries again by itself.
        let room = reserve::free_bytes(&self.directory) >= ROOM_BYTES;
        let errno = if room { Errno::IO } else { Errno::NOSPC };
        Err(from_errno("merging tables of the metadata failed (their LOG tells why)", errno))
    }

    /// Of RocksDB's background work since the store was opened.
    fn failures(&self) -> u64 {
        self.number(properties::BACKGROUND_ERRORS)
    }

    fn number(&self, property: &PropName) -> u64 {
        self.db.property_int_value(property).ok().flatten().unwrap_or(0)
    }

    /// Whether there may be something for [`make_room`](Self::make_room).
    pub(super) fn has_room_to_make(&self, now: Instant) -> bool {
        !self.removed.is_empty() || self.put_off.is_due(now)
    }

    /// Has tables merged where something was removed while space was short, first where it was much, as far as there is room for what that
    /// makes; no more when some `bytes_max` are. (Compaction by itself waits until there is more to gain.)
    pub(super) fn make_room(&mut self, bytes_max: u64) -> Result<(), EngineError> {
        let tables = self.tables()?;
        let levels = Levels::of(&tables);
        self.removed.append(&mut self.put_off.ranges);
        self.removed.sort_unstable_by_key(|range| range.removals);
        let mut merged_bytes = 0;
        while merged_bytes < bytes_max
            && let Some(range) = self.removed.pop()
        {
            let bytes = levels.bytes_in(&range.first, &range.last);
            if bytes > reserve::free_bytes(&self.directory) {
                self.put_off.ranges.push(range);
            } else if self.merge(&range) {
                merged_bytes += bytes;
            } else {
                // The others would fare no better.
                self.put_off.ranges.push(range);
                self.put_off.ranges.append(&mut self.removed);
            }
        }
        self.put_off.wait(Instant::now(), merged_bytes > 0);
        if self.removed.is_empty() && self.put_off.ranges.is_empty() {
            self.let_compact(true);
        }
        Ok(())
    }

    /// Whether RocksDB compacts by itself. While removals wait to be merged where each of them is, it must not: of the young tables that have them it makes
    /// one, and merging that takes room for all that stands in its range.
    fn let_compact(&mut self, by_itself: bool) {
        if by_itself == self.by_itself {
            return;
        }
        let off = if by_itself { "false" } else { "true" };
        let done = self.db.set_options(&[("disable_auto_compactions", off)]);
        // It holds although the file of RocksDB's settings can't be written, for which there may be no room.
        if done.map_or_else(|error| error.as_ref().contains(NOT_PERSISTED), |()| true) {
            self.by_itself = by_itself;
        }
    }

    /// Whether it went well: RocksDB tells here only that something failed meanwhile.
    fn merge(&self, range: &Removed) -> bool {
        let failures = self.failures();
        let _hurry = self.background.hurry();
        self.db.compact_range(Some(&range.first), Some(&range.last));
        self.failures() == failures
    }

    /// Removes tables of which the memtable leaves nothing; those that are left, which its removals must still go down to.
    ///
    /// The journal has the removals: whatever of this the disk keeps, and whoever reads meanwhile, the memtable comes first.
    fn remove_dead(&self, drained: &Drained<'_>) -> Result<Vec<Table>, EngineError> {
        let memtable = drained.memtable;
        if memtable.removals() == 0 {
            return Ok(Vec::new());
        }
        let runs = removals::runs(memtable, self.keys);
        let tables = self.tables()?;
        let dead = removals::dead(&runs, &tables, self.keys);
        if dead.is_empty() {
            return Ok(tables);
        }
        (drained.sync)()?;
        for (first, last) in dead {
            let done = self.db.delete_file_in_range(first, last);
            done.map_err(|error| engine_error("removing a table of the metadata", &error))?;
        }
        self.tables()
    }

    /// In the order of their first keys.
    fn tables(&self) -> Result<Vec<Table>, EngineError> {
        let files = self.db.live_files().map_err(|error| looking_through(&error))?;
        let table = |file: rocksdb::LiveFile| match (file.start_key, file.end_key) {
            (Some(first), Some(last)) => {
                Ok(Table { first, last, level: file.level, bytes: file.size as u64 })
            }
            _ => Err(from_errno("a table of the metadata has no keys", Errno::UCLEAN)),
        };
        let files = files.into_iter().filter(|file| !marks::is_table(file));
        let tables: Result<Vec<_>, _> = files.map(table).collect();
        let mut tables = tables?;
        tables.sort();
        Ok(tables)
    }

    /// Writes the tables, without removals of what nobody has; of what `new` gets, the last one may be unfinished after an error.
    fn build(
        &self,
        memtable: &Memtable,
        cuts: &[Cut],
        mut held: Held,
        new: &mut New,
    ) -> Result<(), EngineError> {
        let building = |error| engine_error("writing a table of the metadata", &error);
        let mut cuts = cuts.iter().peekable();
        let mut options = &self.options;
        let mut table: Option<SstFileWriter<'_>> = None;
        memtable.visit(|key, value| {
            // Here, as who copies a small file's bytes into a table has them in the processor's cache already.
            self.records.remember(key, value);
            while let Some(cut) = cuts.next_if(|cut| cut.first.as_slice() <= key) {
                options = if cut.large_values { &self.uncompressed } else { &self.options };
                table.take().map_or(Ok(()), |mut table| table.finish()).map_err(building)?;
            }
            if value.is_none() && !held.may_have(key) {
                return Ok(());
            }
            if table.is_none() {
                let path = self.path(new);
                new.begin(path.clone(), key);
                let writer = SstFileWriter::create(options);
                writer.open(path).map_err(building)?;
                table = Some(writer);
            }
            new.add(key, value);
            match (&mut table, value) {
                (Some(table), Some(value)) => table.put(key, value).map_err(building),
                (Some(table), None) => table.delete(key).map_err(building),
                (None, _) => Ok(()), // made above
            }
        })?;
        table.map_or(Ok(()), |mut table| table.finish()).map_err(building)
    }

    /// Of the next table.
    fn path(&self, new: &New) -> PathBuf {
        self.directory.join(format!("{NEW_PREFIX}{}", new.files.len()))
    }

    fn hand_over(&mut self, tables: &[PathBuf]) -> Result<(), EngineError> {
        let done = self.ingest(tables);
        match &done {
            Ok(()) if self.in_doubt => {
                doubt::settle(&self.directory);
                self.in_doubt = false;
            }
            Err(error) if is_of_manifest(error) => {
                doubt::keep(&self.directory, tables);
                self.in_doubt = true;
            }
            Ok(()) | Err(_) => {}
        }
        done
    }

    fn ingest(&self, tables: &[PathBuf]) -> Result<(), EngineError> {
        let mut options = IngestExternalFileOptions::default();
        // Links where the file system has them, else copies.
        options.set_move_files(true);
        let done = self.db.ingest_external_file_opts(&options, tables.iter().collect());
        done.map_err(|error| engine_error("adding tables to the metadata", &error))
    }

    /// Once: logs of earlier processes are synced, and what RocksDB read from them becomes a table. After that RocksDB's
    /// memtable is empty for ever.
    fn settle(&mut self) -> Result<(), EngineError> {
        let Some(logs) = &mut self.inherited else { return Ok(()) };
        logs.sync()?;
        // Opening has done that mostly; and flushing nothing waits for compaction where that is behind, which may be failing.
        let memtables = [&properties::NUM_ENTRIES_ACTIVE_MEM_TABLE, &properties::NUM_ENTRIES_IMM_MEM_TABLES];
        if memtables.iter().any(|entries| self.number(entries) > 0) {
            self.db.flush().map_err(|error| engine_error("writing the metadata's log out", &error))?;
        }
        self.inherited = None;
        Ok(())
    }
}

impl PutOff {
    fn is_due(&self, now: Instant) -> bool {
        !self.ranges.is_empty() && self.until.is_none_or(|until| until <= now)
    }

    /// Each time for longer, unless something `got_on`.
    fn wait(&mut self, now: Instant, got_on: bool) {
        let longer = if got_on { PUT_OFF } else { self.pause * 2 };
        self.pause = longer.clamp(PUT_OFF, PUT_OFF_MAX);
        self.until = Some(now + self.pause);
    }
}

/// Whether it may be the manifest that could not be written: if not, RocksDB goes on with it, and it names nothing of this.
fn is_of_manifest(error: &EngineError) -> bool {
    let is_nameless = error.errno == Some(Errno::STALE.raw_os_error());
    is_nameless || error.what.contains("MANIFEST") || error.what.contains("CURRENT")
}

fn looking_through(error: &rocksdb::Error) -> EngineError {
    engine_error("looking through the metadata's tables", error)
}

/// Tables in the making.
#[derive(Default)]
struct New {
    files: Vec<PathBuf>,
    /// What each removes.
    ranges: Vec<Removed>,
}

impl New {
    fn begin(&mut self, file: PathBuf, key: &[u8]) {
        let key = Key::from_slice(key);
        self.files.push(file);
        self.ranges.push(Removed { first: key.clone(), last: key, removals: 0 });
    }

    /// The one with the mark, which removes nothing.
    fn mark(&mut self, file: PathBuf) -> &Path {
        self.files.push(file);
        &self.files[self.files.len() - 1]
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        if value.is_none()
            && let Some(range) = self.ranges.last_mut()
        {
            range.last = Key::from_slice(key);
            range.removals += 1;
        }
    }
}

/// Removes the tables that an earlier process never handed over. One that stays is built over.
fn remove_unfinished(directory: &Path) {
    let Ok(files) = std::fs::read_dir(directory) else { return };
    let unfinished = |file: &std::fs::DirEntry| file.file_name().to_string_lossy().starts_with(NEW_PREFIX);
    for file in files.flatten().filter(unfinished) {
        let _ = std::fs::remove_file(file.path());
    }
}

#[cfg(test)]
mod tests;

//! What stands below the intake: RocksDB, which gets its tables ready-made.
//!
//! A memtable that is done with is sorted already and stands in the journal until RocksDB has it. So RocksDB's own log,
//! memtable and flush would write each record twice more for nothing: tables are built here and handed over (*ingested*), which
//! is atomic and on stable storage when it returns. Tables that cannot be built or handed over have changed nothing
//! below, so that it can be tried again when the file system has space, or works, again.
//!
//! A table whose range no other has goes to the bottom at once and is never rewritten by compaction. So families of keys (see
//! [`EmbeddedOptions::family_bytes`](super::EmbeddedOptions)) that are large get tables of their own: records that come in the order of
//! their keys then do not suffer for those that do not.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter, properties};

use super::{error::engine_error, intake::Memtable, log::InheritedLogs};
use crate::EngineError;

/// Young tables that each reader has to ask; beyond it compaction must catch up first.
const YOUNG_TABLES_MAX: u64 = 40;
/// A family with less in a memtable shares a table with its neighbours: many tiny tables would help nobody.
const FAMILY_BYTES_MIN: usize = 1 << 20;

/// Names of tables in the making.
const NEW_PREFIX: &str = "new-table-";

pub(super) struct Below {
    db: Arc<DB>,
    options: Options,
    directory: PathBuf,
    /// The first bytes of a key that name its family.
    family_bytes: usize,
    /// None once what an earlier version of the format left in RocksDB's log is a table.
    inherited: Option<InheritedLogs>,
}

impl Below {
    pub(super) fn new(
        db: Arc<DB>,
        directory: &Path,
        options: Options,
        family_bytes: usize,
        inherited: InheritedLogs,
    ) -> Self {
        remove_unfinished(directory);
        Self { db, options, directory: directory.to_owned(), family_bytes, inherited: Some(inherited) }
    }

    /// Puts all of a memtable on stable storage below. Errors change nothing.
    pub(super) fn take(&mut self, memtable: &Memtable) -> Result<(), EngineError> {
        self.settle()?;
        if memtable.keys() == 0 {
            return Ok(());
        }
        let cuts = self.cuts(memtable)?;
        let mut tables = Vec::new();
        let done = self.build(memtable, &cuts, &mut tables).and_then(|()| self.ingest(&tables));
        for table in tables {
            // Gone already if it was taken, unless it was copied; one that stays is built over.
            let _ = std::fs::remove_file(table);
        }
        done
    }

    /// Whether compaction has fallen too far behind to be given more.
    pub(super) fn is_behind(&self) -> bool {
        let young = self.db.property_int_value(properties::num_files_at_level(0));
        young.ok().flatten().is_some_and(|tables| tables >= YOUNG_TABLES_MAX)
    }

    fn family<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(..self.family_bytes).unwrap_or(key)
    }

    /// The families that begin another table, in the order of the keys.
    fn cuts(&self, memtable: &Memtable) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut families: Vec<(Vec<u8>, usize)> = Vec::new();
        memtable.visit(|key, value| {
            let bytes = key.len() + value.map_or(0, <[u8]>::len);
            let family = self.family(key);
            match families.last_mut().filter(|last| last.0 == family) {
                Some(last) => last.1 += bytes,
                None => families.push((family.to_vec(), bytes)),
            }
            Ok(())
        })?;
        let large = |family: &(Vec<u8>, usize)| family.1 >= FAMILY_BYTES_MIN;
        // Between two of which one at least is large.
        let cut = families.windows(2).filter(|pair| large(&pair[0]) || large(&pair[1]));
        Ok(cut.map(|pair| pair[1].0.clone()).collect())
    }

    /// Writes the tables; `tables` gets their files, of which the last one may be unfinished after an error.
    fn build(
        &self,
        memtable: &Memtable,
        cuts: &[Vec<u8>],
        tables: &mut Vec<PathBuf>,
    ) -> Result<(), EngineError> {
        let building = |error| engine_error("writing a table of the metadata", &error);
        let mut cuts = cuts.iter().peekable();
        let mut begin = || {
            let path = self.directory.join(format!("{NEW_PREFIX}{}", tables.len()));
            tables.push(path.clone());
            let table = SstFileWriter::create(&self.options);
            table.open(path).map(|()| table).map_err(building)
        };
        let mut table = begin()?;
        memtable.visit(|key, value| {
            if cuts.next_if(|cut| self.family(key) == cut.as_slice()).is_some() {
                table.finish().map_err(building)?;
                table = begin()?;
            }
            match value {
                Some(value) => table.put(key, value).map_err(building),
                None => table.delete(key).map_err(building),
            }
        })?;
        table.finish().map_err(building)
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
        self.db.flush().map_err(|error| engine_error("writing the metadata's log out", &error))?;
        self.inherited = None;
        Ok(())
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

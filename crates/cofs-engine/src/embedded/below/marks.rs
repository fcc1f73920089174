//! How far the journal is drained, as RocksDB tells it.
//!
//! With a segment's tables goes a *mark*, which names the segment; all of them are taken, or none. So recovery knows which segments RocksDB has, and needs
//! none of them any more: they do not have to be on stable storage when they are drained, nor ever, unless somebody asks for that before.
//!
//! Each mark has a key of its own, behind all others, and a table of its own: one that no other table overlaps, and that compaction has nothing to do with. The newest
//! counts; those before it are removed then.

use std::path::Path;

use rocksdb::{DB, LiveFile, Options, SstFileWriter};
use rustix::io::Errno;

use super::super::error::{engine_error, from_errno};
use crate::EngineError;

/// What the keys of marks begin with. No others do, and none stand behind them.
pub(in crate::embedded) const KEYS: [u8; 16] = [0xff; 16];

fn key(generation: u64) -> [u8; 24] {
    let mut key = [0xff; 24];
    key[KEYS.len()..].copy_from_slice(&generation.to_be_bytes());
    key
}

/// Writes a table with the mark of the segment `generation`.
pub(super) fn build(options: &Options, path: &Path, generation: u64) -> Result<(), EngineError> {
    let build = || {
        let mut writer = SstFileWriter::create(options);
        writer.open(path)?;
        writer.put(key(generation), [])?;
        writer.finish()
    };
    build().map_err(|error| engine_error("writing a table of the metadata", &error))
}

/// The newest segment that is below, with all before it; 0: none. Errors: EUCLEAN, and those of reading.
pub(in crate::embedded) fn drained_through(db: &DB) -> Result<u64, EngineError> {
    let damaged = || {
        from_errno("a mark of the metadata's journal is damaged", Errno::UCLEAN)
            .advise("put a copy back, or load a dump into a new volume")
    };
    let mut newest = 0;
    let mut marks = db.raw_iterator();
    // From here on: backwards it would read the last block of each young table.
    marks.seek(KEYS);
    while let Some(key) = marks.key() {
        let generation = key.strip_prefix(&KEYS).and_then(|generation| generation.try_into().ok());
        newest = generation.map(u64::from_be_bytes).ok_or_else(damaged)?;
        marks.next();
    }
    let read = marks.status().map(|()| newest);
    read.map_err(|error| engine_error("reading how far the metadata's journal is drained", &error))
}

/// Whether it is a mark's.
pub(super) fn is_table(file: &LiveFile) -> bool {
    file.start_key.as_ref().is_some_and(|first| first.starts_with(&KEYS))
}

/// Those before it say nothing more.
pub(super) fn remove_before(db: &DB, generation: u64) -> Result<(), rocksdb::Error> {
    db.delete_file_in_range(key(0), key(generation - 1))
}

//! Opening a store, and saying clearly why it can't be opened.
//!
//! A store is a directory with a marker file that names the engine and its format version, written when
//! the store is made. Only a missing or empty directory, or one in which making a store was cut short
//! before RocksDB's own `CURRENT`, becomes a store; anything else is left as it is.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use rocksdb::{ColumnFamilyDescriptor, DB, DEFAULT_COLUMN_FAMILY_NAME, Options, ReadOptions, WriteOptions};
use rustix::io::Errno;

use super::{
    EmbeddedEngine, EmbeddedOptions, Poison,
    error::{engine_error, errno, from_errno, from_io},
    log::{SyncedLog, log_files},
    options::{Budget, rocksdb_options},
    records::Records,
    reserve,
};
use crate::EngineError;

const MARKER: &str = "cofs-engine";
const MARKER_PREFIX: &str = "cofs engine, rocksdb, version ";
const VERSION: u32 = 1;
/// RocksDB's pointer to its manifest: there once, and as long as, a database is.
const CURRENT: &str = "CURRENT";

pub(super) fn open(options: &EmbeddedOptions) -> Result<EmbeddedEngine, EngineError> {
    let directory = &options.directory;
    let new = !check_directory(directory, options.create && !options.read_only)?;
    let inherited = log_files(directory).map_err(|e| at(directory, &e))?;
    let budget = Budget::of(options.memory_bytes);
    let tables_bytes = table_bytes(directory).map_err(|e| at(directory, &e))?;
    let (mut rocksdb, block_cache) = rocksdb_options(&budget, tables_bytes)?;
    rocksdb.create_if_missing(new);
    let db = open_with_reserve(&rocksdb, options)?;
    let mut read_options = ReadOptions::default();
    read_options.set_verify_checksums(true);
    Ok(EmbeddedEngine {
        db,
        read_options,
        write_options: WriteOptions::default(),
        records: Records::new(budget.records_bytes),
        log: SyncedLog::new(inherited),
        poison: Poison::new(),
        block_cache,
        directory: directory.clone(),
        read_only: options.read_only,
    })
}

/// Opens the database; where there is no space left for that, with the space set aside.
fn open_with_reserve(rocksdb: &Options, options: &EmbeddedOptions) -> Result<DB, EngineError> {
    let directory = &options.directory;
    if options.read_only {
        return open_db(rocksdb, options);
    }
    match open_db(rocksdb, options) {
        Err(error) if is_full(&error) && reserve::release(directory) => open_db(rocksdb, options),
        Err(error) => Err(error),
        Ok(db) => {
            reserve::make(directory);
            Ok(db)
        }
    }
}

fn is_full(error: &EngineError) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
    full.contains(&error.errno)
}

/// The bytes of all tables (`000123.sst`): a listing, which is cheap beside opening them.
fn table_bytes(directory: &Path) -> io::Result<u64> {
    let mut total_bytes = 0;
    for file in fs::read_dir(directory)? {
        let file = file?;
        if file.path().extension().is_some_and(|extension| extension == "sst") {
            total_bytes += file.metadata()?.len();
        }
    }
    Ok(total_bytes)
}

fn open_db(rocksdb: &Options, options: &EmbeddedOptions) -> Result<DB, EngineError> {
    let directory = &options.directory;
    // Named, so that there is a handle of it: batched reads ask for one.
    let families = [ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, rocksdb.clone())];
    let opened = if options.read_only {
        DB::open_cf_descriptors_read_only(rocksdb, directory, families, false)
    } else {
        DB::open_cf_descriptors(rocksdb, directory, families)
    };
    opened.map_err(|error| match errno(&error) {
        Some(Errno::AGAIN) => in_use(directory),
        _ => engine_error(&format!("opening the metadata in {}", directory.display()), &error),
    })
}

fn in_use(directory: &Path) -> EngineError {
    let text =
        format!("the metadata in {} is in use by another process; unmount it first", directory.display());
    from_errno(text, Errno::BUSY)
}

/// `true`: there is a store; `false`: one may be made here (the marker is there, and nothing else).
fn check_directory(directory: &Path, create: bool) -> Result<bool, EngineError> {
    if create {
        fs::create_dir_all(directory).map_err(|e| at(directory, &e))?;
    }
    let marked = match fs::read_to_string(directory.join(MARKER)) {
        Ok(text) => check_marker(directory, &text).map(|()| true)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(foreign(directory)),
        Err(e) => return Err(at(directory, &e)),
    };
    if !directory.exists() {
        return Err(missing(directory));
    }
    let current = directory.join(CURRENT).try_exists().map_err(|e| at(directory, &e))?;
    match (marked, current, create) {
        (true, true, _) => Ok(true),
        (true, false, true) => Ok(false),
        (true, false, false) => Err(half_made(directory)),
        (false, true, _) => Err(foreign(directory)),
        (false, false, _) if !is_empty(directory)? => Err(foreign(directory)),
        (false, false, true) => write_marker(directory).map(|()| false).map_err(|e| at(directory, &e)),
        (false, false, false) => Err(missing(directory)),
    }
}

fn check_marker(directory: &Path, text: &str) -> Result<(), EngineError> {
    let version = text.strip_prefix(MARKER_PREFIX).and_then(|rest| rest.trim_end().parse::<u32>().ok());
    match version {
        Some(VERSION) => Ok(()),
        Some(newer) => {
            let directory = directory.display();
            let text = format!(
                "the metadata in {directory} has version {newer}, this cofs reads version {VERSION}; use a newer cofs"
            );
            Err(from_errno(text, Errno::INVAL))
        }
        None => Err(foreign(directory)),
    }
}

fn is_empty(directory: &Path) -> Result<bool, EngineError> {
    let mut entries = fs::read_dir(directory).map_err(|e| at(directory, &e))?;
    Ok(entries.next().is_none())
}

fn write_marker(directory: &Path) -> io::Result<()> {
    let mut file = File::create_new(directory.join(MARKER))?;
    writeln!(file, "{MARKER_PREFIX}{VERSION}")?;
    file.sync_all()?;
    File::open(directory)?.sync_all()
}

fn foreign(directory: &Path) -> EngineError {
    let text = format!("{} is not a cofs metadata directory (something else is in it)", directory.display());
    from_errno(text, Errno::INVAL)
}

fn missing(directory: &Path) -> EngineError {
    let text = format!("there is no metadata in {}; was the volume formatted?", directory.display());
    from_errno(text, Errno::NOENT)
}

fn half_made(directory: &Path) -> EngineError {
    let text =
        format!("the metadata in {} was never completed; format the volume again", directory.display());
    from_errno(text, Errno::UCLEAN)
}

fn at(directory: &Path, error: &io::Error) -> EngineError {
    from_io(&format!("the metadata directory {}", directory.display()), error)
}

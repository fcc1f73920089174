//! Opening a store, and saying clearly why it can't be opened.
//!
//! A store is a directory with a marker file that names the engine and its format version, written when
//! the store is made. Only a missing or empty directory, or one in which making a store was cut short
//! before RocksDB's own `CURRENT`, becomes a store; anything else is left as it is.
//!
//! Version 1 has no journal. A store is made as one, and gets the newest version when its journal is there; so an older
//! cofs, which knows of none, does not open a store that has one, and a missing journal is noticed. Version 2 has a journal whose
//! segments have no salt, and becomes the newest before the first that has: an older cofs would take that for none. In version 3
//! a segment is on stable storage when it is drained; since version 4 it need not be, and RocksDB has a mark that says so, which an older cofs would not look for.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
};

use cofs_types::is_as_good_as_empty_with;
use rocksdb::{Cache, ColumnFamilyDescriptor, DB, DEFAULT_COLUMN_FAMILY_NAME, Options, ReadOptions};
use rustix::io::Errno;

use super::{
    EmbeddedEngine, EmbeddedOptions, Poison, allowance,
    background::{Background, Ending},
    below::{Below, drained_through},
    doubt,
    error::{engine_error, errno, from_errno, from_io, is_full},
    files,
    intake::{Drain, Intake},
    log::InheritedLogs,
    manifest::{self, CURRENT, NotesLength},
    options::{Budget, memory_there, rocksdb_options},
    records::Records,
    reserve,
};
use crate::{EngineError, read_small};

pub(super) const MARKER: &str = "cofs-engine";
pub(super) const MARKER_NEW: &str = "cofs-engine.new";
const MARKER_PREFIX: &str = "cofs engine, rocksdb, version ";
const MARKER_BYTES_MAX: u64 = 4096;
const WITHOUT_JOURNAL: u32 = 1;
const WITHOUT_SALT: u32 = 2;
const WITHOUT_MARKS: u32 = 3;
const VERSION: u32 = 4;

pub(super) fn open(options: &EmbeddedOptions) -> Result<EmbeddedEngine, EngineError> {
    let directory = &options.directory;
    allowance::check(options.memory_bytes)?;
    let found = check_directory(directory, options.create && !options.read_only)?;
    let budget = Budget::of(options.memory_bytes).on(directory).within(memory_there());
    let tables_bytes = fs::read_dir(directory).and_then(table_bytes).map_err(|e| at(directory, &e))?;
    let (mut rocksdb, block_cache) = rocksdb_options(&budget, tables_bytes);
    rocksdb.create_if_missing(found == Found::Nothing);
    if found.has_journal() && !Intake::is_there(directory) {
        return Err(without_journal(directory));
    }
    manifest::check(directory)?;
    if let Some(name) = files::unfit(directory).map_err(|e| at(directory, &e))? {
        return Err(unfit(directory, &name));
    }
    if options.read_only {
        open_for_reading(options, &rocksdb, &budget)
    } else {
        let background = Background::of(&mut rocksdb);
        open_for_writing(options, (&rocksdb, background), found, &budget)
    }
    .map(|parts| parts.engine(options, block_cache))
}

fn unfit(directory: &Path, name: &OsStr) -> EngineError {
    let name = name.display();
    let text =
        format!("the metadata in {} is damaged: {name} must be a file, and is none", directory.display());
    from_errno(text, Errno::UCLEAN).advise("put the file back, or load a dump into a new volume")
}

/// What is open below the engine.
struct Parts {
    ending: Option<Ending>,
    db: Arc<DB>,
    intake: Arc<Intake>,
    drain: Option<Drain>,
    records: Arc<Records>,
    poison: Arc<Poison>,
}

impl Parts {
    fn engine(self, options: &EmbeddedOptions, block_cache: Cache) -> EmbeddedEngine {
        let reading = |cached: bool| {
            let mut options = ReadOptions::default();
            options.set_verify_checksums(true);
            options.fill_cache(cached);
            options
        };
        EmbeddedEngine {
            _ending: self.ending,
            _drain: self.drain,
            intake: self.intake,
            db: self.db,
            _notes_length: (!options.read_only).then(|| NotesLength(options.directory.clone())),
            read_options: reading(true),
            uncached: reading(false),
            records: self.records,
            poison: self.poison,
            block_cache,
            directory: options.directory.clone(),
            read_only: options.read_only,
        }
    }
}

fn open_for_writing(
    options: &EmbeddedOptions,
    (rocksdb, background): (&Options, Arc<Background>),
    found: Found,
    budget: &Budget,
) -> Result<Parts, EngineError> {
    let directory = &options.directory;
    let inherited = InheritedLogs::of(directory).map_err(|e| at(directory, &e))?;
    let poison = Arc::new(Poison::new());
    // First the database: its lock keeps others from the journal too.
    let open = |rocksdb: &Options| {
        let db = doubt::opening(directory, || open_db(rocksdb, options), listed)?;
        // Before anybody else takes it.
        reserve::keep_for_opening(directory);
        if matches!(found, Found::Store(WITHOUT_SALT..=WITHOUT_MARKS)) {
            write_marker(directory, VERSION).map_err(|e| at(directory, &e))?;
        }
        let may_store = !options.journal_by_calls;
        let drained = drained_through(&db)?;
        Intake::open(directory, budget.segment_bytes, may_store, options.keys, Arc::clone(&poison), drained)
            .map(|intake| (db, intake))
    };
    let ((db, intake), given_up) = with_reserves(directory, rocksdb, open)?;
    match given_up {
        Some((why, GivenUp::ForOpening(bytes))) => intake.opened_without_room(why, bytes),
        Some((why, GivenUp::Reserve(bytes))) => intake.opened_with_reserve(why, bytes),
        None => {}
    }
    if !found.has_journal() {
        write_marker(directory, VERSION).map_err(|e| at(directory, &e))?;
    }
    let (db, intake) = (Arc::new(db), Arc::new(intake));
    let records = Arc::new(Records::new(budget.records_bytes, budget.recent_bytes, options.keys));
    let ending = Some(Ending(Arc::clone(&background)));
    let to = (Arc::clone(&db), background, Arc::clone(&records));
    let below = Below::new(to, directory, rocksdb.clone(), options.keys, inherited);
    let drain = Drain::start(Arc::clone(&intake), below)?;
    Ok(Parts { ending, db, intake, drain: Some(drain), records, poison })
}

/// A store as it is at this moment, which another process may be writing to.
fn open_for_reading(
    options: &EmbeddedOptions,
    rocksdb: &Options,
    budget: &Budget,
) -> Result<Parts, EngineError> {
    const ATTEMPTS: usize = 20;
    for _ in 0..ATTEMPTS {
        let before = State::of(&options.directory);
        let opened = open_db(rocksdb, options).and_then(|db| {
            let drained = drained_through(&db)?;
            Intake::open_read_only(&options.directory, options.keys, drained).map(|intake| (intake, db))
        });
        // What RocksDB has, the journal must have told or have been done with; RocksDB must not have written a log out and
        // removed it between the reader's look at its manifest and that at its logs; and what can't be opened may be a file
        // that the writer has just removed.
        if State::of(&options.directory) == before {
            let (intake, db) = opened?;
            return Ok(Parts {
                ending: None,
                db: Arc::new(db),
                intake: Arc::new(intake),
                drain: None,
                records: Arc::new(Records::new(budget.records_bytes, 0, options.keys)),
                poison: Arc::default(),
            });
        }
    }
    let text = format!("the metadata in {} is changed too fast to be looked at", options.directory.display());
    Err(from_errno(text, Errno::BUSY).advise("unmount it first"))
}

/// The space set aside that opening took, in bytes.
enum GivenUp {
    /// What is kept for that, which is there again.
    ForOpening(u64),
    Reserve(u64),
}

/// Opens a store; where there is no space left for that, with the space set aside, and why.
fn with_reserves<T>(
    directory: &Path,
    rocksdb: &Options,
    open: impl Fn(&Options) -> Result<T, EngineError>,
) -> Result<(T, Option<(EngineError, GivenUp)>), EngineError> {
    let why = match open(rocksdb) {
        Err(error) if is_full(&error) => error,
        opened => {
            let opened = opened?;
            reserve::make(directory);
            return Ok((opened, None));
        }
    };
    // What it replaces it removes before it returns, and not in the background: that space is taken back at once.
    let mut rocksdb = rocksdb.clone();
    rocksdb.set_avoid_unnecessary_blocking_io(false);
    let for_opening = || reserve::release_for_opening(directory).map(GivenUp::ForOpening);
    let reserve = || reserve::release(directory).map(GivenUp::Reserve);
    for give_up in [&for_opening as &dyn Fn() -> _, &reserve] {
        let Some(given_up) = give_up() else { continue };
        match open(&rocksdb) {
            Err(error) if is_full(&error) => {}
            opened => return opened.map(|opened| (opened, Some((why, given_up)))),
        }
    }
    reserve::keep_for_opening(directory);
    Err(why)
}

/// By what a store is seen to change under a reader.
#[derive(PartialEq, Eq)]
struct State {
    /// RocksDB's logs and manifests, the latter with their sizes: what changes when it writes a log out as a table.
    files: Vec<(OsString, u64)>,
    /// The journal's files and which segment stands in each.
    journal: Vec<(u32, u64)>,
}

impl State {
    fn of(directory: &Path) -> Self {
        let mut files: Vec<_> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| {
                let name = file.file_name();
                let text = name.to_string_lossy();
                let bytes = if text.starts_with("MANIFEST-") { file.metadata().ok()?.len() } else { 0 };
                (bytes > 0 || text.ends_with(".log")).then_some((name.clone(), bytes))
            })
            .collect();
        files.sort_unstable();
        Self { files, journal: Intake::segments(directory) }
    }
}

/// The bytes of all tables (`000123.sst`): a listing, which is cheap beside opening them. One that a writer removes
/// meanwhile does not count.
fn table_bytes(files: impl Iterator<Item = io::Result<fs::DirEntry>>) -> io::Result<u64> {
    let mut total_bytes = 0;
    for file in files {
        let file = file?;
        if file.path().extension().is_some_and(|extension| extension == "sst") {
            total_bytes += match file.metadata() {
                Ok(metadata) => metadata.len(),
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
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

/// The tables that RocksDB has, whether they are there or not.
fn listed(db: &DB) -> Result<Vec<doubt::Listed>, EngineError> {
    let files = db.live_files().map_err(|error| engine_error("listing the metadata's tables", &error))?;
    let number = |name: &str| name.trim_start_matches('/').strip_suffix(".sst")?.parse().ok();
    Ok(files.iter().filter_map(|file| Some((number(&file.name)?, file.size as u64))).collect())
}

fn in_use(directory: &Path) -> EngineError {
    let text = format!("the metadata in {} is in use by another process", directory.display());
    from_errno(text, Errno::BUSY).advise("unmount it first")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// A store of this version.
    Store(u32),
    /// One may be made here: the marker is there, and nothing else.
    Nothing,
}

impl Found {
    fn has_journal(self) -> bool {
        matches!(self, Self::Store(WITHOUT_SALT..=VERSION))
    }
}

fn check_directory(directory: &Path, create: bool) -> Result<Found, EngineError> {
    if create {
        fs::create_dir_all(directory).map_err(|e| at(directory, &e))?;
    }
    let marked = match read_small(&directory.join(MARKER), MARKER_BYTES_MAX) {
        Ok(text) => Some(check_marker(directory, &text)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(foreign(directory)),
        Err(e) => return Err(at(directory, &e)),
    };
    if !directory.exists() {
        return Err(missing(directory));
    }
    let current = directory.join(CURRENT).try_exists().map_err(|e| at(directory, &e))?;
    match (marked, current, create) {
        (Some(version), true, _) => Ok(Found::Store(version)),
        (Some(_), false, true) => Ok(Found::Nothing),
        (Some(_), false, false) => Err(half_made(directory)),
        (None, true, _) => Err(foreign(directory)),
        (None, false, _) if !is_empty(directory)? => Err(foreign(directory)),
        (None, false, true) => {
            write_marker(directory, WITHOUT_JOURNAL).map_err(|e| at(directory, &e)).map(|()| Found::Nothing)
        }
        (None, false, false) => Err(missing(directory)),
    }
}

fn check_marker(directory: &Path, text: &str) -> Result<u32, EngineError> {
    let version = text.strip_prefix(MARKER_PREFIX).and_then(|rest| rest.trim_end().parse::<u64>().ok());
    let known = version.and_then(|version| version.try_into().ok());
    match (version, known) {
        (_, Some(version @ WITHOUT_JOURNAL..=VERSION)) => Ok(version),
        (Some(newer), _) => {
            let directory = directory.display();
            let text =
                format!("the metadata in {directory} has version {newer}, this cofs reads version {VERSION}");
            Err(from_errno(text, Errno::INVAL).advise("use a newer cofs"))
        }
        (None, _) => Err(foreign(directory)),
    }
}

fn is_empty(directory: &Path) -> Result<bool, EngineError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    // A marker whose writing was cut short is nothing, either.
    let is_nothing = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name == MARKER_NEW || is_as_good_as_empty_with(name.as_bytes())
    };
    Ok(entries.map_err(|e| at(directory, &e))?.iter().all(is_nothing))
}

/// Whether a directory has the marker of a store, of whatever version.
pub(super) fn is_marked(directory: &Path) -> bool {
    read_small(&directory.join(MARKER), MARKER_BYTES_MAX).is_ok_and(|text| text.starts_with(MARKER_PREFIX))
}

fn write_marker(directory: &Path, version: u32) -> io::Result<()> {
    let new = directory.join(MARKER_NEW);
    let mut file = File::create(&new)?;
    writeln!(file, "{MARKER_PREFIX}{version}")?;
    file.sync_all()?;
    fs::rename(new, directory.join(MARKER))?;
    File::open(directory)?.sync_all()
}

fn foreign(directory: &Path) -> EngineError {
    let text = format!(
        "{} is not a cofs metadata directory (something else is in it, or its file {MARKER} is damaged)",
        directory.display()
    );
    from_errno(text, Errno::INVAL).advise("name another, or restore that file from a copy")
}

fn missing(directory: &Path) -> EngineError {
    let text = format!("there is no metadata in {}", directory.display());
    from_errno(text, Errno::NOENT)
}

fn without_journal(directory: &Path) -> EngineError {
    let (how, advice) = if Intake::segments(directory).is_empty() {
        ("gone", "put them back, or load a dump into a new volume")
    } else {
        ("illegible", "restore the directory from a copy, or load a dump into a new volume")
    };
    let text =
        format!("the metadata in {} lacks its journal (its files journal-N are {how})", directory.display());
    from_errno(text, Errno::UCLEAN).advise(advice)
}

fn half_made(directory: &Path) -> EngineError {
    let text = format!(
        "the metadata in {} was never completed, or has lost its file {CURRENT}",
        directory.display()
    );
    from_errno(text, Errno::UCLEAN).advise("put that back, or empty the directory and load a dump")
}

fn at(directory: &Path, error: &io::Error) -> EngineError {
    from_io(&format!("the metadata directory {}", directory.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_removed_meanwhile_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["000001.sst", "000002.sst", "CURRENT"] {
            fs::write(directory.path().join(name), "12345").unwrap();
        }
        assert_eq!(table_bytes(fs::read_dir(directory.path()).unwrap()).unwrap(), 10);
        let mut files = fs::read_dir(directory.path()).unwrap();
        let first = files.next().unwrap(); // the listing is read by now
        fs::remove_file(directory.path().join("000001.sst")).unwrap();
        let files = std::iter::once(first).chain(files);
        assert_eq!(table_bytes(files).unwrap(), 5);
    }
}

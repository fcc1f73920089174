//! Syncing the log, in groups.
//!
//! Whoever wants a sync takes the lock; the one who has it syncs for all who wait behind it. A sync
//! with nothing new to sync is free.
//!
//! Invariant: after a successful [`SyncedLog::sync`], all commits noted before it began are on stable
//! storage, and so is everything that came before them in the log, also in log files that an earlier
//! process wrote and a crash left unsynced.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use rocksdb::DB;

use super::error::{engine_error, from_io};
use crate::EngineError;

struct Synced {
    /// How many of the commits are known to be on stable storage.
    commits: u64,
    /// Log files of earlier processes, perhaps unsynced.
    inherited: Vec<PathBuf>,
}

pub(super) struct SyncedLog {
    committed: AtomicU64,
    synced: Mutex<Synced>,
}

impl SyncedLog {
    /// `inherited`: the log files that stood in the directory before it was opened.
    pub(super) fn new(inherited: Vec<PathBuf>) -> Self {
        Self { committed: AtomicU64::new(0), synced: Mutex::new(Synced { commits: 0, inherited }) }
    }

    /// A commit is in the log.
    pub(super) fn note_commit(&self) {
        self.committed.fetch_add(1, Ordering::Release);
    }

    /// `check` is asked again once it is this caller's turn: the sync that it waited for may have failed.
    pub(super) fn sync(
        &self,
        db: &DB,
        check: impl Fn() -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let wanted = self.committed.load(Ordering::Acquire);
        let mut synced = self.synced.lock();
        check()?;
        if synced.commits >= wanted && synced.inherited.is_empty() {
            return Ok(());
        }
        sync_inherited(&mut synced.inherited)?;
        let reached = self.committed.load(Ordering::Acquire);
        db.flush_wal(true).map_err(|e| engine_error("syncing the metadata's log", &e))?;
        synced.commits = reached;
        Ok(())
    }
}

fn sync_inherited(inherited: &mut Vec<PathBuf>) -> Result<(), EngineError> {
    while let Some(path) = inherited.last() {
        sync_file(path).map_err(|e| from_io("syncing an earlier log of the metadata", &e))?;
        inherited.pop();
    }
    Ok(())
}

/// A log that is gone was written out as a table, which RocksDB syncs before it removes the log.
fn sync_file(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_data(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// The log files in `directory` (`000123.log`).
pub(super) fn log_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for file in std::fs::read_dir(directory)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    Ok(logs)
}

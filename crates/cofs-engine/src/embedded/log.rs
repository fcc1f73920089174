//! RocksDB's logs of earlier processes.
//!
//! A process that was killed leaves logs in the kernel's cache, perhaps not on the disk, and RocksDB would not sync
//! them. They are synced before the first sync of this process's log: else something synced could stand behind a hole.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use super::error::from_io;
use crate::EngineError;

/// Log files that may not be on stable storage.
pub(super) struct InheritedLogs(Vec<PathBuf>);

impl InheritedLogs {
    /// The log files in `directory` (`000123.log`), before it is opened.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut logs = Vec::new();
        for file in std::fs::read_dir(directory)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                logs.push(path);
            }
        }
        Ok(Self(logs))
    }

    /// Puts them on stable storage, once.
    pub(super) fn sync(&mut self) -> Result<(), EngineError> {
        while let Some(path) = self.0.last() {
            sync_file(path).map_err(|e| from_io("syncing an earlier log of the metadata", &e))?;
            self.0.pop();
        }
        Ok(())
    }
}

/// A log that is gone was written out as a table, which RocksDB syncs before it removes the log.
fn sync_file(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_data(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

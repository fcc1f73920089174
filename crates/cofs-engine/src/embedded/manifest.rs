//! Whether the manifest, RocksDB's list of its tables, has its end.
//!
//! RocksDB takes a manifest that breaks off for one whose last record was being written when the power went: it goes without that
//! record, and removes the tables that only it named. So where a store was copied in part, or a file system has lost a file's end, the
//! records of those tables would be gone without a word: the journal has let go of them.
//!
//! So the manifest's name and length are noted when a store is closed in order. Each opening for writing begins another manifest; what is
//! noted says something only of the one of that name, which nobody has cut since. A note that is missing or not whole says nothing.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::error::from_errno;
use crate::EngineError;

/// RocksDB's pointer to its manifest: there once, and as long as, a database is.
pub(super) const CURRENT: &str = "CURRENT";
pub(super) const NOTE: &str = "manifest-length";

/// Notes the manifest's length when it goes: after the database.
pub(super) struct NotesLength(pub(super) PathBuf);

impl Drop for NotesLength {
    fn drop(&mut self) {
        // A store without the note is opened as it is.
        let _ = note(&self.0);
    }
}

fn note(directory: &Path) -> io::Result<()> {
    let name = fs::read_to_string(directory.join(CURRENT))?;
    let bytes = length(directory, name.trim_end())?;
    fs::write(directory.join(NOTE), format!("{} {bytes}\n", name.trim_end()))
}

/// Of a file that is opened, as a network file system may have an older length at hand.
fn length(directory: &Path, name: &str) -> io::Result<u64> {
    Ok(File::open(directory.join(name))?.metadata()?.len())
}

/// Errors: EUCLEAN where the manifest is shorter than it was.
pub(super) fn check(directory: &Path) -> Result<(), EngineError> {
    match noted(directory) {
        // One that cannot be read RocksDB will tell.
        Some((name, noted_bytes)) if length(directory, &name).is_ok_and(|bytes| bytes < noted_bytes) => {
            let text = format!("the metadata in {} is damaged: {name} has lost its end", directory.display());
            Err(from_errno(text, Errno::UCLEAN))
        }
        _ => Ok(()),
    }
}

/// What the note says of the manifest that is in use.
fn noted(directory: &Path) -> Option<(String, u64)> {
    let current = fs::read_to_string(directory.join(CURRENT)).ok()?;
    let note = fs::read_to_string(directory.join(NOTE)).ok()?;
    let (name, bytes) = note.strip_suffix('\n')?.split_once(' ')?;
    (name == current.trim_end()).then_some((name.to_owned(), bytes.parse().ok()?))
}

//! Whether the manifest, RocksDB's list of its tables, has its end.
//!
//! RocksDB takes a manifest that breaks off for one whose last record was being written when the power went: it goes without that
//! record, and removes the tables that only it named. So where a store was copied in part, or a file system has lost a file's end, the
//! records of those tables would be gone without a word: the journal has let go of them.
//!
//! So the manifest's name and length are noted when a store is closed in order. Each opening for writing begins another manifest; what is
//! noted says something only of the one of that name, which nobody has cut since. A note that is missing or not whole says nothing.
//!
//! Of a manifest that is not there at all RocksDB would say that a file was not found, as it does of a store that was moved.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::error::{from_errno, from_io};
use crate::{EngineError, open_regular, read_small, small_file::write_note};

/// RocksDB's pointer to its manifest: there once, and as long as, a database is.
pub(super) const CURRENT: &str = "CURRENT";
pub(super) const NOTE: &str = "manifest-length";
const NAME_PREFIX: &str = "MANIFEST-";
/// Of either.
const BYTES_MAX: u64 = 4096;

/// Notes the manifest's length when it goes: after the database.
pub(super) struct NotesLength(pub(super) PathBuf);

impl Drop for NotesLength {
    fn drop(&mut self) {
        // A store without the note is opened as it is.
        let _ = note(&self.0);
    }
}

fn note(directory: &Path) -> io::Result<()> {
    let name = name(directory)?;
    let bytes = length(directory, &name)?;
    write_note(&directory.join(NOTE), &format!("{name} {bytes}\n"))
}

/// The manifest that is in use.
pub(super) fn name(directory: &Path) -> io::Result<String> {
    Ok(read_small(&directory.join(CURRENT), BYTES_MAX)?.trim_end().to_owned())
}

/// Of a file that is opened, as a network file system may have an older length at hand.
fn length(directory: &Path, name: &str) -> io::Result<u64> {
    Ok(open_regular(&directory.join(name))?.metadata()?.len())
}

/// Errors: EUCLEAN where there is no manifest, or it is shorter than it was.
pub(super) fn check(directory: &Path) -> Result<(), EngineError> {
    let Some(mut name) = named(directory)? else { return Ok(()) };
    let bytes = loop {
        match length(directory, &name) {
            Ok(bytes) => break bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match named(directory)? {
                // A writer has begun another meanwhile.
                Some(now) if now != name => name = now,
                _ => return Err(damaged(directory, &format!("{name}, which {CURRENT} names, is gone"))),
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(damaged(directory, &format!("{name}: {error}")));
            }
            // RocksDB will tell.
            Err(_) => return Ok(()),
        }
    };
    match noted(directory, &name) {
        Some(noted_bytes) if bytes < noted_bytes => {
            Err(damaged(directory, &format!("{name} has lost its end")))
        }
        _ => Ok(()),
    }
}

/// The manifest that is in use; `None` in a store that is yet to be made.
fn named(directory: &Path) -> Result<Option<String>, EngineError> {
    match name(directory) {
        Ok(name) if name.starts_with(NAME_PREFIX) => Ok(Some(name)),
        Ok(_) => Err(damaged(directory, &format!("{CURRENT} names no manifest"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(damaged(directory, &format!("{CURRENT}: {error}")))
        }
        Err(error) => Err(from_io(&format!("the metadata in {}: {CURRENT}", directory.display()), &error)),
    }
}

/// The length that was noted of the manifest `name`.
fn noted(directory: &Path, name: &str) -> Option<u64> {
    let note = read_small(&directory.join(NOTE), BYTES_MAX).ok()?;
    let (of, bytes) = note.strip_suffix('\n')?.split_once(' ')?;
    bytes.parse().ok().filter(|_| of == name)
}

fn damaged(directory: &Path, how: &str) -> EngineError {
    from_errno(format!("the metadata in {} is damaged: {how}", directory.display()), Errno::UCLEAN)
}

//! Which files in its directory are a store's own, by their names: others are never removed.

use std::{ffi::OsString, fs, io, path::Path};

use super::{
    below::NEW_PREFIX,
    doubt, intake,
    manifest::{self, CURRENT},
    open::{MARKER, MARKER_NEW},
    reserve,
};

const IDENTITY: &str = "IDENTITY";
const OPTIONS: &str = "OPTIONS-";
const WHOLE: [&str; 8] =
    [MARKER, MARKER_NEW, CURRENT, manifest::NOTE, intake::END_NAME, IDENTITY, "LOCK", "LOG"];
const BEGINNINGS: [&str; 6] =
    [intake::NAME_PREFIX, doubt::PREFIX, NEW_PREFIX, "LOG.old.", "MANIFEST-", OPTIONS];
/// Of RocksDB's files that have a number for a name.
const ENDINGS: [&str; 3] = ["log", "sst", "dbtmp"];

fn is_own(name: &str) -> bool {
    WHOLE.contains(&name)
        || reserve::is_its(name.as_ref())
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || is_numbered(name)
}

fn is_numbered(name: &str) -> bool {
    name.split_once('.').is_some_and(|(number, ending)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && ENDINGS.contains(&ending)
    })
}

/// Of RocksDB's, what it opens without a look at what it is. (The manifest is [looked at](manifest::check) before.)
fn is_opened_as_it_is(name: &str) -> bool {
    is_numbered(name) || name == IDENTITY || name.starts_with(OPTIONS)
}

/// A file that RocksDB would wait for, or read for ever: a FIFO or a device in its place. What a link leads to counts.
pub(super) fn unfit(directory: &Path) -> io::Result<Option<OsString>> {
    for file in fs::read_dir(directory)? {
        let file = file?;
        let kind = file.file_type()?;
        if kind.is_file() || kind.is_dir() || !file.file_name().to_str().is_some_and(is_opened_as_it_is) {
            continue;
        }
        if fs::metadata(file.path()).is_ok_and(|it| !it.is_file()) {
            return Ok(Some(file.file_name()));
        }
    }
    Ok(None)
}

/// Removes a store's own files.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    for file in fs::read_dir(directory)? {
        let file = file?;
        if file.file_type()?.is_file() && file.file_name().to_str().is_some_and(is_own) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EmbeddedEngine, EmbeddedOptions, Engine};

    #[test]
    fn a_store_is_removed_and_what_is_beside_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let kept = ["precious.txt", "photo.log", "1.jpg", ".log", "lost+found"];
        fs::create_dir(directory.path().join("lost+found")).unwrap();
        let mut options = EmbeddedOptions::new(directory.path(), 16 << 20);
        for create in [true, false, false] {
            options.create = create;
            EmbeddedEngine::open(&options).unwrap().sync().unwrap();
        }
        kept.iter().filter(|name| !name.contains('+')).for_each(|name| {
            fs::write(directory.path().join(name), "").unwrap();
        });
        assert!(EmbeddedEngine::is_in(directory.path()));
        EmbeddedEngine::remove(directory.path()).unwrap();
        assert!(!EmbeddedEngine::is_in(directory.path()));
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        let mut kept = kept.to_vec();
        kept.sort_unstable();
        assert_eq!(left, kept);
    }
}

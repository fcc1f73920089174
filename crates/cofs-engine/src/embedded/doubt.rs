//! Tables that RocksDB did not take, and that its manifest may name all the same.
//!
//! Where RocksDB cannot sync its manifest it gives up what it was about to do, and removes its names of the tables that it was to take. But the
//! record that names them was written, and may be on the disk or get there. While RocksDB lives that is no harm: the next change begins
//! another manifest. But if the process ends before that succeeds, the store cannot be opened again: tables are missing, it seems damaged.
//!
//! So tables that were not taken are kept under names of their own, with that of the manifest, until others are taken. Where a store is opened
//! whose manifest names tables that are missing, and tables of that manifest were kept, they get the missing names: RocksDB numbers those that
//! it is given one after the other. What they hold stands in the journal too. RocksDB notices only of the first few tables that they are missing
//! when it opens; then it does not open, and it must be guessed how many of them come before the one that it tells of. Otherwise it has a
//! list.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{error::from_errno, manifest};
use crate::EngineError;

pub(super) const PREFIX: &str = "doubtful-";

/// Keeps tables, in the order in which they were handed over. Best effort, as the disk fails.
pub(super) fn keep(directory: &Path, tables: &[PathBuf]) {
    let Ok(manifest) = manifest::name(directory) else { return };
    // Those kept for it before are the ones: it is not written to after the first failure.
    if !kept(directory, &manifest).is_empty() {
        return;
    }
    settle(directory);
    for (number, table) in tables.iter().enumerate() {
        let _ = fs::rename(table, directory.join(format!("{PREFIX}{manifest}-{number:06}")));
    }
    let _ = sync(directory);
}

/// There is no doubt any more.
pub(super) fn settle(directory: &Path) {
    let Ok(files) = fs::read_dir(directory) else { return };
    let is_kept = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with(PREFIX);
    for file in files.flatten().filter(is_kept) {
        let _ = fs::remove_file(file.path());
    }
}

/// A table that RocksDB has: its number and size.
pub(super) type Listed = (u64, u64);

/// Opens, with kept tables in the place of missing ones if need be. `list` tells of the tables that what is opened should have.
pub(super) fn opening<T>(
    directory: &Path,
    open: impl Fn() -> Result<T, EngineError>,
    list: impl Fn(&T) -> Result<Vec<Listed>, EngineError>,
) -> Result<T, EngineError> {
    let tables = manifest::name(directory).map(|manifest| kept(directory, &manifest)).unwrap_or_default();
    if tables.is_empty() {
        return open();
    }
    let opened = open_with(directory, &tables, open)?;
    complete(directory, &tables, &list(&opened)?)?;
    Ok(opened)
}

/// Gives the kept tables the names of those that are missing.
fn complete(directory: &Path, tables: &[PathBuf], listed: &[Listed]) -> Result<(), EngineError> {
    let is_missing = |&(number, _): &Listed| matches!(table_path(directory, number).try_exists(), Ok(false));
    let mut missing: Vec<Listed> = listed.iter().copied().filter(is_missing).collect();
    missing.sort_unstable();
    let Some(&(first, _)) = missing.first() else { return Ok(()) };
    let is_size =
        |(table, (_, bytes)): (&PathBuf, &Listed)| fs::metadata(table).is_ok_and(|file| file.len() == *bytes);
    let follow = (first..).zip(&missing).all(|(wanted, (number, _))| wanted == *number);
    let fit = follow && missing.len() == tables.len() && tables.iter().zip(&missing).all(is_size);
    match Named::of(directory, tables, first).filter(|_| fit) {
        Some(named) => {
            named.stay();
            Ok(())
        }
        None => Err(from_errno("the metadata lack a table", Errno::UCLEAN)),
    }
}

fn open_with<T>(
    directory: &Path,
    tables: &[PathBuf],
    open: impl Fn() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let damage = match open() {
        Err(error) if error.errno == Some(Errno::UCLEAN.raw_os_error()) => error,
        opened => return opened,
    };
    let Some(missing) = missing(directory, &damage.what) else { return Err(damage) };
    // Any of them may be the one that was missed first.
    for before in 0..tables.len() as u64 {
        let Some(first) = missing.checked_sub(before) else { break };
        if let Some(named) = Named::of(directory, tables, first)
            && let Ok(opened) = open()
        {
            named.stay();
            return Ok(opened);
        }
    }
    Err(damage)
}

/// Tables that have names of RocksDB again; they lose them when it goes.
struct Named(Vec<PathBuf>);

impl Named {
    /// Numbered from `first` on, on stable storage. `None` if one cannot have its name.
    fn of(directory: &Path, tables: &[PathBuf], first: u64) -> Option<Self> {
        let mut named = Self(Vec::new());
        for (number, table) in (first..).zip(tables) {
            let name = table_path(directory, number);
            fs::hard_link(table, &name).or_else(|_| copy(table, &name)).ok()?;
            named.0.push(name);
        }
        sync(directory).ok()?;
        Some(named)
    }

    fn stay(mut self) {
        self.0.clear();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = fs::remove_file(name);
        }
    }
}

/// For file systems without links.
fn copy(table: &Path, name: &Path) -> io::Result<()> {
    let mut to = File::create_new(name)?;
    let copied =
        File::open(table).and_then(|mut from| io::copy(&mut from, &mut to)).and_then(|_| to.sync_all());
    copied.inspect_err(|_| drop(fs::remove_file(name)))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// What was kept of this manifest, in order.
fn kept(directory: &Path, manifest: &str) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(directory) else { return Vec::new() };
    let prefix = format!("{PREFIX}{manifest}-");
    let is_kept = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with(&prefix);
    let mut tables: Vec<_> = files.flatten().filter(is_kept).map(|file| file.path()).collect();
    tables.sort_unstable();
    tables
}

fn table_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.sst"))
}

/// The number of a table that RocksDB names in what it tells, and that is not there.
fn missing(directory: &Path, told: &str) -> Option<u64> {
    let number = |before: &str| {
        let digits = before.rsplit(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    let parts: Vec<&str> = told.split(".sst").collect();
    let (_, before) = parts.split_last()?;
    let is_missing = |number: &u64| matches!(table_path(directory, *number).try_exists(), Ok(false));
    before.iter().filter_map(|before| number(before)).find(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(manifest::CURRENT), "MANIFEST-000005\n").unwrap();
        directory
    }

    fn tables(directory: &Path, texts: &[&str]) -> Vec<PathBuf> {
        let table = |(number, text): (usize, &&str)| {
            let path = directory.join(format!("table-{number}"));
            fs::write(&path, text).unwrap();
            path
        };
        texts.iter().enumerate().map(table).collect()
    }

    fn text(directory: &Path, number: u64) -> String {
        fs::read_to_string(table_path(directory, number)).unwrap_or_default()
    }

    fn nothing((): &()) -> Result<Vec<Listed>, EngineError> {
        Ok(Vec::new())
    }

    /// As RocksDB does where these tables must be there, and the one is missed before the others.
    fn try_open(directory: &Path, wanted: [(u64, &str); 2], missed: usize) -> Result<(), EngineError> {
        let missing = |(number, wanted): &(u64, &str)| text(directory, *number) != *wanted;
        let miss = |(number, _): (u64, &str)| {
            let table = table_path(directory, number);
            Err(from_errno(format!("No such file: {}: No such file", table.display()), Errno::UCLEAN))
        };
        let at = [missed, 1 - missed].into_iter().find(|at| missing(&wanted[*at]));
        at.map_or(Ok(()), |at| miss(wanted[at]))
    }

    #[test]
    fn tables_that_were_not_taken_get_the_names_that_are_missing() {
        for missed in [0, 1] {
            let directory = store();
            let path = directory.path();
            keep(path, &tables(path, &["one", "two"]));
            keep(path, &tables(path, &["later", "later"]));
            opening(path, || try_open(path, [(8, "one"), (9, "two")], missed), nothing).unwrap();
            assert_eq!([7, 8, 9, 10].map(|number| text(path, number)), ["", "one", "two", ""]);
            settle(path);
            assert_eq!([text(path, 8), text(path, 9)], ["one", "two"]);
            assert!(kept(path, "MANIFEST-000005").is_empty());
        }
    }

    #[test]
    fn damage_stays_damage() {
        let directory = store();
        let path = directory.path();
        let open = || try_open(path, [(8, "one"), (9, "two")], 0);
        assert!(opening(path, open, nothing).is_err(), "nothing was kept");
        keep(path, &tables(path, &["one"]));
        assert!(opening(path, open, nothing).is_err(), "another is missing, too");
        assert!(text(path, 8).is_empty(), "it has not stayed");
        // Another manifest has other tables.
        fs::write(path.join(manifest::CURRENT), "MANIFEST-000010\n").unwrap();
        assert!(opening(path, || try_open(path, [(8, "one"), (8, "one")], 0), nothing).is_err());
        keep(path, &tables(path, &["three", "four"]));
        assert!(kept(path, "MANIFEST-000005").is_empty());
        opening(path, || try_open(path, [(8, "three"), (9, "four")], 1), nothing).unwrap();
    }

    /// RocksDB looks for the first few tables only when it opens.
    #[test]
    fn tables_that_nobody_missed_are_there_too() {
        let directory = store();
        let path = directory.path();
        fs::write(table_path(path, 4), "old").unwrap();
        keep(path, &tables(path, &["one", "two!"]));
        let with = |listed: &[Listed]| opening(path, || Ok(()), |()| Ok(listed.to_vec()));
        with(&[(4, 3)]).unwrap();
        for wrong in [&[(8, 3)][..], &[(8, 4), (9, 3)], &[(8, 3), (10, 4)], &[(8, 3), (9, 4), (10, 3)]] {
            assert_eq!(with(wrong).unwrap_err().errno, Some(Errno::UCLEAN.raw_os_error()));
        }
        assert_eq!([8, 9, 10].map(|number| text(path, number)), ["", "", ""]);
        with(&[(9, 4), (4, 3), (8, 3)]).unwrap();
        assert_eq!([4, 8, 9].map(|number| text(path, number)), ["old", "one", "two!"]);
    }
}

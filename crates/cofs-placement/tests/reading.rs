//! Pools that are only read: everything is found, and nothing below is changed.

mod common;

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

use cofs_placement::{Placement, PoolHealth};
use cofs_types::FsError;
use common::{POOL, VOLUME, World, id, ino, scan};

/// Every path below a directory, with when it was changed last and its bytes.
fn everything(below: &Path) -> BTreeMap<String, (i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![below.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let at = fs::metadata(&path).unwrap();
            let bytes = if at.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            found.insert(path.to_str().unwrap().to_owned(), (at.ctime(), at.ctime_nsec(), bytes));
            directories.extend(at.is_dir().then_some(path));
        }
    }
    found
}

#[test]
fn a_pool_that_a_crash_left_is_read_and_stays_as_it_is() {
    let world = World::new(1);
    let crashed = world.open();
    let taken = crashed.take(ino(42)).unwrap();
    taken.file.write_all_at(b"hello", 0).unwrap();
    crashed.fill_now(POOL, 3).unwrap();
    let as_written = scan(&crashed).0;
    drop(crashed);
    let before = everything(world.directory());
    assert_eq!(before.values().filter(|(.., bytes)| bytes == b"hello").count(), 1);

    let placement = Placement::open_for_reading(&world.configs, VOLUME).unwrap();
    assert_eq!(placement.space()[0].health, PoolHealth::Healthy);
    assert_eq!(scan(&placement).0, as_written);
    let mut bytes = [0; 5];
    let object = placement.open_object(taken.id, false).unwrap();
    assert_eq!((object.read_at(&mut bytes, 0).unwrap(), &bytes), (5, b"hello"));
    object.sync(false).unwrap();

    let read_only =
        |outcome: Result<(), FsError>| assert!(matches!(outcome, Err(FsError::ReadOnly)), "{outcome:?}");
    read_only(placement.open_object(taken.id, true).map(drop));
    read_only(placement.take(ino(43)).map(drop));
    read_only(placement.fill_now(POOL, 1).map(drop));
    read_only(placement.remove(taken.id));
    read_only(placement.set_owner(taken.id, ino(44)));
    read_only(placement.disown_left_behind());
    read_only(object.set_len(0));
    read_only(object.set_times(None, None));
    read_only(object.write_all_at(b"x", 0));
    placement.sync().unwrap();
    placement.close().unwrap();
    assert!(matches!(placement.open_object(id(7777), false), Err(FsError::NotFound)));
    assert_eq!(everything(world.directory()), before);
}

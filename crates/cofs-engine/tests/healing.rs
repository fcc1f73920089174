//! RocksDB cannot take anything for a while: nothing is lost, writers learn the cause, and it heals without reopening.

mod common;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use cofs_engine::{EmbeddedEngine, Engine, EngineError, EngineHealth};
use common::{changes, commit, open, put, scan};

fn key(number: u64) -> Vec<u8> {
    format!("{number:012}").into_bytes()
}

/// Commits records from `from` on until one is refused; the number of that, and why.
fn fill(engine: &EmbeddedEngine, from: u64) -> (u64, EngineError) {
    const MANY: u64 = 100_000;
    for number in from..from + MANY {
        if let Err(error) = engine.commit(&changes(vec![put(key(number), vec![7; 1000])])) {
            return (number, error);
        }
    }
    panic!("the journal has no end");
}

/// Takes the place where tables are built.
fn obstruct(directory: &Path) {
    fs::create_dir(directory.join("new-table-0")).unwrap();
}

fn clear(directory: &Path) {
    fs::remove_dir(directory.join("new-table-0")).unwrap();
}

fn all_there(engine: &EmbeddedEngine, up_to: u64) {
    let found = scan(engine, b"", b"~", usize::MAX);
    assert_eq!(found.len() as u64, up_to);
    assert!((0..).zip(&found).all(|(number, (found, value))| *found == key(number) && value.len() == 1000));
}

#[test]
fn what_rocksdb_cannot_take_waits_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    obstruct(directory.path());
    let (refused, error) = fill(&engine, 0);
    assert!(refused > 500, "the journal takes more than {refused}");
    assert!(error.what.contains("writing a table"), "{error}");
    assert!(matches!(engine.stats().health, EngineHealth::Stuck(_)));
    assert!(engine.get(&key(refused)).unwrap().is_none(), "a failed commit is not seen");
    engine.sync().unwrap();
    all_there(&engine, refused);

    clear(directory.path());
    let until = Instant::now() + Duration::from_secs(60);
    while engine.commit(&changes(vec![put(key(refused), vec![7; 1000])])).is_err() {
        assert!(Instant::now() < until, "it does not heal");
        thread::sleep(Duration::from_millis(20));
    }
    for number in refused + 1..refused + 2000 {
        commit(&engine, &changes(vec![put(key(number), vec![7; 1000])]));
    }
    all_there(&engine, refused + 2000);
}

#[test]
fn what_rocksdb_could_not_take_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    obstruct(directory.path());
    let (refused, _) = fill(&engine, 0);
    drop(engine);
    clear(directory.path());
    let engine = open(directory.path());
    all_there(&engine, refused);
    commit(&engine, &changes(vec![put(key(refused), vec![7; 1000])]));
    all_there(&engine, refused + 1);
}

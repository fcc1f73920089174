//! Keys that come and go soon: what is said to be new, and is removed again before it has left the journal, never gets to RocksDB, and what stood there
//! before under the same key stays gone.

mod common;

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use cofs_engine::{Change, EmbeddedEngine, EmbeddedOptions, Engine};
use common::{MEMORY_BYTES, changes, commit, open};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u32) -> Vec<u8> {
    [b"key ", &number.to_be_bytes()[..]].concat()
}

fn all(engine: &EmbeddedEngine) -> Model {
    let mut all = Model::new();
    let mut see = |key: &[u8], value: &[u8]| {
        all.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    engine.scan(b"", &[0xff], &mut see).unwrap();
    all
}

fn agrees(engine: &EmbeddedEngine, model: &Model, keys: u32) {
    assert!(all(engine) == *model);
    for number in 0..keys {
        let key = key(number);
        assert_eq!(engine.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice), "{number}");
    }
}

/// Each key lives for some commits, and comes back after many; most do not outlive the segment of the journal that they are born in, and their like stands below.
#[test]
fn what_was_removed_stays_removed_whatever_stood_below() {
    const KEYS: u32 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let mut model = Model::new();
    let mut rng = SmallRng::seed_from_u64(7);
    for round in 0..6 {
        for _ in 0..20_000 {
            // Some keys are born and removed all the time, others seldom.
            let number =
                if rng.random_bool(0.7) { rng.random_range(0..40) } else { rng.random_range(0..KEYS) };
            let key = key(number);
            let value = vec![rng.random(); rng.random_range(0..400)];
            let change = match model.contains_key(&key) {
                true if rng.random_bool(0.8) => Change::delete(&key),
                true => Change::put(&key, value),
                false if rng.random_bool(0.9) => Change::insert(&key, value),
                false => Change::put(&key, value),
            };
            match &change {
                Change::Put { value, .. } => model.insert(key, value.to_vec()),
                Change::Delete { .. } => model.remove(&key),
            };
            commit(&engine, &changes(vec![change]));
        }
        agrees(&engine, &model, KEYS);
        if round % 2 == 1 {
            // What is left in the journal is read, and put below with what follows.
            drop(engine);
            engine = open(directory.path());
            agrees(&engine, &model, KEYS);
        }
    }
}

fn table_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap());
    let tables = files.filter(|file| file.path().extension().is_some_and(|end| end == "sst"));
    tables.filter_map(|table| table.metadata().ok()).map(|table| table.len()).sum()
}

/// In the midst of keys that stand below, so that a removal would have to go there.
#[test]
fn what_comes_and_goes_leaves_nothing_in_tables() {
    const TEMPORARY: u32 = 60_000;
    let written = |change: fn(Vec<u8>, Vec<u8>) -> Change| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            EmbeddedOptions { create: true, ..EmbeddedOptions::new(directory.path(), MEMORY_BYTES) };
        let engine = EmbeddedEngine::open(&options).unwrap();
        let lasting = (0..20_000).map(|number| Change::put(key(number * 100), vec![1; 200]));
        lasting.for_each(|put| commit(&engine, &changes(vec![put])));
        drop(engine);
        let before = table_bytes(directory.path());
        assert!(before > 0);
        let engine = EmbeddedEngine::open(&options).unwrap();
        for number in 0..TEMPORARY {
            commit(&engine, &changes(vec![change(key(number * 5 + 1), vec![2; 20])]));
            commit(&engine, &changes(vec![Change::delete(key(number * 5 + 1))]));
        }
        drop(engine);
        table_bytes(directory.path()).saturating_sub(before)
    };
    let (known, unknown) = (written(Change::insert), written(Change::put));
    assert!(known < unknown / 4, "{known} and {unknown} bytes");
}

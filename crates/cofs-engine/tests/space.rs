//! What was removed gives its space back, without a remount and though nothing else is written.

mod common;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use cofs_engine::{Change, EmbeddedEngine, EmbeddedOptions, Engine, KeyShape};
use common::{MEMORY_BYTES, Small, changes, commit};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use rustix::io::Errno;

const VALUE_BYTES: usize = 4096;
const NUMBERS: u64 = 9000;

const SHAPE: KeyShape = KeyShape {
    family_bytes: 1,
    number: |key| key.get(1..)?.try_into().ok().map(u64::from_be_bytes),
    whole: |_| true,
    scanned: |_| 1,
};

fn open_with(directory: &std::path::Path, keys: KeyShape) -> EmbeddedEngine {
    let options = EmbeddedOptions { create: true, keys, ..EmbeddedOptions::new(directory, MEMORY_BYTES) };
    EmbeddedEngine::open(&options).unwrap()
}

fn open(directory: &std::path::Path) -> EmbeddedEngine {
    open_with(directory, SHAPE)
}

fn key(number: u64) -> Vec<u8> {
    [b"B", &number.to_be_bytes()[..]].concat()
}

fn value(rng: &mut SmallRng) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    rng.fill(&mut value[..]);
    value
}

/// A store full of values that do not compress, in several sequences that grow side by side.
fn full(directory: &std::path::Path) -> EmbeddedEngine {
    let engine = open(directory);
    let mut rng = SmallRng::seed_from_u64(1);
    for step in 0..NUMBERS / 3 {
        let numbers = [0, 1, 2].map(|sequence| sequence * (NUMBERS / 3) + step);
        let puts = numbers.map(|number| Change::put(key(number), value(&mut rng)));
        commit(&engine, &changes(puts.into()));
    }
    engine
}

fn remove(engine: &EmbeddedEngine, numbers: &[u64]) {
    for &number in numbers {
        commit(engine, &changes(vec![Change::delete(key(number))]));
    }
}

/// Waits until the store takes no more than `bytes`.
fn shrinks_to(engine: &EmbeddedEngine, bytes: u64) {
    let from = Instant::now();
    while engine.stats().disk_bytes > bytes {
        let taken = engine.stats().disk_bytes;
        assert!(from.elapsed() < Duration::from_secs(120), "{taken} bytes are still taken, not {bytes}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn space_comes_back_whatever_the_order_of_removal() {
    for seed in 0..2 {
        let directory = tempfile::tempdir().unwrap();
        let empty = open(directory.path()).stats().disk_bytes;
        let engine = full(directory.path());
        let before = engine.stats().disk_bytes;
        assert!(before - empty > NUMBERS * VALUE_BYTES as u64 * 3 / 4, "{before} {empty}");
        let (kept, mut removed): (Vec<u64>, Vec<u64>) = (0..NUMBERS).partition(|number| number % 50 == 7);
        if seed > 0 {
            removed.shuffle(&mut SmallRng::seed_from_u64(seed));
        }
        remove(&engine, &removed);
        shrinks_to(&engine, empty + (before - empty) / 3);
        assert!(kept.iter().all(|&number| engine.get(&key(number)).unwrap().unwrap().len() == VALUE_BYTES));
        assert!(removed.iter().all(|&number| engine.get(&key(number)).unwrap().is_none()));
        drop(engine);
        let engine = open(directory.path());
        assert!(kept.iter().all(|&number| engine.get(&key(number)).unwrap().is_some()));
        assert!(removed.iter().all(|&number| engine.get(&key(number)).unwrap().is_none()));
    }
}

#[test]
fn a_store_that_is_closed_while_space_comes_back_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = full(directory.path());
    for part in 0..10_u64 {
        let range = part * (NUMBERS / 10)..(part + 1) * (NUMBERS / 10);
        remove(&engine, &range.filter(|number| number % 10 != 0).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(3 * part));
        drop(engine);
        engine = open(directory.path());
        for number in 0..NUMBERS {
            let gone = number < (part + 1) * (NUMBERS / 10) && number % 10 != 0;
            assert_eq!(engine.get(&key(number)).unwrap().is_none(), gone, "{number}");
        }
    }
}

/// Fills a file system of its own with values, and then removes a few of them, once as they were made and once at random.
#[test]
fn a_store_that_has_filled_its_file_system_takes_more_once_a_little_is_removed() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let engine = open(small.path());
    let mut rng = SmallRng::seed_from_u64(2);
    let mut next = 0_u64;
    let mut fill = |most: u64| {
        let from = next;
        while next < from.saturating_add(most) {
            let put = engine.commit(&changes(vec![Change::put(key(next), value(&mut rng))]));
            if let Err(error) = put {
                assert_eq!(error.errno, Some(Errno::NOSPC.raw_os_error()), "{error}");
                break;
            }
            next += 1;
        }
        next - from
    };
    let filled = fill(u64::MAX);
    assert!(filled > 5000 && fill(1) == 0, "it stays full");
    let scattered = (6000..9000).step_by(3).collect();
    for removed in [(1000..1300).collect(), (4000..5000).collect(), scattered] {
        let removed: Vec<u64> = removed;
        remove(&engine, &removed);
        let from = Instant::now();
        while fill(1) == 0 {
            assert!(from.elapsed() < Duration::from_secs(60), "from {} on: it does not heal", removed[0]);
            std::thread::sleep(Duration::from_millis(100));
        }
        fill(u64::MAX);
    }
    engine.sync().unwrap();
    drop(engine);
    let engine = open(small.path());
    let there = |number: u64| engine.get(&key(number)).unwrap().is_some();
    assert_eq!(
        [0, 999, 1000, 1299, 1300, 4999, filled - 1].map(there),
        [true, true, false, false, true, false, true]
    );
    remove(&engine, &(0..next).collect::<Vec<_>>());
    engine.sync().unwrap();
}

/// Numbers of which each has several parts; who removes part 0 removes all.
const PARTS_SHAPE: KeyShape = KeyShape {
    family_bytes: 1,
    number: |key| key.get(1..9)?.try_into().ok().map(u64::from_be_bytes),
    whole: |key| key.get(9) == Some(&0),
    scanned: |_| 9,
};

fn part(number: u64, part: u8) -> Vec<u8> {
    [b"B", &number.to_be_bytes()[..], &[part]].concat()
}

/// Ranges of numbers come, go and come again, so that tables die whole, in part, and under others; against a map.
#[test]
fn tables_that_die_whole_take_nothing_with_them() {
    const PARTS: u8 = 3;
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut engine = open_with(directory.path(), PARTS_SHAPE);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 1..=60 {
            let from = rng.random_range(0..2000_u64);
            let removes = rng.random_bool(0.5);
            for number in from..from + rng.random_range(1..800) {
                let mut batch = Vec::new();
                // Of all parts, or of some that are not the first.
                let parts =
                    if rng.random_ratio(1, 60) { rng.random_range(1..PARTS)..PARTS } else { 0..PARTS };
                for key in parts.map(|number_part| part(number, number_part)) {
                    if removes {
                        model.remove(&key);
                        batch.push(Change::delete(key));
                    } else if rng.random_bool(0.7) {
                        let value = value(&mut rng)[..rng.random_range(1..2048)].to_vec();
                        model.insert(key.clone(), value.clone());
                        batch.push(Change::put(key, value));
                    }
                }
                commit(&engine, &changes(batch));
            }
            if rng.random_ratio(1, 10) {
                drop(engine);
                engine = open_with(directory.path(), PARTS_SHAPE);
            }
            if round % 5 == 0 {
                let mut found = BTreeMap::new();
                let mut visit = |key: &[u8], value: &[u8]| {
                    found.insert(key.to_vec(), value.to_vec());
                    ControlFlow::Continue(())
                };
                engine.scan(b"B", b"C", &mut visit).unwrap();
                assert!(found == model, "seed {seed}, round {round}: {} of {}", found.len(), model.len());
                for number in (0..2800).step_by(7) {
                    let key = part(number, rng.random_range(0..PARTS));
                    let value = engine.get(&key).unwrap();
                    assert_eq!(
                        value.as_deref(),
                        model.get(&key).map(Vec::as_slice),
                        "{seed} {round} {key:?}"
                    );
                }
            }
        }
    }
}

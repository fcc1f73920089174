//! What every engine must do: one suite, run against all of them.

mod common;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use cofs_engine::{Batch, Bytes, Change, Durability, Engine, Guard, Outcome};
use common::{
    Factory, changes, commit, delete, embedded, embedded_by_calls, faultless, got_into, guard, memory,
    overlay, put, scan, shown, synced,
};
use proptest::{prelude::*, test_runner::TestRunner};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

/// One test a line, for each engine.
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod on_memory { $(#[test] fn $test() { super::$test(super::memory); })* }
        mod on_fault_over_memory { $(#[test] fn $test() { super::$test(super::faultless); })* }
        mod on_overlay { $(#[test] fn $test() { super::$test(super::overlay); })* }
        mod on_embedded { $(#[test] fn $test() { super::$test(super::embedded); })* }
        mod on_embedded_by_calls { $(#[test] fn $test() { super::$test(super::embedded_by_calls); })* }
    };
}

suite!(
    a_batch_is_seen_as_a_whole,
    later_changes_of_a_key_win,
    guards_must_all_hold,
    scans_keep_to_their_bounds,
    a_scan_sees_one_state,
    multi_get_answers_in_order,
    large_values_pass,
    counters_lose_nothing,
    readers_never_see_a_commit_undone,
    a_commit_is_never_seen_in_part,
    reads_are_the_newest_while_records_go_down,
    everything_follows_the_model,
);

fn a_batch_is_seen_as_a_whole(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    commit(&**engine, &changes(vec![put("a", "1"), put("b", "2"), delete("never was")]));
    assert_eq!(engine.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    commit(&**engine, &synced(vec![delete("a"), put("b", "")]));
    assert_eq!(engine.get(b"a").unwrap(), None);
    assert_eq!(engine.get(b"b").unwrap(), Some(Bytes::new()));
    commit(&**engine, &Batch::default());
    engine.sync().unwrap();
}

fn later_changes_of_a_key_win(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    commit(&**engine, &changes(vec![put("a", "1"), delete("a"), put("a", "2"), put("b", "1"), delete("b")]));
    let values = engine.multi_get(&[b"a", b"b"]).unwrap();
    assert_eq!(values, [Some(Bytes::from_static(b"2")), None]);
}

fn guards_must_all_hold(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    commit(&**engine, &changes(vec![put("epoch", "7"), put("empty", "")]));
    let cases: &[(&[Guard], Outcome)] = &[
        (&[guard("epoch", Some(b"7")), guard("absent", None)], Outcome::Committed),
        (&[guard("epoch", Some(b"7")), guard("epoch", Some(b"8"))], Outcome::GuardFailed),
        (&[guard("epoch", Some(b"7\0"))], Outcome::GuardFailed),
        (&[guard("epoch", None)], Outcome::GuardFailed),
        (&[guard("absent", Some(b""))], Outcome::GuardFailed),
        (&[guard("empty", None)], Outcome::GuardFailed),
        (&[guard("empty", Some(b""))], Outcome::Committed),
    ];
    for (guards, expected) in cases {
        let batch = Batch { guards, ..changes(vec![put("done", "x"), put("epoch", "7")]) };
        assert_eq!(engine.commit(&batch).unwrap(), *expected, "{guards:?}");
        let done = engine.get(b"done").unwrap().is_some();
        assert_eq!(done, *expected == Outcome::Committed, "{guards:?}");
        commit(&**engine, &changes(vec![delete("done")]));
    }
}

fn scans_keep_to_their_bounds(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    let keys = ["", "a", "a\0", "b", "b\u{7f}", "c"];
    commit(&**engine, &changes(keys.iter().map(|key| put(*key, "v")).collect()));
    let found = |start: &str, end: &str, limit| {
        let pairs = scan(&**engine, start.as_bytes(), end.as_bytes(), limit);
        pairs.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found("", "z", 100), keys);
    assert_eq!(found("a", "b", 100), ["a", "a\0"]);
    assert_eq!(found("a\0", "c", 100), ["a\0", "b", "b\u{7f}"]);
    assert_eq!(found("a", "z", 2), ["a", "a\0"]);
    for (start, end) in [("b", "a"), ("a", "a"), ("d", "z"), ("", "")] {
        assert!(found(start, end, 100).is_empty(), "{start:?}..{end:?}");
    }
}

fn a_scan_sees_one_state(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    commit(&**engine, &changes((0..100_u8).map(|i| put([b'k', i], "old")).collect()));
    let mut seen = 0;
    let visit = &mut |_: &[u8], value: &[u8]| {
        assert_eq!(value, b"old");
        seen += 1;
        commit(&**engine, &changes((0..200_u8).map(|i| put([b'k', i], "new")).collect()));
        std::ops::ControlFlow::Continue(())
    };
    engine.scan(b"k", b"l", visit).unwrap();
    assert_eq!(seen, 100);
    assert_eq!(scan(&**engine, b"k", b"l", 1000).len(), 200);
}

fn multi_get_answers_in_order(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    commit(&**engine, &changes((0..100_u8).map(|i| put([i], [i, i])).collect()));
    // Some are in a cache by now, some are not.
    for i in (0..100_u8).step_by(7) {
        engine.get(&[i]).unwrap();
    }
    let keys: Vec<[u8; 1]> = (0..200_u8).map(|i| [i.wrapping_mul(37)]).collect();
    let wanted: Vec<&[u8]> = keys.iter().chain(&keys[..3]).map(|key| &key[..]).collect();
    let values = engine.multi_get(&wanted).unwrap();
    assert_eq!(values.len(), wanted.len());
    for (key, value) in wanted.iter().zip(values) {
        let expected = (key[0] < 100).then(|| Bytes::from(vec![key[0], key[0]]));
        assert_eq!(value, expected, "{key:?}");
    }
    assert!(engine.multi_get(&[]).unwrap().is_empty());
}

fn large_values_pass(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    for size in [1023, 1024, 1025, 32_768, 32_769, 65_536, 3 << 20] {
        let value: Bytes = (0..size).map(|at| (at % 251) as u8).collect();
        commit(&**engine, &changes(vec![put("big", value.clone()), put("beside", "small")]));
        for _ in 0..2 {
            let all = [
                shown(&**engine, &[b"big"]).remove(0),
                got_into(&**engine, b"big"),
                engine.get(b"big").unwrap(),
            ];
            assert!(all.iter().all(|found| found.as_ref() == Some(&value)), "{size}");
        }
        let small = Some(Bytes::from_static(b"small"));
        assert_eq!(shown(&**engine, &[b"big", b"none", b"beside"]), [Some(value), None, small]);
    }
    commit(&**engine, &changes(vec![put("big", "small again")]));
    assert_eq!(engine.get(b"big").unwrap().as_deref(), Some(&b"small again"[..]));
}

fn number(value: Option<Bytes>) -> u64 {
    value.map_or(0, |v| u64::from_le_bytes(v[..].try_into().unwrap()))
}

/// Adds one to the counter by compare-and-swap; how often it had to try again.
fn increment(engine: &dyn Engine, key: &[u8]) -> u64 {
    let mut retries = 0;
    loop {
        let old = engine.get(key).unwrap();
        let new = number(old.clone()) + 1;
        let guards = &[guard(key, old.as_deref()), guard("fence", None)];
        let batch = Batch { guards, ..changes(vec![put(key, new.to_le_bytes())]) };
        match engine.commit(&batch).unwrap() {
            Outcome::Committed => {
                // Others may have gone on, but nobody may see less than what was acknowledged here.
                assert!(number(engine.get(key).unwrap()) >= new);
                return retries;
            }
            Outcome::GuardFailed => retries += 1,
            Outcome::Unknown => panic!("unknown outcome"),
        }
    }
}

fn counters_lose_nothing(factory: Factory) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2000;
    let subject = factory();
    let engine = &subject.engine;
    let retries: u64 = thread::scope(|scope| {
        let work = |_| {
            let engine = &**engine;
            scope.spawn(move || (0..ROUNDS).map(|i| increment(engine, &[b'c', (i % 3) as u8])).sum::<u64>())
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let total: u64 = (0..3).map(|i| number(engine.get(&[b'c', i]).unwrap())).sum();
    assert_eq!(total, THREADS * ROUNDS, "after {retries} conflicts");
}

/// Ends the readers also when the writer panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn readers_never_see_a_commit_undone(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = SetOnDrop(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let seen = number(engine.get(b"k").unwrap());
                    assert!(seen >= last, "{seen} after {last}");
                    last = seen;
                }
            });
        }
        for i in 1..20_000_u64 {
            // A large value now and then is not cached: the reader goes below.
            let padding = if i % 3 == 0 { 2000 } else { 0 };
            commit(&**engine, &changes(vec![put("k", i.to_le_bytes()), put("pad", vec![0; padding])]));
            assert_eq!(number(engine.get(b"k").unwrap()), i);
        }
    });
}

fn a_commit_is_never_seen_in_part(factory: Factory) {
    let subject = factory();
    let engine = &subject.engine;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = SetOnDrop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Read one after the other: the second can be newer, never older.
                let first = number(engine.get(b"first").unwrap());
                let second = number(engine.get(b"second").unwrap());
                assert!(second >= first, "{second} after {first}");
                let pairs = scan(&**engine, b"f", b"t", 10);
                assert!(pairs.is_empty() || pairs[0].1 == pairs[1].1);
            }
        });
        for i in 1..20_000_u64 {
            let value = i.to_le_bytes();
            commit(&**engine, &changes(vec![put("first", value), put("second", value)]));
        }
    });
}

/// The `number`-th value of a key; `None`: it is deleted.
fn nth(number: u64) -> Option<Vec<u8>> {
    let len = if number % 7 == 3 { 1500 } else { 24 };
    (!number.is_multiple_of(5)).then(|| number.to_le_bytes().into_iter().cycle().take(len).collect())
}

/// Enough commits that an engine of several layers moves records from one to the next all the time, and more keys than its
/// caches hold; readers know what was acknowledged before they read, and what was begun when they had.
fn reads_are_the_newest_while_records_go_down(factory: Factory) {
    const KEYS: usize = 40_000;
    const COMMITS: u64 = 40_000;
    let subject = factory();
    let engine = &*subject.engine;
    let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (begun, acknowledged) = (zeros(), zeros());
    let done = AtomicBool::new(false);
    // A tenth of the keys gets half of the changes.
    let pick = |rng: &mut SmallRng| {
        if rng.random_bool(0.5) { rng.random_range(0..KEYS / 10) } else { rng.random_range(0..KEYS) }
    };
    let name = |key: usize| (key as u32).to_be_bytes();
    let look = |keys: &[usize]| {
        let before: Vec<_> = keys.iter().map(|&key| acknowledged[key].load(Ordering::SeqCst)).collect();
        let names: Vec<_> = keys.iter().map(|&key| name(key)).collect();
        let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
        let found = match &names[..] {
            names if keys[0].is_multiple_of(2) => shown(engine, names),
            [one] if keys[0] % 4 == 1 => vec![got_into(engine, one)],
            [one] => vec![engine.get(one).unwrap()],
            many => engine.multi_get(many).unwrap(),
        };
        for ((&key, before), found) in keys.iter().zip(before).zip(found) {
            let mut possible = before..=begun[key].load(Ordering::SeqCst);
            assert!(possible.any(|number| nth(number).as_deref() == found.as_deref()), "{key}: {found:?}");
        }
    };
    thread::scope(|scope| {
        for seed in 1..3 {
            let (done, pick, look) = (&done, &pick, &look);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                while !done.load(Ordering::Relaxed) {
                    look(&[pick(&mut rng)]);
                    look(&[pick(&mut rng), pick(&mut rng), pick(&mut rng)]);
                }
            });
        }
        let mut rng = SmallRng::seed_from_u64(0);
        for _ in 0..COMMITS {
            let mut keys: Vec<_> = (0..4).map(|_| pick(&mut rng)).collect();
            keys.sort_unstable();
            keys.dedup();
            let change = |&key: &usize| match nth(begun[key].fetch_add(1, Ordering::SeqCst) + 1) {
                Some(value) => put(name(key), value),
                None => delete(name(key)),
            };
            commit(engine, &changes(keys.iter().map(change).collect()));
            keys.iter().for_each(|&key| {
                acknowledged[key].fetch_add(1, Ordering::SeqCst);
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    (0..KEYS).for_each(|key| look(&[key]));
}

#[derive(Clone, Debug)]
enum Step {
    Commit { guards: Vec<(Vec<u8>, GuardKind)>, changes: Vec<Change>, durability: Durability },
    Get(Vec<u8>),
    MultiGet(Vec<Vec<u8>>),
    Scan { start: Vec<u8>, end: Vec<u8>, limit: usize },
    Sync,
}

/// What a guard asks for, relative to what is there: random values would hardly ever hold.
#[derive(Clone, Debug)]
enum GuardKind {
    Current,
    Absent,
    Value(Vec<u8>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'a', 0xff]), 0..3),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..20), 1 => Just(vec![9; 3000])]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (key(), value()).prop_map(|(key, value)| put(key, value)),
        1 => key().prop_map(delete),
    ]
}

fn guard_kind() -> impl Strategy<Value = GuardKind> {
    prop_oneof![
        6 => Just(GuardKind::Current),
        1 => Just(GuardKind::Absent),
        1 => value().prop_map(GuardKind::Value),
    ]
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![9 => Just(Durability::Buffered), 1 => Just(Durability::Synced)]
}

fn step() -> impl Strategy<Value = Step> {
    let guards = prop::collection::vec((key(), guard_kind()), 0..3);
    let commit = (guards, prop::collection::vec(change(), 0..6), durability())
        .prop_map(|(guards, changes, durability)| Step::Commit { guards, changes, durability });
    prop_oneof![
        5 => commit,
        3 => key().prop_map(Step::Get),
        1 => prop::collection::vec(key(), 0..10).prop_map(Step::MultiGet),
        2 => (key(), key(), 1..20_usize).prop_map(|(start, end, limit)| Step::Scan { start, end, limit }),
        1 => Just(Step::Sync),
    ]
}

#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

impl Model {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.0.get(key).map(|value| Bytes::copy_from_slice(value))
    }

    fn guard(&self, key: &[u8], kind: &GuardKind) -> Guard {
        let value = match kind {
            GuardKind::Current => self.0.get(key).cloned(),
            GuardKind::Absent => None,
            GuardKind::Value(value) => Some(value.clone()),
        };
        Guard { key: key.to_vec(), value }
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Outcome {
        if batch.guards.iter().any(|guard| self.0.get(&guard.key) != guard.value.as_ref()) {
            return Outcome::GuardFailed;
        }
        for change in &batch.changes {
            match change {
                Change::Put { key, value, .. } => self.0.insert(key.to_vec(), value.to_vec()),
                Change::Delete { key } => self.0.remove(key.as_slice()),
            };
        }
        Outcome::Committed
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let inside = self.0.iter().filter(|(key, _)| start <= &key[..] && &key[..] < end);
        inside.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn follow(engine: &dyn Engine, model: &mut Model, step: &Step) {
    match step {
        Step::Commit { guards, changes, durability } => {
            let guards: Vec<_> = guards.iter().map(|(key, kind)| model.guard(key, kind)).collect();
            let batch =
                Batch { guards: &guards, changes: changes.clone(), durability: *durability, upkeep: false };
            assert_eq!(engine.commit(&batch).unwrap(), model.commit(&batch));
        }
        Step::Get(key) => {
            assert_eq!(engine.get(key).unwrap(), model.get(key));
            assert_eq!(shown(engine, &[key]), [model.get(key)]);
            assert_eq!(got_into(engine, key), model.get(key));
        }
        Step::MultiGet(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key)).collect();
            assert_eq!(engine.multi_get(&keys).unwrap(), expected);
            assert_eq!(shown(engine, &keys), expected);
        }
        Step::Scan { start, end, limit } => {
            assert_eq!(scan(engine, start, end, *limit), model.scan(start, end, *limit));
        }
        Step::Sync => engine.sync().unwrap(),
    }
}

fn everything_follows_the_model(factory: Factory) {
    // All cases share one engine (each would open a database else); what an earlier one left is removed
    // by ordinary means.
    let subject = factory();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(200));
    let result = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        let engine = &*subject.engine;
        let left = scan(engine, b"", &[0xff; 64], usize::MAX);
        commit(engine, &changes(left.into_iter().map(|(key, _)| delete(key)).collect()));
        let mut model = Model::default();
        for step in &steps {
            follow(engine, &mut model, step);
        }
        assert_eq!(scan(engine, b"", &[0xff; 64], usize::MAX), model.scan(b"", &[0xff; 64], usize::MAX));
        Ok(())
    });
    result.unwrap();
}

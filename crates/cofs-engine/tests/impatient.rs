//! Who is impatient gets what is in memory, and an error for the rest.

mod common;
#[path = "../../cofs-wait/tests/pages/mod.rs"]
mod pages;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io::Read,
    ops::ControlFlow,
    path::Path,
    pin::pin,
    task::{Context, Poll, Waker},
    thread::sleep,
    time::{Duration, Instant},
};

use cofs_engine::{Change, EmbeddedEngine, EmbeddedOptions, Engine, EngineError};
use cofs_wait::{BlockingThread, unless_it_waits};
use common::{MEMORY_BYTES, changes, commit};
use pages::{file_system_tells, is_refused, let_go};

const VALUES: u64 = 4000;

fn open(directory: &Path) -> EmbeddedEngine {
    let options = EmbeddedOptions { create: true, ..EmbeddedOptions::new(directory, MEMORY_BYTES) };
    EmbeddedEngine::open(&options).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(256)
}

/// The names of its tables.
fn tables(directory: &Path) -> BTreeSet<OsString> {
    let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "sst")).collect()
}

/// A store of some MiB of which nothing but what an open needs is in memory, the kernel's included; and whether the file system at hand can
/// do that.
fn cold(directory: &Path) -> (EmbeddedEngine, bool) {
    // So much that few tables are made: they are not merged, which would bring their pages back at any time.
    let open = || {
        let options = EmbeddedOptions { create: true, ..EmbeddedOptions::new(directory, 8 * MEMORY_BYTES) };
        EmbeddedEngine::open(&options).unwrap()
    };
    let engine = open();
    for number in 0..VALUES {
        commit(&engine, &changes(vec![Change::put(key(number), value(number))]));
    }
    // The last of all: whatever an engine finds in its journal, this is of it. And behind all that the tests ask for: whoever looks for it begins to read
    // what follows, and nothing else.
    let marker = key(VALUES * 10);
    commit(&engine, &changes(vec![Change::put(marker.clone(), value(0))]));
    drop(engine);
    let tells = file_system_tells(directory);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        // What an engine finds in its journal goes down, but is in its memory then; the next one has it no more.
        let engine = open();
        if !tells {
            return (engine, false);
        }
        // What says how far the journal is drained goes when the next one says so.
        let open = |table: &OsString| File::open(directory.join(table)).ok();
        tables(directory).iter().filter_map(open).for_each(|table| let_go(&table));
        if impatiently(|| engine.get(&marker)).is_none() {
            return (engine, true);
        }
        assert!(Instant::now() < until, "it does not go down");
        sleep(Duration::from_millis(5));
    }
}

/// Has `test` done over [`cold`] stores until it says that it was refused all that it had to be (see [`is_refused`]).
fn over_cold(test: impl Fn(&EmbeddedEngine) -> bool) {
    let ask = || {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (engine, tells) = cold(directory.path());
        (tells && !test(&engine)).then_some(())
    };
    assert!(is_refused(ask));
}

/// As a worker asks: `None`, it would have to wait.
fn impatiently<T>(ask: impl FnOnce() -> Result<T, EngineError>) -> Option<T> {
    match pin!(unless_it_waits(async { ask() })).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.map(Result::unwrap),
        Poll::Pending => panic!("nothing here leaves"),
    }
}

fn scanned(engine: &EmbeddedEngine, from: u64, count: usize) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut found = Vec::new();
    engine.scan(&key(from), &key(VALUES * 5), &mut |_, value| {
        found.push(value.to_vec());
        if found.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

#[test]
fn what_the_disk_has_alone_is_refused_and_what_the_page_cache_has_is_given() {
    over_cold(refuses_and_gives);
}

/// Whether it refused all.
fn refuses_and_gives(engine: &EmbeddedEngine) -> bool {
    // Far apart: the kernel reads ahead.
    let [one, two, three, four] = [400, 1400, 2400, 3400];
    let keys = [key(two), key(two + 1)];
    let keys = keys.each_ref().map(Vec::as_slice);
    let shown = || {
        let mut seen = Vec::new();
        engine.show(&[&key(four)], &mut |_, value| seen.extend(value.map(<[u8]>::to_vec)))?;
        Ok(seen)
    };
    let get = || Ok(engine.get(&key(one))?.map(|value| value.to_vec()));
    let get_both = || {
        let both = engine.multi_get(&keys)?;
        Ok(both.into_iter().flatten().map(|value| value.to_vec()).collect::<Vec<_>>())
    };
    let scan = || scanned(engine, three, 2);

    let refused = [
        impatiently(get).is_none(),
        impatiently(get_both).is_none(),
        impatiently(scan).is_none(),
        impatiently(shown).is_none(),
    ];
    {
        // A thread that may wait does.
        let _may_wait = BlockingThread::enter();
        assert_eq!(impatiently(get), Some(Some(value(one))));
    }
    // Whoever is not asked for haste waits, too.
    let (both, found) = ([value(two), value(two + 1)], [value(three), value(three + 1)]);
    assert_eq!(get_both().unwrap(), both);
    assert_eq!(scan().unwrap(), found);
    assert_eq!(shown().unwrap(), [value(four)]);

    // Now all of it is in memory, if not in the engine's.
    assert_eq!(impatiently(get), Some(Some(value(one))));
    assert_eq!(impatiently(get_both).unwrap(), both);
    assert_eq!(impatiently(scan).unwrap(), found);
    assert_eq!(impatiently(shown).unwrap(), [value(four)]);
    refused == [true; 4]
}

/// A file's access time is in its inode, and the block that this is in may have to be read first.
#[test]
fn reads_change_no_access_times_below() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (engine, _) = cold(directory.path());
    // Those that there are now: what the journal has may still be on its way, and compaction takes some away and makes others.
    let opened = || -> Vec<File> {
        let names = tables(directory.path());
        names.iter().filter_map(|name| File::open(directory.path().join(name)).ok()).collect()
    };
    let until = Instant::now() + Duration::from_secs(60);
    let mut tables = opened();
    while tables.is_empty() {
        assert!(Instant::now() < until, "it does not go down");
        sleep(Duration::from_millis(5));
        tables = opened();
    }
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for table in &tables {
        table.set_times(std::fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    }
    let accessed = |tables: &[File]| {
        tables.iter().filter(|table| table.metadata().unwrap().accessed().unwrap() > long_ago).count()
    };
    assert_eq!(scanned(&engine, 0, VALUES as usize).unwrap().len(), VALUES as usize);
    assert_eq!(accessed(&tables), 0);
    // Anybody else's read would.
    for table in &mut tables {
        table.read_exact(&mut [0]).unwrap();
    }
    if accessed(&tables) == 0 {
        eprintln!("not tried: {} is on a file system without access times", directory.path().display());
    }
}

#[test]
fn what_was_committed_just_now_is_given_and_commits_go_on_behind_a_refusal() {
    let ask = || {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (engine, tells) = cold(directory.path());
        commit(&engine, &changes(vec![Change::put(key(7), value(70))]));
        assert_eq!(impatiently(|| engine.get(&key(7))).flatten().as_deref(), Some(&value(70)[..]));
        let given = impatiently(|| engine.get(&key(3400)));
        commit(&engine, &changes(vec![Change::put(key(3400), value(1))]));
        assert_eq!(impatiently(|| engine.get(&key(3400))).flatten().as_deref(), Some(&value(1)[..]));
        drop(engine);
        let engine = open(directory.path());
        for number in 0..VALUES {
            let expected = value(match number {
                7 => 70,
                3400 => 1,
                other => other,
            });
            assert_eq!(engine.get(&key(number)).unwrap().as_deref(), Some(&expected[..]), "{number}");
        }
        if tells { given } else { None }
    };
    assert!(is_refused(ask));
}

/// New keys are put in order by the first scan that meets them, and that of many takes its time.
#[test]
fn many_new_keys_are_put_in_order_for_who_has_patience() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = open(directory.path());
    let put = |numbers: std::ops::Range<u64>| {
        commit(&engine, &changes(numbers.map(|number| Change::put(key(number), b"new".to_vec())).collect()));
    };
    put(0..100);
    assert_eq!(impatiently(|| scanned(&engine, 0, 2)).map(|found| found.len()), Some(2), "a few are");
    let all = VALUES * 2;
    put(100..all);
    let count = || {
        let mut found = 0;
        engine.scan(&key(0), &key(all), &mut |_, _| {
            found += 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    };
    assert_eq!(impatiently(count), None);
    assert_eq!(count().unwrap(), all);
    assert_eq!(impatiently(count), Some(all));
    put(all..all + 10);
    assert_eq!(impatiently(count), Some(all));
}

/// As rmdir(2) of a directory does of which everything has just been removed.
#[test]
fn many_removed_keys_are_passed_over_for_who_has_patience() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = open(directory.path());
    let put = |engine: &EmbeddedEngine, numbers: std::ops::Range<u64>| {
        commit(engine, &changes(numbers.map(|number| Change::put(key(number), b"new".to_vec())).collect()));
    };
    let remove = |engine: &EmbeddedEngine, numbers: std::ops::Range<u64>| {
        commit(engine, &changes(numbers.map(|number| Change::delete(key(number))).collect()));
    };
    // In the intake, put in order.
    put(&engine, 0..10_001);
    assert_eq!(scanned(&engine, 0, 1).unwrap().len(), 1);
    remove(&engine, 0..4000);
    assert_eq!(impatiently(|| scanned(&engine, 0, 1)).map(|found| found.len()), Some(1), "a few are");
    remove(&engine, 4000..10_000);
    assert_eq!(impatiently(|| scanned(&engine, 0, 1)), None);
    // Below: first what was put goes there, then that it was removed (together they would leave nothing there). A journal goes down that has
    // some MiB; of many more tables are made than lie there before they are merged, which leaves nothing of them either.
    let goes_down = |engine: EmbeddedEngine| {
        for number in 50_000..50_000 + VALUES / 4 {
            commit(&engine, &changes(vec![Change::put(key(number), value(number))]));
        }
        drop(engine);
        let before = tables(directory.path());
        let engine = open(directory.path());
        let until = Instant::now() + Duration::from_secs(60);
        while tables(directory.path()).is_subset(&before) {
            assert!(Instant::now() < until, "it does not go down");
            sleep(Duration::from_millis(5));
        }
        engine
    };
    put(&engine, 0..10_001);
    let engine = goes_down(engine);
    remove(&engine, 0..10_000);
    let engine = goes_down(engine);
    assert_eq!(impatiently(|| scanned(&engine, 0, 1)), None);
    assert_eq!(scanned(&engine, 0, 1).unwrap().len(), 1);
}

#[test]
fn a_scan_that_breaks_off_has_not_gone_past_what_it_could_not_read() {
    over_cold(|engine| {
        // In memory, behind what the disk has alone.
        let later = (2410..2420).map(|number| Change::put(key(number), value(1)));
        commit(engine, &changes(later.collect()));
        let refused = impatiently(|| scanned(engine, 2400, 2)).is_none();
        assert_eq!(scanned(engine, 2400, 2).unwrap(), [value(2400), value(2401)]);
        refused
    });
}

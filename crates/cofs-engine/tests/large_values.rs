//! Values as large as small files, after they have gone to RocksDB: where they are cached, and where not.

mod common;

use std::{fs::File, io::IoSliceMut, path::Path, thread::sleep, time::Duration};

use cofs_engine::{Change, EmbeddedEngine, EmbeddedOptions, Engine, KeyShape};
use common::{MEMORY_BYTES, changes, come_to_rest, commit, shown};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use rustix::{
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags},
};

const VALUE_BYTES: usize = 4096;
const VALUES: u64 = 4000;

/// Small files' bytes are in the order of their numbers.
const SHAPE: KeyShape = KeyShape {
    family_bytes: 1,
    number: |key| key.get(1..)?.try_into().ok().map(u64::from_be_bytes),
    whole: |_| true,
    scanned: |_| 1,
};

fn key(number: u64) -> Vec<u8> {
    [b"B", &number.to_be_bytes()[..]].concat()
}

/// All but the youngest values have left the journal when this returns.
fn full(directory: &Path) -> EmbeddedEngine {
    let options =
        EmbeddedOptions { create: true, keys: SHAPE, ..EmbeddedOptions::new(directory, MEMORY_BYTES) };
    let engine = EmbeddedEngine::open(&options).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    for number in 0..VALUES {
        let mut value = vec![0; VALUE_BYTES];
        rng.fill(&mut value[..]);
        commit(&engine, &changes(vec![Change::put(key(number), value)]));
    }
    come_to_rest(&engine);
    engine
}

/// The tables; one that compaction has just removed is none.
fn tables(directory: &Path) -> impl Iterator<Item = File> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    tables.filter_map(|path| File::open(path).ok())
}

/// Bytes of the tables that are in the kernel's cache, and all bytes of them. `None`, said: the file system here doesn't tell.
fn cached(directory: &Path) -> Option<(u64, u64)> {
    let (mut cached, mut all) = (0, 0);
    let mut page = [0; 4096];
    for table in tables(directory) {
        // What is asked for and not there is read, but nothing besides.
        fadvise(&table, 0, None, Advice::Random).unwrap();
        let len = table.metadata().unwrap().len();
        for at in (0..len).step_by(page.len()) {
            match rustix::io::preadv2(&table, &mut [IoSliceMut::new(&mut page)], at, ReadWriteFlags::NOWAIT) {
                Ok(count) => cached += count as u64,
                Err(Errno::AGAIN) => {}
                Err(Errno::OPNOTSUPP) => {
                    println!("SKIPPED: the file system here does not tell what is cached");
                    return None;
                }
                Err(errno) => panic!("{errno}"),
            }
        }
        all += len;
    }
    Some((cached, all))
}

#[test]
fn what_was_drained_is_read_without_the_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = full(directory.path());
    let Some((cached, all)) = cached(directory.path()) else { return };
    assert!(all > VALUES * VALUE_BYTES as u64 / 2, "little was drained: {all} bytes");
    assert!(cached > all * 3 / 4, "{cached} of {all} bytes are in the kernel's cache");
    drop(engine);
}

#[test]
fn the_kernel_reads_ahead_where_values_are_read_in_order() {
    const RUN: u64 = 16;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(full(directory.path()));
    // Bytes that are in the kernel's cache after so many values have been read in each of eight places, from the disk.
    let read = |run: u64| {
        for table in tables(directory.path()) {
            table.sync_all().unwrap();
            fadvise(&table, 0, None, Advice::DontNeed).unwrap();
        }
        // Nothing is compacted meanwhile.
        let options = EmbeddedOptions {
            read_only: true,
            keys: SHAPE,
            ..EmbeddedOptions::new(directory.path(), MEMORY_BYTES)
        };
        let engine = EmbeddedEngine::open(&options).unwrap();
        for place in (0..VALUES / 2).step_by(VALUES as usize / 16) {
            (place..place + run).for_each(|number| assert!(shown(&engine, &[&key(number)])[0].is_some()));
        }
        cached(directory.path())
    };
    // The first of a run brings indexes and filters, too.
    let (Some((first, all)), Some((whole, _))) = (read(1), read(RUN)) else { return };
    if first > all / 2 {
        return println!("SKIPPED: the file system here keeps everything in memory");
    }
    let (came, asked) = (whole - first, 8 * (RUN - 1) * VALUE_BYTES as u64);
    assert!(came > asked * 3 / 2, "{came} bytes came for {asked}");
}

#[test]
fn what_is_shown_takes_no_memory_of_the_engines() {
    let directory = tempfile::tempdir().unwrap();
    let engine = full(directory.path());
    let show = |numbers: Vec<u64>| {
        let keys: Vec<_> = numbers.into_iter().map(key).collect();
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        let values = shown(&engine, &keys);
        assert!(values.into_iter().all(|value| value.is_some_and(|value| value.len() == VALUE_BYTES)));
    };
    // Indexes and filters are read now.
    (0..VALUES / 2).step_by(100).for_each(|number| show(vec![number]));
    let before = engine.stats().memory_bytes;
    (0..VALUES / 4).for_each(|number| show(vec![number]));
    (VALUES / 4..VALUES / 2).step_by(4).for_each(|number| show((number..number + 4).collect()));
    let shown = engine.stats().memory_bytes.saturating_sub(before);
    assert!(shown < 1 << 20, "{shown} bytes");
    for number in 0..VALUES / 2 {
        assert_eq!(engine.get(&key(number)).unwrap().unwrap().len(), VALUE_BYTES);
    }
    let got = engine.stats().memory_bytes.saturating_sub(before);
    assert!(got > shown + (1 << 20), "the test shows nothing: {got} bytes after as many were got");
}

/// They come from memory, and follow what is written and removed behind them.
#[test]
fn values_that_left_the_journal_last_are_shown_from_memory() {
    // What is remembered of what has left the journal is an eighth of the memory. As much as two segments of the journal hold:
    const OUT: u64 = (MEMORY_BYTES as u64) / 14 / 4096;
    const LAST: u64 = (MEMORY_BYTES as u64) / 20 / 4096;
    let directory = tempfile::tempdir().unwrap();
    let engine = full(directory.path());
    let value = |number| shown(&engine, &[&key(number)]).pop().flatten();
    // Behind these the last of the others leave the journal, when there is time.
    let push_out = |from: u64| {
        let more = |number| commit(&engine, &changes(vec![Change::put(key(number), vec![7; VALUE_BYTES])]));
        (from..from + OUT).for_each(more);
        let has_left = || {
            let hits = engine.stats().cache_hits;
            value(VALUES - 3).is_some() && engine.stats().cache_hits > hits
        };
        let waited = (0..200).any(|_| {
            sleep(Duration::from_millis(50));
            has_left()
        });
        assert!(waited, "nothing leaves the journal");
    };
    push_out(VALUES);
    let (hits, misses) = (engine.stats().cache_hits, engine.stats().cache_misses);
    let last = (VALUES - LAST..VALUES).map(value).collect::<Vec<_>>();
    let now = engine.stats();
    assert!(now.cache_hits - hits > LAST / 2, "{} of {LAST}", now.cache_hits - hits);
    assert!(now.cache_misses - misses < LAST / 2);
    assert!(last.iter().all(|value| value.as_ref().is_some_and(|value| value.len() == VALUE_BYTES)));
    // As of now RocksDB, whose tables it goes by after a start, agrees.
    for number in VALUES - LAST..VALUES {
        let change = match number % 3 {
            0 => Change::delete(key(number)),
            1 => Change::put(key(number), vec![number as u8; 100 + number as usize % 4000]),
            _ => continue,
        };
        commit(&engine, &changes(vec![change]));
    }
    push_out(2 * VALUES);
    let after = (VALUES - LAST..VALUES).map(value).collect::<Vec<_>>();
    for ((number, before), after) in (VALUES - LAST..VALUES).zip(&last).zip(&after) {
        match number % 3 {
            0 => assert!(after.is_none()),
            1 => assert_eq!(after.as_deref(), Some(&vec![number as u8; 100 + number as usize % 4000][..])),
            _ => assert!(after == before),
        }
    }
    drop(engine);
    let options = EmbeddedOptions { keys: SHAPE, ..EmbeddedOptions::new(directory.path(), MEMORY_BYTES) };
    let engine = EmbeddedEngine::open(&options).unwrap();
    assert!((VALUES - LAST..VALUES).map(|number| shown(&engine, &[&key(number)]).pop().flatten()).eq(after));
}

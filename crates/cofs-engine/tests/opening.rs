//! A store that can't be opened says why, and is left as it was.

mod common;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use cofs_engine::{Batch, Change, EmbeddedEngine, EmbeddedOptions, Engine, EngineError, EngineHealth};
use common::{MEMORY_BYTES, Small, changes, commit, delete, open, put, scan};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rustix::io::Errno;

fn options(directory: &Path) -> EmbeddedOptions {
    EmbeddedOptions::new(directory, MEMORY_BYTES)
}

fn refused(options: &EmbeddedOptions, errno: Errno, words: &str) -> EngineError {
    let Err(error) = EmbeddedEngine::open(options) else { panic!("opened: {options:?}") };
    assert_eq!(error.errno, Some(errno.raw_os_error()), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.what.contains(&*options.directory.to_string_lossy()), "{error} names no directory");
    error
}

/// A store with one record in it, closed.
fn store() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    commit(&open(directory.path()), &changes(vec![put("k", "v")]));
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn nothing_there() {
    let directory = tempfile::tempdir().unwrap();
    refused(&options(&directory.path().join("missing")), Errno::NOENT, "no metadata");
    refused(&options(directory.path()), Errno::NOENT, "no metadata");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn something_else_there() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "\\begin").unwrap();
    for create in [false, true] {
        refused(
            &EmbeddedOptions { create, ..options(directory.path()) },
            Errno::INVAL,
            "not a cofs metadata",
        );
    }
    assert_eq!(names(directory.path()), ["thesis.tex"]);
    let marked = store();
    fs::write(marked.path().join("cofs-engine"), "cofs eng").unwrap();
    refused(
        &options(marked.path()),
        Errno::INVAL,
        "its file cofs-engine is damaged); name another, or restore",
    );
    let file = directory.path().join("thesis.tex");
    refused(&options(&file), Errno::NOTDIR, "ot a directory");
}

#[test]
fn made_by_a_newer_version() {
    let directory = store();
    fs::write(directory.path().join("cofs-engine"), "cofs engine, rocksdb, version 5\n").unwrap();
    refused(&options(directory.path()), Errno::INVAL, "newer cofs");
    fs::write(directory.path().join("cofs-engine"), "cofs engine, rocksdb, version 99999999999999\n")
        .unwrap();
    refused(&options(directory.path()), Errno::INVAL, "newer cofs");
    fs::write(directory.path().join("cofs-engine"), b"\xff\xfe").unwrap();
    refused(&options(directory.path()), Errno::INVAL, "not a cofs metadata");
}

#[test]
fn one_of_an_older_version_becomes_one_that_an_older_cofs_refuses() {
    let directory = store();
    let marker = directory.path().join("cofs-engine");
    for version in 1..4 {
        assert_eq!(fs::read_to_string(&marker).unwrap(), "cofs engine, rocksdb, version 4\n");
        fs::write(&marker, format!("cofs engine, rocksdb, version {version}\n")).unwrap();
        let reader = EmbeddedOptions { read_only: true, ..options(directory.path()) };
        assert!(EmbeddedEngine::open(&reader).unwrap().get(b"k").unwrap().is_some());
        assert!(fs::read_to_string(&marker).unwrap().ends_with(&format!(" {version}\n")));
        drop(open(directory.path()));
    }
    assert_eq!(fs::read_to_string(&marker).unwrap(), "cofs engine, rocksdb, version 4\n");
    assert!(open(directory.path()).get(b"k").unwrap().is_some());
}

#[test]
fn a_lost_journal_is_noticed() {
    let directory = store();
    for journal in names(directory.path()).into_iter().filter(|name| name.starts_with("journal-")) {
        fs::write(directory.path().join(journal), "nonsense").unwrap();
    }
    refused(&options(directory.path()), Errno::UCLEAN, "journal-N are illegible); restore the directory");
    for journal in names(directory.path()).into_iter().filter(|name| name.starts_with("journal-")) {
        fs::remove_file(directory.path().join(journal)).unwrap();
    }
    refused(&options(directory.path()), Errno::UCLEAN, "lacks its journal");
    refused(
        &EmbeddedOptions { read_only: true, ..options(directory.path()) },
        Errno::UCLEAN,
        "lacks its journal",
    );
}

#[test]
fn a_reader_beside_a_busy_writer_sees_one_state() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut last = 0;
    for round in 1..=20_u32 {
        // Some segments' worth a round, so that the journal moves on and is drained meanwhile.
        for number in 0..200_u32 {
            let value = [&round.to_be_bytes()[..], &[7; 2000]].concat();
            commit(&engine, &changes(vec![put(number.to_be_bytes(), value.clone()), put("head", value)]));
        }
        let reader = EmbeddedEngine::open(&EmbeddedOptions { read_only: true, ..options(directory.path()) });
        let reader = match reader {
            Err(error) if error.errno == Some(Errno::BUSY.raw_os_error()) => continue,
            reader => reader.unwrap(),
        };
        let rounds = |engine: &EmbeddedEngine| {
            let pairs = scan(engine, b"", b"z", 1000);
            pairs
                .iter()
                .map(|(_, value)| u32::from_be_bytes(value[..4].try_into().unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(rounds(&reader), [round; 201]);
        assert_eq!(reader.get(b"head").unwrap(), engine.get(b"head").unwrap());
        last = round;
    }
    assert!(last > 0, "no round could be looked at");
}

#[test]
fn never_completed() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let marker = fs::read(directory.path().join("cofs-engine")).unwrap();
    let half = tempfile::tempdir().unwrap();
    fs::write(half.path().join("cofs-engine"), marker).unwrap();
    refused(&options(half.path()), Errno::UCLEAN, "never completed");
    open(half.path());
}

#[test]
fn in_use() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, &changes(vec![put("k", "v")]));
    refused(&options(directory.path()), Errno::BUSY, "in use");
    let reader =
        EmbeddedEngine::open(&EmbeddedOptions { read_only: true, ..options(directory.path()) }).unwrap();
    assert!(reader.get(b"k").unwrap().is_some());
    drop(engine);
    open(directory.path());
}

#[test]
fn read_only_changes_nothing() {
    let directory = store();
    let before = names(directory.path());
    let engine =
        EmbeddedEngine::open(&EmbeddedOptions { read_only: true, ..options(directory.path()) }).unwrap();
    assert_eq!(scan(&engine, b"", b"z", 10).len(), 1);
    let error = engine.commit(&changes(vec![put("k", "w")])).unwrap_err();
    assert_eq!(error.errno, Some(Errno::ROFS.raw_os_error()));
    assert!(engine.sync().is_err());
    drop(engine);
    assert_eq!(names(directory.path()), before);
}

#[test]
fn damaged() {
    for (name, damage) in [("CURRENT", &b"nonsense\n"[..]), ("MANIFEST-", &[0xff; 4096])] {
        let directory = store();
        let victims = names(directory.path()).into_iter().filter(|n| n.starts_with(name));
        for victim in victims {
            fs::write(directory.path().join(victim), damage).unwrap();
        }
        let Err(error) = EmbeddedEngine::open(&options(directory.path())) else { panic!("{name} opened") };
        assert_eq!(error.errno, Some(Errno::UCLEAN.raw_os_error()), "{name}: {error}");
    }
}

#[test]
fn a_manifest_that_is_not_there_is_damage_and_no_missing_store() {
    for (name, damage, words) in
        [("MANIFEST-", None, ", which CURRENT names, is gone"), ("CURRENT", Some(""), "names no manifest")]
    {
        let directory = store();
        for victim in names(directory.path()).into_iter().filter(|n| n.starts_with(name)) {
            let path = directory.path().join(victim);
            damage.map_or_else(|| fs::remove_file(&path), |text| fs::write(&path, text)).unwrap();
        }
        for read_only in [true, false] {
            let options = EmbeddedOptions { read_only, ..options(directory.path()) };
            refused(&options, Errno::UCLEAN, words);
        }
    }
}

/// A FIFO would be waited for, for ever.
#[test]
fn what_stands_in_the_place_of_a_file_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for (name, refusal) in [
        ("cofs-engine", Some((Errno::INVAL, "its file cofs-engine is damaged"))),
        ("CURRENT", Some((Errno::UCLEAN, "CURRENT: it is a FIFO"))),
        ("MANIFEST-", Some((Errno::UCLEAN, ": it is a FIFO"))),
        // Whether a segment had been made ready beside it by then or not.
        ("journal-0", Some((Errno::UCLEAN, "journal-"))),
        ("manifest-length", None),
        ("IDENTITY", Some((Errno::UCLEAN, "IDENTITY must be a file"))),
        ("OPTIONS-", Some((Errno::UCLEAN, " must be a file"))),
        ("000", Some((Errno::UCLEAN, ".sst must be a file"))),
    ] {
        let directory = store();
        if name == "000" {
            put_until_drained(&open(directory.path()), directory.path());
            let log = names(directory.path()).into_iter().find(|n| n.ends_with(".log"));
            log.into_iter().for_each(|log| fs::remove_file(directory.path().join(log)).unwrap());
        }
        let victim = names(directory.path()).into_iter().find(|n| n.starts_with(name)).unwrap();
        let path = directory.path().join(victim);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        match refusal {
            Some((errno, words)) => drop(refused(&options(directory.path()), errno, words)),
            None => drop(open(directory.path())),
        }
    }
}

fn tables(directory: &Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| name.ends_with(".sst")).collect()
}

/// Has `engine` put keys, from 0 on, until there is a table; how many they are.
fn put_until_drained(engine: &EmbeddedEngine, directory: &Path) -> u32 {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut number = 0_u32;
    while tables(directory).is_empty() {
        let mut value = vec![0; 1 << 16];
        rng.fill(&mut value[..]);
        commit(engine, &changes(vec![put(number.to_be_bytes(), value)]));
        number += 1;
    }
    number
}

#[test]
fn a_lost_table_is_damage_and_no_missing_store() {
    let directory = store();
    put_until_drained(&open(directory.path()), directory.path());
    let tables = tables(directory.path());
    tables.iter().for_each(|table| fs::remove_file(directory.path().join(table)).unwrap());
    refused(&options(directory.path()), Errno::UCLEAN, ".sst");
}

#[test]
fn a_manifest_without_its_end_is_damage_and_the_tables_stay() {
    let directory = tempfile::tempdir().unwrap();
    let keys = put_until_drained(&open(directory.path()), directory.path());
    let manifest = fs::read_to_string(directory.path().join("CURRENT")).unwrap();
    let manifest = directory.path().join(manifest.trim_end());
    let whole = fs::read(&manifest).unwrap();
    let before = tables(directory.path());
    for cut in [1, 20, whole.len() / 2] {
        fs::write(&manifest, &whole[..whole.len() - cut]).unwrap();
        for read_only in [true, false] {
            let options = EmbeddedOptions { read_only, ..options(directory.path()) };
            refused(&options, Errno::UCLEAN, "has lost its end");
        }
    }
    assert_eq!(tables(directory.path()), before);
    fs::write(&manifest, &whole).unwrap();
    let engine = open(directory.path());
    let all = scan(&engine, b"", &[0xff], usize::MAX).len();
    assert_eq!(all, usize::try_from(keys).unwrap());
}

/// As a crash leaves it, and as it comes from an older cofs.
#[test]
fn what_is_noted_of_an_earlier_manifest_says_nothing() {
    let (directory, copy) = (store(), tempfile::tempdir().unwrap());
    let engine = open(directory.path());
    // What the first life left in the journal becomes a table; a copy made meanwhile would be of two times.
    heals(|| {
        let names = names(directory.path());
        let has = |is: fn(&str) -> bool| names.iter().any(|name| is(name));
        has(|name| name.ends_with(".sst")) && !has(|name| name.starts_with("new-table-"))
    });
    for name in names(directory.path()) {
        fs::copy(directory.path().join(&name), copy.path().join(&name)).unwrap();
    }
    drop(engine);
    assert!(open(copy.path()).get(b"k").unwrap().is_some());
    for note in ["", "MANIFEST-0", "MANIFEST-999999 5\n"] {
        fs::write(copy.path().join("manifest-length"), note).unwrap();
        assert!(open(copy.path()).get(b"k").unwrap().is_some());
    }
}

#[test]
fn reopening_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5_u8 {
        let engine = open(directory.path());
        assert_eq!(scan(&engine, b"", b"z", 1000).len(), usize::from(round) * 50);
        commit(&engine, &changes((0..50_u8).map(|i| put([b'k', round, i], [0; 500])).collect()));
    }
}

#[test]
fn lives_too_short_to_drain_anything_leave_no_more_files() {
    let directory = tempfile::tempdir().unwrap();
    for life in 0..30_u8 {
        let engine = open(directory.path());
        assert_eq!(scan(&engine, b"", b"z", 1000).len(), usize::from(life));
        commit(&engine, &changes(vec![put([b'k', life], [0; 500])]));
    }
    let journal = names(directory.path()).into_iter().filter(|name| name.starts_with("journal-")).count();
    assert!(journal <= 4, "{journal} files");
}

/// Fills the file system of `directory` to the last byte.
fn fill(directory: &Path) {
    use std::io::Write;
    let mut ballast = fs::File::options().append(true).create(true).open(directory.join("ballast")).unwrap();
    for block in [1 << 20, 4096, 1] {
        while ballast.write_all(&vec![1; block]).is_ok() {}
    }
}

fn upkeep(changed: Vec<Change>) -> Batch<'static> {
    Batch { upkeep: true, ..changes(changed) }
}

fn heals(healed: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !healed() {
        assert!(Instant::now() < until, "it does not heal");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_file_system_refuses_what_grows_and_takes_what_makes_room() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let full = small.path();
    let store = full.join("store");
    let enospc = Some(Errno::NOSPC.raw_os_error());
    let engine = open(&store);
    let key = |number: u32| format!("k{number:06}").into_bytes();
    const KEYS: u32 = 50_000;
    for number in 0..KEYS {
        commit(&engine, &changes(vec![put(key(number), "v")]));
    }
    fill(full);
    let mut bytes = vec![0; 100_000];
    SmallRng::seed_from_u64(1).fill(&mut bytes[..]); // which no table makes smaller
    let big = |number: u32| changes(vec![put(format!("big{number}"), bytes.clone())]);
    let failed = (0..1000).find_map(|number| engine.commit(&big(number)).err()).expect("never full");
    assert_eq!(failed.errno, enospc, "{failed}");
    assert_eq!(engine.commit(&changes(vec![put("small", "v")])).unwrap_err().errno, enospc);
    assert!(engine.get(&key(0)).unwrap().is_some(), "reads go on");
    fill(full);
    // More than the journal has room for: with the space set aside.
    for number in 0..KEYS - 1 {
        commit(&engine, &changes(vec![delete(key(number))]));
    }
    engine.sync().unwrap();
    drop(engine);

    let engine = open(&store);
    assert!(engine.get(&key(0)).unwrap().is_none());
    commit(&engine, &changes(vec![delete(key(KEYS - 1))]));
    fs::remove_file(full.join("ballast")).unwrap();
    heals(|| engine.commit(&big(0)).is_ok());
    engine.sync().unwrap();
    drop(engine);
    let engine = open(&store);
    assert!(store.join("reserve").exists());
    assert!(engine.get(&key(KEYS - 1)).unwrap().is_none());
}

#[test]
fn what_grows_is_refused_until_the_reserve_is_back() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let store = small.path().join("store");
    let engine = open(&store);
    fill(small.path());
    let mut bytes = vec![0; 50_000];
    SmallRng::seed_from_u64(1).fill(&mut bytes[..]); // which no table makes smaller
    let grow = |number: u32| engine.commit(&changes(vec![put(number.to_be_bytes(), bytes.clone())]));
    (0..1000).find_map(|number| grow(number).err()).expect("never full");
    // More than the journal has room for, and nothing of it goes below: so all that grew is there, where the reserve was.
    for number in 0..50_000 {
        commit(&engine, &changes(vec![delete(format!("absent {number}"))]));
    }
    assert!(!store.join("reserve").exists());
    assert_eq!(grow(0).unwrap_err().errno, Some(Errno::NOSPC.raw_os_error()));
    assert!(matches!(engine.stats().health, EngineHealth::Full(_)));
    commit(&engine, &upkeep(vec![put("new name", "v"), delete("old name")]));
    fs::remove_file(small.path().join("ballast")).unwrap();
    heals(|| grow(0).is_ok());
    assert!(store.join("reserve").exists());
    heals(|| matches!(engine.stats().health, EngineHealth::Healthy));
}

#[test]
fn a_store_on_a_full_file_system_opens() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let store = small.path().join("store");
    commit(&open(&store), &changes(vec![put("k", "v")]));
    fill(small.path());
    let engine = open(&store);
    assert!(store.join("reserve").exists(), "opening has one of its own");
    commit(&engine, &changes(vec![delete("k")]));
    engine.sync().unwrap();
    // What there is is not for what grows.
    let grow = |number: u32| engine.commit(&changes(vec![put(number.to_be_bytes(), [0; 1000])]));
    assert_eq!(grow(0).unwrap_err().errno, Some(Errno::NOSPC.raw_os_error()));
    assert!(matches!(engine.stats().health, EngineHealth::Full(_)));
    commit(&engine, &upkeep(vec![put("opened", "by me")]));
    commit(&engine, &changes(vec![delete("k")]));
    fs::remove_file(small.path().join("ballast")).unwrap();
    heals(|| grow(0).is_ok());
    assert!(store.join("reserve").exists());
    heals(|| matches!(engine.stats().health, EngineHealth::Healthy));
}

#[test]
fn a_store_on_a_full_file_system_opens_again_and_again() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let store = small.path().join("store");
    let reserve_bytes = || fs::metadata(store.join("reserve")).unwrap().len();
    commit(&open(&store), &changes(vec![put("k", "v")]));
    let whole = reserve_bytes();
    for life in 0..12_u8 {
        // Whatever the one before has left.
        fill(small.path());
        let engine = open(&store);
        commit(&engine, &upkeep(vec![put("k", [life])]));
        engine.sync().unwrap();
        drop(engine);
        assert!(reserve_bytes() >= whole / 4, "{life}: {} of {whole}", reserve_bytes());
    }
}

/// The reserve was given up in a life before, and what the volume was full of took its space.
#[test]
fn a_full_store_without_its_reserve_opens_again_and_again_and_heals() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting takes the superuser");
        return;
    };
    let store = small.path().join("store");
    commit(&open(&store), &changes(vec![put("k", "v")]));
    fs::remove_file(store.join("reserve")).unwrap();
    for life in 0..12_u8 {
        // Whatever the one before has left.
        fill(small.path());
        let engine = open(&store);
        assert_eq!(scan(&engine, b"life", b"lifes", 1000).len(), usize::from(life));
        commit(&engine, &upkeep(vec![put(format!("life {life}"), [life])]));
        if life % 3 == 0 {
            commit(&engine, &changes(vec![delete("absent")]));
        }
        fill(small.path());
        engine.sync().unwrap();
        assert!(!store.join("reserve").exists());
        assert!(fs::metadata(store.join("reserve-opening")).unwrap().len() > 200_000, "{life}");
    }
    let engine = open(&store);
    commit(&engine, &changes(vec![delete("k")]));
    fs::remove_file(small.path().join("ballast")).unwrap();
    heals(|| engine.commit(&changes(vec![put("grows", "v")])).is_ok());
    heals(|| store.join("reserve").exists());
}

#[test]
fn nothing_is_preallocated_below_the_journal() {
    let directory = store();
    let settings = names(directory.path()).into_iter().rfind(|name| name.starts_with("OPTIONS-")).unwrap();
    let settings = fs::read_to_string(directory.path().join(settings)).unwrap();
    assert!(settings.contains("allow_fallocate=false"), "{settings}");
}

#[test]
fn the_number_of_keys_is_known_after_opening() {
    let directory = tempfile::tempdir().unwrap();
    {
        let engine = open(directory.path());
        for part in 0..100_u8 {
            commit(
                &engine,
                &changes(
                    (0..1000_u16)
                        .map(|i| put([&[part][..], &i.to_be_bytes()].concat(), [part; 100]))
                        .collect(),
                ),
            );
        }
    }
    let keys = open(directory.path()).stats().keys_estimate;
    assert!((80_000..120_000).contains(&keys), "{keys}");
}

#[test]
fn figures_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, &changes((0..50_u8).map(|i| put([i], [0; 500])).collect()));
    // What is asked for again and again is cached, be it that there is none.
    for _ in 0..20 {
        engine.get(&[77]).unwrap();
    }
    let stats = engine.stats();
    assert!(stats.disk_bytes > 25_000 && stats.memory_bytes > 10_000, "{stats:?}");
    assert!(stats.keys_estimate == 50 && stats.cache_hits >= 1 && stats.cache_misses >= 1, "{stats:?}");
}

#[test]
fn a_bit_that_flipped_in_the_journal_since_the_close_is_told() {
    let directory = store();
    let journal = directory.path().join("journal-0");
    let whole = fs::read(&journal).unwrap();
    let mut flipped = whole.clone();
    flipped[75] ^= 1;
    fs::write(&journal, flipped).unwrap();
    for read_only in [true, false] {
        let options = EmbeddedOptions { read_only, ..options(directory.path()) };
        refused(&options, Errno::UCLEAN, "is damaged at byte 64");
    }
    fs::write(&journal, whole).unwrap();
    assert!(open(directory.path()).get(b"k").unwrap().is_some());
}

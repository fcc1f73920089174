//! A power cut takes what was not synced, from the end: what is left of the embedded engine is a prefix of
//! the commits, and holds everything that was synced.
//!
//! The cut is made on a copy of the directory: the journal is cut off, or overwritten with garbage, at any
//! byte behind the last sync. (Pages that reach the disk in any order, and segments that are drained meanwhile: see the
//! tests of the intake.)

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cofs_engine::{EmbeddedEngine, EmbeddedOptions, Engine};
use common::{changes, commit, open, put, scan, synced};
use rand::{Rng, SeedableRng, rngs::StdRng};

const COMMITS: u32 = 60;
const SYNCED_AT: u32 = 25;

fn number_key(number: u32) -> Vec<u8> {
    format!("n{number:08}").into_bytes()
}

/// Commit `number`: two records. The last byte is not 0, so that the journal's end can be told.
fn make(engine: &dyn Engine, number: u32) {
    let padding = vec![number as u8 | 1; 1 + (number as usize * 977) % 3000];
    commit(engine, &changes(vec![put("head", number.to_le_bytes()), put(number_key(number), padding)]));
}

/// Checks that the store holds the commits from 1 to some number, whole, and returns that number.
fn prefix(engine: &dyn Engine) -> u32 {
    let head = engine.get(b"head").unwrap().map_or(0, |v| u32::from_le_bytes(v[..].try_into().unwrap()));
    let found = scan(engine, b"n", b"o", usize::MAX);
    let expected: Vec<Vec<u8>> = (1..=head).map(number_key).collect();
    assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
    head
}

/// The journal's files, with the generations of their segments.
fn logs(directory: &Path) -> Vec<(u64, PathBuf)> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let journal = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal-"));
    let generation = |path: &PathBuf| {
        fs::read(path).unwrap().get(8..16).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    };
    journal.map(|path| (generation(&path), path)).collect()
}

/// The segment of the journal that was written to last: that of the highest generation that has records.
fn newest_log(directory: &Path) -> PathBuf {
    logs(directory).into_iter().filter(|(_, path)| length(path) > 64).max().unwrap().1
}

/// Up to the last byte that was written.
fn length(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at as u64 + 1)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("reserve") {
            continue;
        }
        fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// The store's directory as a process leaves it that ended without a word, and the length of its log at
/// the last sync.
fn store() -> (tempfile::TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for number in 1..=SYNCED_AT {
        make(&engine, number);
    }
    engine.sync().unwrap();
    let synced_bytes = length(&newest_log(directory.path()));
    for number in SYNCED_AT + 1..=COMMITS {
        make(&engine, number);
    }
    let left = copy(directory.path());
    (left, synced_bytes)
}

#[derive(Clone, Copy, Debug)]
enum Tail {
    CutOff,
    Zeros,
    Garbage,
}

fn tear(log: &Path, at: u64, tail: Tail, rng: &mut StdRng) {
    let mut file = OpenOptions::new().write(true).open(log).unwrap();
    let lost_bytes = length(log) - at;
    file.seek(SeekFrom::Start(at)).unwrap();
    match tail {
        Tail::CutOff => file.set_len(at).unwrap(),
        Tail::Zeros => file.write_all(&vec![0; lost_bytes as usize]).unwrap(),
        Tail::Garbage => {
            let mut garbage = vec![0; lost_bytes as usize];
            rng.fill(&mut garbage[..]);
            file.write_all(&garbage).unwrap();
        }
    }
}

#[test]
fn what_is_left_is_a_prefix_that_holds_all_that_was_synced() {
    let (left, synced_bytes) = store();
    let full_bytes = length(&newest_log(left.path()));
    let mut rng = StdRng::seed_from_u64(1);
    let mut heads = Vec::new();
    for round in 0..60 {
        let torn = copy(left.path());
        let at = if round == 0 { synced_bytes } else { rng.random_range(synced_bytes..=full_bytes) };
        let tail = [Tail::CutOff, Tail::Zeros, Tail::Garbage][round % 3];
        tear(&newest_log(torn.path()), at, tail, &mut rng);
        let head = prefix(&open(torn.path()));
        assert!(head >= SYNCED_AT, "synced commits lost: {head} left, cut at {at} ({tail:?})");
        heads.push(head);
    }
    assert!(heads.iter().any(|head| *head < COMMITS), "no cut lost anything: nothing was at stake");
    assert_eq!(heads[0], SYNCED_AT, "cut right behind the sync");
}

#[test]
fn a_torn_store_goes_on_and_can_be_cut_again() {
    let (left, synced_bytes) = store();
    let log = newest_log(left.path());
    let middle = (synced_bytes + length(&log)) / 2;
    tear(&log, middle, Tail::Garbage, &mut StdRng::seed_from_u64(2));
    let first = {
        let engine = open(left.path());
        let head = prefix(&engine);
        assert!((SYNCED_AT..COMMITS).contains(&head), "{head}");
        make(&engine, head + 1);
        make(&engine, head + 2);
        engine.sync().unwrap();
        make(&engine, head + 3);
        head
    };
    // Of a power cut there is no note: that would be of a close in order.
    fs::remove_file(left.path().join("end-of-journal")).unwrap();
    // The old segment, torn in its middle, may still be there; the new one goes on from where it broke off.
    let log = newest_log(left.path());
    tear(&log, length(&log) - 1, Tail::CutOff, &mut StdRng::seed_from_u64(3));
    for _ in 0..3 {
        assert_eq!(prefix(&open(left.path())), first + 2);
    }
}

#[test]
fn a_synced_commit_needs_no_sync() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    make(&engine, 1);
    commit(&engine, &synced(vec![put("synced", "yes")]));
    let synced_bytes = length(&newest_log(directory.path()));
    make(&engine, 2);
    let torn = copy(directory.path());
    let log = newest_log(torn.path());
    File::options().write(true).open(&log).unwrap().set_len(synced_bytes).unwrap();
    let engine = open(torn.path());
    assert_eq!(prefix(&engine), 1);
    assert!(engine.get(b"synced").unwrap().is_some());
}

/// The journal's files, without those of the segment that is written to and of the one that is made ready.
fn ended_logs(directory: &Path) -> Vec<PathBuf> {
    let mut journal = logs(directory);
    journal.sort_by_key(|(generation, _)| *generation);
    journal.truncate(journal.len().saturating_sub(2));
    journal.into_iter().map(|(_, path)| path).filter(|path| length(path) > 64).collect()
}

/// Nothing of the journal is synced when it is drained.
#[test]
fn what_was_drained_does_not_need_the_journal_any_more() {
    const COMMITS: u32 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for number in 1..=COMMITS {
        make(&engine, number);
    }
    // Or its files would go while they are copied.
    common::come_to_rest(&engine);
    for tail in [Tail::Zeros, Tail::Garbage] {
        let from = Instant::now();
        let left = loop {
            let left = copy(directory.path());
            let lost = ended_logs(left.path());
            assert!(!lost.is_empty(), "nothing is at stake");
            // All but the headers, which are synced.
            for log in lost {
                tear(&log, 64, tail, &mut StdRng::seed_from_u64(4));
            }
            let reader = EmbeddedOptions {
                read_only: true,
                ..EmbeddedOptions::new(left.path(), common::MEMORY_BYTES)
            };
            let read = prefix(&EmbeddedEngine::open(&reader).unwrap());
            assert_eq!(prefix(&open(left.path())), read, "who reads has the same");
            if read == COMMITS {
                break left;
            }
            assert!(from.elapsed() < Duration::from_secs(60), "what the journal lost is lost ({tail:?})");
            thread::sleep(Duration::from_millis(100));
        };
        let engine = open(left.path());
        make(&engine, COMMITS + 1);
        drop(engine);
        assert_eq!(prefix(&open(left.path())), COMMITS + 1);
    }
}

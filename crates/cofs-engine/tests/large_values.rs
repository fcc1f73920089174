//! Values as large as small files, after they have gone to RocksDB: where they are cached, and where not.

mod common;

use std::{fs::File, io::IoSliceMut, path::Path};

use cofs_engine::{Change, EmbeddedEngine, EmbeddedOptions, Engine, KeyShape};
use common::{MEMORY_BYTES, changes, commit, shown};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use rustix::io::{Errno, ReadWriteFlags};

const VALUE_BYTES: usize = 4096;
const VALUES: u64 = 4000;

/// Small files' bytes are in the order of their numbers.
const SHAPE: KeyShape = KeyShape {
    family_bytes: 1,
    number: |key| key.get(1..)?.try_into().ok().map(u64::from_be_bytes),
    whole: |_| true,
};

fn key(number: u64) -> Vec<u8> {
    [b"B", &number.to_be_bytes()[..]].concat()
}

/// All but the youngest values have left the journal when this returns: it has not the room for them.
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
    engine
}

/// Bytes of a file that are in the kernel's cache, and all bytes of it. `None`: the file system doesn't say.
fn cached(file: &File) -> Option<(u64, u64)> {
    let (len, mut at, mut cached) = (file.metadata().unwrap().len(), 0, 0);
    let mut page = [0; 4096];
    while at < len {
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut page)], at, ReadWriteFlags::NOWAIT) {
            Ok(count) => cached += count as u64,
            Err(Errno::AGAIN) => {}
            Err(Errno::OPNOTSUPP) => return None,
            Err(errno) => panic!("{errno}"),
        }
        at += page.len() as u64;
    }
    Some((cached, len))
}

#[test]
fn what_was_drained_is_read_without_the_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = full(directory.path());
    let tables = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let tables: Vec<_> = tables.filter(|path| path.extension().is_some_and(|end| end == "sst")).collect();
    let (mut all_cached, mut all) = (0, 0);
    for table in tables {
        // One that compaction has just removed is none.
        let Ok(file) = File::open(table) else { continue };
        let Some((cached, len)) = cached(&file) else {
            println!("SKIPPED: the file system here does not tell what is cached");
            return;
        };
        all_cached += cached;
        all += len;
    }
    assert!(all > VALUES * VALUE_BYTES as u64 / 2, "little was drained: {all} bytes");
    assert!(all_cached > all * 3 / 4, "{all_cached} of {all} bytes are in the kernel's cache");
    drop(engine);
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

//! A volume with any records in its engine: checks, repairs and look-ups end, without a panic, and repairs
//! lead to a sound volume.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use cofs_engine::{Batch, Change, Engine, MemoryEngine};
use cofs_namespace::{
    Namespace, OpenInodes, VolumeOptions, WithNodes,
    check::{Checker, repair},
};
use cofs_types::{Authority, Credentials, InodeId, Name, Timestamp, XattrName};
use libfuzzer_sys::fuzz_target;

struct Closed;

impl OpenInodes for Closed {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

/// A record whose key is likely to be one: a tag, a small inode number, and what follows.
#[derive(Arbitrary, Debug)]
struct Record {
    tag: u8,
    number: u8,
    rest: Vec<u8>,
    value: Vec<u8>,
}

const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

fuzz_target!(|records: Vec<Record>| {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let options = VolumeOptions { inline_bytes_max: 8192, hash_key: [0; 16] };
    Namespace::format(&*engine, &options, (0, 0, 0o755), NOW).expect("an empty engine is formatted");
    let changes = records.iter().map(|record| {
        let tag = b"EIBXSWURZ"[usize::from(record.tag) % 9];
        let mut key = vec![0, 0, tag];
        key.extend_from_slice(&u64::from(record.number).to_be_bytes());
        key.extend_from_slice(&record.rest);
        let mut value = record.value.clone();
        // Most are of the version that is known.
        if let Some(version) = value.first_mut().filter(|_| record.tag < 0xe0) {
            *version = 1;
        }
        Change::put(key, value)
    });
    let batch = Batch { changes: changes.collect(), ..Batch::default() };
    engine.commit(&batch).expect("memory takes it");
    look(&engine);
    for _ in 0..20 {
        let found = match Checker::new(&*engine).check() {
            Ok(found) => found,
            Err(error) => {
                let is_newer = |record: &Record| {
                    record.tag >= 0xe0 && record.value.first().is_some_and(|version| *version > 1)
                };
                assert!(records.iter().any(is_newer), "the header is whole: {error}");
                return look(&engine);
            }
        };
        if found.problems.is_empty() {
            look(&engine);
            return;
        }
        repair(&engine, &found.problems, NOW).expect("repairs go through");
    }
    panic!("still wrong: {:?}", Checker::new(&*engine).check());
});

/// Asks all that can be asked; errors are answers.
fn look(engine: &Arc<dyn Engine>) {
    let ns = Namespace::open(Arc::clone(engine), Arc::new(Closed)).expect("the header is whole");
    let c = &Credentials { uid: 1, gid: 1, groups: &[], authority: Authority::Unchecked };
    let name = Name::new(b"a").expect("a name");
    let xattr = XattrName::new(b"user.a").expect("a name");
    let mut buffer = [0; 8192];
    for ino in (1..20).filter_map(InodeId::new) {
        let _ = (ns.node(ino), ns.parent(ino), ns.readlink(ino), ns.listxattr(ino));
        let _ = (ns.lookup(c, ino, name), ns.access(c, ino, 7), ns.getxattr(c, ino, xattr));
        let _ = (ns.inline_read(ino, 0, &mut buffer), ns.list(ino, 0, WithNodes::All, 99, &mut |_| true));
    }
    let _ = (ns.writing_set(None, 99), ns.unsynced_set(None, 99), ns.unlinked_set(None, 99), ns.reclaim_list(99));
}

//! `cofs load` of any bytes, and of any lines between a sound first and last line (which random bytes would not have): it loads a
//! volume that can be opened, checked, repaired and dumped, or refuses it, and then the engine holds none.
#![no_main]

use std::{hash::Hasher, sync::Arc};

use cofs_engine::{Engine, MemoryEngine};
use cofs_namespace::{
    Namespace, OpenInodes,
    check::{Checker, repair},
    dump,
};
use cofs_types::{InodeId, Timestamp};
use libfuzzer_sys::fuzz_target;
use siphasher::sip::SipHasher13;

const HEADER: &str = "{\"cofs-dump\":{\"version\":1,\"inline_bytes_max\":16384,\
    \"hash_key\":\"255a3ee8038f4f039177f444f4fcf6c1\",\"inodes_next\":18}}\n";
const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

struct Closed;

impl OpenInodes for Closed {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

fuzz_target!(|bytes: &[u8]| {
    load(bytes);
    load(&whole(bytes));
});

/// The lines of a dump in a whole one.
fn whole(lines: &[u8]) -> Vec<u8> {
    let mut text = [HEADER.as_bytes(), lines].concat();
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    let records = text.iter().filter(|byte| **byte == b'\n').count() - 1;
    let mut hasher = SipHasher13::new();
    hasher.write(&text);
    let end = format!("{{\"end\":{{\"records\":{records},\"checksum\":\"{:016x}\"}}}}\n", hasher.finish());
    text.extend_from_slice(end.as_bytes());
    text
}

fn load(bytes: &[u8]) {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let loaded = dump::load(&*engine, &mut &*bytes);
    let opened = Namespace::open(Arc::clone(&engine), Arc::new(Closed));
    assert_eq!(loaded.is_ok(), opened.is_ok());
    if loaded.is_err() {
        return;
    }
    let text = dumped(&*engine);
    let copy = MemoryEngine::new();
    dump::load(&copy, &mut &*text).expect("what was dumped can be loaded");
    assert_eq!(text, dumped(&copy));
    for _ in 0..20 {
        let found = Checker::new(&*engine).check().expect("what was loaded can be checked");
        if found.problems.is_empty() {
            return;
        }
        repair(&engine, &found.problems, NOW).expect("repairs go through");
    }
    panic!("still wrong: {:?}", Checker::new(&*engine).check());
}

fn dumped(engine: &dyn Engine) -> Vec<u8> {
    let mut text = Vec::new();
    dump::dump(engine, &mut text).expect("what was loaded can be dumped");
    text
}

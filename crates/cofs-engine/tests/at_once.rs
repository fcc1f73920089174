//! Who will not wait is answered from memory, or told that it would take longer.

mod common;

use std::ops::ControlFlow;

use cofs_engine::{AtOnce, Engine, EngineError};
use common::{changes, commit, delete, open, put};

const KEYS: u32 = 3000;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// A store whose records are in tables mostly, opened anew: of those nothing is in memory.
fn store() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for number in 0..KEYS {
        // Two of three are large.
        let len = if number % 3 == 0 { 10 } else { 4000 };
        commit(&engine, &changes(vec![put(key(number), vec![number as u8; len])]));
    }
    directory
}

fn waits<T>(answer: Result<T, EngineError>) -> bool {
    match answer {
        Ok(_) => false,
        Err(error) => {
            assert!(error.would_wait(), "{error}");
            true
        }
    }
}

#[test]
fn what_is_not_in_memory_is_not_waited_for() {
    let directory = store();
    let engine = open(directory.path());
    let at_once = |ask: &dyn Fn() -> bool| {
        let _at_once = AtOnce::enter();
        ask()
    };
    let get = |number: u32| waits(engine.get(&key(number)));
    let absent = || waits(engine.get(b"key-00000-none"));
    let many = |numbers: [u32; 2]| {
        let keys = numbers.map(key);
        waits(engine.multi_get(&[&keys[0], &keys[1]]))
    };
    let show = |number: u32| waits(engine.show(&[&key(number)], &mut |_, _| {}));
    let scan = || {
        let mut seen = 0;
        let scanned = engine.scan(&key(0), &key(100), &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        });
        !waits(scanned) && seen == 100
    };

    assert!(at_once(&|| get(0)) && at_once(&absent) && at_once(&|| many([3, 6])));
    assert!(at_once(&|| show(1)) && !at_once(&scan));
    assert!(!get(0) && !absent() && !many([3, 6]) && !show(1) && scan(), "who waits gets all");
    // What was small is in memory now, and what was made lately always was.
    assert!(!at_once(&|| get(0)) && !at_once(&absent) && !at_once(&|| many([3, 6])));
    assert!(!at_once(&|| get(KEYS - 1)));
    commit(&engine, &changes(vec![put("new", "value"), delete(key(1))]));
    assert!(!at_once(&|| waits(engine.get(b"new"))) && !at_once(&|| get(1)) && !at_once(&|| show(1)));

    // Within each other, and only on their own thread.
    let outer = AtOnce::enter();
    drop(AtOnce::enter());
    assert!(AtOnce::is_wanted());
    std::thread::scope(|scope| assert!(!scope.spawn(AtOnce::is_wanted).join().unwrap()));
    drop(outer);
    assert!(!AtOnce::is_wanted());
}

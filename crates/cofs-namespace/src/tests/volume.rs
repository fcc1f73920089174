//! Format, open, close, and who may write.

use cofs_engine::{Batch, Change, Engine};
use cofs_types::{FileKind, FsError, PoolEnd, PoolId};

use super::*;
use crate::schema::{HeaderPart, key};

#[test]
fn a_store_is_formatted_once() {
    let w = World::new();
    let root = w.stat(ROOT);
    assert_eq!((root.kind, root.permissions, root.nlink), (FileKind::Directory, 0o755, 2));
    assert_eq!(w.ns.parent(ROOT).unwrap().attributes.ino, ROOT);
    fails(Namespace::format(&*w.engine, &w.ns.options(), (0, 0, 0o755), at(1)), FsError::Exists);
    let too_much = VolumeOptions { inline_bytes_max: 65_537, ..w.ns.options() };
    fails(
        Namespace::format(&MemoryEngine::new(), &too_much, (0, 0, 0o755), at(1)),
        FsError::InvalidArgument(""),
    );
    let nothing: Arc<MemoryEngine> = Arc::default();
    fails(Namespace::open(nothing, w.opens.clone()), FsError::corrupt(""));
}

#[test]
fn a_newer_format_is_refused_with_what_to_do() {
    let w = World::new();
    let mut value = b"cofs".to_vec();
    value.extend([99, 1, 2, 3]);
    let change = Change::put(key::header(HeaderPart::Volume), value);
    w.engine.commit(&Batch { changes: vec![change], ..Default::default() }).unwrap();
    let error = Namespace::open(w.engine.clone(), w.opens.clone()).err().unwrap();
    assert!(error.to_string().contains("format version 99"), "{error}");
}

#[test]
fn the_last_to_open_is_the_only_one_to_write() {
    let w = World::new();
    let second = World::over(w.engine.clone());
    let made = w.ns.create(&C, at(9), ROOT, name("f"), &new(FileKind::Regular, 0o644));
    fails(made, FsError::Engine("".into()));
    second.file(ROOT, "f");
    second.audit();
}

#[test]
fn a_close_is_remembered_and_final() {
    let w = World::new();
    assert!(w.ns.was_clean());
    let d = w.dir(ROOT, "d");
    w.ns.create(&C, at(4000), d, name("f"), &new(FileKind::Regular, 0o644)).unwrap();
    let crashed = World::over(w.engine.clone());
    assert!(!crashed.ns.was_clean());
    crashed.ns.unlink(&C, at(5000), d, name("f")).unwrap();
    let files = crashed.ns.files();
    crashed.ns.close(at(9)).unwrap();
    fails(crashed.ns.setattr(&C, at(9), d, &Default::default()), FsError::Engine("".into()));
    let again = World::over(crashed.engine.clone());
    assert!(again.ns.was_clean());
    assert_eq!((again.ns.files(), again.stat(d).mtime), (files, at(5000)));
}

#[test]
fn a_number_of_files_that_a_crash_left_behind_is_no_error_and_a_repair_counts_anew() {
    use crate::check::{Checker, Problem, repair};
    let w = World::new();
    let d = w.dir(ROOT, "d");
    w.ns.flush(at(1)).unwrap();
    let counted = w.ns.files();
    w.file(d, "f"); // counted only in memory
    let crashed = World::over(w.engine.clone());
    assert_eq!(crashed.ns.files(), counted, "nobody scans at a start");
    crashed.ns.close(at(2)).unwrap();
    let engine = crashed.engine.clone();
    assert!(Checker::new(&*engine).check().unwrap().problems.is_empty());
    let found = Checker::for_repair(&*engine).check().unwrap().problems;
    assert_eq!(found, [Problem::FileCount { stored: Some(counted), found: counted + 1 }]);
    let any: std::sync::Arc<dyn cofs_engine::Engine> = engine.clone();
    repair(&any, &found, at(3)).unwrap();
    assert!(Checker::for_repair(&*engine).check().unwrap().problems.is_empty());
    // From here on it is right again, and wrong would be an error.
    let again = World::over(engine);
    assert_eq!(again.ns.files(), counted + 1);
    again.ns.close(at(4)).unwrap();
    assert!(Checker::new(&*again.engine).check().unwrap().problems.is_empty());
}

#[test]
fn the_ends_of_the_pools_are_remembered_as_they_were_reserved_last() {
    let w = World::new();
    let end = |pool, end, generation| PoolEnd { pool: PoolId(pool), end, generation };
    let again = || Namespace::open(w.engine.clone(), w.opens.clone()).unwrap();
    let ns = again();
    assert_eq!(ns.pool_ends(), []);
    ns.note_pool_ends(&[end(3, 50, 0)]).unwrap();
    ns.note_pool_ends(&[end(3, 4097, 5)]).unwrap();
    // From before.
    ns.note_pool_ends(&[end(1, 9, 2), end(3, 50, 4)]).unwrap();
    let ns = again();
    assert_eq!(ns.pool_ends(), [end(1, 9, 2), end(3, 4097, 5)]);
    ns.note_pool_ends(&[end(3, 60, 6)]).unwrap();
    assert_eq!(again().pool_ends(), [end(1, 9, 2), end(3, 60, 6)]);
}

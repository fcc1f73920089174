use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use cofs_engine::{Engine, MemoryEngine};
use cofs_types::{
    Credentials, FileKind, FsError, InodeId, Kills, Name, NewInode, ObjectId, PoolEnd, PoolId, Timestamp,
    XattrMode, XattrName,
};
use proptest::prelude::*;

use super::{dump, load};
use crate::{
    Namespace, OpenInodes, VolumeOptions,
    check::Checker,
    schema::{Key, ranges},
};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

struct Closed;

impl OpenInodes for Closed {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

/// The volume of the example in `docs/design/dump.md`.
fn example() -> Arc<dyn Engine> {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let options = VolumeOptions { inline_bytes_max: 4096, hash_key: [7; 16] };
    Namespace::format(&*engine, &options, (0, 0, 0o755), NOW).unwrap();
    let ns = Namespace::open(Arc::clone(&engine), Arc::new(Closed)).unwrap();
    let c = &Credentials::ROOT;
    let make = |name: &[u8], kind, target| {
        let new = NewInode { kind, permissions: 0o644, umask: 0, rdev: 0, target };
        ns.create(c, NOW, InodeId::ROOT, Name::new(name).unwrap(), &new).unwrap().attributes.ino
    };
    let file = make(b"notes 100%", FileKind::Regular, b"");
    ns.inline_write(NOW, file, 0, b"hello\n", Kills::Capabilities).unwrap();
    let set = |name: &[u8], value: &[u8]| {
        let name = XattrName::new(name).unwrap();
        ns.setxattr(c, NOW, file, name, value, XattrMode::Set, false).unwrap();
    };
    set(b"user.colour", b"red");
    let large = make(b"\xff", FileKind::Regular, b"");
    ns.outgrow(NOW, large, ObjectId::from_raw(5)).unwrap();
    make(b"link", FileKind::Symlink, b"notes 100%");
    make(b"dir", FileKind::Directory, b"");
    ns.reclaim_put(&[ObjectId::from_raw(4)]).unwrap();
    ns.close(NOW).unwrap();
    engine
}

fn text_of(engine: &dyn Engine) -> Vec<u8> {
    let mut text = Vec::new();
    dump(engine, &mut text).unwrap();
    text
}

/// All records but the header's, which tell what happened to the engine and not to the volume.
fn records(engine: &dyn Engine) -> Vec<(Bytes, Bytes)> {
    let (mut out, range) = (Vec::new(), ranges::everything());
    let mut visit = |key: &[u8], value: &[u8]| {
        if !matches!(Key::parse(key), Ok(Key::Header(_))) {
            out.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
        ControlFlow::Continue(())
    };
    engine.scan(&range.start, &range.end, &mut visit).unwrap();
    out
}

fn loaded(text: &[u8]) -> Result<MemoryEngine, FsError> {
    let engine = MemoryEngine::new();
    if let Err(error) = load(&engine, &mut &*text) {
        // Whatever stands there: it is no volume.
        assert!(Namespace::open(Arc::new(engine), Arc::new(Closed)).is_err());
        return Err(error);
    }
    Ok(engine)
}

#[test]
fn the_example_in_the_docs_is_what_is_written() {
    let page = include_str!("../../../../docs/design/dump.md");
    let example_in_page = page.split("```").nth(1).unwrap().trim_start_matches("json\n");
    let written = String::from_utf8(text_of(&*example())).unwrap();
    assert_eq!(written, example_in_page, "the page's example is not what is written");
}

#[test]
fn a_dump_loads_to_the_same_volume() {
    let engine = example();
    let text = text_of(&*engine);
    let again = loaded(&text).unwrap();
    assert_eq!(records(&again), records(&*engine));
    assert_eq!(text_of(&again), text);
    assert_eq!(Checker::new(&again).check().unwrap().problems, []);
    let ns = Namespace::open(Arc::new(again), Arc::new(Closed)).unwrap();
    // Behind the last object that is named.
    assert_eq!(ns.pool_ends(), [PoolEnd { pool: PoolId(0), end: 6, generation: 0 }]);
    let found = ns.lookup(&Credentials::ROOT, InodeId::ROOT, Name::new(b"\xff").unwrap()).unwrap();
    assert!(found.writing);
}

#[test]
fn a_loaded_volume_knows_whether_it_has_labels() {
    let label = XattrName::new(b"security.selinux").unwrap();
    let c = &Credentials::ROOT;
    let asked = |engine: Arc<dyn Engine>| {
        let ns = Namespace::open(engine, Arc::new(Closed)).unwrap();
        ns.getxattr(c, InodeId::ROOT, label).unwrap_err()
    };
    let engine = example();
    assert!(matches!(asked(Arc::new(loaded(&text_of(&*engine)).unwrap())), FsError::NotSupported));
    // Within the inode's line, and on a line of its own.
    for len in [10, 3000] {
        let engine = example();
        let ns = Namespace::open(Arc::clone(&engine), Arc::new(Closed)).unwrap();
        let file = ns.lookup(c, InodeId::ROOT, Name::new(b"\xff").unwrap()).unwrap().attributes.ino;
        ns.setxattr(c, NOW, file, label, &vec![1; len], XattrMode::Set, false).unwrap();
        ns.close(NOW).unwrap();
        let again = Arc::new(loaded(&text_of(&*engine)).unwrap());
        assert!(matches!(asked(again), FsError::NoAttribute));
    }
}

#[test]
fn only_an_empty_engine_is_loaded() {
    let engine = example();
    let text = text_of(&*engine);
    assert!(matches!(load(&*engine, &mut &*text), Err(FsError::Exists)));
}

#[test]
fn a_dump_that_is_not_whole_is_refused_with_its_line() {
    let text = text_of(&*example());
    let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
    let says = |text: Vec<u8>, what: &str| {
        let error = loaded(&text).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    };
    says(Vec::new(), "line 1: the first line");
    says(lines[..3].concat(), "line 4: the dump ends");
    says(text[..text.len() - 1].to_vec(), "has no end");
    says([&lines[..2], &lines[3..]].concat().concat(), "records");
    says([&lines[..], &lines[1..2]].concat().concat(), "behind the last line");
    says([&lines[..1], &lines[..]].concat().concat(), "line 2: a second header");
    says([lines[0], b"{\"inode\":{}}\n"].concat(), "line 2: missing field");
    says([lines[0], b"{\"secret\":1}\n"].concat(), "line 2: unknown variant");
    says([lines[0], &vec![b' '; 1 << 20]].concat(), "line 2: the line has no end, or is too long");
    let newer = String::from_utf8(text.clone()).unwrap().replace("\"version\":1", "\"version\":2");
    let newer = newer.replace("\"version\":2", "\"version\":2,\"news\":[1]");
    says(newer.clone().into_bytes(), "it has version 2, this cofs reads up to 1; use a newer cofs");
    assert!(!matches!(loaded(newer.as_bytes()), Err(FsError::Corrupt(_))), "what is newer is not damaged");
    let far = newer.replace("\"version\":2", "\"version\":99999999999999");
    says(far.into_bytes(), "it has version 99999999999999, this cofs reads up to 1; use a newer cofs");
    says(newer.replace("\"version\":2,\"news\":[1]", "\"version\":0").into_bytes(), "no dump version 0");
    let changed = String::from_utf8(text).unwrap().replace("\"uid\":0", "\"uid\":5");
    says(changed.into_bytes(), "checksum");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_load_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(loaded(&bytes).is_err());
    }

    #[test]
    fn a_damaged_dump_is_refused(at in any::<prop::sample::Index>(), byte: u8) {
        let mut text = text_of(&*example());
        let at = at.index(text.len());
        prop_assume!(text[at] != byte);
        text[at] = byte;
        prop_assert!(loaded(&text).is_err());
    }

    /// Each line alone, damaged, with a header before it: the checksum is not what refuses it.
    #[test]
    fn a_damaged_line_never_panics(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8) {
        let text = text_of(&*example());
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        let mut line = lines[which.index(lines.len())].to_vec();
        let at = at.index(line.len());
        line[at] = byte;
        let _ = loaded(&[lines[0], &line].concat());
    }
}

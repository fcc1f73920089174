//! create, lookup, link, unlink, rmdir, release.

use cofs_engine::{Call, FaultEngine, FaultPlan};
use cofs_types::{FileKind, FsError, Kills, Layout, NewInode, RenameMode, SetAttributes, XattrMode};

use super::*;
use crate::{Fate, Leave, Settled};

#[test]
fn every_kind_is_created_and_found_again() {
    let w = World::new();
    let target = NewInode { target: b"a/b", ..new(FileKind::Symlink, 0o777) };
    let link = w.ns.create(&C, w.now(), ROOT, name("symlink"), &target).unwrap();
    assert_eq!((link.attributes.size_bytes, link.attributes.permissions), (3, 0o777));
    assert_eq!(&w.ns.readlink(link.attributes.ino).unwrap()[..], b"a/b");
    let device = NewInode { rdev: 0x803, ..new(FileKind::BlockDevice, 0o600) };
    let device = w.ns.create(&C, w.now(), ROOT, name("device"), &device).unwrap();
    assert_eq!(device.attributes.rdev, 0x803);
    for (n, kind) in
        [("f", FileKind::Regular), ("d", FileKind::Directory), ("p", FileKind::Fifo), ("s", FileKind::Socket)]
    {
        let made = w.make(ROOT, n, kind, 0o640);
        assert_eq!(w.ns.lookup(&C, ROOT, name(n)).unwrap(), made);
        assert_eq!((made.attributes.kind, made.attributes.permissions), (kind, 0o640));
        assert_eq!(made.attributes.nlink, if kind == FileKind::Directory { 2 } else { 1 });
    }
    assert_eq!(w.stat(ROOT).nlink, 3);
    assert_eq!(w.names(ROOT), ["d", "device", "f", "p", "s", "symlink"]);
    w.audit();
}

#[test]
fn a_name_is_made_once_and_only_in_a_directory_that_stands() {
    let w = World::new();
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    let create = |parent| w.ns.create(&C, at(9), parent, name("f"), &new(FileKind::Regular, 0o644));
    fails(create(ROOT), FsError::Exists);
    fails(create(f), FsError::NotDirectory);
    fails(create(InodeId::new(99_999).unwrap()), FsError::Stale);
    w.open(d);
    w.ns.rmdir(&C, at(9), ROOT, name("d")).unwrap();
    fails(create(d), FsError::NotFound);
    fails(w.ns.lookup(&C, f, name("x")), FsError::NotDirectory);
    fails(w.ns.lookup(&C, ROOT, name("x")), FsError::NotFound);
    w.audit();
}

#[test]
fn a_symlink_has_a_target_of_1_to_4095_bytes() {
    let w = World::new();
    let create = |target| {
        let new = NewInode { target, ..new(FileKind::Symlink, 0o777) };
        w.ns.create(&C, at(9), ROOT, name("l"), &new)
    };
    fails(create(&[]), FsError::NotFound);
    fails(create(&[b'x'; 4096]), FsError::NameTooLong);
    create(&[b'x'; 4095]).unwrap();
}

#[test]
fn a_create_sets_all_times_and_its_directory_s() {
    let w = World::new();
    let made = w.ns.create(&C, at(50), ROOT, name("f"), &new(FileKind::Regular, 0o644)).unwrap();
    let a = made.attributes;
    assert_eq!([a.atime, a.mtime, a.ctime, a.btime], [at(50); 4]);
    let root = w.stat(ROOT);
    assert_eq!([root.atime, root.mtime, root.ctime, root.btime], [at(1), at(50), at(50), at(1)]);
}

#[test]
fn an_inode_lives_as_long_as_its_last_name() {
    let w = World::new();
    let f = w.file(ROOT, "a");
    assert_eq!(w.ns.link(&C, at(60), f, ROOT, name("b")).unwrap().attributes.nlink, 2);
    fails(w.ns.link(&C, at(60), f, ROOT, name("b")), FsError::Exists);
    fails(w.ns.link(&C, at(60), w.dir(ROOT, "d"), ROOT, name("e")), FsError::NotPermitted);
    let first = w.ns.unlink(&C, at(61), ROOT, name("a")).unwrap();
    assert_eq!((first.fate, first.node.attributes.nlink), (Fate::Linked, 1));
    assert_eq!(first.node.attributes.ctime, at(61));
    let last = w.ns.unlink(&C, at(62), ROOT, name("b")).unwrap();
    assert_eq!((last.fate, last.node.attributes.nlink), (Fate::Gone, 0));
    fails(w.ns.node(f), FsError::Stale);
    fails(w.ns.unlink(&C, at(62), ROOT, name("b")), FsError::NotFound);
    fails(w.ns.unlink(&C, at(62), ROOT, name("d")), FsError::IsDirectory);
    w.audit();
}

#[test]
fn an_open_inode_outlives_its_last_name_until_it_is_released() {
    let w = World::new();
    let f = w.ns.outgrow(at(9), w.file(ROOT, "f"), object(5)).unwrap();
    assert!(f.writing && f.layout == Layout::Object(object(5)));
    let f = f.attributes.ino;
    w.open(f);
    let removed = w.ns.unlink(&C, at(62), ROOT, name("f")).unwrap();
    assert_eq!((removed.fate, w.stat(f).nlink), (Fate::Kept, 0));
    assert_eq!(w.ns.unlinked_set(None, 9).unwrap(), [f]);
    fails(w.ns.link(&C, at(63), f, ROOT, name("again")), FsError::NotFound);
    w.ns.release_unlinked(at(63), f).unwrap();
    assert_eq!(w.stat(f).nlink, 0, "still open: a release is nothing");
    w.audit();
    w.close(f);
    fails(w.ns.node(f), FsError::Stale);
    assert_eq!(w.ns.reclaim_list(9).unwrap(), [object(5)]);
    assert!(w.ns.unlinked_set(None, 9).unwrap().is_empty() && w.ns.writing_set(None, 9).unwrap().is_empty());
    w.ns.reclaimed(&[object(5)]).unwrap();
    assert!(w.ns.reclaim_list(9).unwrap().is_empty());
    w.audit();
}

#[test]
fn a_file_without_a_name_gets_one_only_if_it_may() {
    let w = World::new();
    let tmp = |linkable| {
        let made = w.ns.create_unlinked(&C, at(9), ROOT, &new(FileKind::Regular, 0o600), linkable).unwrap();
        assert_eq!(made.attributes.nlink, 0);
        w.open(made.attributes.ino);
        made.attributes.ino
    };
    let (a, b) = (tmp(true), tmp(false));
    w.audit();
    fails(w.ns.link(&C, at(10), b, ROOT, name("b")), FsError::NotFound);
    assert_eq!(w.ns.link(&C, at(10), a, ROOT, name("a")).unwrap().attributes.nlink, 1);
    assert_eq!(w.ns.unlinked_set(None, 9).unwrap(), [b]);
    w.close(a);
    w.close(b);
    assert_eq!(w.find(ROOT, "a").unwrap(), a);
    fails(w.ns.node(b), FsError::Stale);
    w.audit();
}

#[test]
fn only_an_empty_directory_is_removed() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    let e = w.dir(d, "e");
    fails(w.ns.rmdir(&C, at(9), ROOT, name("d")), FsError::NotEmpty);
    w.file(ROOT, "f");
    fails(w.ns.rmdir(&C, at(9), ROOT, name("f")), FsError::NotDirectory);
    fails(w.ns.rmdir(&C, at(9), ROOT, name("g")), FsError::NotFound);
    w.open(e);
    assert_eq!(w.ns.rmdir(&C, at(9), d, name("e")).unwrap().fate, Fate::Kept);
    assert_eq!((w.stat(d).nlink, w.stat(e).nlink), (2, 0));
    assert_eq!(w.ns.parent(e).unwrap().attributes.ino, d);
    w.audit();
    assert_eq!(w.ns.rmdir(&C, at(9), ROOT, name("d")).unwrap().fate, Fate::Gone);
    fails(w.ns.parent(e), FsError::Stale);
    assert!(w.names(e).is_empty());
    w.close(e);
    assert_eq!(w.stat(ROOT).nlink, 2);
    w.audit();
}

#[test]
fn numbers_are_never_used_twice_and_neighbours_lie_together() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    let first: Vec<_> = (0..8).map(|n| w.file(d, &format!("{n}")).get()).collect();
    assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 1), "{first:?}");
    let highest = *first.last().unwrap();
    for n in 0..8 {
        w.ns.unlink(&C, at(9), d, name(&format!("{n}"))).unwrap();
    }
    assert!(w.file(d, "next").get() > highest);
    // A crash loses the reservation, a close gives it back.
    let crashed = World::over(w.engine.clone());
    assert!(crashed.file(d, "after").get() > highest + 1000);
    crashed.ns.close(at(9)).unwrap();
    let again = World::over(crashed.engine.clone());
    let (a, b) = (again.find(d, "after").unwrap(), again.file(d, "later"));
    assert!(b > a && b.get() - a.get() < 1000);
}

/// A volume whose engine counts what it is asked.
fn counting() -> (Arc<FaultEngine>, Arc<Opens>, Namespace) {
    let memory = Arc::new(MemoryEngine::new());
    let options = VolumeOptions { inline_bytes_max: INLINE_MAX, hash_key: [7; 16] };
    Namespace::format(&*memory, &options, (0, 0, 0o755), at(1)).unwrap();
    let engine = Arc::new(FaultEngine::new(memory, FaultPlan::new()));
    let opens = Arc::new(Opens::default());
    let ns = Namespace::open(engine.clone(), opens.clone()).unwrap();
    (engine, opens, ns)
}

#[test]
fn where_there_is_no_space_what_is_there_can_be_changed_and_removed() {
    let (engine, opens, ns) = counting();
    let make = |n: &str, kind| ns.create(&C, at(2), ROOT, name(n), &new(kind, 0o644));
    let [f, g] = ["f", "g"].map(|n| make(n, FileKind::Regular).unwrap().attributes.ino);
    make("d", FileKind::Directory).unwrap();
    ns.link(&C, at(2), f, ROOT, name("f2")).unwrap();
    ns.inline_write(at(2), f, 0, b"bytes", Kills::Capabilities).unwrap();
    ns.flush(at(3)).unwrap();
    engine.set_full(true);

    let full = || FsError::NoSpace;
    fails(make("more", FileKind::Regular), full());
    fails(make("more", FileKind::Directory), full());
    fails(ns.create_unlinked(&C, at(4), ROOT, &new(FileKind::Regular, 0o644), true), full());
    fails(ns.link(&C, at(4), f, ROOT, name("f3")), full());
    fails(ns.inline_write(at(4), g, 0, b"bytes", Kills::Capabilities), full());
    fails(ns.setxattr(&C, at(4), g, xname("user.x"), b"v", XattrMode::Set, false), full());

    let mode = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    ns.setattr(&C, at(5), g, &mode).unwrap();
    ns.setattr(&C, at(5), f, &SetAttributes { size_bytes: Some(0), ..SetAttributes::default() }).unwrap();
    ns.outgrow(at(5), g, object(1)).unwrap();
    let settled = Settled { size_bytes: 70_000, blocks_512: 144, ..Settled::default() };
    ns.settle(g, &settled, Leave::Synced).unwrap();
    ns.rename(&C, at(5), (ROOT, name("g")), (ROOT, name("a longer name")), RenameMode::Replace).unwrap();
    ns.unlink(&C, at(5), ROOT, name("f2")).unwrap();
    opens.0.lock().insert(f);
    ns.unlink(&C, at(5), ROOT, name("f")).unwrap();
    opens.0.lock().clear();
    ns.release_unlinked(at(5), f).unwrap();
    ns.unlink(&C, at(5), ROOT, name("a longer name")).unwrap();
    ns.reclaimed(&[object(1)]).unwrap();
    ns.rmdir(&C, at(5), ROOT, name("d")).unwrap();
    ns.close(at(6)).unwrap();
    drop(ns);
    let ns = Namespace::open(engine, opens).unwrap();
    assert_eq!(ns.files(), 1);
}

#[test]
fn new_names_in_a_young_directory_are_not_looked_for() {
    const NAMES: u64 = 100;
    let (engine, opens, ns) = counting();
    let make = |ns: &Namespace, dir, name: &str, kind| {
        ns.create(&C, at(2), dir, self::name(name), &new(kind, 0o755))
    };
    // What making so many asks of the engine.
    let asked = |ns: &Namespace, dir| {
        let before = engine.calls(Call::Get);
        for number in 0..NAMES {
            let name = format!("{number}");
            fails(ns.lookup(&C, dir, self::name(&name)), FsError::NotFound);
            let made = make(ns, dir, &name, FileKind::Regular).unwrap();
            fails(make(ns, dir, &name, FileKind::Regular), FsError::Exists);
            assert_eq!(ns.lookup(&C, dir, self::name(&name)).unwrap(), made);
        }
        engine.calls(Call::Get) - before
    };
    let dir = make(&ns, ROOT, "young", FileKind::Directory).unwrap().attributes.ino;
    let young = asked(&ns, dir);
    make(&ns, ROOT, "other", FileKind::Directory).unwrap();
    drop(ns);
    let ns = Namespace::open(engine.clone(), opens).unwrap();
    let old = asked(&ns, ns.lookup(&C, ROOT, name("other")).unwrap().attributes.ino);
    assert!(young < 2 * NAMES + 10 && old >= 3 * NAMES, "{young} and {old}");
}

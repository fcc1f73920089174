//! setattr, atime, and the times of directories.

use cofs_types::{FileKind, FsError, SetAttributes, SetTime, limits};

use super::*;

impl World {
    pub fn set(&self, ino: InodeId, change: SetAttributes) -> cofs_types::Attributes {
        self.ns.setattr(&C, self.now(), ino, &change).unwrap().attributes
    }
}

#[test]
fn a_change_of_owner_takes_set_id_bits_from_programs_only() {
    let w = World::new();
    let owner = SetAttributes { uid: Some(5), gid: Some(6), ..Default::default() };
    for (kind, before, after) in [
        (FileKind::Regular, 0o6755, 0o755),
        (FileKind::Regular, 0o6745, 0o2745),
        (FileKind::Directory, 0o6755, 0o6755),
    ] {
        let ino = w.make(ROOT, &format!("{before:o}{kind:?}"), kind, 0o755).attributes.ino;
        w.set(ino, SetAttributes { permissions: Some(before), ..Default::default() });
        let a = w.set(ino, owner);
        assert_eq!((a.permissions, a.uid, a.gid), (after, 5, 6), "{kind:?} {before:o}");
    }
}

#[test]
fn times_are_set_and_ctime_follows() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let change =
        SetAttributes { atime: Some(SetTime::To(at(-5))), mtime: Some(SetTime::Now), ..Default::default() };
    let a = w.ns.setattr(&C, at(77), f, &change).unwrap().attributes;
    assert_eq!([a.atime, a.mtime, a.ctime], [at(-5), at(77), at(77)]);
    w.ns.touch_atime(at(80), f).unwrap();
    let a = w.stat(f);
    assert_eq!([a.atime, a.mtime, a.ctime], [at(80), at(77), at(77)]);
}

#[test]
fn a_directory_s_own_times_are_gathered_committed_and_overridden() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    let times = |w: &World| (w.stat(d).mtime, w.stat(d).ctime);
    let create = |secs, n: &str| {
        w.ns.create(&C, at(secs), d, name(n), &new(FileKind::Regular, 0o644)).unwrap();
    };
    create(2000, "a");
    assert_eq!(times(&w), (at(2000), at(2000)));
    assert_eq!(times(&World::over(w.engine.clone())).0, w.stat(d).btime, "not yet committed");

    let w = World::over(w.engine.clone());
    w.ns.create(&C, at(2100), d, name("b"), &new(FileKind::Regular, 0o644)).unwrap();
    w.ns.flush(at(2101)).unwrap();
    assert_eq!(times(&w), (at(2100), at(2100)));
    let w = World::over(w.engine.clone());
    assert_eq!(times(&w), (at(2100), at(2100)), "committed");

    // An explicit time, even an old one, wins over what was gathered before, not over what comes behind.
    let change = SetAttributes { mtime: Some(SetTime::To(at(7))), ..Default::default() };
    w.ns.create(&C, at(2200), d, name("c"), &new(FileKind::Regular, 0o644)).unwrap();
    w.ns.setattr(&C, at(2201), d, &change).unwrap();
    assert_eq!(times(&w), (at(7), at(2201)));
    w.ns.flush(at(2202)).unwrap();
    assert_eq!(times(&w), (at(7), at(2201)));
    w.ns.unlink(&C, at(2203), d, name("c")).unwrap();
    assert_eq!(times(&w), (at(2203), at(2203)));
    w.ns.create(&C, at(2204), d, name("e"), &new(FileKind::Directory, 0o755)).unwrap();
    assert_eq!(times(&w), (at(2204), at(2204)));
    // A change of mode leaves the gathered mtime.
    w.ns.setattr(&C, at(2300), d, &SetAttributes { permissions: Some(0o700), ..Default::default() }).unwrap();
    assert_eq!(times(&w), (at(2204), at(2300)));
    audit::audit_records(&*w.engine);
}

#[test]
fn access_times_are_gathered_committed_and_overridden() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let born = w.stat(f).atime;
    let commits = w.engine.unsynced_commits();
    w.ns.touch_atime(at(2000), f).unwrap();
    assert_eq!(w.engine.unsynced_commits(), commits, "a read commits nothing");
    let mut listed = None;
    let mut visit = |entry: &crate::ListedEntry<'_>| {
        listed = entry.node.map(|node| node.attributes.atime);
        true
    };
    w.ns.list(ROOT, 0, WithNodes::All, usize::MAX, &mut visit).unwrap();
    let found = w.ns.lookup(&C, ROOT, name("f")).unwrap().attributes.atime;
    assert_eq!((w.stat(f).atime, found, listed), (at(2000), at(2000), Some(at(2000))));
    assert_eq!(World::over(w.engine.clone()).stat(f).atime, born, "not yet committed");

    let w = World::over(w.engine.clone());
    w.ns.touch_atime(at(2100), f).unwrap();
    w.ns.flush(at(2101)).unwrap();
    assert_eq!((w.stat(f).atime, w.ns.store.accesses.len()), (at(2100), 0));
    let w = World::over(w.engine.clone());
    assert_eq!(w.stat(f).atime, at(2100), "committed");

    // An explicit time, even an old one, wins over what was gathered before, not over what comes behind.
    w.ns.touch_atime(at(2200), f).unwrap();
    w.set(f, SetAttributes { atime: Some(SetTime::To(at(7))), ..Default::default() });
    assert_eq!(w.stat(f).atime, at(7));
    w.ns.flush(at(2201)).unwrap();
    assert_eq!(w.stat(f).atime, at(7));
    w.ns.touch_atime(at(2300), f).unwrap();
    assert_eq!(w.stat(f).atime, at(2300));
    // Any other change takes it along.
    let a = w.set(f, SetAttributes { permissions: Some(0o600), ..Default::default() });
    assert_eq!((a.atime, w.ns.store.accesses.len()), (at(2300), 0));
    let w = World::over(w.engine.clone());
    assert_eq!(w.stat(f).atime, at(2300));
    w.ns.touch_atime(at(2400), f).unwrap();
    w.ns.close(at(2401)).unwrap();
    fails(w.ns.touch_atime(at(2500), f), FsError::Engine("".into()));
    assert_eq!(World::over(w.engine.clone()).stat(f).atime, at(2400));
}

#[test]
fn the_access_time_of_what_is_removed_is_forgotten_or_kept_with_it() {
    let w = World::new();
    let (gone, kept) = (w.file(ROOT, "gone"), w.file(ROOT, "kept"));
    w.open(kept);
    for (ino, n) in [(gone, "gone"), (kept, "kept")] {
        w.ns.touch_atime(at(2000), ino).unwrap();
        let removed = w.ns.unlink(&C, at(2001), ROOT, name(n)).unwrap();
        assert_eq!(removed.node.attributes.atime, at(2000));
    }
    assert_eq!((w.stat(kept).atime, w.ns.store.accesses.len()), (at(2000), 0));
    // By a reader who came too late.
    w.ns.touch_atime(at(2002), gone).unwrap();
    w.ns.flush(at(2003)).unwrap();
    assert_eq!(w.ns.store.accesses.len(), 0);
    fails(w.ns.node(gone), FsError::Stale);
    w.close(kept);
    w.audit();
}

#[test]
fn the_table_of_access_times_is_bounded() {
    let w = World::new();
    let files: Vec<_> = (0..limits::ACCESS_TIMES_MAX + 100).map(|n| w.file(ROOT, &format!("{n}"))).collect();
    for &f in &files {
        w.ns.touch_atime(at(90_000_000), f).unwrap();
        assert!(w.ns.store.accesses.len() <= limits::ACCESS_TIMES_MAX);
    }
    assert!(files.iter().all(|&f| w.stat(f).atime == at(90_000_000)));
    w.ns.flush(at(9)).unwrap();
    assert_eq!(w.ns.store.accesses.len(), 0);
    let w = World::over(w.engine.clone());
    assert!(files.iter().all(|&f| w.stat(f).atime == at(90_000_000)));
}

#[test]
fn the_table_of_gathered_times_is_bounded() {
    let w = World::new();
    let dirs = limits::DIRTY_DIRECTORIES_MAX + 100;
    for n in 0..dirs {
        let d = w.dir(ROOT, &format!("{n}"));
        w.file(d, "f");
    }
    assert!(w.ns.store.gathered.len() <= limits::DIRTY_DIRECTORIES_MAX);
    w.ns.flush(at(9)).unwrap();
    assert_eq!(w.ns.store.gathered.len(), 0);
    w.audit();
}

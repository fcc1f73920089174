//! What an unchecked caller may do.

use cofs_types::{Authority, FileKind, FsError, RenameMode, SetAttributes, SetTime};

use super::*;

const ALICE: u32 = 1000;
const BOB: u32 = 1001;

fn world() -> (World, InodeId) {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    w.set(
        d,
        SetAttributes { permissions: Some(0o755), uid: Some(ALICE), gid: Some(ALICE), ..Default::default() },
    );
    (w, d)
}

fn make(w: &World, c: &Credentials<'_>, parent: InodeId, n: &str) -> FsResult<Node> {
    w.ns.create(c, w.now(), parent, name(n), &new(FileKind::Regular, 0o644))
}

#[test]
fn writing_and_searching_a_directory_is_asked_for() {
    let (w, d) = world();
    let (alice, bob) = (user(ALICE, ALICE), user(BOB, BOB));
    let f = make(&w, &alice, d, "f").unwrap().attributes;
    assert_eq!((f.uid, f.gid), (ALICE, ALICE));
    fails(make(&w, &bob, d, "g"), FsError::PermissionDenied);
    fails(make(&w, &bob, d, "f"), FsError::Exists);
    fails(w.ns.unlink(&bob, at(9), d, name("f")), FsError::PermissionDenied);
    fails(
        w.ns.rename(&bob, at(9), (d, name("f")), (d, name("g")), RenameMode::Replace),
        FsError::PermissionDenied,
    );
    w.ns.lookup(&bob, d, name("f")).unwrap();
    w.set(d, SetAttributes { permissions: Some(0o700), ..Default::default() });
    fails(w.ns.lookup(&bob, d, name("f")), FsError::PermissionDenied);
    // Someone has checked before: nothing is asked.
    w.ns.lookup(&Credentials { authority: Authority::Checked, ..bob }, d, name("f")).unwrap();
    w.ns.lookup(&user(0, 0), d, name("f")).unwrap();
}

#[test]
fn the_sticky_bit_protects_others_names() {
    let (w, d) = world();
    w.set(d, SetAttributes { permissions: Some(0o1777), uid: Some(0), ..Default::default() });
    let (alice, bob) = (user(ALICE, ALICE), user(BOB, BOB));
    make(&w, &alice, d, "a").unwrap();
    make(&w, &bob, d, "b").unwrap();
    fails(w.ns.unlink(&bob, at(9), d, name("a")), FsError::NotPermitted);
    fails(
        w.ns.rename(&bob, at(9), (d, name("b")), (d, name("a")), RenameMode::Replace),
        FsError::NotPermitted,
    );
    w.ns.unlink(&alice, at(9), d, name("a")).unwrap();
    w.ns.rename(&bob, at(9), (d, name("b")), (d, name("a")), RenameMode::Replace).unwrap();
}

#[test]
fn only_the_owner_changes_mode_owner_and_times() {
    let (w, d) = world();
    let (alice, bob) = (user(ALICE, ALICE), user(BOB, BOB));
    let f = make(&w, &alice, d, "f").unwrap().attributes.ino;
    let set = |c: &Credentials<'_>, change| w.ns.setattr(c, at(9), f, &change);
    let mode = SetAttributes { permissions: Some(0o2755), ..Default::default() };
    let now = SetAttributes { mtime: Some(SetTime::Now), ..Default::default() };
    let then = SetAttributes { mtime: Some(SetTime::To(at(3))), ..Default::default() };
    let give = SetAttributes { uid: Some(BOB), ..Default::default() };
    let group = |gid| SetAttributes { gid: Some(gid), ..Default::default() };
    for change in [mode, then, give, group(BOB)] {
        fails(set(&bob, change), FsError::NotPermitted);
    }
    fails(set(&bob, now), FsError::PermissionDenied);
    fails(set(&bob, SetAttributes { size_bytes: Some(0), ..Default::default() }), FsError::PermissionDenied);
    assert_eq!(set(&alice, mode).unwrap().attributes.permissions, 0o2755);
    set(&alice, then).unwrap();
    fails(set(&alice, give), FsError::NotPermitted);
    fails(set(&alice, group(77)), FsError::NotPermitted);
    set(&Credentials { groups: &[77], ..alice }, group(77)).unwrap();
    // Not a member any more: set-group-id is not hers to give.
    assert_eq!(set(&alice, mode).unwrap().attributes.permissions, 0o755);
}

#[test]
fn a_set_group_id_directory_hands_down_its_group() {
    let (w, d) = world();
    w.set(d, SetAttributes { permissions: Some(0o2777), gid: Some(50), ..Default::default() });
    let bob = user(BOB, BOB);
    let sub = w.ns.create(&bob, at(9), d, name("s"), &new(FileKind::Directory, 0o755)).unwrap();
    assert_eq!((sub.attributes.gid, sub.attributes.permissions), (50, 0o2755));
    let create = |c: &Credentials<'_>, n, permissions| {
        w.ns.create(c, at(9), d, name(n), &new(FileKind::Regular, permissions)).unwrap().attributes
    };
    assert_eq!(create(&bob, "program", 0o2755).permissions, 0o755);
    assert_eq!(create(&bob, "locked", 0o2745).permissions, 0o2745);
    assert_eq!(create(&Credentials { groups: &[50], ..bob }, "member", 0o2755).permissions, 0o2755);
    let whiteout = new(FileKind::CharDevice, 0o600);
    let device = NewInode { rdev: 259, ..whiteout };
    fails(w.ns.create(&bob, at(9), d, name("dev"), &device), FsError::NotPermitted);
    w.ns.create(&bob, at(9), d, name("whiteout"), &whiteout).unwrap();
}

#[test]
fn access_asks_for_every_bit() {
    let (w, d) = world();
    let f = make(&w, &user(ALICE, ALICE), d, "f").unwrap().attributes.ino;
    w.ns.access(&user(BOB, BOB), f, 4).unwrap();
    fails(w.ns.access(&user(BOB, BOB), f, 6), FsError::PermissionDenied);
    w.ns.access(&C, f, 6).unwrap();
    fails(w.ns.access(&C, f, 1), FsError::PermissionDenied);
    w.ns.access(&C, d, 7).unwrap();
}

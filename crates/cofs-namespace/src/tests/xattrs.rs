//! Extended attributes and ACLs.

use cofs_types::{FileKind, FsError, Kills, SetAttributes, XattrMode, limits};

use super::*;
use crate::acl::Acl;

impl World {
    fn setx(&self, ino: InodeId, n: &str, value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.ns.setxattr(&C, self.now(), ino, xname(n), value, mode, false)
    }

    fn getx(&self, ino: InodeId, n: &str) -> FsResult<Vec<u8>> {
        Ok(self.ns.getxattr(&C, ino, xname(n))?.to_vec())
    }

    fn listx(&self, ino: InodeId) -> Vec<String> {
        let list = self.ns.listxattr(ino).unwrap();
        let mut names: Vec<String> =
            list.split(|b| *b == 0).map(|n| String::from_utf8(n.to_vec()).unwrap()).collect();
        assert_eq!(names.pop().as_deref(), Some(""), "each name ends in a NUL");
        names.sort();
        names
    }
}

#[test]
fn small_and_large_values_are_kept_replaced_and_removed() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let sizes = [0, 1, limits::XATTR_SMALL_BYTES_MAX, limits::XATTR_SMALL_BYTES_MAX + 1, 65_536];
    for from in sizes {
        for to in sizes {
            w.setx(f, "user.a", &vec![1; from], XattrMode::Set).unwrap();
            w.setx(f, "user.a", &vec![2; to], XattrMode::Replace).unwrap();
            assert_eq!(w.getx(f, "user.a").unwrap(), vec![2; to]);
            assert_eq!(w.listx(f), ["user.a"]);
            w.audit();
            w.ns.removexattr(&C, w.now(), f, xname("user.a")).unwrap();
            fails(w.getx(f, "user.a"), FsError::NoAttribute);
            w.audit();
        }
    }
    fails(w.setx(f, "user.a", &vec![0; 65_537], XattrMode::Set), FsError::ValueTooLarge);
    fails(w.setx(f, "user.a", b"", XattrMode::Replace), FsError::NoAttribute);
    fails(w.ns.removexattr(&C, at(9), f, xname("user.a")), FsError::NoAttribute);
    w.setx(f, "user.a", b"", XattrMode::Create).unwrap();
    fails(w.setx(f, "user.a", b"", XattrMode::Create), FsError::Exists);
}

#[test]
fn many_small_values_spill_over_and_the_list_has_an_end() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let long = |n: usize| format!("user.{n:0>250}");
    let mut count = 0;
    while w.setx(f, &long(count), b"some value", XattrMode::Set).is_ok() {
        count += 1;
    }
    assert_eq!(count, limits::XATTR_LIST_BYTES_MAX / 256);
    fails(w.setx(f, &long(count), b"", XattrMode::Set), FsError::NoSpace);
    w.setx(f, &long(3), b"another", XattrMode::Set).unwrap();
    assert_eq!(w.listx(f), (0..count).map(long).collect::<Vec<_>>());
    assert!((0..count).all(|n| w.getx(f, &long(n)).is_ok()));
    w.audit();
    w.ns.unlink(&C, at(9), ROOT, name("f")).unwrap();
    w.audit();
}

#[test]
fn the_prefix_decides() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let p = w.make(ROOT, "p", FileKind::Fifo, 0o666).attributes.ino;
    for n in ["user.a", "trusted.a", "security.a"] {
        w.setx(f, n, b"v", XattrMode::Set).unwrap();
    }
    for n in ["other.a", "system.a", "user"] {
        fails(w.setx(f, n, b"v", XattrMode::Set), FsError::NotSupported);
        fails(w.getx(f, n), FsError::NotSupported);
    }
    fails(w.setx(p, "user.a", b"v", XattrMode::Set), FsError::NotPermitted);
    fails(w.getx(p, "user.a"), FsError::NoAttribute);
    w.setx(p, "trusted.a", b"v", XattrMode::Set).unwrap();
    let before = w.stat(f).ctime;
    w.setx(f, "user.b", b"v", XattrMode::Set).unwrap();
    assert!(w.stat(f).ctime > before);
    let bob = user(1001, 1001);
    fails(w.ns.getxattr(&bob, f, xname("trusted.a")), FsError::NoAttribute);
    fails(
        w.ns.setxattr(&bob, at(9), f, xname("user.a"), b"", XattrMode::Set, false),
        FsError::PermissionDenied,
    );
    fails(
        w.ns.setxattr(&bob, at(9), f, xname("trusted.a"), b"", XattrMode::Set, false),
        FsError::NotPermitted,
    );
    assert_eq!(w.ns.getxattr(&bob, f, xname("user.a")).unwrap(), "v");
}

/// An ACL with a named user: owner rwx, user 1001 as said, group r-x, mask as said, others nothing.
fn acl(user: u8, mask: u8) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, rwx, id) in
        [(1, 7, u32::MAX), (2, user, 1001), (4, 5, u32::MAX), (16, mask, u32::MAX), (32, 0, u32::MAX)]
    {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::from(rwx).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn an_acl_is_the_mode_and_grants() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let (bob, eve) = (user(1001, 1001), user(1002, 1002));
    w.setx(f, "system.posix_acl_access", &acl(6, 6), XattrMode::Set).unwrap();
    assert_eq!(w.stat(f).permissions, 0o760);
    w.ns.access(&bob, f, 6).unwrap();
    fails(w.ns.access(&eve, f, 4), FsError::PermissionDenied);
    // chmod moves the mask.
    w.set(f, SetAttributes { permissions: Some(0o740), ..Default::default() });
    fails(w.ns.access(&bob, f, 6), FsError::PermissionDenied);
    w.ns.access(&bob, f, 4).unwrap();
    assert_eq!(w.getx(f, "system.posix_acl_access").unwrap(), acl(6, 4));
    fails(w.setx(f, "system.posix_acl_access", b"nonsense", XattrMode::Set), FsError::InvalidArgument(""));
    fails(
        w.ns.setxattr(&bob, at(9), f, xname("system.posix_acl_access"), &acl(7, 7), XattrMode::Set, false),
        FsError::NotPermitted,
    );
    // One that says no more than a mode is a mode.
    let trivial = Acl::from_mode(0o604).encode();
    w.setx(f, "system.posix_acl_access", &trivial, XattrMode::Set).unwrap();
    assert_eq!(w.stat(f).permissions, 0o604);
    assert!(w.listx(f).is_empty());
    w.ns.removexattr(&C, at(9), f, xname("system.posix_acl_access")).unwrap();
    fails(w.setx(f, "system.posix_acl_default", &acl(6, 6), XattrMode::Set), FsError::PermissionDenied);
}

#[test]
fn to_remove_an_acl_that_is_not_there_changes_nothing() {
    let w = World::new();
    for ino in [w.file(ROOT, "f"), w.dir(ROOT, "d")] {
        for acl_name in ["system.posix_acl_access", "system.posix_acl_default"] {
            let before = w.stat(ino);
            w.ns.removexattr(&C, w.now(), ino, xname(acl_name)).unwrap();
            assert_eq!(w.stat(ino), before, "{acl_name}");
        }
        w.setx(ino, "system.posix_acl_access", &acl(6, 6), XattrMode::Set).unwrap();
        let before = w.stat(ino);
        w.ns.removexattr(&C, w.now(), ino, xname("system.posix_acl_access")).unwrap();
        assert!(w.stat(ino).ctime > before.ctime, "one that is there");
    }
}

#[test]
fn a_default_acl_is_handed_down_in_the_umask_s_place() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    w.setx(d, "system.posix_acl_default", &acl(6, 7), XattrMode::Set).unwrap();
    let masked = |kind| cofs_types::NewInode { umask: 0o077, ..new(kind, 0o664) };
    let f = w.ns.create(&C, at(9), d, name("f"), &masked(FileKind::Regular)).unwrap().attributes;
    assert_eq!(f.permissions, 0o660);
    assert_eq!(w.listx(f.ino), ["system.posix_acl_access"]);
    w.ns.access(&user(1001, 1001), f.ino, 6).unwrap();
    let sub = w.dir(d, "sub");
    assert_eq!(w.getx(sub, "system.posix_acl_default").unwrap(), acl(6, 7));
    let plain = w.ns.create(&C, at(9), ROOT, name("f"), &masked(FileKind::Regular)).unwrap();
    assert_eq!(plain.attributes.permissions, 0o600);
    w.audit();
}

#[test]
fn a_capability_does_not_outlive_a_change() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let arm = || w.setx(f, "security.capability", b"cap", XattrMode::Set).unwrap();
    let gone = || fails(w.getx(f, "security.capability"), FsError::NoAttribute);
    arm();
    w.ns.inline_write(at(9), f, 0, b"x", Kills::Nothing).unwrap();
    assert_eq!(w.getx(f, "security.capability").unwrap(), b"cap", "a mapping's");
    w.ns.inline_write(at(9), f, 0, b"x", Kills::Capabilities).unwrap();
    gone();
    arm();
    w.set(f, SetAttributes { uid: Some(4), ..Default::default() });
    gone();
    arm();
    w.set(f, SetAttributes { size_bytes: Some(0), ..Default::default() });
    gone();
}

const LABEL: &str = "security.selinux";

#[test]
fn a_volume_without_labels_has_none_to_give_until_the_first_is_set() {
    let w = World::new();
    let (f, g) = (w.file(ROOT, "f"), w.file(ROOT, "g"));
    fails(w.getx(f, LABEL), FsError::NotSupported);
    fails(w.getx(f, "security.other"), FsError::NoAttribute);
    fails(w.ns.removexattr(&C, at(9), f, xname(LABEL)), FsError::NoAttribute);
    w.ns.close(at(9)).unwrap();
    let again = World::over(w.engine.clone());
    fails(again.getx(f, LABEL), FsError::NotSupported);
    again.setx(f, LABEL, b"system_u:object_r:etc_t:s0", XattrMode::Set).unwrap();
    assert_eq!(again.getx(f, LABEL).unwrap(), b"system_u:object_r:etc_t:s0");
    fails(again.getx(g, LABEL), FsError::NoAttribute);
    assert_eq!(again.listx(f), [LABEL]);
    // A second one, and a removal, change nothing of that.
    again.setx(g, LABEL, b"x", XattrMode::Set).unwrap();
    for ino in [f, g] {
        again.ns.removexattr(&C, at(9), ino, xname(LABEL)).unwrap();
    }
    again.ns.close(at(9)).unwrap();
    let later = World::over(again.engine.clone());
    fails(later.getx(f, LABEL), FsError::NoAttribute);
    later.audit();
}

#[test]
fn a_label_that_is_refused_leaves_a_volume_without() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    fails(w.setx(f, LABEL, b"x", XattrMode::Replace), FsError::NoAttribute);
    let bob = user(1001, 1001);
    fails(w.ns.setxattr(&bob, at(9), f, xname(LABEL), b"x", XattrMode::Set, false), FsError::NotPermitted);
    fails(w.getx(f, LABEL), FsError::NotSupported);
    let again = World::over(w.engine.clone());
    fails(again.getx(f, LABEL), FsError::NotSupported);
}

/// An older cofs knows nothing of labels: it raises the epoch, and may set one.
#[test]
fn a_volume_that_an_older_cofs_had_open_may_have_labels() {
    use crate::schema::{HeaderPart, decode_number, encode_number, key};
    use cofs_engine::{Batch, Change, Engine};
    let w = World::new();
    let f = w.file(ROOT, "f");
    let epoch_key = key::header(HeaderPart::Epoch);
    let epoch = decode_number(&w.engine.get(&epoch_key).unwrap().unwrap()).unwrap();
    let raised = Change::put(epoch_key, encode_number(epoch + 1));
    w.engine.commit(&Batch { changes: vec![raised], ..Default::default() }).unwrap();
    for _ in 0..2 {
        fails(World::over(w.engine.clone()).getx(f, LABEL), FsError::NoAttribute);
    }
}

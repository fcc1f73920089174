//! Several users: modes, groups, set-id bits, sticky directories, access control lists.
//!
//! The cases that become another user need root; `./test` says what it skips when it is not.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::Path,
};

use rustix::fs::XattrFlags;

use crate::support::{Scratch, as_user, errno, scratch};

pub const ALICE: u32 = 40_001;
pub const BOB: u32 = 40_002;
pub const STAFF: u32 = 50_001;
pub const GUESTS: u32 = 50_002;

pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

pub fn owned(s: &Scratch, name: &str, uid: u32, gid: u32, bits: u32) -> std::path::PathBuf {
    let path = s.file(name, b"content");
    chown(&path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(bits)).unwrap();
    path
}

pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: needs root");
    }
    root
}

#[test]
fn owner_group_and_others_each_have_their_bits() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for (bits, owner, group, other) in [
        (0o600, true, false, false),
        (0o060, false, true, false),
        (0o006, false, false, true),
        (0o660, true, true, false),
    ] {
        let path = owned(&s, &format!("{bits:o}"), ALICE, STAFF, bits);
        let opens = || OpenOptions::new().read(true).write(true).open(&path).is_ok();
        assert_eq!(as_user(ALICE, GUESTS, &[], opens), owner, "{bits:o} owner");
        assert_eq!(
            as_user(ALICE, STAFF, &[], opens),
            owner,
            "{bits:o} owner in the group: the owner's bits count"
        );
        assert_eq!(as_user(BOB, STAFF, &[], opens), group, "{bits:o} group");
        assert_eq!(as_user(BOB, GUESTS, &[7, STAFF, 9], opens), group, "{bits:o} supplementary group");
        assert_eq!(as_user(BOB, GUESTS, &[7, 9], opens), other, "{bits:o} other");
        assert!(opens(), "{bits:o} root");
    }
}

#[test]
fn a_user_of_many_groups_is_in_each_of_them() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let groups: Vec<u32> = (60_000..60_200).collect();
    let path = owned(&s, "f", ALICE, 60_199, 0o640);
    assert!(as_user(BOB, GUESTS, &groups, || File::open(&path).is_ok()));
    assert!(!as_user(BOB, GUESTS, &groups[..199], || File::open(&path).is_ok()));
}

#[test]
fn a_directory_wants_search_to_enter_and_write_to_change() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let dir = s.dir("d", 0o755);
    fs::write(dir.join("f"), "x").unwrap();
    chown(&dir, Some(ALICE), Some(STAFF)).unwrap();
    as_user(BOB, GUESTS, &[], || {
        assert_eq!(errno(File::create(dir.join("g"))), libc::EACCES);
        assert_eq!(errno(fs::remove_file(dir.join("f"))), libc::EACCES);
        assert_eq!(errno(fs::create_dir(dir.join("s"))), libc::EACCES);
        fs::read(dir.join("f")).unwrap();
    });
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o744)).unwrap();
    as_user(BOB, GUESTS, &[], || {
        assert_eq!(errno(fs::read(dir.join("f"))), libc::EACCES);
        fs::read_dir(&dir).unwrap();
    });
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o711)).unwrap();
    as_user(BOB, GUESTS, &[], || {
        fs::read(dir.join("f")).unwrap();
        assert_eq!(errno(fs::read_dir(&dir)), libc::EACCES);
    });
}

#[test]
fn new_files_get_the_maker_and_a_set_gid_directory_gives_its_group() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let plain = s.dir("plain", 0o777);
    let shared = s.dir("shared", 0o777);
    chown(&shared, None, Some(STAFF)).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o2777)).unwrap();
    as_user(ALICE, GUESTS, &[], || {
        for dir in [&plain, &shared] {
            File::create(dir.join("f")).unwrap();
            fs::create_dir(dir.join("d")).unwrap();
            std::os::unix::fs::symlink("x", dir.join("l")).unwrap();
        }
    });
    for name in ["f", "d", "l"] {
        let (one, two) = (plain.join(name), shared.join(name));
        let (one, two) = (fs::symlink_metadata(one).unwrap(), fs::symlink_metadata(two).unwrap());
        assert_eq!((one.uid(), one.gid()), (ALICE, GUESTS));
        assert_eq!((two.uid(), two.gid()), (ALICE, STAFF));
    }
    assert_eq!(mode(&shared.join("d")) & 0o2000, 0o2000, "directories inherit the bit");
    assert_eq!(mode(&shared.join("f")) & 0o2000, 0);
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let dir = s.dir("tmp", 0o1777);
    as_user(ALICE, STAFF, &[], || fs::write(dir.join("f"), "x").unwrap());
    as_user(BOB, STAFF, &[], || {
        assert_eq!(errno(fs::remove_file(dir.join("f"))), libc::EPERM);
        assert_eq!(errno(fs::rename(dir.join("f"), dir.join("g"))), libc::EPERM);
        fs::write(dir.join("own"), "y").unwrap();
        assert_eq!(errno(fs::rename(dir.join("own"), dir.join("f"))), libc::EPERM);
        fs::remove_file(dir.join("own")).unwrap();
    });
    as_user(ALICE, STAFF, &[], || fs::remove_file(dir.join("f")).unwrap());
}

#[test]
fn only_the_owner_changes_modes_and_only_to_groups_of_his_own() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let path = owned(&s, "f", ALICE, STAFF, 0o666);
    as_user(BOB, STAFF, &[], || {
        assert_eq!(errno(fs::set_permissions(&path, PermissionsExt::from_mode(0o777))), libc::EPERM);
        assert_eq!(errno(chown(&path, Some(BOB), None)), libc::EPERM);
        assert_eq!(errno(chown(&path, None, Some(STAFF))), libc::EPERM);
    });
    as_user(ALICE, STAFF, &[GUESTS], || {
        assert_eq!(errno(chown(&path, Some(BOB), None)), libc::EPERM);
        assert_eq!(errno(chown(&path, None, Some(1))), libc::EPERM);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
        chown(&path, None, Some(GUESTS)).unwrap();
    });
    assert_eq!(
        (fs::metadata(&path).unwrap().gid(), mode(&path)),
        (GUESTS, 0o777),
        "chgrp drops the set-id bits"
    );
    as_user(ALICE, STAFF, &[], || {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o2755)).unwrap();
    });
    assert_eq!(mode(&path), 0o755, "no set-gid for a group that the owner is not in");
}

#[test]
fn a_write_by_another_user_drops_the_set_id_bits() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for (number, size) in [10, 300_000].into_iter().enumerate() {
        let change: [(&str, fn(&File)); 3] = [
            ("write", |file| file.write_all_at(b"x", 0).unwrap()),
            ("truncate", |file| file.set_len(5).unwrap()),
            ("allocate", |file| {
                rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 400_000).unwrap();
            }),
        ];
        for (what, work) in change {
            let path = owned(&s, &format!("{number}-{what}"), ALICE, STAFF, 0o666);
            fs::write(&path, vec![1; size]).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            as_user(BOB, GUESTS, &[], || work(&OpenOptions::new().write(true).open(&path).unwrap()));
            assert_eq!(mode(&path), 0o777, "{what} of {size} bytes");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            work(&OpenOptions::new().write(true).open(&path).unwrap());
            assert_eq!(mode(&path), 0o6777, "{what} of {size} bytes by root keeps them");
        }
    }
}

#[test]
fn only_the_owner_sets_times_but_whoever_writes_may_touch() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let path = owned(&s, "f", ALICE, STAFF, 0o666);
    let touch = |now: bool| {
        let file = File::open(&path).unwrap();
        let nanoseconds = if now { rustix::fs::UTIME_NOW } else { 5 };
        let time = rustix::fs::Timespec { tv_sec: 5, tv_nsec: nanoseconds as _ };
        let both = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &both).map_err(std::io::Error::from)
    };
    as_user(BOB, GUESTS, &[], || {
        assert_eq!(errno(touch(false)), libc::EPERM);
        touch(true).unwrap();
        let no_atime = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(&path);
        assert_eq!(errno(no_atime), libc::EPERM);
    });
    as_user(ALICE, GUESTS, &[], || {
        touch(false).unwrap();
        OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap();
    });
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(errno(as_user(BOB, GUESTS, &[], || touch(true))), libc::EACCES);
}

const ACL_USER_OBJ: u16 = 0x01;
const ACL_USER: u16 = 0x02;
const ACL_GROUP_OBJ: u16 = 0x04;
const ACL_GROUP: u16 = 0x08;
const ACL_MASK: u16 = 0x10;
const ACL_OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// The kernel's form of a list (`linux/posix_acl_xattr.h`): a version, then tag, permissions, id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set_acl(path: &Path, kind: &str, entries: &[(u16, u16, u32)]) -> std::io::Result<()> {
    let name = format!("system.posix_acl_{kind}");
    rustix::fs::setxattr(path, name.as_str(), &acl(entries), XattrFlags::empty()).map_err(Into::into)
}

fn get_acl(path: &Path, kind: &str) -> std::io::Result<Vec<u8>> {
    let mut value = vec![0; 1000];
    let len = rustix::fs::getxattr(path, format!("system.posix_acl_{kind}").as_str(), &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

#[test]
fn an_access_list_is_enforced_through_its_mask() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let path = owned(&s, "f", 0, 0, 0o600);
    let list = |mask| {
        [
            (ACL_USER_OBJ, 6, NO_ID),
            (ACL_USER, 6, ALICE),
            (ACL_GROUP_OBJ, 0, NO_ID),
            (ACL_GROUP, 4, STAFF),
            (ACL_MASK, mask, NO_ID),
            (ACL_OTHER, 0, NO_ID),
        ]
    };
    let reads = |uid, groups: &[u32]| as_user(uid, GUESTS, groups, || File::open(&path).is_ok());
    let writes = |uid, groups: &[u32]| {
        as_user(uid, GUESTS, groups, || OpenOptions::new().write(true).open(&path).is_ok())
    };
    set_acl(&path, "access", &list(6)).unwrap();
    assert_eq!(get_acl(&path, "access").unwrap(), acl(&list(6)));
    assert_eq!(mode(&path), 0o660, "the mask stands in the group's place");
    assert!(reads(ALICE, &[]) && writes(ALICE, &[]));
    assert!(reads(BOB, &[STAFF]) && !writes(BOB, &[STAFF]));
    assert!(!reads(BOB, &[]));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(get_acl(&path, "access").unwrap(), acl(&list(4)), "chmod changes the mask");
    assert!(reads(ALICE, &[]) && !writes(ALICE, &[]));
    as_user(BOB, GUESTS, &[], || assert_eq!(errno(set_acl(&path, "access", &list(6))), libc::EPERM));
    rustix::fs::removexattr(&path, "system.posix_acl_access").unwrap();
    assert!(!reads(ALICE, &[]));
    assert_eq!(errno(get_acl(&path, "access")), libc::ENODATA);
    assert_eq!(errno(set_acl(&path, "access", &list(6)[..2])), libc::EINVAL, "incomplete");
    assert_eq!(errno(set_acl(&path, "default", &list(6))), libc::EACCES, "only directories have a default");
    let minimal = [(ACL_USER_OBJ, 6, NO_ID), (ACL_GROUP_OBJ, 4, NO_ID), (ACL_OTHER, 4, NO_ID)];
    set_acl(&path, "access", &minimal).unwrap();
    assert_eq!(mode(&path), 0o644);
    assert_eq!(errno(get_acl(&path, "access")), libc::ENODATA, "what the mode says is not kept twice");
}

#[test]
fn a_default_list_is_inherited_instead_of_the_umask() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let dir = s.dir("d", 0o777);
    let list = [
        (ACL_USER_OBJ, 7, NO_ID),
        (ACL_USER, 7, ALICE),
        (ACL_GROUP_OBJ, 5, NO_ID),
        (ACL_MASK, 7, NO_ID),
        (ACL_OTHER, 0, NO_ID),
    ];
    set_acl(&dir, "default", &list).unwrap();
    assert_eq!(mode(&dir), 0o777);
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(dir.join("f")).unwrap();
    fs::create_dir(dir.join("s")).unwrap();
    // Asked for 0666: the mask becomes 6, the owner 6, others stay without.
    assert_eq!(mode(&dir.join("f")), 0o660);
    let mut expected = list;
    (expected[0].1, expected[3].1) = (6, 6);
    assert_eq!(get_acl(&dir.join("f"), "access").unwrap(), acl(&expected));
    assert_eq!(errno(get_acl(&dir.join("f"), "default")), libc::ENODATA);
    assert_eq!(get_acl(&dir.join("s"), "default").unwrap(), acl(&list));
    assert_eq!(mode(&dir.join("s")), 0o770);
    assert!(as_user(ALICE, GUESTS, &[], || fs::write(dir.join("f"), "by the list").is_ok()));
    assert!(as_user(ALICE, GUESTS, &[], || File::create(dir.join("s/new")).is_ok()));
    assert!(as_user(BOB, GUESTS, &[], || fs::read(dir.join("f")).is_err()));
}

/// A whiteout is no device: layers of containers are made by users.
#[test]
fn a_user_may_make_a_whiteout_but_no_device() {
    use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
    let Some(s) = scratch().filter(|_| root()) else { return };
    let dir = s.dir("dir", 0o777);
    let device = |name, dev| mknodat(CWD, dir.join(name), FileType::CharacterDevice, Mode::empty(), dev);
    as_user(ALICE, STAFF, &[], || {
        assert_eq!(device("null", makedev(1, 3)), Err(rustix::io::Errno::PERM));
        device("made", 0).unwrap();
        fs::write(dir.join("old"), "x").unwrap();
        renameat_with(CWD, dir.join("old"), CWD, dir.join("new"), RenameFlags::WHITEOUT).unwrap();
    });
    for name in ["made", "old"] {
        let stat = fs::symlink_metadata(dir.join(name)).unwrap();
        assert_eq!((stat.rdev(), stat.uid(), stat.gid()), (0, ALICE, STAFF), "{name}");
        assert_eq!(stat.mode(), 0o020_000, "{name}");
    }
}

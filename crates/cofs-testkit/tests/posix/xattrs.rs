//! Extended attributes: the four name spaces, modes of setting, sizes.

use std::{collections::BTreeSet, fs, io, path::Path};

use rustix::fs::XattrFlags;

use crate::support::{Scratch, as_user, errno, pattern, scratch, xattr_bytes};

fn set(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).map_err(Into::into)
}

fn set_with(path: &Path, name: &str, value: &[u8], flags: XattrFlags) -> io::Result<()> {
    rustix::fs::lsetxattr(path, name, value, flags).map_err(Into::into)
}

fn get(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 70_000];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn list(path: &Path) -> BTreeSet<String> {
    let mut names = vec![0u8; 70_000];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    names.split_terminator('\0').map(str::to_owned).collect()
}

/// ext4 keeps the attributes of a file in one block.
fn room_for_large(s: &Scratch) -> bool {
    const EXT4: i64 = 0xef53;
    rustix::fs::statfs(s.top()).unwrap().f_type as i64 != EXT4
}

#[test]
fn attributes_of_every_kind_of_file_read_back() {
    let Some(s) = scratch() else { return };
    std::os::unix::fs::symlink("f", s.path("l")).unwrap();
    let fifo = s.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in [s.file("f", b"x"), s.file("large", &[0; 300_000]), s.dir("d", 0o755), s.path("l"), fifo] {
        let plain = path.ends_with("f") || path.ends_with("large") || path.ends_with("d");
        set(&path, "trusted.t", &[0, 255, 1]).unwrap();
        set(&path, "security.s", b"secure").unwrap();
        if plain {
            set(&path, "user.u", b"").unwrap();
            assert_eq!(get(&path, "user.u").unwrap(), b"");
        } else {
            assert_eq!(errno(set(&path, "user.u", b"")), libc::EPERM, "no user attributes on {path:?}");
        }
        assert_eq!(get(&path, "trusted.t").unwrap(), [0, 255, 1]);
        let names = list(&path);
        assert!(names.contains("trusted.t") && names.contains("security.s"));
        assert_eq!(names.contains("user.u"), plain);
        rustix::fs::lremovexattr(&path, "trusted.t").unwrap();
        assert_eq!(errno(get(&path, "trusted.t")), libc::ENODATA);
        assert_eq!(rustix::fs::lremovexattr(&path, "trusted.t").unwrap_err().raw_os_error(), libc::ENODATA);
        assert!(!list(&path).contains("trusted.t"));
    }
}

#[test]
fn create_and_replace_mean_what_they_say() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"");
    assert_eq!(errno(set_with(&path, "user.a", b"1", XattrFlags::REPLACE)), libc::ENODATA);
    set_with(&path, "user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(errno(set_with(&path, "user.a", b"2", XattrFlags::CREATE)), libc::EEXIST);
    assert_eq!(get(&path, "user.a").unwrap(), b"1");
    set_with(&path, "user.a", b"two", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&path, "user.a").unwrap(), b"two");
    let both = XattrFlags::CREATE | XattrFlags::REPLACE;
    assert_eq!(errno(set_with(&path, "user.a", b"3", both)), libc::EEXIST);
    assert_eq!(errno(set_with(&path, "user.b", b"3", both)), libc::ENODATA);
}

#[test]
fn a_buffer_that_is_too_small_is_an_error_and_none_asks_for_the_size() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"");
    set(&path, "user.a", &[1; 100]).unwrap();
    let short = rustix::fs::getxattr(&path, "user.a", &mut [0u8; 99][..]);
    assert_eq!(short.unwrap_err().raw_os_error(), libc::ERANGE);
    assert_eq!(xattr_bytes(&path, "user.a").unwrap(), 100);
    let short = rustix::fs::listxattr(&path, &mut [0u8; 3][..]);
    assert_eq!(short.unwrap_err().raw_os_error(), libc::ERANGE);
}

#[test]
fn values_up_to_64_kib_and_many_names() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"");
    let longest = format!("user.{}", "n".repeat(250));
    set(&path, &longest, b"long name").unwrap();
    assert_eq!(get(&path, &longest).unwrap(), b"long name");
    assert_eq!(errno(set(&path, &format!("{longest}x"), b"")), libc::ERANGE);
    assert_eq!(errno(set(&path, "user.", b"")), libc::EINVAL);
    assert_eq!(errno(set(&path, "unknown.space", b"")), libc::EOPNOTSUPP);
    assert_eq!(errno(set(&path, "user.big", &vec![0; 65_537])), libc::E2BIG);
    if !room_for_large(&s) {
        return;
    }
    for len in [1000, 4096, 20_000, 65_536] {
        set(&path, "user.big", &pattern(len as u64, len)).unwrap();
        assert!(get(&path, "user.big").unwrap() == pattern(len as u64, len), "{len} bytes");
    }
    for n in 0..200 {
        set(&path, &format!("user.number-{n}"), format!("value {n}").as_bytes()).unwrap();
    }
    assert!(list(&path).len() >= 202);
    for n in 0..200 {
        assert_eq!(get(&path, &format!("user.number-{n}")).unwrap(), format!("value {n}").as_bytes());
    }
}

#[test]
fn attributes_are_protected_by_their_name_space() {
    let Some(s) = scratch() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    let path = s.file("f", b"");
    set(&path, "trusted.secret", b"x").unwrap();
    set(&path, "user.open", b"y").unwrap();
    as_user(40_001, 40_001, &[], || {
        assert_eq!(get(&path, "user.open").unwrap(), b"y");
        assert_eq!(errno(get(&path, "trusted.secret")), libc::ENODATA);
        assert_eq!(errno(set(&path, "trusted.mine", b"")), libc::EPERM);
        assert_eq!(errno(set(&path, "user.mine", b"")), libc::EACCES);
        assert_eq!(errno(set(&path, "security.mine", b"")), libc::EPERM);
        assert!(!list(&path).contains("trusted.secret"), "not even listed");
    });
}

#[test]
fn attributes_stay_with_the_file_through_rename_and_link() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"");
    set(&path, "user.a", b"stays").unwrap();
    fs::hard_link(&path, s.path("g")).unwrap();
    fs::rename(&path, s.path("h")).unwrap();
    assert_eq!(get(&s.path("g"), "user.a").unwrap(), b"stays");
    set(&s.path("h"), "user.a", b"shared").unwrap();
    assert_eq!(get(&s.path("g"), "user.a").unwrap(), b"shared");
}

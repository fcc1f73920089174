//! Names: up to 255 bytes, of any bytes but NUL and the slash.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use crate::support::{errno, scratch};

#[test]
fn a_name_is_any_bytes_but_nul_and_slash() {
    let Some(s) = scratch() else { return };
    let mut expected = BTreeSet::new();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        for name in [vec![byte], vec![b'x', byte, byte, b'y'], vec![byte; 255]] {
            if name == b"." {
                continue;
            }
            let name = OsString::from_vec(name);
            fs::write(s.path(&name), name.as_bytes()).unwrap();
            expected.insert(name);
        }
    }
    let listed: Vec<OsString> =
        fs::read_dir(s.top()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed.len(), expected.len(), "each name once");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
    for name in &expected {
        assert_eq!(fs::read(s.path(name)).unwrap(), name.as_bytes());
        fs::rename(s.path(name), s.path("moved")).unwrap();
        fs::rename(s.path("moved"), s.path(name)).unwrap();
    }
}

#[test]
fn a_name_of_256_bytes_is_too_long_for_every_call() {
    let Some(s) = scratch() else { return };
    let long = s.path(OsStr::from_bytes(&[b'n'; 256]));
    let file = s.file("f", b"");
    assert_eq!(errno(File::create(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::metadata(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::remove_file(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::remove_dir(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::rename(&file, &long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::hard_link(&file, &long)), libc::ENAMETOOLONG);
    assert_eq!(errno(std::os::unix::fs::symlink("x", &long)), libc::ENAMETOOLONG);
}

#[test]
fn names_that_differ_in_case_or_in_form_are_different() {
    let Some(s) = scratch() else { return };
    // The last two look the same: composed and decomposed.
    for name in ["a", "A", "...", "..x", ".x", "a ", " a", "\u{e9}", "e\u{301}"] {
        fs::OpenOptions::new().write(true).create_new(true).open(s.path(name)).unwrap();
    }
    assert_eq!(fs::read_dir(s.top()).unwrap().count(), 9);
}

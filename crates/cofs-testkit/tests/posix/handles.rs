//! File handles: a number for a file that survives renames, eviction and (in `remount`) a new mount.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::MetadataExt,
};

use crate::support::{Scratch, drop_caches, errno, handle_of, open_handle, scratch};

fn top(scratch: &Scratch) -> File {
    File::open(scratch.top()).unwrap()
}

#[test]
fn a_file_opens_by_its_handle_after_eviction() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"by number");
    let ino = fs::metadata(&path).unwrap().ino();
    let handle = handle_of(&path).unwrap();
    drop_caches();
    let mut file = open_handle(&top(&s), &handle, libc::O_RDWR).unwrap();
    assert_eq!(file.metadata().unwrap().ino(), ino);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "by number");
    file.write_all(b", and back").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"by number, and back");
    assert_eq!(handle_of(&path).unwrap(), handle, "a handle does not change");
}

#[test]
fn a_handle_follows_its_file_through_renames_and_links() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"x");
    let handle = handle_of(&path).unwrap();
    s.dir("d", 0o755);
    fs::rename(&path, s.path("d/g")).unwrap();
    fs::hard_link(s.path("d/g"), s.path("h")).unwrap();
    fs::remove_file(s.path("d/g")).unwrap();
    drop_caches();
    assert_eq!(handle_of(&s.path("h")).unwrap(), handle);
    open_handle(&top(&s), &handle, libc::O_RDONLY).unwrap();
}

#[test]
fn a_directory_opens_by_its_handle_and_knows_its_parents() {
    let Some(s) = scratch() else { return };
    s.dir("a", 0o755);
    s.dir("a/b", 0o755);
    let deep = s.dir("a/b/c", 0o755);
    fs::write(deep.join("leaf"), "here").unwrap();
    let handle = handle_of(&deep).unwrap();
    drop_caches();
    let dir = open_handle(&top(&s), &handle, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    let seen = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir))).unwrap();
    assert_eq!(seen, fs::canonicalize(&deep).unwrap(), "the kernel connected it by `..`");
    let up =
        rustix::fs::openat(&dir, "../..", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(File::from(up).metadata().unwrap().ino(), fs::metadata(s.path("a")).unwrap().ino());
    let leaf =
        rustix::fs::openat(&dir, "leaf", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mut text = String::new();
    File::from(leaf).read_to_string(&mut text).unwrap();
    assert_eq!(text, "here");
}

#[test]
fn the_handle_of_a_removed_file_is_stale() {
    let Some(s) = scratch() else { return };
    let path = s.never_opened("f");
    let handle = handle_of(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(errno(open_handle(&top(&s), &handle, libc::O_RDONLY)), libc::ESTALE);
    s.file("another", b"y");
    drop_caches();
    assert_eq!(
        errno(open_handle(&top(&s), &handle, libc::O_RDONLY)),
        libc::ESTALE,
        "numbers are not used again"
    );
}

#[test]
fn an_unlinked_file_opens_by_its_handle_while_it_is_open() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"still here");
    let handle = handle_of(&path).unwrap();
    let held = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut text = String::new();
    open_handle(&top(&s), &handle, libc::O_RDONLY).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    drop(held);
}

#[test]
fn a_handle_of_nonsense_is_refused() {
    let Some(s) = scratch() else { return };
    let good = handle_of(&s.file("f", b"x")).unwrap();
    for fill in [0u8, 1, 0x7f, 0xff] {
        let mut bad = good.clone();
        bad.bytes.fill(fill);
        if let Ok(file) = open_handle(&top(&s), &bad, libc::O_PATH) {
            // Some number may be a file: then it must at least be one that can be asked.
            file.metadata().unwrap();
        }
    }
}

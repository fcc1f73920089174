//! Advisory locks between processes: this test starts itself again as the other process.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{FlockOperation, flock};

use crate::support::{errno, record_lock, scratch};

/// Not a case: what the other process does. `COFS_TEST_LOCK` is `flock|fcntl FILE START LEN then-exit|then-wait`.
#[test]
#[ignore = "the other process of the cases in this module"]
fn other_process() {
    let Ok(order) = std::env::var("COFS_TEST_LOCK") else { return };
    let words: Vec<&str> = order.split('|').collect();
    let file = OpenOptions::new().read(true).write(true).open(words[1]).unwrap();
    let (start, len) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let got = match words[0] {
        "flock" => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
        "shared" => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
        "fcntl" => record_lock(&file, libc::F_SETLK, libc::F_WRLCK, start, len).is_ok(),
        "read" => record_lock(&file, libc::F_SETLK, libc::F_RDLCK, start, len).is_ok(),
        "wait" => record_lock(&file, libc::F_SETLKW, libc::F_WRLCK, start, len).is_ok(),
        other => panic!("no such order: {other}"),
    };
    if words[4] == "hold" && got {
        std::fs::write(format!("{}.held", words[1]), "").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
    // Not through the test harness: its threads and its output are of no interest to the parent.
    std::process::exit(if got { 0 } else { 7 });
}

fn start(kind: &str, path: &Path, start: i64, len: i64, then: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks::other_process", "--ignored"])
        .env("COFS_TEST_LOCK", format!("{kind}|{}|{start}|{len}|{then}", path.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whether another process gets the lock at once.
fn other_gets(kind: &str, path: &Path, at: i64, len: i64) -> bool {
    match start(kind, path, at, len, "exit").wait().unwrap().code() {
        Some(0) => true,
        Some(7) => false,
        other => panic!("the other process ended with {other:?}"),
    }
}

/// One case at a time: a child that another case starts holds our descriptors, and so our locks, until it executes.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn flock_excludes_other_processes() {
    let Some(s) = scratch() else { return };
    let _alone = alone();
    let path = s.file("f", b"x");
    let file = open(&path);
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(!other_gets("flock", &path, 0, 0));
    assert!(!other_gets("shared", &path, 0, 0));
    let second = flock(open(&path), FlockOperation::NonBlockingLockShared);
    assert_eq!(second.unwrap_err().raw_os_error(), libc::EWOULDBLOCK, "another open, same process");
    flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    assert!(other_gets("shared", &path, 0, 0));
    assert!(!other_gets("flock", &path, 0, 0));
    drop(file);
    assert!(other_gets("flock", &path, 0, 0), "closing lets go");
}

#[test]
fn record_locks_exclude_by_range() {
    let Some(s) = scratch() else { return };
    let _alone = alone();
    let path = s.file("f", &[0; 100]);
    let file = open(&path);
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 10, 10).unwrap();
    assert!(!other_gets("fcntl", &path, 19, 1));
    assert!(!other_gets("read", &path, 0, 11));
    assert!(other_gets("fcntl", &path, 20, 0));
    assert!(other_gets("fcntl", &path, 0, 10));
    record_lock(&file, libc::F_SETLK, libc::F_RDLCK, 10, 5).unwrap();
    assert!(other_gets("read", &path, 10, 5));
    assert!(!other_gets("fcntl", &path, 12, 1));
    record_lock(&file, libc::F_SETLK, libc::F_UNLCK, 10, 10).unwrap();
    assert!(other_gets("fcntl", &path, 0, 0));
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    drop(open(&path));
    assert!(other_gets("fcntl", &path, 0, 0), "closing any descriptor of the file lets go");
}

#[test]
fn the_lock_of_a_killed_process_is_free() {
    let Some(s) = scratch() else { return };
    let _alone = alone();
    for kind in ["flock", "fcntl"] {
        let path = s.file(kind, b"x");
        let mut other = start(kind, &path, 0, 0, "hold");
        while !s.path(format!("{kind}.held")).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let file = open(&path);
        if kind == "flock" {
            let refused = flock(&file, FlockOperation::NonBlockingLockExclusive);
            assert_eq!(refused.unwrap_err().raw_os_error(), libc::EWOULDBLOCK);
        } else {
            assert_eq!(errno(record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 1)), libc::EAGAIN);
            let (kind, owner) = record_lock(&file, libc::F_GETLK, libc::F_WRLCK, 0, 1).unwrap();
            assert_eq!((kind, owner), (libc::F_WRLCK, other.id() as i32), "the holder is named");
        }
        other.kill().unwrap();
        other.wait().unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    }
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_let_go() {
    let Some(s) = scratch() else { return };
    let _alone = alone();
    let path = s.file("f", b"x");
    let file = open(&path);
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    let mut waiter = start("wait", &path, 0, 0, "exit");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(waiter.try_wait().unwrap().is_none(), "it waits");
    record_lock(&file, libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    assert!(waiter.wait().unwrap().success());
}

#[test]
fn locks_of_open_file_descriptions_belong_to_the_open() {
    let Some(s) = scratch() else { return };
    let _alone = alone();
    let path = s.file("f", b"x");
    let (one, other) = (open(&path), open(&path));
    record_lock(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10).unwrap();
    assert_eq!(errno(record_lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1)), libc::EAGAIN);
    record_lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 10).unwrap();
    let copy = one.try_clone().unwrap();
    drop(one);
    assert_eq!(errno(record_lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1)), libc::EAGAIN);
    drop(copy);
    record_lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1).unwrap();
}

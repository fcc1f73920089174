//! Files whose bytes the kernel reads and writes by itself.

mod common;

use std::{
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use cofs_fs::{Context, DataPath, FileSystem, FsOptions, run};
use cofs_types::{Credentials, FsError, OpenFlags, SetAttributes, SetTime, Timestamp};
use common::*;
use rustix::io::Errno;

fn backing(opened: cofs_fs::Opened) -> cofs_fs::BackingId {
    match opened.data_path {
        DataPath::Passthrough(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_opens_of_an_object_share_one_backing_id_and_the_daemon_learns_what_was_written() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, first) = volume.create("a");
    volume.write(ino, first, 0, &pattern(INLINE_MAX * 2, 1));
    let second = volume.open(ino, RO);
    assert!(matches!(second.data_path, DataPath::Cached { .. }), "the first open chose the path");
    volume.close(ino, first);
    volume.close(ino, second);

    let reader = volume.open(ino, RO);
    assert!(!volume.writing(ino));
    let writer = volume.open(ino, RW);
    assert_eq!(backing(reader), backing(writer));
    assert!(volume.writing(ino), "the kernel may write from now on");
    kernel.write(backing(writer), INLINE_MAX as u64 * 2, b"more");
    let size = INLINE_MAX as u64 * 2 + 4;
    let stat = run(volume.fs.getattr(ino, None)).unwrap();
    assert_eq!(stat.attributes.size_bytes, size);
    assert!(stat.validity.is_zero());
    volume.close(ino, writer);
    assert!(!volume.writing(ino));
    assert_eq!(volume.stat(ino).size_bytes, size);
    volume.close(ino, reader);
    let again = volume.open(ino, RO);
    assert_eq!(backing(again), backing(reader), "kept at hand");
    volume.close(ino, again);
    assert_eq!(volume.lookup("a").unwrap().attributes.size_bytes, size);
}

#[test]
fn a_file_written_by_the_kernel_is_settled_after_a_crash() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = volume.open(ino, RW);
    kernel.write(backing(file), 0, &pattern(INLINE_MAX * 5, 2));
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().settled, 1);
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 5);
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 5, 2));
}

static IS_WRITTEN: AtomicBool = AtomicBool::new(true);

fn is_written(_: BorrowedFd<'_>) -> bool {
    IS_WRITTEN.load(Ordering::Relaxed)
}

/// The process was killed, and the kernel writes for a program that has the file open through the dead mount.
#[test]
fn what_the_kernel_writes_after_a_crash_is_in_the_size() {
    let (world, _kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    let program = std::fs::File::options().write(true).open(volume.object_path(ino)).unwrap();
    drop(volume);
    let volume = world.mount_with(FsOptions { open_elsewhere: Some(is_written), ..FsOptions::default() });
    assert_eq!(volume.fs.recovered().settled, 1);
    let size = |by_now| {
        program.set_len(by_now).unwrap();
        assert_eq!(volume.stat(ino).size_bytes, by_now);
        let entry = volume.lookup("a").unwrap();
        assert_eq!(entry.attributes.size_bytes, by_now);
        entry.validity.attributes
    };
    assert_eq!(size(INLINE_MAX as u64 * 3), Duration::ZERO, "nobody may believe it for long");
    // Opened, written and closed by others meanwhile.
    let file = volume.open(ino, RW);
    volume.write(ino, file, INLINE_MAX as u64 * 4, b"more");
    volume.close(ino, file);
    assert_eq!(size(INLINE_MAX as u64 * 5), Duration::ZERO);
    // One that is small now stays where the program writes it.
    program.set_len(10).unwrap();
    let file = volume.open(ino, RW);
    volume.close(ino, file);
    assert!(!volume.is_inline(ino));
    assert_eq!(size(INLINE_MAX as u64 * 6), Duration::ZERO);
    IS_WRITTEN.store(false, Ordering::Relaxed);
    size(INLINE_MAX as u64 * 7);
    assert!(!volume.writing(ino));
    assert_ne!(volume.lookup("a").unwrap().validity.attributes, Duration::ZERO);
}

static IS_MAPPED: AtomicBool = AtomicBool::new(true);

fn is_mapped(_: BorrowedFd<'_>) -> bool {
    IS_MAPPED.load(Ordering::Relaxed)
}

/// The kernel maps the object itself, and lets go of the file while it is mapped.
#[test]
fn what_a_mapping_stores_after_the_close_moves_the_times() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount_with(FsOptions { open_elsewhere: Some(is_mapped), ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = volume.open(ino, WO);
    kernel.write(backing(file), 0, b"x");
    volume.close(ino, file);
    assert!(!volume.writing(ino), "who only writes cannot map it");
    let file = volume.open(ino, RW);
    let reader = volume.open(ino, RO);
    kernel.write(backing(file), 0, b"y");
    let object = std::fs::File::options().write(true).open(volume.object_path(ino)).unwrap();
    let stored = |at: i64| {
        let before = volume.stat(ino).ctime;
        let time = rustix::fs::Timespec { tv_sec: at, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&object, &times).unwrap();
        let entry = volume.lookup("a").unwrap();
        assert_eq!(entry.validity.attributes, Duration::ZERO, "nobody may believe it for long");
        let stat = volume.stat(ino);
        assert_eq!((stat.mtime.secs, stat.mtime.nanos), (at, 5));
        assert!(stat.ctime >= before);
    };
    volume.close(ino, file);
    stored(2_000_000_001);
    volume.close(ino, reader);
    stored(2_000_000_002);
    // Times that are set in between hold until it is stored into again.
    let set = Timestamp::new(1_000_000_000, 7).unwrap();
    let change = SetAttributes { mtime: Some(SetTime::To(set)), ..SetAttributes::default() };
    assert_eq!(volume.setattr(ino, change).unwrap().mtime, set);
    assert_eq!(volume.stat(ino).mtime, set);
    stored(2_000_000_003);
    IS_MAPPED.store(false, Ordering::Relaxed);
    assert_eq!(volume.stat(ino).mtime.secs, 2_000_000_003);
    assert!(!volume.writing(ino));
    assert_eq!(volume.setattr(ino, change).unwrap().mtime, set);
    assert_eq!(volume.stat(ino).mtime, set);
}

/// As after a forced unmount: the kernel lets go of the mount, and not of a file that a program has open.
#[test]
fn what_the_kernel_writes_after_the_end_is_settled_at_the_next_start() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = std::fs::File::options().write(true).open(volume.object_path(ino)).unwrap();
    let opened = volume.open(ino, RW);
    kernel.write(backing(opened), 0, &pattern(INLINE_MAX * 3, 2));
    volume.detach();
    let after_the_end = pattern(INLINE_MAX * 5, 3);
    std::os::unix::fs::FileExt::write_all_at(&file, &after_the_end, 0).unwrap();
    let volume = world.mount();
    assert_eq!(volume.stat(ino).size_bytes, after_the_end.len() as u64);
    assert!(volume.contents(ino) == after_the_end && !volume.writing(ino));
}

#[test]
fn pages_of_a_file_that_went_back_inline_are_dropped_at_its_next_open() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount_with(FsOptions { atime: cofs_fs::AtimeMode::Never, ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = volume.open(ino, OpenFlags { truncate: true, ..RW });
    kernel.write(backing(file), 0, b"tiny");
    volume.close(ino, file);
    assert!(volume.is_inline(ino));
    let file = volume.open(ino, RO);
    assert_eq!(file.data_path, DataPath::Cached { keep_cache: false });
    assert_eq!(volume.read(ino, file, 0, 10), b"tiny");
    volume.close(ino, file);
    let file = volume.open(ino, RO);
    assert_eq!(file.data_path, DataPath::Cached { keep_cache: true });
    volume.close(ino, file);
}

#[test]
fn a_small_file_stays_in_its_object_while_it_is_mapped() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let object = std::fs::File::options().write(true).open(volume.object_path(ino)).unwrap();
    let file = volume.open(ino, OpenFlags { truncate: true, ..RW });
    kernel.write(backing(file), 0, b"before");
    kernel.mapped.store(true, std::sync::atomic::Ordering::Relaxed);
    volume.close(ino, file);
    std::os::unix::fs::FileExt::write_all_at(&object, b"behind", 0).unwrap();
    assert!(!volume.is_inline(ino) && !volume.writing(ino));
    assert_eq!(volume.contents(ino), b"behind");
    kernel.mapped.store(false, std::sync::atomic::Ordering::Relaxed);
    let file = volume.open(ino, RW);
    volume.close(ino, file);
    assert!(volume.is_inline(ino));
    assert_eq!(volume.contents(ino), b"behind");
}

#[test]
fn a_refusal_by_the_kernel_leaves_the_daemons_path() {
    for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::LOOP] {
        let (world, kernel) = World::with_passthrough();
        *kernel.refuse.lock() = Some(errno.raw_os_error());
        let volume = world.mount();
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
        let file = volume.open(ino, RW);
        assert_eq!(file.data_path, DataPath::Cached { keep_cache: false });
        volume.write(ino, file, 3, b"abc");
        assert_eq!(volume.read(ino, file, 3, 3), b"abc");
        volume.close(ino, file);
    }
}

#[test]
fn a_directory_of_large_files_gets_passthrough_from_the_first_byte() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    for number in 0..2 {
        let (ino, file) = volume.create(&format!("f{number}"));
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
    }
    let (ino, file) = volume.create("next");
    kernel.write(backing(file), 0, &pattern(INLINE_MAX * 3, 4));
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 3);
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 3, 4));
}

/// Who writes through the kernel, the daemon does not see; it is told before, if that one may not keep them.
#[test]
fn set_id_bits_go_at_the_kernels_word_and_not_without() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let chmod = |ino, bits| {
        volume.setattr(ino, SetAttributes { permissions: Some(bits), ..SetAttributes::default() }).unwrap();
    };
    let bob = Context { credentials: Credentials { uid: 7, ..CONTEXT.credentials }, ..CONTEXT };
    let word = |ino| run(volume.fs.setattr(&bob, ino, None, &SetAttributes::KILL_SET_ID));
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);

    let file = volume.open(ino, RW);
    chmod(ino, 0o6755);
    kernel.write(backing(file), 0, &pattern(INLINE_MAX * 3, 9));
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).permissions, 0o6755, "root has written");

    let (file, other) = (volume.open(ino, RW), volume.open(ino, RW));
    kernel.write(backing(file), 0, b"root again");
    assert_eq!(volume.stat(ino).permissions, 0o6755);
    assert_eq!(word(ino).unwrap().attributes.permissions, 0o755, "told at once");
    kernel.write(backing(file), 0, b"another");
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).permissions, 0o755);
    chmod(ino, 0o6644);
    volume.close(ino, other);
    assert_eq!(volume.stat(ino).permissions, 0o6644, "set after the write");

    assert!(matches!(word(ino), Err(FsError::NotPermitted)), "nobody has it open for writing");
    let reader = volume.open(ino, RO);
    assert!(matches!(word(ino), Err(FsError::NotPermitted)));
    let writer = volume.open(ino, RW);
    assert_eq!(
        word(ino).unwrap().attributes.permissions,
        0o2644,
        "a group that may not execute keeps its bit"
    );
    volume.close(ino, reader);
    volume.close(ino, writer);
    chmod(ino, 0o4755);
    volume.setattr(ino, SetAttributes::KILL_SET_ID).unwrap();
    assert_eq!(volume.stat(ino).permissions, 0o755, "a chown by root that names nobody");
}

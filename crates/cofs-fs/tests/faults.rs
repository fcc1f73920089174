//! A pool that is full or fails: the caller gets the errno, nothing is lost, and it heals.

mod common;

use std::sync::Arc;

use cofs_engine::{Call, Fault as EngineFault, FaultEngine, FaultPlan};
use cofs_fs::{FileSystem, FsOptions, WriteFlags, run};
use cofs_placement::{Fault, Operation};
use cofs_types::{FsError, InodeId, OpenFlags, XattrName};
use common::*;
use rustix::io::Errno;

fn errno_of(error: &FsError) -> Option<i32> {
    match error {
        FsError::NoSpace => Some(Errno::NOSPC.raw_os_error()),
        FsError::ReadOnly => Some(Errno::ROFS.raw_os_error()),
        FsError::Backing { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

#[test]
fn a_file_that_cannot_outgrow_is_inline_as_it_was() {
    for errno in [Errno::NOSPC, Errno::IO, Errno::DQUOT] {
        let world = World::new();
        let volume = world.mount();
        let (ino, file) = volume.create("a");
        let bytes = pattern(INLINE_MAX, 1);
        volume.write(ino, file, 0, &bytes);
        for operation in [Operation::Write, Operation::Create, Operation::Stat] {
            world.store.inject(Fault::new(&[operation], errno.raw_os_error()));
            let injected = world.store.injected();
            let refused = volume.try_write(ino, file, INLINE_MAX as u64, b"more").unwrap_err();
            assert!(world.store.injected() > injected, "{operation:?}: nothing was at stake");
            if errno != Errno::DQUOT && operation != Operation::Create {
                assert_eq!(errno_of(&refused), Some(errno.raw_os_error()), "{operation:?}: {refused:?}");
            }
            assert!(volume.is_inline(ino));
            assert_eq!(volume.read(ino, file, 0, INLINE_MAX + 10), bytes);
            world.store.heal();
        }
        // A pool that failed to create may be left alone for a moment.
        let healed = (0..300).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            volume.try_write(ino, file, INLINE_MAX as u64, b"more").is_ok()
        });
        assert!(healed, "{errno:?}");
        assert_eq!(volume.read(ino, file, INLINE_MAX as u64, 10), b"more");
        volume.close(ino, file);
        volume.unlink("a");
        volume.fs.collect().unwrap();
        assert_eq!(volume.objects_in_use(), 0, "what was taken in vain is given back");
    }
}

#[test]
fn a_failed_write_to_an_object_reaches_the_writer() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    world.store.inject(Fault::new(&[Operation::Write], Errno::NOSPC.raw_os_error()).times(1));
    assert!(matches!(volume.try_write(ino, file, 0, b"x"), Err(FsError::NoSpace)));
    volume.write(ino, file, 0, b"y");
    volume.close(ino, file);
    assert_eq!(volume.contents(ino)[0], b'y');
}

/// Room for this much in an object, and then an error: the limit on the size of files stands for a disk that is full. In a process
/// of its own, for which the signal that comes with this error is ignored.
const ROOM: usize = INLINE_MAX * 4 + 1000;

#[test]
fn a_write_that_is_done_in_part_tells_how_far_it_came() {
    if std::env::var_os("COFS_TEST_ROOM").is_some() {
        return in_little_room();
    }
    let done = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_write_that_is_done_in_part_tells_how_far_it_came", "--nocapture"])
        .env("COFS_TEST_ROOM", "1")
        // By pipes: where this process writes to may be a file beyond that limit.
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn in_little_room() {
    let world = World::new();
    let volume = world.mount();
    let old = pattern(INLINE_MAX * 2, 1);
    let new = pattern(ROOM * 2, 2);
    let files = ["appended", "overwritten", "written back", "copied", "outgrown"].map(|called| {
        let (ino, file) = volume.create(called);
        volume.write(ino, file, 0, if called == "outgrown" { b"small" } else { &old });
        (ino, file)
    });
    let (source, from) = volume.create("source");
    volume.write(source, from, 0, &new);
    let limit = rustix::process::Rlimit { current: Some(ROOM as u64), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let refused = |result: cofs_types::FsResult<usize>| {
        assert!(matches!(result, Err(FsError::FileTooLarge)), "{result:?}");
    };

    let [appended, overwritten, cached, copied, outgrown] = files;
    for ((ino, file), offset) in [(appended, old.len()), (overwritten, 0)] {
        let written = volume.try_write(ino, file, offset as u64, &new).unwrap();
        assert_eq!(written, ROOM - offset);
        assert_eq!(volume.stat(ino).size_bytes, ROOM as u64);
        let bytes = volume.read(ino, file, 0, ROOM + 10);
        assert!(bytes[..offset] == old[..offset] && bytes[offset..] == new[..written]);
        refused(volume.try_write(ino, file, ROOM as u64, &new[written..]));
    }

    // The kernel would take the pages of which it is not told otherwise for written.
    let flags = WriteFlags { from_cache: true, ..WriteFlags::default() };
    refused(run(volume.fs.write(cached.0, cached.1.handle, 0, &new, flags)));

    world.store.inject(Fault::new(&[Operation::CopyRange], Errno::OPNOTSUPP.raw_os_error()));
    let ((ino, file), from) = (copied, (source, from.handle, 0));
    let copy = |from, at| run(volume.fs.copy_range(&CONTEXT, from, (ino, file.handle, at), new.len() as u64));
    assert_eq!(copy(from, 0).unwrap(), ROOM as u64);
    assert_eq!(volume.stat(ino).size_bytes, ROOM as u64);

    // Out of the metadata it goes whole or not at all.
    let (ino, file) = outgrown;
    refused(volume.try_write(ino, file, 0, &new));
    assert!(volume.is_inline(ino));
    assert_eq!(volume.read(ino, file, 0, ROOM), b"small");
}

#[test]
fn a_failed_sync_poisons_the_file_until_it_is_closed() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    world.store.inject(Fault::new(&[Operation::Sync], Errno::IO.raw_os_error()).times(1));
    assert!(run(volume.fs.fsync(ino, Some(file.handle), false)).is_err());
    assert!(run(volume.fs.fsync(ino, Some(file.handle), false)).is_err(), "never a success after a failure");
    assert!(volume.try_write(ino, file, 0, b"x").is_err());
    assert_eq!(volume.read(ino, file, 0, 3), pattern(3, 1));
    volume.close(ino, file);
    let file = volume.open(ino, RW);
    volume.write(ino, file, 0, b"x");
    run(volume.fs.fsync(ino, Some(file.handle), false)).unwrap();
    volume.close(ino, file);
}

/// A file of two inline maxima whose last close could not be settled.
fn left_unsettled(world: &World) -> (Volume, InodeId) {
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    world.store.inject(Fault::new(&[Operation::Stat], Errno::STALE.raw_os_error()));
    assert!(run(volume.fs.release(ino, file.handle)).is_err());
    assert!(volume.stat(ino).size_bytes < INLINE_MAX as u64 * 2, "nothing was at stake");
    world.store.heal();
    assert!(volume.writing(ino));
    (volume, ino)
}

/// Who appends goes by the size that he is told.
#[test]
fn a_close_that_cannot_settle_is_made_good_by_the_next_stat() {
    let (volume, ino) = left_unsettled(&World::new());
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 2);
    assert!(!volume.writing(ino));
}

#[test]
fn a_close_that_cannot_settle_is_made_good_by_the_next_open() {
    let (volume, ino) = left_unsettled(&World::new());
    let file = volume.open(ino, RO);
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 2);
    volume.close(ino, file);
    assert!(!volume.writing(ino));
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 2);
}

#[test]
fn an_object_that_cannot_be_removed_stays_on_the_list() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    world.store.inject(Fault::new(&[Operation::RemoveFile], Errno::IO.raw_os_error()));
    volume.unlink("a");
    assert!(volume.fs.collect().is_err());
    assert_eq!(volume.objects_in_use(), 1);
    world.store.heal();
    let removed = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let _ = volume.fs.collect();
        volume.objects_in_use() == 0
    });
    assert!(removed);
}

#[test]
fn a_truncation_that_fails_leaves_the_file() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    let bytes = pattern(INLINE_MAX * 2, 1);
    volume.write(ino, file, 0, &bytes);
    volume.close(ino, file);
    world.store.inject(Fault::new(&[Operation::SetLen], Errno::IO.raw_os_error()));
    assert!(volume.truncate(ino, 10).is_err());
    world.store.heal();
    assert_eq!(volume.contents(ino), bytes);
    assert!(!volume.writing(ino));
}

#[test]
fn bytes_that_may_be_durable_are_synced_in_their_object_before_they_move_and_others_are_not() {
    let world = World::new();
    let volume = world.mount();
    // Objects ahead of need: creating one may sync numbers and directories of the pool.
    volume.placement.fill_now(cofs_types::PoolId(0), 8).unwrap();
    let fault = || world.store.inject(Fault::new(&[Operation::Sync], Errno::IO.raw_os_error()));
    let (newborn, file) = volume.create("newborn");
    volume.write(newborn, file, 0, b"abc");
    fault();
    volume.write(newborn, file, INLINE_MAX as u64, b"no sync needed");
    world.store.heal();
    volume.close(newborn, file);

    let (synced, file) = volume.create("synced");
    volume.write(synced, file, 0, b"abc");
    run(volume.fs.fsync(synced, Some(file.handle), true)).unwrap();
    fault();
    assert!(volume.try_write(synced, file, INLINE_MAX as u64, b"must sync").is_err());
    world.store.heal();
    assert!(volume.is_inline(synced));
    volume.close(synced, file);

    let (closed, file) = volume.create("closed");
    volume.write(closed, file, 0, b"abc");
    volume.close(closed, file);
    let file = volume.open(closed, RW);
    fault();
    assert!(volume.try_write(closed, file, INLINE_MAX as u64, b"must sync").is_err());
    world.store.heal();
    volume.close(closed, file);
}

#[test]
fn what_was_open_below_may_be_given_up() {
    let world = World::new();
    let volume = world.mount();
    let bytes = pattern(INLINE_MAX * 2, 1);
    let files = ["kept at hand", "read", "written"].map(|file| {
        let (ino, opened) = volume.create(file);
        volume.write(ino, opened, 0, &bytes);
        volume.close(ino, opened);
        ino
    });
    let [kept, read, written] = files;
    let reader = volume.open(read, RO);
    let writer = volume.open(written, RW);
    volume.write(written, writer, 0, b"new");
    assert!(world.store.give_up_open_files().unwrap() >= 3);

    // Somebody finds out.
    let refused = volume.try_write(written, writer, 0, b"lost").unwrap_err();
    assert_eq!(errno_of(&refused), Some(Errno::STALE.raw_os_error()));
    assert_eq!(volume.contents(kept), bytes);
    assert_eq!(volume.contents(read), bytes, "opened beside one who reads");
    assert_eq!(volume.read(read, reader, 0, bytes.len()), bytes, "who reads has it again");
    // Nobody takes a file in which he writes for sound.
    let beside = volume.open(written, RO);
    assert!(run(volume.fs.read(written, beside.handle, 0, &mut [0], false)).is_err());
    volume.close(written, beside);
    volume.try_write(written, writer, 0, b"lost").unwrap_err();
    assert!(run(volume.fs.fsync(written, Some(writer.handle), false)).is_err());
    let _ = run(volume.fs.release(written, writer.handle));
    assert_eq!(volume.contents(written)[..3], *b"new");
    volume.close(read, reader);
    let (ino, opened) = volume.create("another");
    volume.write(ino, opened, 0, &bytes);
    run(volume.fs.fsync(ino, Some(opened.handle), false)).unwrap();
    volume.close(ino, opened);
    assert_eq!(volume.contents(ino), bytes);
}

/// The name was made before that, and the kernel had been told that it is not there.
#[test]
fn a_create_and_an_open_that_fail_late_leave_nothing_open() {
    let synced = OpenFlags { sync: true, ..RW };
    for creates in [true, false] {
        let world = World::with_passthrough().0;
        let engine = Arc::new(FaultEngine::new(Arc::clone(&world.engine) as _, FaultPlan::default()));
        let volume = world.mount_over(Arc::clone(&engine) as _, FsOptions::default());
        let large = volume.create("large");
        volume.write(large.0, large.1, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(large.0, large.1);
        engine.fail_next(Call::Sync, EngineFault::Errno(Errno::IO.raw_os_error()));
        let ino = if creates {
            let made = run(volume.fs.create(&CONTEXT, InodeId::ROOT, name("a"), new_file(0o644), synced));
            assert!(made.is_err(), "nothing was at stake");
            assert_eq!(*world.recalls.1.lock(), [b"a"], "the kernel believes that it is not there");
            volume.lookup("a").unwrap().attributes.ino
        } else {
            let _kept = volume.open(large.0, RO);
            let opened = run(volume.fs.open(&CONTEXT, large.0, OpenFlags { truncate: true, ..synced }));
            assert!(opened.is_err(), "nothing was at stake");
            large.0
        };
        let info = XattrName::new(b"cofs.info").unwrap();
        let info = String::from_utf8(run(volume.fs.getxattr(&CONTEXT, ino, info)).unwrap().to_vec()).unwrap();
        let info = info.replace(' ', "");
        let wanted: &[_] = if creates { &["\"open\":null"] } else { &["\"opens\":1,", "\"writers\":0,"] };
        assert!(wanted.iter().all(|part| info.contains(part)), "{info}");
    }
}

//! Pools over a network: who need not wait for them does not, and who is killed can be let go.

mod common;
#[path = "../../cofs-wait/tests/pages/mod.rs"]
mod pages;

use std::{
    fs::File,
    pin::pin,
    sync::Arc,
    task::{Context as Polling, Poll, Waker},
    time::{Duration, Instant},
};

use cofs_engine::{FaultEngine, FaultPlan};
use cofs_fs::{FileSystem, FsOptions, ListOf, run};
use cofs_placement::{Fault, Operation};
use cofs_types::{FallocateMode, FsResult, InodeId, OpenFlags};
use common::*;
use pages::{file_system_tells, is_refused, let_go};

/// Polls once, as a worker does, while each call below fails; then lets the operation come to its end.
fn begins_without_the_pool<T>(world: &World, what: &str, operation: impl Future<Output = FsResult<T>>) -> T {
    let mut operation = pin!(operation);
    let before = world.store.injected();
    world.store.inject(Fault::new(&[], rustix::io::Errno::IO.raw_os_error()));
    let polled = operation.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
    assert_eq!(world.store.injected(), before, "{what} asked below");
    world.store.heal();
    match polled {
        Poll::Ready(done) => done.unwrap(),
        Poll::Pending => run(operation).unwrap(),
    }
}

/// They can be left when whoever asks is killed, which he cannot where they are begun on the thread that answers him.
#[test]
fn looks_and_syncs_ask_nothing_below_before_they_may_wait() {
    let world = World::new();
    let volume = world.mount_with(FsOptions { remote_below: true, ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    let bytes = pattern(INLINE_MAX * 2, 1);
    volume.write(ino, file, 0, &bytes);
    assert!(volume.writing(ino), "its object tells");
    let fs = &volume.fs;
    let stat = begins_without_the_pool(&world, "getattr", fs.getattr(ino, None));
    assert_eq!(stat.attributes.size_bytes, bytes.len() as u64);
    begins_without_the_pool(&world, "fsync", fs.fsync(ino, Some(file.handle), false));
    begins_without_the_pool(&world, "statfs", fs.statfs());
    begins_without_the_pool(&world, "syncfs", fs.syncfs());
    volume.close(ino, file);
}

/// A listing asks nothing below, and rather says nothing of a file than what may be old: the kernel takes its size from what it is told.
#[test]
fn a_listing_tells_no_attributes_that_only_the_object_has() {
    let world = World::new();
    let volume = world.mount_with(FsOptions { remote_below: true, ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    let (small, other) = volume.create("b");
    // A process that nobody knows is asked by the first file; it looks.
    for round in 0..2 {
        let opened = run(volume.fs.opendir(&CONTEXT, InodeId::ROOT, RO)).unwrap();
        let of = ListOf { cookie: 0, with_attributes: true, entries_max: 1000 };
        let mut listed = Vec::new();
        let mut sink = |entry: cofs_fs::DirEntry<'_>| {
            listed.push((entry.ino, entry.entry.is_some()));
            true
        };
        let listing = volume.fs.readdir(&CONTEXT, InodeId::ROOT, opened.handle, of, &mut sink);
        begins_without_the_pool(&world, "readdir", listing);
        assert!(listed.contains(&(ino, false)), "{listed:?}");
        assert!(round == 0 || listed.contains(&(small, true)), "{listed:?}");
        volume.lookup("a").unwrap();
        volume.lookup("b").unwrap();
    }
    volume.close(ino, file);
    volume.close(small, other);
}

/// The caller holds the directory's lock in the kernel while he waits, and all who look something up there wait with him.
#[test]
fn who_removes_a_file_does_not_wait_until_its_object_is_closed() {
    let world = World::new();
    let volume = world.mount_with(FsOptions { remote_below: true, ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let mut unlink = pin!(volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("a")));
    let polled = unlink.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

/// Likewise: it begins as a small one does, and gets its object when it is written to.
#[test]
fn who_makes_a_file_does_not_wait_for_a_pool_that_hangs() {
    let world = World::new();
    let volume = world.mount();
    for (file, learned) in [("huge", false), ("large", true)] {
        let (ino, file) = volume.create(file);
        assert_eq!(!volume.is_inline(ino), learned);
        volume.write(ino, file, INLINE_MAX as u64 * 256, b"x");
        volume.close(ino, file);
    }
    // What was known of the pool is old.
    std::thread::sleep(cofs_types::limits::POOL_PROBE_INTERVAL);
    world.store.hang();
    let (tell, told) = std::sync::mpsc::channel();
    let (ino, file) = std::thread::scope(|scope| {
        scope.spawn(|| tell.send(volume.create("another")).unwrap());
        let made = told.recv_timeout(std::time::Duration::from_secs(60));
        world.store.heal();
        made.expect("it waits for the pool")
    });
    assert!(volume.is_inline(ino));
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    assert!(!volume.is_inline(ino));
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
}

/// Likewise, if it hangs just then: nobody can know yet. What it brings in the end is nobody's.
#[test]
fn who_makes_a_file_does_not_wait_for_a_pool_that_begins_to_hang() {
    let world = World::new();
    let volume = world.mount_with(FsOptions { remote_below: true, ..FsOptions::default() });
    let (ino, file) = volume.create("huge");
    volume.write(ino, file, INLINE_MAX as u64 * 256, b"x");
    volume.close(ino, file);
    // On a slow machine an object may come too late.
    let begun = std::time::Instant::now();
    let large = (0..).map(|number| {
        assert!(begun.elapsed().as_secs() < 60, "no file begins large");
        let (ino, file) = volume.create(&format!("large{number}"));
        let large = !volume.is_inline(ino);
        volume.write(ino, file, INLINE_MAX as u64 * 256, b"x");
        volume.close(ino, file);
        large
    });
    let made = 2 + large.take_while(|large| !large).count();

    for operation in [Operation::Create, Operation::SetTimes, Operation::Stat] {
        world.store.hang_at(&[operation]);
        let (tell, told) = std::sync::mpsc::channel();
        let (ino, file) = std::thread::scope(|scope| {
            scope.spawn(|| tell.send(volume.create(&format!("{operation:?}"))).unwrap());
            let made = told.recv_timeout(std::time::Duration::from_secs(60));
            world.store.heal();
            made.expect("it waits for the pool")
        });
        assert!(volume.is_inline(ino), "{operation:?}");
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
        volume.unlink(&format!("{operation:?}"));
        // What was known of the pool is old.
        std::thread::sleep(cofs_types::limits::POOL_PROBE_INTERVAL);
    }
    volume.fs.collect().unwrap();
    let begun = std::time::Instant::now();
    while volume.objects_in_use() != made {
        assert!(begun.elapsed().as_secs() < 60, "{} objects, {made} files", volume.objects_in_use());
        std::thread::yield_now();
    }
    volume.detach();
}

/// A file that grew and ended small goes back into the metadata at its last close, which reads it.
#[test]
fn who_closes_what_ended_small_does_not_wait_for_its_bytes() {
    const SMALL: usize = 1000;
    let world = World::new();
    let volume = world.mount();
    if !file_system_tells(world.pool.path()) {
        return;
    }
    // Whether it waited.
    let close = |cool: &dyn Fn(&File)| {
        let (ino, file) = volume.create("file");
        let bytes = pattern(INLINE_MAX * 2, 1);
        volume.write(ino, file, 0, &bytes);
        volume.truncate(ino, SMALL as u64).unwrap();
        cool(&File::open(volume.object_path(ino)).unwrap());
        let mut close = pin!(volume.fs.release(ino, file.handle));
        let waits = close.as_mut().poll(&mut Polling::from_waker(Waker::noop())).is_pending();
        if waits {
            run(close).unwrap();
        }
        assert!(volume.is_inline(ino));
        assert_eq!(volume.contents(ino), bytes[..SMALL]);
        volume.unlink("file");
        waits
    };
    assert!(!close(&|_| {}));
    assert!(is_refused(|| (!close(&let_go)).then_some(())));
}

/// Those who change something wait for that where they hold up nobody; those who do not need not wait.
#[test]
fn who_changes_something_rests_where_changes_come_too_fast() {
    const PAUSE: Duration = Duration::from_millis(30);
    let world = World::new();
    let engine = Arc::new(FaultEngine::new(Arc::clone(&world.engine) as _, FaultPlan::new()));
    let volume = world.mount_over(Arc::clone(&engine) as _, FsOptions::default());
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"bytes");
    engine.set_pause(Some(PAUSE));
    let fs = &volume.fs;
    let mut bytes = [0; 5];
    assert!(is_answered_at_once(fs.lookup(&CONTEXT, InodeId::ROOT, name("a"))));
    assert!(is_answered_at_once(fs.read(ino, file.handle, 0, &mut bytes, false)));
    assert!(is_answered_at_once(fs.getattr(ino, None)));
    let (new, change) = (new_file(0o644), cofs_types::SetAttributes::default());
    let root = InodeId::ROOT;
    assert!(rests(PAUSE, fs.create(&CONTEXT, root, name("b"), new, RW)));
    assert!(rests(PAUSE, fs.make(&CONTEXT, root, name("c"), new_directory())));
    assert!(rests(PAUSE, fs.write(ino, file.handle, 0, b"other", cofs_fs::WriteFlags::default())));
    assert!(rests(PAUSE, fs.setattr(&CONTEXT, ino, None, &change)));
    assert!(rests(PAUSE, fs.link(&CONTEXT, ino, root, name("d"))));
    assert!(rests(
        PAUSE,
        fs.rename(&CONTEXT, (root, name("d")), (root, name("e")), cofs_types::RenameMode::Replace)
    ));
    assert!(rests(PAUSE, fs.unlink(&CONTEXT, root, name("e"))));
    assert!(rests(PAUSE, fs.rmdir(&CONTEXT, root, name("c"))));
    assert!(rests(PAUSE, fs.open(&CONTEXT, ino, OpenFlags { truncate: true, ..WO })));
    let allocate = FallocateMode::Allocate { keep_size: false };
    assert!(rests(PAUSE, fs.fallocate(&CONTEXT, ino, file.handle, allocate, 0, 100)));
    assert!(rests(PAUSE, fs.copy_range(&CONTEXT, (ino, file.handle, 0), (ino, file.handle, 100), 50)));
    engine.set_pause(None);
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    engine.set_pause(Some(PAUSE));
    assert!(rests(PAUSE, fs.release(ino, file.handle)), "it is settled");
    // Not for that they are too fast, but as the journal is at rest.
    engine.set_pause(Some(Duration::ZERO));
    assert!(rests(Duration::ZERO, fs.make(&CONTEXT, root, name("f"), new_directory())));
    engine.set_pause(None);
    assert!(is_answered_at_once(fs.unlink(&CONTEXT, root, name("b"))));
}

fn is_answered_at_once<T>(operation: impl Future<Output = FsResult<T>>) -> bool {
    matches!(pin!(operation).poll(&mut Polling::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
}

/// Leaves the thread that must not wait, and is done so much later.
fn rests<T>(pause: Duration, operation: impl Future<Output = FsResult<T>>) -> bool {
    let (begin, mut operation) = (Instant::now(), pin!(operation));
    let left = operation.as_mut().poll(&mut Polling::from_waker(Waker::noop())).is_pending();
    run(operation).unwrap();
    left && begin.elapsed() >= pause
}

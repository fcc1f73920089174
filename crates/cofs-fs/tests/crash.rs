//! The service ends without a word, or the power goes: what was acknowledged, or synced, is there.

mod common;

use std::{sync::Arc, time::Duration};

use cofs_fs::{FileSystem, run};
use cofs_metadata::{Leave, MetadataDriver, Settled};
use cofs_placement::{Fault, Operation};
use cofs_types::{InodeId, SetAttributes, SetTime, Timestamp};
use common::*;
use rustix::io::Errno;

#[test]
fn acknowledged_writes_of_all_layouts_survive_the_end_of_the_service() {
    let world = World::new();
    let volume = world.mount();
    let (small, file) = volume.create("small");
    volume.write(small, file, 0, b"acknowledged");
    let (large, file) = volume.create("large");
    volume.write(large, file, 0, &pattern(100, 1));
    volume.write(large, file, 100, &pattern(INLINE_MAX * 3, 2));
    volume.write(large, file, 0, b"over");
    drop(volume);

    let volume = world.mount();
    assert_eq!(volume.fs.recovered().settled, 1);
    assert_eq!(volume.contents(small), b"acknowledged");
    assert_eq!(volume.stat(large).size_bytes, 100 + INLINE_MAX as u64 * 3);
    assert_eq!(&volume.contents(large)[..5], &[b'o', b'v', b'e', b'r', pattern(5, 1)[4]]);
    assert!(!volume.writing(large));
    volume.detach();
    assert_eq!(world.mount().fs.recovered(), cofs_fs::Recovered::default());
}

#[test]
fn times_set_while_a_file_was_open_survive() {
    let world = World::new();
    let volume = world.mount();
    let old = Timestamp::new(1_000_000_000, 5).unwrap();
    let set = SetAttributes { mtime: Some(SetTime::To(old)), ..SetAttributes::default() };
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.setattr(ino, set).unwrap();
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.stat(ino).mtime, old);
    // Set while closed, opened for writing, nothing written, crash.
    let older = Timestamp::new(900_000_000, 5).unwrap();
    volume.setattr(ino, SetAttributes { mtime: Some(SetTime::To(older)), ..set }).unwrap();
    let file = volume.open(ino, RW);
    volume.truncate(ino, INLINE_MAX as u64 * 2).unwrap();
    volume.setattr(ino, SetAttributes { mtime: Some(SetTime::To(older)), ..set }).unwrap();
    let _ = file;
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.stat(ino).mtime, older);
}

#[test]
fn files_unlinked_while_open_are_gone_after_a_crash_with_their_objects() {
    let world = World::new();
    let volume = world.mount();
    for file_name in ["a", "b"] {
        let (ino, file) = volume.create(file_name);
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.unlink(file_name);
    }
    run(volume.fs.tmpfile(&CONTEXT, InodeId::ROOT, new_file(0o600), RW)).unwrap();
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().released, 3);
    volume.placement.start_filler();
    eventually("all are released", || unlinked_and_to_reclaim(&volume) == 0);
    assert_eq!(volume.objects_in_use(), 0);
}

/// As a forced unmount has it.
#[test]
fn an_end_without_closes_releases_what_was_unlinked_while_open() {
    let world = World::new();
    let volume = world.mount();
    let (unlinked, file) = volume.create("unlinked");
    volume.write(unlinked, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.unlink("unlinked");
    let (kept, file) = volume.create("kept");
    volume.write(kept, file, 0, &pattern(INLINE_MAX * 2, 2));
    volume.detach();
    let volume = world.mount();
    assert_eq!(volume.fs.recovered(), cofs_fs::Recovered::default());
    assert_eq!(volume.contents(kept), pattern(INLINE_MAX * 2, 2));
    eventually("its object is removed", || unlinked_and_to_reclaim(&volume) == 0);
}

fn unlinked_and_to_reclaim(volume: &Volume) -> usize {
    let metadata = volume.fs.metadata();
    run(metadata.unlinked_set(None, 10)).unwrap().value.len()
        + run(metadata.reclaim_list(10)).unwrap().value.len()
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 60, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// An unlinked inode goes only after its objects have been found, however often the service ends before that.
#[test]
fn an_unlinked_inode_stays_until_it_is_known_what_a_crash_left_of_it() {
    let world = World::new();
    let volume = world.mount();
    let unlinked = volume.create("unlinked").0;
    volume.unlink("unlinked");
    let left = volume.placement.take(unlinked).unwrap();
    left.file.write_all_at(b"copied", 0).unwrap();
    let left = left.id;
    drop(volume);

    // Without the filler nobody looks through the pools.
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().released, 1);
    volume.fs.collect().unwrap();
    drop(volume);
    let volume = world.mount();
    volume.fs.collect().unwrap();
    volume.detach();
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().released, 1);
    assert!(volume.placement.open_object(left, false).is_ok());
    volume.placement.start_filler();
    eventually("it is released", || unlinked_and_to_reclaim(&volume) == 0);
    assert!(volume.placement.open_object(left, false).is_err());
    assert_eq!(volume.objects_in_use(), 0);
    volume.detach();
    assert_eq!(world.mount().fs.recovered(), cofs_fs::Recovered::default());
}

/// The pools look back over a few starts only.
#[test]
fn ends_that_come_before_the_collector_hide_nothing_of_what_a_crash_left() {
    let world = World::new();
    let volume = world.mount();
    let small = volume.create("small").0;
    let left = volume.placement.take(small).unwrap().id;
    drop(volume);
    for _ in 0..6 {
        let volume = world.mount();
        volume.placement.start_filler();
        // Each start takes some, and so reserves further numbers.
        volume.placement.take(small).unwrap();
        volume.detach();
    }
    let volume = world.mount();
    volume.placement.start_filler();
    eventually("the pools are looked through", || volume.placement.is_in_order());
    assert!(volume.placement.open_object(left, false).is_err());
}

/// A file handle leads to it until then; whoever opens it keeps it.
#[test]
fn an_unlinked_inode_that_is_opened_again_after_a_crash_goes_with_its_last_close() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("unlinked");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.unlink("unlinked");
    drop(volume);

    let volume = world.mount();
    let file = volume.open(ino, RW);
    volume.placement.start_filler();
    eventually("the pools are looked through", || volume.placement.is_in_order());
    volume.fs.collect().unwrap();
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    eventually("it is released", || unlinked_and_to_reclaim(&volume) == 0);
    assert_eq!(volume.objects_in_use(), 0);
}

#[test]
fn the_reclaim_list_goes_on_after_a_crash() {
    let world = World::new();
    let volume = world.mount();
    for number in 0..5 {
        let (ino, file) = volume.create(&format!("f{number}"));
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
    }
    for number in 0..5 {
        volume.unlink(&format!("f{number}"));
    }
    drop(volume);
    let volume = world.mount();
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
    assert!(run(volume.fs.metadata().reclaim_list(10)).unwrap().value.is_empty());
}

/// Objects handed out whose commit did not come, as a crash in the middle of an outgrow leaves them.
#[test]
fn what_a_crash_left_without_an_inode_is_removed_behind_our_back_and_nothing_else() {
    let world = World::new();
    let volume = world.mount();
    let (kept, file) = volume.create("kept");
    volume.write(kept, file, 0, &pattern(INLINE_MAX * 2, 1));
    let small = volume.create("small").0;
    let unlinked = volume.create("unlinked").0;
    volume.unlink("unlinked");
    let take = |ino| {
        let taken = volume.placement.take(ino).unwrap();
        taken.file.write_all_at(b"copied", 0).unwrap();
        taken.id
    };
    let nobodys = [take(small), take(unlinked)];
    // Nothing says that these metadata are the ones that the pool was used with.
    let unknown = take(InodeId::new(999_999).unwrap());
    drop(volume);

    let volume = world.mount();
    let is_there = |id| volume.placement.open_object(id, false).is_ok();
    assert!(nobodys.into_iter().all(is_there));
    volume.placement.start_filler();
    eventually("they are removed", || {
        !nobodys.into_iter().any(is_there) && volume.placement.left_behind().is_empty()
    });
    assert!(is_there(unknown));
    assert_eq!(volume.contents(kept), pattern(INLINE_MAX * 2, 1));
    assert_eq!(volume.objects_in_use(), 2);
}

#[test]
fn a_file_whose_object_was_never_synced_and_went_with_the_power_is_empty() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    std::fs::remove_file(volume.object_path(ino)).unwrap();
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().emptied, 1);
    assert!(volume.is_inline(ino));
    assert!(volume.contents(ino).is_empty());
}

/// A volume with a large file that was closed.
fn with_a_closed_file(world: &World) -> (Volume, InodeId) {
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 3, 1));
    volume.close(ino, file);
    (volume, ino)
}

/// A volume with a closed file of whose object the end is gone, mounted anew: after a `power_cut`, or a crash of the process alone, in which nothing
/// can have been lost.
fn cut_short(world: &World, power_cut: bool) -> (Volume, InodeId) {
    let (volume, ino) = with_a_closed_file(world);
    let object = std::fs::OpenOptions::new().write(true).open(volume.object_path(ino)).unwrap();
    drop(volume);
    object.set_len(INLINE_MAX as u64 + 1000).unwrap();
    if power_cut {
        world.reboot();
    }
    (world.mount(), ino)
}

#[test]
fn a_closed_file_is_as_long_as_what_a_power_cut_has_left_of_it() {
    let world = World::new();
    let (volume, ino) = cut_short(&world, true);
    assert_eq!(volume.fs.recovered().shortened, 1);
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 + 1000);
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX + 1000, 1));
    volume.detach();
    assert_eq!(world.mount().fs.recovered(), cofs_fs::Recovered::default());
}

#[test]
fn a_closed_file_has_what_a_later_write_has_left_though_its_commit_went_with_the_power() {
    let world = World::new();
    let (volume, ino) = with_a_closed_file(&world);
    let object = std::fs::OpenOptions::new().write(true).open(volume.object_path(ino)).unwrap();
    drop(volume);
    object.set_len(INLINE_MAX as u64 * 4).unwrap();
    world.reboot();
    let volume = world.mount();
    assert_eq!((volume.fs.recovered().settled, volume.fs.recovered().shortened), (1, 0));
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 4);
    assert_eq!(volume.contents(ino).len(), INLINE_MAX * 4);
}

#[test]
fn a_closed_file_whose_object_went_with_the_power_is_empty() {
    let world = World::new();
    let (volume, ino) = with_a_closed_file(&world);
    let object = volume.object_path(ino);
    drop(volume);
    std::fs::remove_file(object).unwrap();
    world.reboot();
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().emptied, 1);
    assert!(volume.is_inline(ino) && volume.contents(ino).is_empty());
}

#[test]
fn the_missing_object_of_a_closed_file_that_is_not_new_is_left_to_fsck() {
    let world = World::new();
    let (volume, ino) = with_a_closed_file(&world);
    let object = volume.object_path(ino);
    let metadata = volume.fs.metadata();
    // Its last change was an hour after its birth.
    let (_, unsynced) = run(metadata.unsynced_set(None, 9)).unwrap().value[0];
    run(metadata.begin_writing(ino)).unwrap();
    let mut settled = Settled {
        size_bytes: INLINE_MAX as u64 * 3,
        ctime: Some(volume.stat(ino).ctime),
        ..Settled::default()
    };
    settled.ctime.as_mut().unwrap().secs += 3600;
    run(metadata.settle(ino, &settled, Leave::Closed(unsynced))).unwrap();
    drop(volume);
    std::fs::remove_file(object).unwrap();
    world.reboot();
    let volume = world.mount();
    assert_eq!((volume.fs.recovered().emptied, volume.fs.recovered().unreachable), (0, 1));
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 3);
}

#[test]
fn a_crash_of_the_process_alone_has_no_closed_file_looked_at() {
    let world = World::new();
    let (volume, ino) = cut_short(&world, false);
    assert_eq!(volume.fs.recovered(), cofs_fs::Recovered::default());
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 3, "the object was not looked at");
    let marked = || run(volume.fs.metadata().unsynced_set(None, 9)).unwrap().value.len();
    assert_eq!(marked(), 1, "it waits for a sync, as before");
}

#[test]
fn a_sync_of_the_pools_takes_the_marks_of_what_was_closed_before() {
    let world = World::new();
    let volume = world.mount();
    let marked = || run(volume.fs.metadata().unsynced_set(None, 9)).unwrap().value.len();
    let write = |file: &str| {
        let (ino, opened) = volume.create(file);
        volume.write(ino, opened, 0, &pattern(INLINE_MAX * 3, 1));
        volume.close(ino, opened);
    };
    write("a");
    std::thread::sleep(Duration::from_millis(1100));
    world.store.inject(Fault::new(&[Operation::SyncAll], Errno::IO.raw_os_error()));
    run(volume.fs.syncfs()).unwrap_err();
    world.store.heal();
    run(volume.fs.syncfs()).unwrap();
    assert_eq!(marked(), 1, "a sync has failed since, and what it did not bring may be lost");
    std::thread::sleep(Duration::from_millis(1100));
    write("b");
    assert_eq!(marked(), 2, "nothing at stake");
    std::thread::sleep(Duration::from_millis(1100));
    run(volume.fs.syncfs()).unwrap();
    assert_eq!(marked(), 1);
}

#[test]
fn the_end_of_a_mount_leaves_no_closed_file_marked() {
    let world = World::new();
    let (volume, ino) = with_a_closed_file(&world);
    volume.detach();
    let volume = world.mount();
    assert_eq!(run(volume.fs.metadata().unsynced_set(None, 9)).unwrap().value, []);
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 3, 1));
}

#[test]
fn a_file_whose_settled_object_is_gone_is_left_to_fsck_and_does_not_stop_the_start() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = volume.open(ino, RW);
    volume.write(ino, file, 0, b"more");
    std::fs::remove_file(volume.object_path(ino)).unwrap();
    drop(volume);
    let volume = world.mount();
    assert_eq!(volume.fs.recovered().unreachable, 1);
    assert_eq!(volume.lookup("a").unwrap().attributes.size_bytes, INLINE_MAX as u64 * 2);
    let refused = run(volume.fs.open(&CONTEXT, ino, RO));
    assert!(matches!(refused, Err(cofs_types::FsError::Corrupt(_))), "{refused:?}");
}

/// After a power cut that keeps `keep` unsynced commits.
fn power_cut(world: World, volume: Volume, keep: usize) -> World {
    drop(volume);
    let engine = Arc::new(world.engine.after_power_cut(keep));
    World { engine, ..world }
}

#[test]
fn an_object_is_not_removed_before_the_power_can_no_longer_bring_its_name_back() {
    for keep in 0..4 {
        let world = World::new();
        let volume = world.mount();
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        run(volume.fs.fsync(ino, Some(file.handle), false)).unwrap();
        volume.close(ino, file);
        run(volume.fs.syncfs()).unwrap();
        volume.unlink("a");
        std::thread::sleep(std::time::Duration::from_millis(120));
        volume.fs.collect().unwrap();
        let world = power_cut(world, volume, keep);
        let volume = world.mount();
        match volume.lookup("a") {
            Ok(entry) => assert_eq!(volume.contents(entry.attributes.ino), pattern(INLINE_MAX * 2, 1)),
            Err(_) => assert_eq!(volume.objects_in_use(), 0),
        }
    }
}

#[test]
fn what_was_synced_survives_a_power_cut_wherever_it_moved_afterwards() {
    for keep in 0..8 {
        let world = World::new();
        let volume = world.mount();
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(INLINE_MAX, 1));
        run(volume.fs.fsync(ino, Some(file.handle), true)).unwrap();
        assert_eq!(world.engine.unsynced_commits(), 0);
        // Out into an object, cut, and back again: none of it synced.
        volume.write(ino, file, INLINE_MAX as u64, b"tail");
        volume.truncate(ino, INLINE_MAX as u64).unwrap();
        volume.close(ino, file);
        assert!(world.engine.unsynced_commits() > 0, "nothing was at stake");
        let world = power_cut(world, volume, keep);
        let volume = world.mount();
        let bytes = volume.contents(ino);
        assert_eq!(&bytes[..INLINE_MAX], pattern(INLINE_MAX, 1), "keep {keep}");
    }
}

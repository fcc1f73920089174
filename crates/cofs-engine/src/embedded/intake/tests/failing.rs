//! Stores and syncs that fail, and what may be believed then.

use super::*;

/// The kernel tells of what it could not write once, and of two that sync at once one.
#[test]
fn after_a_failed_sync_of_a_segment_each_one_fails() {
    let world = World::new();
    let intake = world.open();
    commit(&intake, 1);
    let layer = intake.layers.read()[0].clone();
    SYNC_FAILS.set(true);
    assert!(layer.segment.sync_ended().is_err(), "the drain's");
    let error = intake.sync(|| Ok(())).unwrap_err();
    assert_eq!(error.errno, Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    assert!(intake.poison.get().is_some());
}

/// After a sync that failed the kernel shows pages that are not on the disk, to the next process too.
#[test]
fn what_an_earlier_life_left_is_written_again_by_the_first_sync() {
    let mut world = World::new();
    let intake = world.open();
    if !intake.layers.read()[0].segment.is_mapped() {
        return; // another file system is below, where it is read once more
    }
    commit(&intake, 1);
    drop(intake);
    let intake = world.open();
    assert_eq!(prefix(&intake), 1);
    let path = segment::path(world.directory.path(), 0);
    let changed = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before = changed(&path);
    thread::sleep(Duration::from_millis(20));
    intake.sync(|| Ok(())).unwrap();
    let written = changed(&path);
    assert!(written > before, "not written");
    commit(&intake, 2);
    intake.sync(|| Ok(())).unwrap();
    assert_eq!(changed(&path), written, "once is enough");
    world.take_synced();
    drop(intake);
    assert_eq!(prefix(&world.open()), 2);
}

/// Its file may be another segment's by then.
#[test]
fn who_syncs_a_segment_that_was_drained_meanwhile_writes_nothing_of_it_again() {
    let mut world = World::new();
    commit(&world.open(), 1);
    let intake = world.open();
    let drained = intake.layers.read().last().cloned().unwrap();
    world.drain(&intake);
    let mut number = 1;
    while intake.writer.lock().layer.as_ref().unwrap().segment.slot != drained.segment.slot {
        world.make_ready(&intake);
        number += 1;
        commit(&intake, number);
    }
    drained.segment.sync_ended().unwrap();
    drop(intake);
    assert_eq!(prefix_over(&world.open(), world.below.1), number);
}

/// The file that was mapped is another one then, or none.
#[test]
fn a_file_that_was_replaced_is_not_stored_to_by_the_mapping_of_before() {
    for copied in [false, true] {
        let mut world = World::new();
        let intake = world.open();
        let mut number = fill(&mut world, &intake, 1);
        let slot = intake.layers.read().last().unwrap().segment.slot;
        let path = segment::path(world.directory.path(), slot);
        world.drain(&intake);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        if copied {
            fs::write(&path, bytes).unwrap();
        }
        while intake.writer.lock().layer.as_ref().unwrap().segment.slot != slot {
            world.make_ready(&intake);
            number += 1;
            commit(&intake, number);
        }
        drop(intake);
        assert_eq!(prefix_over(&world.open(), world.below.1), number, "{copied}");
    }
}

/// The kernel may have let go of a page that it could not write since it was read here.
#[test]
fn what_is_no_longer_there_cannot_be_synced() {
    let world = World::new();
    commit(&world.open(), 1);
    let intake = world.open();
    let path = segment::path(world.directory.path(), 0);
    fs::File::options().write(true).open(path).unwrap().write_all_at(&[0; 32], 64).unwrap();
    assert!(intake.sync(|| Ok(())).is_err());
    assert!(intake.poison.get().is_some());
}

/// A commit, and one that failed after it, as on a disk that takes no more: its file ends within the mapping. `None`: nothing is mapped here.
fn failed_store(world: &World) -> Option<(Intake, fs::File)> {
    let intake = world.open();
    if !intake.layers.read()[0].segment.is_mapped() {
        return None; // another file system is below
    }
    commit(&intake, 1);
    let file = fs::File::options().write(true).open(segment::path(world.directory.path(), 0)).unwrap();
    file.set_len(PAGE_BYTES as u64).unwrap();
    let large = Change::put(b"large", vec![7; 2 * PAGE_BYTES]);
    assert!(change(&intake, &[Change::delete(b"head"), large]).is_err());
    assert_eq!(prefix(&intake), 1);
    assert!(matches!(intake.health(), EngineHealth::Stuck(_)));
    // The disk is well again.
    file.set_len(SEGMENT_BYTES).unwrap();
    Some((intake, file))
}

/// The next commit, which may fail as well, has the writer for a moment.
#[test]
fn what_kept_a_commit_is_told_while_somebody_commits() {
    let world = World::new();
    let Some((intake, _file)) = failed_store(&world) else { return };
    let is_told = || {
        let writer = intake.writer.lock();
        thread::scope(|scope| {
            let health = scope.spawn(|| intake.health());
            thread::sleep(Duration::from_millis(5));
            drop(writer);
            matches!(health.join().unwrap(), EngineHealth::Stuck(_))
        })
    };
    // Whom the machine holds up for long is not told.
    assert!((0..3).any(|_| is_told()));
}

#[test]
fn after_a_store_that_failed_commits_go_on_by_calls() {
    let world = World::new();
    let Some((intake, _file)) = failed_store(&world) else { return };
    // Shorter than what failed.
    commit(&intake, 2);
    assert!(matches!(intake.health(), EngineHealth::Healthy));
    drop(intake);
    assert_eq!(prefix(&world.open()), 2);
}

#[test]
fn a_record_whose_store_failed_is_not_replayed() {
    let world = World::new();
    let Some((intake, _file)) = failed_store(&world) else { return };
    drop(intake);
    let intake = world.open();
    assert_eq!(prefix(&intake), 1);
    assert_eq!(intake.get(b"large"), None);
}

/// The drain ends a segment in a pause. Who commits meanwhile may need the next one but one, which the drain makes ready.
#[test]
fn a_segment_is_not_ended_by_who_would_wait_for_a_commit() {
    let mut world = World::new();
    let intake = world.open();
    world.make_ready(&intake);
    let writer = intake.writer.lock();
    let waited = thread::scope(|scope| {
        let ended = scope.spawn(|| intake.end_segment().is_ok());
        let start = Instant::now();
        while !ended.is_finished() && start.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        let waited = !ended.is_finished();
        drop(writer);
        assert!(ended.join().unwrap());
        waited
    });
    assert!(!waited, "for who waits for it");
    assert!(intake.work.lock().spare.is_some());
    assert!(intake.end_segment().is_ok());
    assert!(intake.work.lock().spare.is_none(), "in a pause it is");
}

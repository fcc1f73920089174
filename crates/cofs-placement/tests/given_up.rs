//! A file system that gives up what is open below, as an NFS client does whose server has forgotten it.

mod common;

use std::{collections::BTreeSet, fs, path::Path};

use cofs_placement::{Fault, Operation, Placement};
use common::{ESTALE, POOL, World, crash, errno, eventually, id, ino, scan};

/// Dead files tell so; whatever is opened from then on lives, of the pool's own files too.
fn dies_and_lives(world: &World, notice: impl Fn(&Placement)) {
    let placement = world.open();
    let before = placement.take(ino(1)).unwrap();
    before.file.write_all_at(b"x", 0).unwrap();
    before.file.sync(false).unwrap();
    placement.fill_now(POOL, 5).unwrap();
    let given_up = world.faulty().give_up_open_files().unwrap();
    assert!(given_up >= 3, "little was at stake: {given_up} files");

    notice(&placement);
    for number in 2..12 {
        let taken = placement.take(ino(number)).unwrap();
        taken.file.write_all_at(b"y", 0).unwrap();
        taken.file.sync(false).unwrap();
    }
    assert_eq!(errno(&before.file.read_at(&mut [0], 0).unwrap_err()), Some(ESTALE));
    assert!(before.file.is_outlived());
    let anew = placement.open_object(before.id, true).unwrap();
    let mut bytes = [0; 2];
    assert_eq!(anew.read_at(&mut bytes, 0).unwrap(), 1);
    assert_eq!(bytes[0], b'x');
    assert!(!anew.is_outlived());
    placement.sync().unwrap();
    let owners = scan(&placement).0.into_values().filter_map(|seen| seen.owner);
    let mut owners: Vec<_> = owners.map(|owner| owner.get()).collect();
    owners.sort_unstable();
    assert_eq!(owners, (1..12).collect::<Vec<_>>());
    placement.close().unwrap();
}

#[test]
fn what_was_open_dies_and_what_is_opened_anew_lives() {
    dies_and_lives(&World::new(1), |_| {});
    dies_and_lives(&World::without_xattrs(), |_| {});
}

#[test]
fn who_finds_out_by_the_pools_own_files_tells_the_others() {
    dies_and_lives(&World::new(1), |placement| {
        // More than are ready, so that new ones are made.
        placement.fill_now(POOL, 5000).unwrap();
    });
}

#[test]
fn a_log_of_owners_that_died_is_found_by_who_syncs_it() {
    let world = World::without_xattrs();
    let placement = world.open();
    let taken = placement.take(ino(1)).unwrap();
    placement.sync().unwrap();
    placement.set_owner(taken.id, ino(2)).unwrap();
    assert!(world.faulty().give_up_open_files().unwrap() >= 3);
    placement.sync().unwrap();
    assert!(taken.file.is_outlived());
    assert_eq!(scan(&placement).0[&taken.id.sequence()].owner, Some(ino(2)));
}

/// Takes an object from a new volume where `operation` fails `times` times.
fn take_where_it_is_stale(operation: Operation, times: u64) {
    let world = World::new(1);
    let placement = world.open();
    world.faulty().inject(Fault::new(&[operation], ESTALE).times(times));
    let taken = placement.take(ino(1)).map(|taken| taken.id);
    assert_eq!(world.faulty().injected(), times, "{operation:?}");
    match taken {
        Ok(_) => assert_eq!(times, 1, "{operation:?}"),
        Err(error) => assert_eq!((errno(&error), times), (Some(ESTALE), 2), "{operation:?}"),
    }
    placement.take(ino(2)).unwrap();
    placement.close().unwrap();
    let owners: Vec<_> = scan(&placement).0.into_values().map(|seen| seen.owner.unwrap().get()).collect();
    assert_eq!(owners, if times == 1 { vec![1, 2] } else { vec![2] }, "{operation:?}");
}

#[test]
fn what_is_stale_is_tried_once_more_and_once_only() {
    use Operation::{Create, MakeDirectory, SetTimes, Sync, Tag, Write};
    for operation in [Create, MakeDirectory, SetTimes, Sync, Tag, Write] {
        take_where_it_is_stale(operation, 1);
        take_where_it_is_stale(operation, 2);
    }
}

#[test]
fn what_a_sync_of_all_tells_once_is_told() {
    let world = World::new(1);
    let placement = world.open();
    world.faulty().inject(Fault::new(&[Operation::SyncAll], ESTALE).times(1));
    assert_eq!(errno(&placement.sync().unwrap_err()), Some(ESTALE));
    placement.sync().unwrap();
}

#[test]
fn what_is_looked_at_twice_after_a_crash_is_found_once() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 40).unwrap();
    (1..=10).for_each(|number| drop(placement.take(ino(number)).unwrap()));
    crash(placement);
    let placement = world.open();
    world.faulty().inject(Fault::new(&[Operation::Stat], ESTALE).after(20).times(1));
    placement.start_filler();
    eventually("the thirty are ready again", || placement.space()[0].ready >= 30);
    assert_eq!((world.faulty().injected(), placement.left_behind().len()), (1, 10));
    let taken: BTreeSet<_> = (11..=60).map(|number| placement.take(ino(number)).unwrap().id).collect();
    assert_eq!(taken.len(), 50, "some were handed out twice");
}

#[test]
fn what_is_gone_already_is_removed_with_its_directory() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(1)).unwrap();
    fs::remove_file(placement.object_path(taken.id).unwrap()).unwrap();
    placement.remove(taken.id).unwrap();
    placement.close().unwrap();
    assert!(!world.directory().join("objects/0/000").exists());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(from, to).is_ok()) }
    }
}

#[test]
fn a_pool_whose_directory_is_another_now_is_opened_anew() {
    let world = World::new(1);
    let away = world.scratch.path().join("away");
    let placement = world.open();
    placement.fill_now(POOL, 5).unwrap();
    let before = placement.take(ino(1)).unwrap();
    fs::rename(world.directory(), &away).unwrap();
    copy(&away, world.directory());
    fs::remove_file(away.join("cofs-pool.toml")).unwrap();
    eventually("somebody looks at it", || {
        assert!(placement.open_object(id(7777), false).is_err());
        before.file.is_outlived()
    });
    (2..=10).for_each(|number| drop(placement.take(ino(number)).unwrap()));
    placement.close().unwrap();
    let owners = scan(&placement).0.into_values().filter_map(|seen| seen.owner);
    let owners: BTreeSet<u64> = owners.map(|owner| owner.get()).collect();
    assert_eq!(owners, (2..=10).collect::<BTreeSet<_>>());
}

//! Who is impatient gets what is in memory, and an error for the rest.

mod common;
#[path = "../../cofs-wait/tests/pages/mod.rs"]
mod pages;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use cofs_placement::{Fault, Operation, PoolHealth};
use cofs_types::{FsResult, limits::POOL_PROBE_INTERVAL};
use cofs_wait::unless_it_waits;
use common::{EIO, ENOENT, World, ino};
use pages::{file_system_tells, is_refused, let_go};

/// As a worker asks: `None`, it would have to wait.
fn impatiently<T>(ask: impl FnOnce() -> FsResult<T>) -> Option<T> {
    match pin!(unless_it_waits(async { ask() })).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.map(Result::unwrap),
        Poll::Pending => panic!("nothing here leaves"),
    }
}

#[test]
fn bytes_that_the_disk_has_alone_are_refused() {
    const MIB: usize = 1 << 20;
    let world = World::new(1);
    if !file_system_tells(world.scratch.path()) {
        return;
    }
    let placement = world.open();
    let taken = placement.take(ino(42)).unwrap();
    taken.file.write_all_at(&[7; 4 * MIB], 0).unwrap();
    taken.file.sync(false).unwrap();
    let object = impatiently(|| placement.open_object(taken.id, true)).expect("its name was just made");
    let mut bytes = vec![0; 4096];
    assert!(is_refused(|| {
        let_go(object.file());
        impatiently(|| object.read_at(&mut bytes, 2 * MIB as u64))
    }));
    let mut all = vec![0; 4 * MIB];
    let a_part_is_not_enough = is_refused(|| {
        let_go(object.file());
        assert_eq!(object.read_at(&mut bytes, 0).unwrap(), 4096);
        impatiently(|| object.read_at(&mut all, 0))
    });
    assert!(a_part_is_not_enough);
    assert_eq!(object.read_at(&mut all, 0).unwrap(), 4 * MIB);
    all.fill(0);
    assert_eq!(impatiently(|| object.read_at(&mut all, 0)), Some(4 * MIB));
    assert!(all.iter().all(|byte| *byte == 7));
    assert_eq!(impatiently(|| object.read_at(&mut bytes, 4 * MIB as u64)), Some(0));
}

/// A file's access time is in its inode, and the block that this is in may have to be read first.
#[test]
fn reads_change_no_access_times_below() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(42)).unwrap();
    taken.file.write_all_at(&[7; 4096], 0).unwrap();
    let long_ago = cofs_types::Timestamp::new(1000, 0).unwrap();
    for write in [true, false] {
        let object = placement.open_object(taken.id, write).unwrap();
        for file in [taken.file.file(), object.file()] {
            let times = std::fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
            file.set_times(times).unwrap();
        }
        let mut bytes = [0; 4096];
        assert_eq!(taken.file.read_at(&mut bytes, 0).unwrap(), 4096);
        assert_eq!(object.read_at(&mut bytes, 0).unwrap(), 4096);
        assert!(object.stat().unwrap().atime < long_ago);
    }
}

/// Linux 5.10 reads nothing here and there in the middle of a file, where it should refuse (`./test kernels` tries this there).
#[test]
fn who_is_not_refused_gets_all_that_he_asked_for() {
    const PAGE: usize = 4096;
    const PAGES: usize = 64;
    let world = World::new(1);
    if !file_system_tells(world.scratch.path()) {
        return;
    }
    let placement = world.open();
    let taken = placement.take(ino(42)).unwrap();
    taken.file.write_all_at(&[7; PAGE * PAGES], 0).unwrap();
    taken.file.sync(false).unwrap();
    let object = impatiently(|| placement.open_object(taken.id, true)).expect("its name was just made");
    let mut refused = 0;
    for (there, asked) in (0..PAGES).flat_map(|there| [1, 2, 3, 9].map(|after| (there, there + after))) {
        let_go(object.file());
        let mut bytes = [0; PAGE];
        object.read_at(&mut bytes, (there * PAGE) as u64).unwrap();
        let end = asked >= PAGES;
        match impatiently(|| object.read_at(&mut bytes, (asked * PAGE) as u64)) {
            None => refused += 1,
            Some(read) => assert_eq!(read, if end { 0 } else { PAGE }, "page {asked}, after page {there}"),
        }
    }
    assert!(refused > 0);
}

/// Whether a pool is there must be read, which an impatient caller cannot wait for: that says nothing of the pool.
#[test]
fn who_is_too_impatient_to_look_at_a_pool_does_not_fail_it_for_others() {
    for found in [ENOENT, EIO] {
        let world = World::new(1);
        let placement = world.open();
        let id = placement.take(ino(42)).unwrap().id;
        world.faulty().be_cold();
        for _ in 0..2 {
            std::thread::sleep(POOL_PROBE_INTERVAL);
            world.faulty().inject(Fault::new(&[Operation::Open], found).times(1));
            assert!(impatiently(|| placement.open_object(id, false)).is_none());
            assert_eq!(placement.space()[0].health, PoolHealth::Healthy);
            placement.open_object(id, false).unwrap();
        }
        assert_eq!(world.faulty().injected(), 2);
    }
}

#[test]
fn a_pool_that_is_well_again_is_found_so_by_who_may_wait() {
    let world = World::new(1);
    let placement = world.open();
    let id = placement.take(ino(42)).unwrap().id;
    world.faulty().inject(Fault::new(&[Operation::Open, Operation::Attach], EIO));
    std::thread::sleep(POOL_PROBE_INTERVAL);
    assert!(placement.open_object(id, false).is_err());
    world.faulty().heal();
    world.faulty().be_cold();
    std::thread::sleep(POOL_PROBE_INTERVAL);
    assert!(impatiently(|| placement.open_object(id, false)).is_none());
    placement.open_object(id, false).unwrap();
}

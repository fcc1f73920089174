//! Objects for those who cannot wait: a pool that hangs keeps nobody, and what it brings too late is not lost.

mod common;

use std::{sync::Arc, time::Duration};

use cofs_placement::{Fault, ObjectFile, Operation, Placement, Taken};
use cofs_types::{FsResult, InodeId, limits::OBJECT_PATIENCE};
use common::{EIO, POOL, World, eventually, ino, scan};

fn size(file: &ObjectFile) -> FsResult<u64> {
    Ok(file.stat()?.size_bytes)
}

fn take(placement: &Arc<Placement>, number: u64) -> Option<Taken> {
    placement.take_in_time(ino(number), size).unwrap().map(|(taken, size)| {
        assert_eq!(size, 0);
        taken
    })
}

/// What `ask` gets, though the pool hangs.
fn does_not_wait<T: Send>(world: &World, ask: impl FnOnce() -> T + Send) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| tell.send(ask()));
        let told = told.recv_timeout(Duration::from_secs(60));
        if told.is_err() {
            world.faulty().heal();
        }
        told.expect("it waits for the pool")
    })
}

fn owners(placement: &Placement) -> Vec<InodeId> {
    scan(placement).0.values().filter_map(|seen| seen.owner).collect()
}

/// A driver with `ready` objects whose pool hangs at `operation`, just when somebody wants an object.
fn hangs_at(world: &World, operation: Operation, ready: usize) -> Arc<Placement> {
    let placement = world.open();
    placement.fill_now(POOL, ready).unwrap();
    world.faulty().hang_at(&[operation]);
    assert!(does_not_wait(world, || take(&placement, 7)).is_none());
    eventually("the pool is asked", || world.faulty().hanging() == 1);
    placement
}

#[test]
fn a_pool_that_answers_gives_an_object() {
    let world = World::new(1);
    let placement = world.open();
    // On a slow machine it may come too late now and then.
    eventually("an object comes in time", || {
        take(&placement, 7).is_some_and(|taken| taken.id.pool() == POOL)
    });
    placement.close().unwrap();
    assert!(owners(&world.open()).contains(&ino(7)));
}

#[test]
fn what_comes_too_late_is_ready_for_the_next() {
    for operation in [Operation::Tag, Operation::SetTimes, Operation::Stat] {
        let world = World::new(1);
        let placement = hangs_at(&world, operation, 5);
        world.faulty().heal();
        eventually("it is back", || placement.space()[0].ready == 5);
        assert!(owners(&placement).is_empty(), "{operation:?}");
        eventually("the pool is asked again", || take(&placement, 8).is_some());
        assert!(owners(&placement).contains(&ino(8)));
        placement.close().unwrap();
    }
}

#[test]
fn a_pool_that_owes_an_object_is_not_asked_for_another() {
    let world = World::new(1);
    let placement = hangs_at(&world, Operation::SetTimes, 5);
    // Whoever asked may have left before it was.
    std::thread::sleep(OBJECT_PATIENCE);
    for number in 8..20 {
        assert!(does_not_wait(&world, || take(&placement, number)).is_none());
    }
    assert_eq!((world.faulty().hanging(), placement.space()[0].ready), (1, 4));
    world.faulty().heal();
}

#[test]
fn where_one_pool_hangs_another_gives_the_objects() {
    let world = World::new(2);
    let placement = world.open();
    world.faulty().hang();
    eventually("the other one is asked", || {
        does_not_wait(&world, || take(&placement, 7)).is_some_and(|taken| taken.id.pool() != POOL)
    });
    for number in 8..20 {
        let taken = does_not_wait(&world, || placement.take(ino(number))).unwrap();
        assert_ne!(taken.id.pool(), POOL);
    }
    world.faulty().heal();
}

#[test]
fn the_end_waits_for_what_is_still_to_come() {
    let world = World::new(1);
    let placement = hangs_at(&world, Operation::SetTimes, 5);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| tell.send(placement.close()).unwrap());
        // Long enough for it to have ended, if it does not wait.
        let early = told.recv_timeout(Duration::from_millis(300));
        world.faulty().heal();
        assert!(early.is_err(), "it has ended: {early:?}");
        told.recv().unwrap().unwrap();
    });
    drop(placement);
    let placement = world.open();
    assert!(scan(&placement).0.is_empty(), "an object is left of which nobody knows");
}

#[test]
fn what_cannot_be_removed_when_it_is_given_back_is_removed_later() {
    for filler in [true, false] {
        let world = World::without_xattrs();
        let placement = world.open();
        let taken = placement.take(ino(7)).unwrap();
        world.faulty().inject(Fault::new(&[Operation::RemoveFile], EIO));
        placement.give_back(taken);
        assert_eq!(owners(&placement), [ino(7)]);
        if filler {
            placement.start_filler();
        } else {
            assert!(placement.close().is_err(), "that is no clean end");
        }
        world.faulty().heal();
        world.faulty().inject(common::no_xattrs());
        if filler {
            eventually("it is removed", || owners(&placement).is_empty());
        }
        placement.close().unwrap();
        assert!(scan(&placement).0.is_empty());
    }
}

//! What a crash leaves, and what the next start makes of it. A crash here is a driver that is dropped
//! without being closed.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cofs_placement::{Fault, Operation, Placement};
use cofs_types::{ObjectId, limits::POOL_PROBE_INTERVAL};
use common::{BOOT, EIO, POOL, World, crash, entries_per_directory, eventually, id, ino, scan};
use proptest::prelude::*;
use uuid::Uuid;

#[test]
fn what_was_ready_at_a_crash_is_ready_again_without_new_objects() {
    for world in [World::new(1), World::without_xattrs()] {
        let placement = world.open();
        placement.fill_now(POOL, 40).unwrap();
        let taken: Vec<_> = (1..=10).map(|number| placement.take(ino(number)).unwrap().id).collect();
        crash(placement);

        let placement = world.open();
        placement.start_filler();
        eventually("the thirty are ready again", || placement.space()[0].ready >= 30);
        assert!(entries_per_directory(world.directory()).contains(&40), "no further ones among them");
        let again: BTreeSet<_> = (11..=40).map(|n| placement.take(ino(n)).unwrap().id).collect();
        assert!(again.iter().all(|id| id.sequence() <= 40 && !taken.contains(id)), "{again:?}");
    }
}

#[test]
fn crashes_one_after_the_other_leave_nothing_that_is_nobodys() {
    for world in [World::new(1), World::without_xattrs()] {
        let placement = world.open();
        let taken = placement.take(ino(1)).unwrap().id;
        placement.close().unwrap();
        crash(placement);
        for _ in 0..6 {
            let placement = world.open();
            placement.start_filler();
            eventually("the filler has run", || placement.space()[0].ready >= 16);
            crash(placement);
        }
        let placement = world.open();
        placement.start_filler();
        eventually("the filler has run", || placement.space()[0].ready >= 16);
        placement.left_behind().iter().for_each(|left| assert_eq!(left.object, taken));
        placement.judged(POOL);
        placement.close().unwrap();
        let left: Vec<_> = scan(&placement).0.into_keys().collect();
        assert_eq!(left, [taken.sequence()]);
    }
}

#[test]
fn a_crash_of_the_machine_leaves_untagged_objects_to_the_collector() {
    // Their tags may be lost, and the commit that names them not.
    let mut world = World::new(1);
    world.open().fill_now(POOL, 40).unwrap();
    world.boot = Uuid::from_u128(0xb008);
    let placement = world.open();
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    let taken = placement.take(ino(1)).unwrap();
    assert!(taken.id.sequence() > 40);
    let found = scan(&placement).0;
    assert!((1..=40).all(|sequence| found[&sequence].owner.is_none()));
    placement.close().unwrap();
    assert!(scan(&placement).0.iter().take(40).all(|(_, seen)| !seen.ready));
    crash(placement);

    // Control: in the same boot they are taken up.
    world.boot = BOOT;
    let world = World::new(1);
    world.open().fill_now(POOL, 40).unwrap();
    let placement = world.open();
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    assert!(placement.take(ino(1)).unwrap().id.sequence() <= 40);
}

/// What a file system that failed may lose, though the metadata name these objects.
fn lose_tags(placement: &Placement, taken: &[ObjectId]) {
    for id in taken {
        let path = placement.object_path(*id).unwrap();
        rustix::fs::removexattr(path, "user.cofs.ino").unwrap();
    }
}

fn take_many(placement: &Arc<Placement>) -> Vec<ObjectId> {
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    (100..160).map(|number| placement.take(ino(number)).unwrap().id).collect()
}

#[test]
fn a_file_system_that_failed_and_was_mounted_anew_has_lost_tags_too() {
    for anew in [false, true] {
        let world = World::new(1);
        let placement = world.open();
        placement.fill_now(POOL, 40).unwrap();
        let taken: Vec<_> = (1..=10).map(|number| placement.take(ino(number)).unwrap().id).collect();
        lose_tags(&placement, &taken);
        crash(placement);
        if anew {
            world.faulty().mount_anew();
        }
        let again = take_many(&world.open());
        // Control: had nothing failed, untagged ones would be nobody's.
        assert_eq!(again.iter().any(|id| taken.contains(id)), !anew, "{again:?}");
    }
}

#[test]
fn what_was_handed_out_before_a_file_system_was_mounted_anew_is_not_looked_at_after_a_further_crash() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 40).unwrap();
    let taken: Vec<_> = (11..=20).map(|number| placement.take(ino(number)).unwrap().id).collect();
    world.faulty().mount_anew();
    std::thread::sleep(POOL_PROBE_INTERVAL);
    // The object, and the pool's identity through the root that was held.
    world.faulty().inject(Fault::new(&[Operation::Open], EIO).times(2));
    assert!(placement.open_object(taken[0], false).is_err());
    assert_eq!(world.faulty().injected(), 2);
    lose_tags(&placement, &taken);
    assert_eq!(placement.space()[0].ready, 0);
    let more = placement.take(ino(21)).unwrap().id;
    assert!(more.sequence() > 40);
    crash(placement);
    let placement = world.open();
    let again = take_many(&placement);
    assert!(again.iter().all(|id| id.sequence() > 40 && *id != more), "{again:?}");
    assert_eq!(placement.left_behind().len(), 1, "what was taken since is told of");
}

#[test]
fn a_file_system_that_fails_while_its_objects_are_looked_at_has_them_left_alone() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 40).unwrap();
    crash(placement);
    world.faulty().hang_at(&[Operation::List]);
    let placement = world.open();
    placement.start_filler();
    eventually("they are looked at", || world.faulty().hanging() > 0);
    world.faulty().mount_anew();
    world.faulty().resume();
    assert!(take_many(&placement).iter().all(|id| id.sequence() > 40));
}

#[test]
fn a_start_after_a_crash_looks_at_the_last_reservations_only() {
    let world = World::new(1);
    let placement = world.open();
    for number in 1..=12_000 {
        placement.take(ino(number)).unwrap();
    }
    // An orphan from long ago, and one from just now, as a crash between creation and tag leaves them.
    for sequence in [100, 12_100] {
        let path = placement.object_path(id(sequence)).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::remove_file(&path).ok();
        std::fs::write(path, "").unwrap();
    }
    crash(placement);
    let placement = world.open();
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    let ids: Vec<_> = (1..=16).map(|n| placement.take(ino(n)).unwrap().id.sequence()).collect();
    assert!(ids.contains(&12_100) && !ids.contains(&100), "{ids:?}");
    let found = scan(&placement).0;
    assert!(!found[&100].ready && found[&100].owner.is_none(), "the old one is for the collector");
}

#[test]
fn what_was_handed_out_at_a_crash_is_told_of_until_it_is_judged() {
    for in_order in [false, true] {
        for world in [World::new(1), World::without_xattrs()] {
            let mut told = BTreeSet::new();
            let placement = world.open();
            placement.fill_now(POOL, 10).unwrap();
            told.extend((1..=3).map(|number| placement.take(ino(number)).unwrap().id));
            crash(placement);

            // Neither a further crash, after more numbers were reserved, nor an end in order hides anything.
            let placement = world.open();
            placement.start_filler();
            eventually("all are told of", || placement.left_behind().len() == told.len());
            let more: Vec<_> = (10..200).map(|number| placement.take(ino(number)).unwrap().id).collect();
            assert!(more.iter().all(|id| !told.contains(id)));
            told.extend(more);
            if in_order {
                placement.close().unwrap();
            }
            crash(placement);

            let placement = world.open();
            placement.start_filler();
            eventually("all are told of", || placement.left_behind().len() == told.len());
            assert!(placement.left_behind().iter().all(|left| told.contains(&left.object)));
            assert!(placement.left_behind().iter().any(|left| left.owner == ino(2)));
            placement.judged(POOL);
            placement.close().unwrap();
            let placement = world.open();
            placement.start_filler();
            eventually("the filler has run", || placement.space()[0].ready >= 16);
            assert!(placement.left_behind().is_empty());
        }
    }
}

#[test]
fn what_is_disowned_is_left_alone() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(1)).unwrap().id;
    crash(placement);
    world.open().disown_left_behind().unwrap();
    let placement = world.open();
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    assert!(placement.left_behind().is_empty());
    assert_eq!(scan(&placement).0[&taken.sequence()].owner, Some(ino(1)));
}

#[test]
fn a_clean_end_leaves_nothing_and_numbering_goes_on() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 30).unwrap();
    let last = placement.take(ino(1)).unwrap().id.sequence();
    placement.close().unwrap();
    assert_eq!(scan(&placement).0.keys().copied().collect::<Vec<_>>(), [last]);
    crash(placement);
    let placement = world.open();
    let next = placement.take(ino(2)).unwrap().id.sequence();
    assert_eq!(next, 31, "numbers that were used are not used again, and no block is wasted");
}

#[test]
fn what_is_given_back_before_the_look_is_not_ready_twice() {
    let world = World::new(1);
    let placement = world.open();
    let id = placement.take(ino(1)).unwrap().id;
    crash(placement);
    let placement = world.open();
    let file = placement.open_object(id, true).unwrap();
    placement.give_back(cofs_placement::Taken { id, file });
    placement.start_filler();
    eventually("the filler has run", || placement.space()[0].ready >= 16);
    let taken: Vec<_> = (1..=40).map(|n| placement.take(ino(n)).unwrap().id).collect();
    let distinct: BTreeSet<_> = taken.iter().collect();
    assert_eq!(distinct.len(), taken.len(), "{taken:?}");
}

/// What a volume's user does between crashes.
#[derive(Clone, Debug)]
enum Step {
    Take,
    GiveBack(usize),
    Remove(usize),
    Fill(usize),
    Close,
    Crash,
    Reboot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Take),
        3 => any::<usize>().prop_map(Step::GiveBack),
        4 => any::<usize>().prop_map(Step::Remove),
        2 => (1usize..700).prop_map(Step::Fill),
        1 => Just(Step::Close),
        2 => Just(Step::Crash),
        1 => Just(Step::Reboot),
    ]
}

/// Runs steps against a volume; after each the objects held are checked to be there and their owners'.
fn run(mut world: World, steps: Vec<Step>) {
    let mut placement = world.open();
    let mut held: BTreeMap<ObjectId, u64> = BTreeMap::new();
    let mut gone: BTreeSet<ObjectId> = BTreeSet::new();
    let mut owner = 0;
    for step in steps {
        let nth = |held: &BTreeMap<ObjectId, u64>, n: usize| {
            (!held.is_empty()).then(|| *held.keys().nth(n % held.len()).unwrap())
        };
        match step {
            Step::Take => {
                owner += 1;
                let taken = placement.take(ino(owner)).unwrap();
                assert_eq!(taken.file.stat().unwrap().size_bytes, 0);
                taken.file.write_all_at(&owner.to_le_bytes(), 0).unwrap();
                assert!(!gone.contains(&taken.id), "a number was used again: {}", taken.id);
                assert_eq!(held.insert(taken.id, owner), None, "handed out twice");
            }
            Step::GiveBack(n) => {
                let Some(id) = nth(&held, n) else { continue };
                held.remove(&id);
                let file = placement.open_object(id, true).unwrap();
                placement.give_back(cofs_placement::Taken { id, file });
            }
            Step::Remove(n) => {
                let Some(id) = nth(&held, n) else { continue };
                held.remove(&id);
                gone.insert(id);
                placement.remove(id).unwrap();
            }
            Step::Fill(count) => drop(placement.fill_now(POOL, count).unwrap()),
            Step::Close => {
                placement.close().unwrap();
                placement = world.open();
            }
            Step::Crash | Step::Reboot => {
                crash(placement);
                if matches!(step, Step::Reboot) {
                    world.boot = Uuid::from_u128(world.boot.as_u128() + 1);
                }
                placement = world.open();
                placement.start_filler();
            }
        }
    }
    let found = scan(&placement).0;
    for (id, owner) in &held {
        let seen = found[&id.sequence()];
        assert_eq!((seen.owner, seen.size_bytes), (Some(ino(*owner)), 8), "{id}");
        let mut bytes = [0; 8];
        placement.open_object(*id, false).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), *owner);
    }
    let strays =
        found.iter().filter(|(sequence, seen)| seen.owner.is_some() && !held.contains_key(&id(**sequence)));
    assert_eq!(strays.count(), 0, "what nobody holds has no owner");
    assert!(entries_per_directory(world.directory()).iter().all(|&count| count <= 512));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_unique_over_crashes(steps in prop::collection::vec(step(), 1..60)) {
        run(World::new(1), steps);
    }

    #[test]
    fn numbers_are_unique_over_crashes_without_xattrs(steps in prop::collection::vec(step(), 1..60)) {
        run(World::without_xattrs(), steps);
    }
}

//! Pools that are full, broken or away: the right error, nothing lost, and healing.

mod common;

use std::{fs, path::Path};

use cofs_placement::{BackingStore, Fault, Operation, Placement, PoolHealth};
use cofs_types::{FsError, FsResult, PoolId};
use common::{
    EBUSY, EDQUOT, EIO, EMFILE, ENOSPC, EROFS, ESTALE, POOL, VOLUME, World, errno, eventually, ino,
    no_xattrs, scan,
};

const MAKING: [Operation; 3] = [Operation::Create, Operation::MakeDirectory, Operation::Tag];

#[test]
fn a_full_pool_says_so_and_heals() {
    for (number, expected) in [(ENOSPC, "NoSpace"), (EDQUOT, "QuotaExceeded"), (EROFS, "ReadOnly")] {
        let world = World::new(1);
        let placement = world.open();
        let before = placement.take(ino(1)).unwrap();
        world.faulty().inject(Fault::new(&MAKING, number));
        for attempt in 2..5 {
            let error = placement.take(ino(attempt)).err().unwrap();
            assert_eq!(format!("{error:?}"), expected);
        }
        let reader = placement.open_object(before.id, false).unwrap();
        assert_eq!(reader.stat().unwrap().size_bytes, 0);
        world.faulty().heal();
        placement.take(ino(5)).unwrap();
        assert!(world.faulty().injected() > 0);
        let owners: Vec<_> = scan(&placement).0.values().filter_map(|seen| seen.owner).collect();
        assert_eq!(owners, [ino(1), ino(5)]);
    }
}

#[test]
fn what_fails_below_keeps_its_errno() {
    for number in [EIO, ESTALE] {
        let world = World::new(1);
        let placement = world.open();
        let taken = placement.take(ino(1)).unwrap();
        placement.fill_now(POOL, 3).unwrap();
        world.faulty().inject(Fault::new(&MAKING, number));
        assert_eq!(errno(&placement.take(ino(2)).err().unwrap()), Some(number));
        world.faulty().inject(Fault::new(
            &[Operation::Write, Operation::Read, Operation::RemoveFile, Operation::Stat, Operation::SyncAll],
            number,
        ));
        assert_eq!(errno(&taken.file.write_all_at(b"x", 0).unwrap_err()), Some(number));
        assert_eq!(errno(&taken.file.read_at(&mut [0], 0).unwrap_err()), Some(number));
        assert_eq!(errno(&taken.file.stat().unwrap_err()), Some(number));
        assert_eq!(errno(&placement.sync().unwrap_err()), Some(number));
        assert_eq!(errno(&placement.remove(taken.id).unwrap_err()), Some(number));
        world.faulty().heal();
        eventually("the pool is healthy again", || placement.take(ino(3)).is_ok());
        taken.file.write_all_at(b"x", 0).unwrap();
        placement.sync().unwrap();
        placement.remove(taken.id).unwrap();
    }
}

#[test]
fn a_failed_pool_is_named_and_too_few_open_files_have_their_remedy() {
    let world = World::new(1);
    world.faulty().inject(Fault::new(&[Operation::Open], EMFILE));
    let placement = world.open();
    let PoolHealth::Failed { advice, .. } = &placement.space()[0].health else { panic!("healthy") };
    assert!(advice.is_some_and(|advice| advice.contains("ulimit -n")), "{advice:?}");
    let error = placement.take(ino(1)).err().unwrap();
    assert_eq!(errno(&error), Some(EMFILE));
    let said = error.to_string();
    let named = format!("use pool pool0 in {}: Too many open files", world.directory().display());
    assert!(said.starts_with(&named), "{said}");
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(1)).unwrap();
    taken.file.write_all_at(b"x", 0).unwrap();
    taken.file.sync(true).unwrap();
    world.faulty().inject(Fault::new(&[Operation::Sync], EIO).times(1));
    assert_eq!(errno(&taken.file.sync(true).unwrap_err()), Some(EIO));
    assert_eq!(world.faulty().injected(), 1);
    for data_only in [true, false] {
        assert_eq!(errno(&taken.file.sync(data_only).unwrap_err()), Some(EIO));
    }
    // Nor is the file handed to somebody else as new.
    let id = taken.id;
    placement.give_back(taken);
    assert!(matches!(placement.open_object(id, false), Err(FsError::NotFound)));
}

#[test]
fn a_stale_descriptor_is_replaced_once_for_readers_only() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(1)).unwrap();
    taken.file.write_all_at(b"hello", 0).unwrap();
    let reader = placement.open_object(taken.id, false).unwrap();
    let mut bytes = [0; 5];
    world.faulty().inject(Fault::new(&[Operation::Read], ESTALE).times(1));
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 5);
    assert_eq!(&bytes, b"hello");
    world.faulty().inject(Fault::new(&[Operation::Read], ESTALE).times(1));
    assert_eq!(errno(&reader.read_at(&mut bytes, 0).unwrap_err()), Some(ESTALE));
    world.faulty().inject(Fault::new(&[Operation::Read], ESTALE).times(1));
    assert_eq!(errno(&taken.file.read_at(&mut bytes, 0).unwrap_err()), Some(ESTALE));
    world.faulty().inject(Fault::new(&[Operation::Open], ESTALE).times(1));
    placement.open_object(taken.id, true).unwrap();
}

#[test]
fn an_absent_pool_opens_as_failed_and_heals() {
    let mut world = World::new(1);
    let away = world.scratch.path().join("away");
    let id = world.open().take(ino(1)).unwrap().id;
    std::fs::rename(world.directory(), &away).unwrap();
    // An empty mount point is not the pool.
    std::fs::create_dir(world.directory()).unwrap();
    let placement = world.open_anew();
    placement.start_filler();
    assert!(matches!(placement.space()[0].health, PoolHealth::Failed { errno: EIO, .. }));
    assert_eq!(errno(&placement.take(ino(2)).err().unwrap()), Some(EIO));
    assert_eq!(errno(&placement.open_object(id, false).err().unwrap()), Some(EIO));
    assert_eq!(
        errno(&placement.remove(id).unwrap_err()),
        Some(EIO),
        "not: it is not there, so it is removed"
    );
    assert!(placement.sync().is_err());
    assert_eq!(std::fs::read_dir(world.directory()).unwrap().count(), 0, "nothing is written elsewhere");

    std::fs::remove_dir(world.directory()).unwrap();
    std::fs::rename(&away, world.directory()).unwrap();
    eventually("the pool heals", || placement.open_object(id, false).is_ok());
    placement.take(ino(2)).unwrap();
    eventually("its filler works again", || placement.space()[0].ready >= 16);
    assert_eq!(placement.space()[0].health, PoolHealth::Healthy);
    placement.close().unwrap();
}

#[test]
fn a_pool_that_is_renamed_or_covered_goes_on() {
    let world = World::new(1);
    let placement = world.open();
    let away = world.scratch.path().join("away");
    let first = placement.take(ino(1)).unwrap().id;
    std::fs::rename(world.directory(), &away).unwrap();
    std::fs::create_dir(world.directory()).unwrap();
    let second = placement.take(ino(2)).unwrap().id;
    placement.open_object(first, true).unwrap();
    assert!(away.join(format!("objects/0/000/{:03x}", second.sequence())).is_file());
    assert_eq!(std::fs::read_dir(world.directory()).unwrap().count(), 0);
}

#[test]
fn another_volumes_pool_is_not_touched() {
    let world = World::new(1);
    let stranger = uuid::Uuid::from_u128(7);
    let placement = Placement::open(&world.configs, stranger).unwrap();
    assert_eq!(errno(&placement.take(ino(1)).err().unwrap()), Some(EIO));
    let PoolHealth::Failed { why, .. } = &placement.space()[0].health else { panic!("it is not failed") };
    assert!(why.contains("another volume"), "{why}");
    assert!(!world.directory().join("objects/0").exists());
}

#[test]
fn a_pool_that_another_driver_changes_is_refused_until_he_is_done() {
    let world = World::new(1);
    let open = || Placement::open(&world.configs, VOLUME);
    let first = open().unwrap();
    let said = open().err().unwrap().to_string();
    assert!(said.contains("pool0") && said.contains("in use by another process"), "{said}");
    let read = || Placement::open_for_reading(&world.configs, VOLUME);
    assert!(read().err().unwrap().to_string().contains("in use by another process"));

    // One that was away when it was opened is refused when it comes.
    let away = world.scratch.path().join("away");
    fs::rename(world.directory(), &away).unwrap();
    let second = open().unwrap();
    fs::rename(&away, world.directory()).unwrap();
    eventually("the pool is seen, and whose it is", || {
        assert!(second.take(ino(1)).is_err());
        matches!(&second.space()[0].health, PoolHealth::Failed { why, .. } if why.contains("in use by"))
    });
    assert_eq!(errno(&second.take(ino(1)).err().unwrap()), Some(EBUSY));
    drop(first);
    eventually("it is had", || second.take(ino(1)).is_ok());
    assert!(open().is_err());
    drop(second);
    // Those who read share it.
    let readers = [read().unwrap(), read().unwrap()];
    assert!(open().is_err());
    drop(readers);
    open().unwrap();
}

#[test]
fn a_format_that_fails_leaves_nothing() {
    let world = World::new(1);
    let [pool, other] = ["pool0", "other"].map(|name| world.scratch.path().join(name));
    fs::create_dir(&other).unwrap();
    let config = cofs_placement::PoolConfig { directory: other.clone(), ..world.configs[0].clone() };
    // Its name is taken: what stands before the identity is made, and it is not.
    fs::create_dir(other.join("cofs-pool.toml.new")).unwrap();
    Placement::format_pool(&config, VOLUME).unwrap_err();
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    fs::remove_dir(other.join("cofs-pool.toml.new")).unwrap();
    Placement::format_pool(&config, VOLUME).unwrap();
    assert_eq!(fs::read_dir(&other).unwrap().count(), fs::read_dir(pool).unwrap().count());
}

#[test]
fn an_identity_of_a_newer_or_broken_format_is_refused() {
    let world = World::new(1);
    let refusal = |text: &str| {
        std::fs::write(world.directory().join("cofs-pool.toml"), text).unwrap();
        Placement::open(&world.configs, VOLUME).err().unwrap()
    };
    let newer = refusal("version = 2\n");
    assert!(
        matches!(&newer, FsError::Backing { source, .. } if source.to_string().contains("newer")),
        "{newer:?}"
    );
    for text in ["version = \n", "version = 1\nvolume = \"x\"\n", "\u{0}"] {
        assert!(matches!(refusal(text), FsError::Corrupt(_)), "{text:?}");
    }
    assert!(Placement::open(&[], VOLUME).is_err());
    let twice = [world.configs[0].clone(), world.configs[0].clone()];
    assert!(Placement::open(&twice, VOLUME).is_err());
}

#[test]
fn what_a_pool_lacks_is_told_to_all_who_meet_it() {
    type Put = fn(&Path) -> std::io::Result<()>;
    let (nothing, file, directory): (Put, Put, Put) =
        (|_| Ok(()), |path| fs::write(path, ""), |path| fs::create_dir(path));
    for (name, put, why) in [
        ("objects", nothing, "is not there"),
        ("objects", file, "is not a directory"),
        ("reservations", nothing, "is not there"),
        ("reservations", file, "is illegible"),
        ("reservations", directory, "is not a file"),
    ] {
        let world = World::new(1);
        let id = world.open().take(ino(1)).unwrap().id;
        let path = world.directory().join(name);
        fs::rename(&path, world.scratch.path().join("away")).unwrap();
        put(&path).unwrap();
        let placement = world.open();
        let told = placement.space()[0].damage.clone().unwrap();
        assert!(told.starts_with(&format!("{} {why}; restore it", path.display())), "{told}");
        let refused = [placement.take(ino(2)).err(), placement.scan(POOL, &mut |_| Ok(())).err()];
        for error in refused {
            assert!(
                matches!(&error, Some(FsError::Corrupt(what)) if **what == *told),
                "{error:?}, not {told}"
            );
        }
        let opened = placement.open_object(id, false);
        if name == "objects" {
            assert!(matches!(opened, Err(FsError::NotFound)), "{why}");
        } else {
            opened.unwrap();
        }
    }
}

#[test]
fn another_pool_steps_in() {
    let world = World::new(2);
    let placement = world.open();
    world.stores[0].inject(Fault::new(&MAKING, ENOSPC));
    for number in 1..=40 {
        assert_eq!(placement.take(ino(number)).unwrap().id.pool(), PoolId(1));
    }
    assert!(world.stores[0].injected() > 0);
    world.stores[1].inject(Fault::new(&MAKING, EIO));
    assert!(placement.take(ino(41)).is_err());
    world.stores[0].heal();
    assert_eq!(placement.take(ino(42)).unwrap().id.pool(), PoolId(0));
}

#[test]
fn the_filler_survives_errors_and_goes_on() {
    let world = World::new(1);
    let placement = world.open();
    world.faulty().inject(Fault::new(&[Operation::Create, Operation::Sync], EIO));
    placement.start_filler();
    eventually("the filler met the fault", || world.faulty().injected() > 3);
    world.faulty().heal();
    eventually("objects are ready", || placement.space()[0].ready >= 16);
    placement.close().unwrap();
}

#[test]
fn a_number_is_not_used_if_its_reservation_was_not_written() {
    let world = World::new(1);
    let placement = world.open();
    world.faulty().inject(Fault::new(&[Operation::Sync], EIO));
    assert!(placement.take(ino(1)).is_err());
    assert!(scan(&placement).0.is_empty());
    world.faulty().heal();
    eventually("it heals", || placement.take(ino(1)).is_ok());
}

#[test]
fn an_object_whose_tag_failed_is_neither_lost_nor_handed_out_tagged_twice() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 5).unwrap();
    world.faulty().inject(Fault::new(&[Operation::SetTimes], EIO).times(3));
    for number in 1..=3 {
        assert!(placement.take(ino(number)).is_err());
    }
    assert_eq!(placement.space()[0].ready, 5);
    for number in 11..=15 {
        placement.take(ino(number)).unwrap();
    }
    let owners: Vec<_> = scan(&placement).0.values().map(|seen| seen.owner.unwrap().get()).collect();
    assert_eq!(owners.iter().copied().collect::<std::collections::BTreeSet<_>>(), (11..=15).collect());
}

#[test]
fn a_torn_log_of_owners_costs_the_last_record_only() {
    let world = World::new(1);
    world.faulty().inject(no_xattrs());
    let placement = world.open();
    let ids: Vec<_> = (1..=5).map(|number| placement.take(ino(number)).unwrap().id.sequence()).collect();
    drop(placement);
    let log = world.directory().join("objects/0/000/owners");
    let length = std::fs::metadata(&log).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(length - 5).unwrap();
    let placement = world.open();
    placement.set_owner(cofs_types::ObjectId::from_parts(POOL, ids[0]).unwrap(), ino(50)).unwrap();
    let owners: Vec<_> = scan(&placement).0.values().map(|seen| seen.owner.map(|ino| ino.get())).collect();
    assert_eq!(owners, [Some(50), Some(2), Some(3), Some(4), None]);
}

/// Whether `sync` makes more calls of fsync below than `count`.
fn syncs_more_than(count: u64, world: &World, sync: impl FnOnce() -> FsResult<()>) -> bool {
    world.faulty().inject(Fault::new(&[Operation::Sync], EIO).after(count));
    let failed = sync().is_err();
    world.faulty().heal();
    world.faulty().inject(no_xattrs());
    failed
}

/// A record in the log of owners is no part of the object.
#[test]
fn who_syncs_an_object_syncs_its_owner_once() {
    let world = World::without_xattrs();
    let placement = world.open();
    placement.fill_now(POOL, 5).unwrap();
    placement.take(ino(1)).unwrap().file.sync(true).unwrap();
    let taken = placement.take(ino(2)).unwrap();
    taken.file.write_all_at(b"x", 0).unwrap();
    assert!(syncs_more_than(1, &world, || taken.file.sync(true)), "its name was durable, its owner not");
    let again = placement.open_object(taken.id, true).unwrap();
    assert!(!syncs_more_than(3, &world, || again.sync(true)), "the log, its directory, the object");
    assert!(!syncs_more_than(1, &world, || again.sync(true)));
    let other = placement.open_object(taken.id, true).unwrap();
    assert!(!syncs_more_than(1, &world, || other.sync(true)));

    let third = placement.take(ino(3)).unwrap();
    assert!(syncs_more_than(0, &world, || placement.sync()), "a sync of all is one of the owners, too");
    // The sync that failed may have lost what it was for.
    assert!(!syncs_more_than(1, &world, || placement.sync()), "all but the log is left to syncfs");
    assert!(!syncs_more_than(0, &world, || placement.sync()));
    assert!(!syncs_more_than(2, &world, || third.file.sync(true)), "its directory and itself, not the log");
}

#[test]
fn nothing_is_admitted_before_a_store_is_attached() {
    let store = cofs_placement::DirectoryStore::new("/");
    assert!(store.space().is_err() && store.sync_all().is_err());
}

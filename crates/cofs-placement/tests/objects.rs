//! The life of an object where nothing fails.

mod common;

use std::{os::unix::fs::MetadataExt, path::Path, sync::Arc};

use cofs_placement::{Placement, PoolConfig, PoolHealth, Tier};
use cofs_types::{FallocateMode, FsError, PoolId, SeekWhence, Timestamp};
use common::{POOL, VOLUME, World, crash, entries_per_directory, eventually, id, ino, scan};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    time::{ClockId, clock_gettime},
};

#[test]
fn an_object_is_taken_written_and_removed() {
    let world = World::new(1);
    let placement = world.open();
    let taken = placement.take(ino(42)).unwrap();
    taken.file.write_all_at(b"hello", 3).unwrap();
    taken.file.sync(true).unwrap();
    let again = placement.open_object(taken.id, false).unwrap();
    let mut bytes = [1; 16];
    assert_eq!(again.read_at(&mut bytes, 0).unwrap(), 8);
    assert_eq!(&bytes[..8], b"\0\0\0hello");
    let seen = scan(&placement).0[&taken.id.sequence()];
    assert_eq!((seen.owner, seen.size_bytes, seen.ready), (Some(ino(42)), 8, false));
    assert!(placement.object_path(taken.id).unwrap().is_file());

    placement.remove(taken.id).unwrap();
    placement.remove(taken.id).unwrap();
    assert!(matches!(placement.open_object(taken.id, false), Err(FsError::NotFound)));
    assert!(scan(&placement).0.is_empty());
}

#[test]
fn a_taken_object_is_born_now_even_if_it_was_made_before() {
    let world = World::new(1);
    let placement = world.open();
    placement.fill_now(POOL, 1).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    // What the kernel's time stamps go by: a tick behind the other clock, or several.
    let before = clock_gettime(ClockId::RealtimeCoarse);
    let stat = placement.take(ino(1)).unwrap().file.stat().unwrap();
    assert!(stat.mtime >= Timestamp::new(before.tv_sec, before.tv_nsec as u32).unwrap());
    assert_eq!((stat.size_bytes, stat.mtime), (0, stat.atime));
}

#[test]
fn the_methods_of_an_open_object_do_what_the_calls_do() {
    let world = World::new(1);
    let placement = world.open();
    let (one, two) = (placement.take(ino(1)).unwrap().file, placement.take(ino(2)).unwrap().file);
    one.write_all_at(&[7; 10_000], 0).unwrap();
    one.set_len(20_000).unwrap();
    assert_eq!(one.stat().unwrap().size_bytes, 20_000);
    assert_eq!(two.copy_range_from(&one), 20_000);
    let mut bytes = vec![0; 20_001];
    assert_eq!(two.read_at(&mut bytes, 0).unwrap(), 20_000);
    assert_eq!(bytes[9_999..10_001], [7, 0]);

    let time = Timestamp::new(-5, 999_999_999).unwrap();
    let ctime = one.stat().unwrap().mtime;
    one.set_times(Some(time), None).unwrap();
    assert_eq!((one.stat().unwrap().atime, one.stat().unwrap().mtime), (time, ctime));

    one.fallocate(FallocateMode::Allocate { keep_size: true }, 0, 1 << 20).unwrap();
    assert_eq!(one.stat().unwrap().size_bytes, 20_000);
    one.fallocate(FallocateMode::PunchHole, 0, 4096).unwrap();
    assert_eq!(one.read_at(&mut bytes[..1], 0).unwrap(), 1);
    assert_eq!(bytes[0], 0);
    assert_eq!(one.seek(SeekWhence::Data, 0).unwrap(), 4096);
    assert_eq!(one.seek(SeekWhence::Hole, 0).unwrap(), 0);
    assert!(matches!(one.seek(SeekWhence::Data, 1 << 30), Err(FsError::NoData)));
    let reader = placement.open_object(one.id(), false).unwrap();
    // The file system below answers EBADF, as it does for what it has given up.
    assert!(matches!(reader.write_all_at(b"x", 0), Err(FsError::ReadOnly)));
    assert!(!one.is_outlived());
}

trait CopyAll {
    fn copy_range_from(&self, from: &Self) -> u64;
}

impl CopyAll for cofs_placement::ObjectFile {
    fn copy_range_from(&self, from: &Self) -> u64 {
        self.copy_range(from, 0, 0, u64::MAX >> 2).unwrap()
    }
}

#[test]
fn what_is_given_back_is_empty_untagged_and_taken_again() {
    for world in [World::new(1), World::without_xattrs()] {
        let placement = world.open();
        let taken = placement.take(ino(1)).unwrap();
        let first = taken.id;
        taken.file.write_all_at(&[1; 5000], 0).unwrap();
        placement.give_back(taken);
        for seen in scan(&placement).0.values() {
            assert_eq!((seen.owner, seen.size_bytes, seen.ready), (None, 0, true));
        }
        let again = placement.take(ino(2)).unwrap();
        assert_eq!(again.file.stat().unwrap().size_bytes, 0);

        // Others still have it open: their object is not given to somebody else.
        let id = again.id;
        let held = Arc::clone(&again.file);
        placement.give_back(again);
        assert!(matches!(placement.open_object(id, false), Err(FsError::NotFound)));
        assert_ne!(placement.take(ino(3)).unwrap().id, id);
        drop(held);
        let _ = first;
    }
}

#[test]
fn at_most_512_objects_share_a_directory_and_neighbours_do() {
    let world = World::without_xattrs();
    let placement = world.open();
    let ids: Vec<_> = (1..=2000).map(|number| placement.take(ino(number)).unwrap().id.sequence()).collect();
    assert!(ids.is_sorted());
    let entries = entries_per_directory(world.directory());
    assert_eq!(entries.iter().sum::<usize>(), 2000);
    assert!(entries.iter().all(|&count| count <= 512), "{entries:?}");
    assert_eq!(entries.len(), 4);
}

#[test]
fn directories_go_with_their_last_object_once_they_are_used_up() {
    for world in [World::new(1), World::without_xattrs()] {
        let placement = world.open();
        placement.start_filler();
        let ids: Vec<_> = (1..=1500).map(|number| placement.take(ino(number)).unwrap().id).collect();
        let kept = ids[600];
        for &id in ids.iter().filter(|&&id| id != kept) {
            placement.remove(id).unwrap();
        }
        let path = |id| placement.object_path(id).unwrap();
        // One of its objects may be ready still, where the filler is slow: that goes with those that are taken.
        eventually("the first directory is removed", || {
            placement.remove(placement.take(ino(1)).unwrap().id).unwrap();
            !path(ids[0]).parent().unwrap().exists()
        });
        assert!(path(kept).exists());
        placement.close().unwrap();
        assert_eq!(entries_per_directory(world.directory()), [1]);
    }
}

#[test]
fn the_filler_keeps_objects_ready_and_close_removes_them() {
    let world = World::new(1);
    let placement = world.open();
    placement.start_filler();
    let ready = || placement.space()[0].ready;
    eventually("objects are ready", || ready() >= 16);
    let idle = ready();
    assert!(idle <= 64, "an idle volume keeps few: {idle}");
    let owners = 1..=3000;
    for number in owners.clone() {
        placement.take(ino(number)).unwrap();
    }
    eventually("more are kept under load", || ready() > idle);
    placement.close().unwrap();
    let found = scan(&placement).0;
    let owned: Vec<_> = found.values().map(|seen| seen.owner.unwrap().get()).collect();
    assert_eq!(owned.len(), 3000);
    assert_eq!(owned.iter().copied().collect::<std::collections::BTreeSet<_>>(), owners.collect());
}

#[test]
fn owners_can_be_set_and_what_is_foreign_is_told() {
    for world in [World::new(1), World::without_xattrs()] {
        let placement = world.open();
        let taken = placement.take(ino(1)).unwrap();
        placement.set_owner(taken.id, ino(99)).unwrap();
        assert!(placement.set_owner(id(77), ino(1)).is_err());
        let objects = world.directory().join("objects");
        std::fs::write(objects.join("note"), "x").unwrap();
        std::fs::write(objects.join("0/00"), "x").unwrap();
        std::fs::create_dir(objects.join("0/000/1ff")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", objects.join("0/000/1fe")).unwrap();
        std::fs::write(objects.join("0/000/.nfs0000"), "x").unwrap();
        let (found, foreign) = scan(&placement);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&taken.id.sequence()].owner, Some(ino(99)));
        let mut foreign: Vec<_> = foreign.iter().map(|path| path.to_str().unwrap()).collect();
        foreign.sort_unstable();
        let expected = ["0/00", "0/000/.nfs0000", "0/000/1fe", "0/000/1ff", "note"];
        assert_eq!(foreign, expected.map(|name| format!("objects/{name}")));
    }
}

/// A FIFO would be waited for, for ever. (What a listing calls one is not opened.)
#[test]
fn what_stands_in_the_place_of_an_object_is_not_waited_for() {
    let fifo = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let world = World::new(1);
    world.faulty().tell_no_kinds();
    let placement = world.open();
    placement.fill_now(POOL, 5).unwrap();
    let taken = placement.take(ino(1)).unwrap();
    crash(placement);
    let directory = world.directory().join("objects/0/000");
    // Among those that were made ahead, where a start looks.
    let victim = directory.join(format!("{:03x}", taken.id.sequence() + 2));
    std::fs::remove_file(&victim).unwrap();
    fifo(&victim);

    let placement = world.open();
    placement.fill_now(POOL, 5).unwrap();
    let (found, foreign) = scan(&placement);
    assert_eq!(found[&taken.id.sequence()].owner, Some(ino(1)));
    assert_eq!(foreign, [victim.strip_prefix(world.directory()).unwrap()]);

    for write in [false, true] {
        let opened = placement.open_object(id(taken.id.sequence() + 2), write);
        assert!(matches!(opened, Err(FsError::Corrupt(_))), "{write}");
    }

    fifo(&directory.join("owners"));
    let told = placement.scan(POOL, &mut |_| Ok(())).unwrap_err();
    assert!(told.to_string().contains("it is no regular file"), "{told}");
}

#[test]
fn a_scan_stops_when_its_visitor_says_so() {
    let world = World::new(1);
    let placement = world.open();
    (1..=10).for_each(|number| drop(placement.take(ino(number)).unwrap()));
    let mut met = 0;
    let stopped = placement.scan(POOL, &mut |_| {
        met += 1;
        if met == 4 { Err(FsError::Interrupted) } else { Ok(()) }
    });
    assert!(matches!(stopped, Err(FsError::Interrupted)));
    assert_eq!(met, 4);
}

#[test]
fn a_directory_in_use_is_not_made_a_pool() {
    let scratch = tempfile::tempdir().unwrap();
    let config = |name: &str| PoolConfig {
        id: PoolId(0),
        name: name.to_owned(),
        directory: scratch.path().join(name),
        tier: Tier::Disk,
    };
    std::fs::create_dir(scratch.path().join("used")).unwrap();
    std::fs::write(scratch.path().join("used/file"), "x").unwrap();
    assert!(matches!(Placement::format_pool(&config("used"), VOLUME), Err(FsError::NotEmpty)));
    assert_eq!(std::fs::read_dir(scratch.path().join("used")).unwrap().count(), 1);
    std::fs::create_dir_all(scratch.path().join("fresh/lost+found")).unwrap();
    Placement::format_pool(&config("fresh"), VOLUME).unwrap();
    assert!(matches!(Placement::format_pool(&config("fresh"), VOLUME), Err(FsError::Exists)));
    // A format that was cut short before the identity was written can be done again.
    std::fs::remove_file(scratch.path().join("fresh/cofs-pool.toml")).unwrap();
    Placement::format_pool(&config("fresh"), VOLUME).unwrap();
    let missing = config("a/b");
    assert!(Placement::format_pool(&missing, VOLUME).is_err());
}

#[test]
fn objects_spread_over_pools_and_prefer_the_tier_asked_for() {
    let world = World::new(3);
    let placement = world.open();
    let mut counts = [0; 3];
    for number in 1..=300 {
        counts[usize::from(placement.take(ino(number)).unwrap().id.pool().0)] += 1;
    }
    assert!(counts.iter().all(|&count| (80..=120).contains(&count)), "{counts:?}");
    for number in 1..=50 {
        let taken = placement.take_on(ino(number), Some(Tier::Flash)).unwrap();
        assert_eq!(taken.id.pool(), PoolId(0));
    }
    let space = placement.space();
    assert!(space.iter().all(|pool| pool.health == PoolHealth::Healthy && pool.space.total_bytes > 0));
    placement.sync().unwrap();
}

#[test]
fn threads_never_share_an_object() {
    let world = World::new(1);
    let placement = world.open();
    placement.start_filler();
    let inodes: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|thread| {
                let placement = &placement;
                scope.spawn(move || take_some(placement, thread))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let unique: std::collections::HashSet<_> = inodes.iter().collect();
    assert_eq!(unique.len(), inodes.len(), "two threads held one file below");
    placement.close().unwrap();
    let owned = scan(&placement).0;
    assert_eq!(owned.len(), inodes.len());
    assert!(entries_per_directory(world.directory()).iter().all(|&count| count <= 512));
}

/// Takes objects, gives back a third, removes a third; the inodes below of the rest.
fn take_some(placement: &Placement, thread: u64) -> Vec<u64> {
    let mut kept = Vec::new();
    for round in 0..600 {
        let owner = ino(thread * 1000 + round + 1);
        let taken = placement.take(owner).unwrap();
        taken.file.write_all_at(&owner.get().to_le_bytes(), 0).unwrap();
        match round % 3 {
            0 => placement.give_back(taken),
            1 => placement.remove(taken.id).unwrap(),
            _ => {
                std::thread::yield_now();
                let mut bytes = [0; 8];
                taken.file.read_at(&mut bytes, 0).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), owner.get(), "somebody else wrote to {}", taken.id);
                kept.push(taken.file.file().metadata().unwrap().ino());
            }
        }
    }
    kept
}

//! A process that dies at each failpoint of this room, and what the next one finds.
//!
//! The test starts itself again as the child: it works on the volume, tells each thing done on its
//! standard output, and is ended by the armed failpoint.

mod common;

use std::{
    collections::BTreeMap,
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use cofs_placement::{Placement, PoolConfig};
use cofs_types::{FsResult, ObjectId};
use common::{POOL, VOLUME, World, id, ino, scan};

const CHILD: &str = "COFS_PLACEMENT_TEST_CHILD";
const ABORTED: i32 = 6;

/// Each with the time it is passed at which the child dies.
const FAILPOINTS: [(&str, u64); 14] = [
    ("placement.reserve.before", 1),
    ("placement.reserve.written", 1),
    ("placement.reserve.synced", 1),
    ("placement.create.created", 1),
    ("placement.create.created", 20),
    ("placement.take.created", 7),
    ("placement.take.tagged", 7),
    ("placement.fill.burst", 1),
    ("placement.give_back.emptied", 1),
    ("placement.remove.before", 2),
    ("placement.remove.after", 2),
    ("placement.remove.directory", 1),
    ("placement.close.emptied", 1),
    // The clean note: the second reservation that is written.
    ("placement.reserve.written", 2),
];

/// What was acknowledged before the end.
fn told(output: &str) -> BTreeMap<u64, u64> {
    let mut held = BTreeMap::new();
    for line in output.lines() {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["take", sequence, owner] => {
                let before = held.insert(sequence.parse().unwrap(), owner.parse().unwrap());
                assert_eq!(before, None);
            }
            ["leave", sequence] => drop(held.remove(&sequence.parse().unwrap())),
            _ => {}
        }
    }
    held
}

fn tell(what: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").unwrap();
    out.flush().unwrap();
}

/// Takes, gives back and removes, so that every failpoint is passed.
fn work(config: &PoolConfig) -> FsResult<()> {
    let placement = Placement::open(std::slice::from_ref(config), VOLUME)?;
    placement.fill_now(POOL, 10)?;
    let mut held: Vec<ObjectId> = Vec::new();
    for owner in 1..=600 {
        let taken = placement.take(ino(owner))?;
        if owner % 10 == 5 {
            placement.give_back(taken);
            continue;
        }
        tell(format_args!("take {} {owner}", taken.id.sequence()));
        held.push(taken.id);
    }
    // The first directory becomes empty.
    for id in held.into_iter().filter(|id| id.sequence() < 512) {
        tell(format_args!("leave {}", id.sequence()));
        placement.remove(id)?;
    }
    placement.close()
}

#[test]
fn a_death_at_each_failpoint_loses_nothing_and_no_number_is_used_twice() {
    if let Ok(child) = std::env::var(CHILD) {
        let (directory, failpoint) = child.split_once('|').unwrap();
        let (name, nth) = failpoint.split_once(' ').unwrap();
        assert!(cofs_types::arm_failpoint(name, nth.parse().unwrap(), || std::process::abort()));
        let config = config(directory.into());
        return work(&config).unwrap();
    }
    for (failpoint, nth) in FAILPOINTS {
        let mut world = World::new(1);
        world.boot = cofs_placement::boot_id();
        let held = die(&world, failpoint, nth);
        check(&world, failpoint, &held);
    }
}

fn config(directory: std::path::PathBuf) -> PoolConfig {
    PoolConfig { id: POOL, name: "pool0".to_owned(), directory, tier: cofs_placement::Tier::Flash }
}

/// Runs the child until it dies; what it held then.
fn die(world: &World, failpoint: &str, nth: u64) -> BTreeMap<u64, u64> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_death_at_each_failpoint_loses_nothing_and_no_number_is_used_twice",
            "--nocapture",
        ])
        .env(CHILD, format!("{}|{failpoint} {nth}", world.directory().display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(ABORTED), "{failpoint} was not reached");
    told(&String::from_utf8(child.stdout).unwrap())
}

fn check(world: &World, failpoint: &str, held: &BTreeMap<u64, u64>) {
    let placement = world.open();
    let before = scan(&placement).0;
    for (sequence, owner) in held {
        assert_eq!(before[sequence].owner, Some(ino(*owner)), "{failpoint}: object {sequence}");
    }
    // Tagged, but not told: the one in hand when the process died.
    let strays =
        before.iter().filter(|(sequence, seen)| seen.owner.is_some() && !held.contains_key(sequence));
    assert!(strays.count() <= 1, "{failpoint}");
    placement.start_filler();
    common::eventually("objects are ready", || placement.space()[0].ready >= 16);
    for owner in 10_001..=10_050 {
        let taken = placement.take(ino(owner)).unwrap();
        let sequence = taken.id.sequence();
        assert!(!held.contains_key(&sequence), "{failpoint}: {sequence} is somebody's");
        let reused = before.get(&sequence);
        assert!(reused.is_none_or(|seen| seen.ready), "{failpoint}: {sequence} was not ready");
        assert_eq!(taken.file.stat().unwrap().size_bytes, 0);
    }
    for &sequence in held.keys() {
        placement.remove(id(sequence)).unwrap();
    }
    placement.close().unwrap();
    assert!(
        scan(&placement).0.values().all(|seen| seen.owner.is_some()),
        "{failpoint}: nothing untagged is left"
    );
}

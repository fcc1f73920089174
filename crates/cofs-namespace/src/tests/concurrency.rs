//! Threads against each other: what each is told must fit together, and the store must be sound.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize},
    thread,
};

use cofs_types::{FileKind, FsError, RenameMode};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::Fate;

const ROUNDS: usize = 2000;

#[test]
fn a_directory_is_never_removed_under_a_new_entry() {
    let w = World::new();
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..ROUNDS {
                let _ = w.ns.create(&C, at(9), ROOT, name("d"), &new(FileKind::Directory, 0o755));
                let _ = w.ns.rmdir(&C, at(9), ROOT, name("d"));
            }
        });
        s.spawn(|| {
            for _ in 0..ROUNDS {
                let Ok(d) = w.find(ROOT, "d") else { continue };
                match w.ns.create(&C, at(9), d, name("f"), &new(FileKind::Regular, 0o644)) {
                    Ok(_) => drop(w.ns.unlink(&C, at(9), d, name("f")).unwrap()),
                    Err(FsError::NotFound | FsError::Stale | FsError::Exists) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    });
    w.audit();
}

#[test]
fn directories_moved_against_each_other_never_make_a_circle() {
    let w = World::new();
    let dirs: Vec<InodeId> = (0..6).map(|n| w.dir(ROOT, &format!("{n}"))).collect();
    thread::scope(|s| {
        for seed in 0..3 {
            let (w, dirs) = (&w, &dirs);
            s.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..ROUNDS {
                    let moved = rng.random_range(0..dirs.len());
                    let n = format!("{moved}");
                    let Ok(from) = w.ns.parent(dirs[moved]) else { continue };
                    let to = if rng.random_bool(0.3) { ROOT } else { dirs[rng.random_range(0..dirs.len())] };
                    let from = (from.attributes.ino, name(&n));
                    let _ = w.ns.rename(&C, at(9), from, (to, name(&n)), RenameMode::Replace);
                }
            });
        }
    });
    w.audit();
    for mut dir in dirs {
        let mut steps = 0;
        while dir != ROOT {
            dir = w.ns.parent(dir).unwrap().attributes.ino;
            steps += 1;
            assert!(steps < 10, "a circle");
        }
    }
}

#[test]
fn links_are_counted_whoever_makes_and_takes_them() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let held = AtomicUsize::new(1);
    thread::scope(|s| {
        for t in 0..3 {
            let (w, held) = (&w, &held);
            s.spawn(move || {
                for n in 0..ROUNDS {
                    let n = format!("{t}.{}", n % 3);
                    if w.ns.link(&C, at(9), f, ROOT, name(&n)).is_ok() {
                        held.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_eq!(w.ns.unlink(&C, at(9), ROOT, name(&n)).unwrap().fate, Fate::Linked);
                        held.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(w.stat(f).nlink as usize, held.into_inner());
    w.audit();
}

#[test]
fn who_opens_an_inode_and_then_sees_it_keeps_it() {
    let w = World::new();
    let current = AtomicU64::new(w.file(ROOT, "f").get());
    let kept = AtomicUsize::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            // Until the race has been met often enough, however the threads are scheduled.
            for round in 0..1_000_000 {
                if w.ns.unlink(&C, at(9), ROOT, name("f")).unwrap().fate == Fate::Kept {
                    kept.fetch_add(1, Ordering::Relaxed);
                }
                current.store(w.file(ROOT, "f").get(), Ordering::Relaxed);
                if round > ROUNDS && kept.load(Ordering::Relaxed) > 20 {
                    break;
                }
            }
            current.store(0, Ordering::Relaxed);
        });
        s.spawn(|| {
            while let Some(f) = InodeId::new(current.load(Ordering::Relaxed)) {
                w.open(f);
                if w.ns.node(f).is_ok() {
                    thread::yield_now();
                    w.ns.node(f).expect("open and seen: it stays");
                }
                w.close(f);
            }
        });
    });
    assert!(kept.into_inner() > 0, "nothing was at stake");
    assert!(w.ns.unlinked_set(None, 9).unwrap().is_empty());
    w.audit();
}

#[test]
fn two_records_are_read_as_of_one_state() {
    let w = World::new();
    let (a, b) = (w.file(ROOT, "a"), w.file(ROOT, "b"));
    let done = AtomicUsize::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..ROUNDS {
                let (x, y) = ((ROOT, name("a")), (ROOT, name("b")));
                w.ns.rename(&C, w.now(), x, y, RenameMode::Exchange).unwrap();
                w.ns.unlink(&C, w.now(), ROOT, name("c")).ok();
                w.file(ROOT, "c");
            }
            done.store(1, Ordering::Relaxed);
        });
        s.spawn(|| {
            while done.load(Ordering::Relaxed) == 0 {
                assert!([a, b].contains(&w.find(ROOT, "a").unwrap()));
                // Never an entry whose inode is gone.
                match w.ns.lookup(&C, ROOT, name("c")) {
                    Ok(_) | Err(FsError::NotFound) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    });
    w.audit();
}

#[test]
fn gathered_times_are_never_lost_to_a_flush_or_a_change_of_the_directory() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    let last = AtomicI64::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 0..ROUNDS {
                let now = w.now();
                let n = format!("{n}");
                w.ns.create(&C, now, d, name(&n), &new(FileKind::Regular, 0o644)).unwrap();
                assert!(w.stat(d).mtime >= now, "its own change is seen at once");
                last.store(now.secs, Ordering::Relaxed);
            }
            last.store(-1, Ordering::Relaxed);
        });
        s.spawn(|| {
            while last.load(Ordering::Relaxed) >= 0 {
                w.ns.flush(at(1)).unwrap();
                let change = cofs_types::SetAttributes { permissions: Some(0o700), ..Default::default() };
                w.ns.setattr(&C, at(1), d, &change).unwrap();
            }
        });
    });
    w.audit();
}

#[test]
fn an_access_time_is_never_lost_to_a_flush_or_a_change_of_the_inode() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    // So that a listing takes its time.
    for n in 0..60 {
        w.file(ROOT, &format!("{n}"));
    }
    let done = AtomicUsize::new(0);
    let listed = || {
        let mut atime = None;
        let mut visit = |entry: &crate::ListedEntry<'_>| {
            if entry.ino == f {
                atime = entry.node.map(|node| node.attributes.atime);
            }
            true
        };
        w.ns.list(ROOT, 0, WithNodes::All, usize::MAX, &mut visit).unwrap();
        atime.unwrap()
    };
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..ROUNDS {
                let now = w.now();
                w.ns.touch_atime(now, f).unwrap();
                for _ in 0..5 {
                    assert_eq!((w.stat(f).atime, listed()), (now, now), "its own change is seen at once");
                }
            }
            done.store(1, Ordering::Relaxed);
        });
        s.spawn(|| {
            while done.load(Ordering::Relaxed) == 0 {
                w.ns.flush(at(1)).unwrap();
                let change = cofs_types::SetAttributes { permissions: Some(0o600), ..Default::default() };
                w.ns.setattr(&C, at(1), f, &change).unwrap();
            }
        });
    });
    w.audit();
}

#[test]
fn who_loses_too_often_runs_alone() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    let mut attempts = 0;
    let node = w.ns.commit(&crate::tx::verb!("test"), |tx| {
        let mut inode = crate::tables::inodes::expect(tx, f)?;
        attempts += 1;
        if attempts <= cofs_types::limits::CONFLICTS_MAX {
            let atime = Some(cofs_types::SetTime::Now);
            w.set(f, cofs_types::SetAttributes { atime, ..Default::default() });
        }
        inode.uid += 1;
        crate::tables::inodes::put(tx, f, &inode);
        Ok(inode)
    });
    assert_eq!(attempts, cofs_types::limits::CONFLICTS_MAX + 1);
    assert_eq!(w.stat(f).uid, 1, "only the last attempt counts");
    assert_eq!(node.unwrap().atime, w.stat(f).atime);
    w.audit();
}

#[test]
fn an_answer_from_two_states_is_not_given() {
    let w = World::new();
    let owner = cofs_types::SetAttributes { uid: Some(1), ..Default::default() };
    for (round, refuse) in [true, false].into_iter().enumerate() {
        let (a, b) = (w.file(ROOT, &format!("a{round}")), w.file(ROOT, &format!("b{round}")));
        let both = w.ns.store.read(|tx| {
            let of_a = crate::tables::inodes::expect(tx, a)?.uid;
            if of_a == 0 {
                w.set(a, owner);
                w.set(b, owner);
            }
            let of_b = crate::tables::inodes::expect(tx, b)?.uid;
            // A refusal is an answer too.
            if refuse && of_a != of_b { Err(FsError::corrupt("two states")) } else { Ok((of_a, of_b)) }
        });
        assert_eq!(both.unwrap(), (1, 1));
    }
}

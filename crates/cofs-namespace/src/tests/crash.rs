//! A power cut leaves a prefix of what was done, and each prefix is a sound volume.

use cofs_types::{FileKind, FsError, Kills, RenameMode, SetAttributes, XattrMode};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// One random operation; what it answers does not matter here.
fn step(w: &World, rng: &mut SmallRng, dirs: &mut Vec<InodeId>) {
    let dir = dirs[rng.random_range(0..dirs.len())];
    let other = dirs[rng.random_range(0..dirs.len())];
    let (a, b) = (format!("{}", rng.random_range(0..12)), format!("{}", rng.random_range(0..12)));
    let (a, b, now) = (name(&a), name(&b), w.now());
    let ns = &w.ns;
    let found = ns.lookup(&C, dir, a).map(|node| node.attributes.ino);
    let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
    match (rng.random_range(0..13), found) {
        (0 | 1, _) => drop(ns.create(&C, now, dir, a, &new(FileKind::Regular, 0o644))),
        (2, _) => {
            if let Ok(node) = ns.create(&C, now, dir, a, &new(FileKind::Directory, 0o755)) {
                dirs.push(node.attributes.ino);
            }
        }
        (3, _) => {
            if let Ok(node) = ns.create(&C, now, dir, a, &new(FileKind::Regular, 0o644)) {
                drop(ns.outgrow(now, node.attributes.ino, object(rng.random())));
            }
        }
        (4, _) => drop(ns.unlink(&C, now, dir, a)),
        (5, _) => drop(ns.rmdir(&C, now, dir, a)),
        (6 | 7, _) => drop(ns.rename(&C, now, (dir, a), (other, b), modes[rng.random_range(0..3)])),
        (8, Ok(ino)) => drop(ns.link(&C, now, ino, other, b)),
        (9, Ok(ino)) => {
            drop(ns.inline_write(now, ino, rng.random_range(0..9000), &[1; 3000], Kills::Capabilities))
        }
        (10, Ok(ino)) => {
            let size = rng.random_range(0..400) * 3;
            drop(ns.setxattr(&C, now, ino, xname("user.x"), &vec![0; size], XattrMode::Set, false));
        }
        (11, Ok(ino)) => match rng.random_range(0..3) {
            0 => drop(ns.outgrow(now, ino, object(rng.random()))),
            1 => drop(ns.inlay(now, ino, &[2; 5000], None)),
            _ => w.open(ino),
        },
        (12, _) if rng.random_bool(0.2) => ns.sync(now).unwrap(),
        (12, _) => ns.flush(now).unwrap(),
        (_, Ok(ino)) => drop(ns.setattr(&C, now, ino, &SetAttributes { uid: Some(1), ..Default::default() })),
        _ => {}
    }
}

#[test]
fn every_prefix_of_the_commits_is_a_sound_volume() {
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        // Every other seed, all names collide.
        let w = if seed % 2 == 0 { World::new() } else { World::with_hash(|_, _| 7) };
        let mut dirs = vec![ROOT];
        for _ in 0..300 {
            step(&w, &mut rng, &mut dirs);
        }
        w.audit();
        let commits = w.engine.unsynced_commits();
        for keep in 0..=commits {
            let engine = w.engine.after_power_cut(keep);
            audit::audit_records(&engine);
        }
        // After the crash nobody has anything open: what was unlinked goes.
        let mut after = World::over(Arc::new(w.engine.after_power_cut(commits)));
        after.ns.hasher = w.ns.hasher;
        for ino in after.ns.unlinked_set(None, 1000).unwrap() {
            after.ns.release_unlinked(at(9), ino).unwrap();
            fails(after.ns.node(ino), FsError::Stale);
        }
        audit::audit_records(&*after.engine);
    }
}

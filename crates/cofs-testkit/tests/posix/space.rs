//! What statfs(2) tells.

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use rustix::fs::{FallocateFlags, StatVfs, fallocate, fstatvfs, statvfs};

use crate::support::{Scratch, scratch};

/// Much more than other cases write meanwhile.
const BYTES: u64 = 512 << 20;

fn available_bytes(s: &Scratch) -> u64 {
    let space = statvfs(s.top()).unwrap();
    space.f_bavail * space.f_frsize
}

/// The answer may be a second old, and what was removed go a little later.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn free_space_follows_what_is_allocated_and_removed() {
    let Some(s) = scratch() else { return };
    let before = available_bytes(&s);
    let file = File::create(s.path("large")).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, BYTES).unwrap();
    soon("it falls", || available_bytes(&s) < before - BYTES / 2);
    drop(file);
    fs::remove_file(s.path("large")).unwrap();
    soon("it rises", || available_bytes(&s) > before - BYTES / 2);
}

#[test]
fn the_figures_agree_and_are_the_same_everywhere() {
    let Some(s) = scratch() else { return };
    let file = File::create(s.file("file", b"bytes")).unwrap();
    let of = |space: StatVfs| {
        assert!(space.f_bavail <= space.f_bfree && space.f_bfree < space.f_blocks);
        assert!(space.f_ffree <= space.f_files && space.f_files > 0);
        assert_eq!(space.f_namemax, 255);
        (space.f_bsize, space.f_frsize, space.f_blocks, space.f_fsid)
    };
    let everywhere = [of(statvfs(s.top()).unwrap()), of(fstatvfs(&file).unwrap())];
    assert_eq!(everywhere[0], everywhere[1]);
}

//! A pool that is older than the metadata: it was put back from a copy, or an empty one stands in its place. No object number is
//! given out twice.

mod common;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use cofs_fs::{FileSystem, run};
use cofs_types::{FsError, InodeId, Layout, ObjectId, PoolId};
use common::*;
use tempfile::TempDir;

/// How the older copy was made.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Copied {
    /// Before anything was in the pool.
    Empty,
    Closed,
    /// With objects made ahead.
    InUse,
}

/// With owners' tags, which are attributes.
fn copy(from: &Path, to: &Path) {
    for old in fs::read_dir(to).unwrap() {
        let path = old.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    assert!(Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap().success());
}

fn write_files(volume: &Volume, what: &str, count: u8, seed: u8) -> Vec<InodeId> {
    let write = |number| {
        let (ino, file) = volume.create(&format!("{what}{number}"));
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, seed + number));
        volume.close(ino, file);
        ino
    };
    (0..count).map(write).collect()
}

fn object(volume: &Volume, ino: InodeId) -> ObjectId {
    let Layout::Object(object) = volume.layout(ino) else { panic!("inode {ino} is inline") };
    object
}

fn put_back(copied: Copied, killed: bool) {
    let world = World::new();
    let older = TempDir::new().unwrap();
    let keep = |when| {
        if copied == when {
            copy(world.pool.path(), older.path());
        }
    };
    keep(Copied::Empty);
    let volume = world.mount();
    volume.placement.fill_now(PoolId(0), 30).unwrap();
    let mut files = write_files(&volume, "before", 2, 0);
    keep(Copied::InUse);
    files.extend(write_files(&volume, "stale", 3, 10));
    volume.detach();
    keep(Copied::Closed);
    let volume = world.mount();
    files.extend(write_files(&volume, "lost", 3, 20));
    match killed {
        true => drop(volume),
        false => volume.detach(),
    }

    copy(older.path(), world.pool.path());
    let volume = world.mount();
    volume.fs.start_filler();
    let new = write_files(&volume, "new", 40, 100);
    let objects: BTreeSet<_> = files.iter().chain(&new).map(|ino| object(&volume, *ino)).collect();
    assert_eq!(objects.len(), files.len() + new.len(), "{copied:?}: two files have one object");
    for lost in 0..3 {
        let ino = volume.lookup(&format!("lost{lost}")).unwrap().attributes.ino;
        let opened = run(volume.fs.open(&CONTEXT, ino, RO));
        assert!(matches!(opened, Err(FsError::Corrupt(_))), "{copied:?}: {:?}", opened.err());
        volume.unlink(&format!("lost{lost}"));
    }
    volume.fs.collect().unwrap();
    volume.detach();
    let volume = world.mount();
    for (number, ino) in (0..).zip(&new) {
        assert_eq!(volume.contents(*ino), pattern(INLINE_MAX * 2, 100 + number), "{copied:?}");
    }
}

#[test]
fn no_number_is_given_out_twice_by_a_pool_that_was_put_back() {
    for copied in [Copied::Empty, Copied::Closed, Copied::InUse] {
        for killed in [false, true] {
            put_back(copied, killed);
        }
    }
}

/// What the metadata have noted is known to be right: it is never below a number that they name, and a pool as it was left is
/// not taken for an older one.
#[test]
fn a_pool_as_it_was_left_goes_on_where_it_stopped() {
    let world = World::new();
    let volume = world.mount();
    let first = write_files(&volume, "a", 2, 0);
    let last = object(&volume, first[1]).sequence();
    volume.detach();
    let volume = world.mount();
    let next = write_files(&volume, "b", 1, 0);
    assert_eq!(object(&volume, next[0]).sequence(), last + 1);
    let noted = |volume: &Volume| cofs_metadata::MetadataDriver::pool_ends(volume.fs.metadata())[0];
    let in_use = noted(&volume);
    assert!(in_use.end > last + 2, "{in_use:?}");
    volume.detach();
    let closed = noted(&world.mount());
    assert!(closed.end == last + 2 && closed.generation > in_use.generation, "{closed:?}");
}

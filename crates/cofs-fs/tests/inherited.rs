//! Files that are open since an earlier life of the process that serves.

mod common;

use cofs_fs::{FileSystem, FsOptions, run};
use common::*;

/// How many have it open is not known, and the bytes of one may be on their way to the object while another closes it.
#[test]
fn a_file_open_since_an_earlier_life_tells_its_size_by_its_object_until_nobody_has_it() {
    let world = World::new();
    let before = world.mount();
    let (ino, one) = before.create("a");
    let other = before.open(ino, WO);
    before.write(ino, one, 0, &pattern(INLINE_MAX * 2, 1));
    drop(before);
    let volume = world.mount_with(FsOptions { life: 1, ..FsOptions::default() });
    volume.write(ino, other, INLINE_MAX as u64 * 2, b"abc");
    let here = volume.open(ino, RW);
    for handle in [one.handle, here.handle] {
        volume.write(ino, other, INLINE_MAX as u64 * 2 + 3, b"def");
        run(volume.fs.release(ino, handle)).unwrap();
        assert!(volume.writing(ino), "of another's bytes only the object would tell");
        assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 2 + 6);
    }
    run(volume.fs.release(ino, other.handle)).unwrap();
    volume.fs.forget(ino, 1);
    run(volume.fs.forgotten(ino));
    assert!(!volume.writing(ino));
    assert_eq!(volume.stat(ino).size_bytes, INLINE_MAX as u64 * 2 + 6);
}

//! Ranges: allocated, zeroed, punched, sought and copied, inline and in objects.

mod common;

use cofs_fs::{FileSystem, run};
use cofs_placement::{Fault, Operation};
use cofs_types::{FallocateMode, FsError, FsResult, InodeId, SeekWhence, SetAttributes, SetTime, Timestamp};
use common::*;

const PUNCH: FallocateMode = FallocateMode::PunchHole;
const ZERO: FallocateMode = FallocateMode::ZeroRange { keep_size: false };
const ZERO_KEEP: FallocateMode = FallocateMode::ZeroRange { keep_size: true };
const GROW: FallocateMode = FallocateMode::Allocate { keep_size: false };
const KEEP: FallocateMode = FallocateMode::Allocate { keep_size: true };

/// What fallocate(2) does to the bytes.
fn apply(model: &mut Vec<u8>, mode: FallocateMode, offset: usize, len: usize) {
    let end = offset + len;
    if matches!(mode, ZERO | GROW) && end > model.len() {
        model.resize(end, 0);
    }
    if matches!(mode, PUNCH | ZERO | ZERO_KEEP) {
        let to = end.min(model.len());
        model[offset.min(to)..to].fill(0);
    }
}

#[test]
fn every_mode_leaves_the_bytes_and_the_size_it_should() {
    let volume = World::new().mount();
    let big = INLINE_MAX * 2;
    for size in [0, 100, INLINE_MAX, big] {
        for mode in [PUNCH, ZERO, ZERO_KEEP, GROW, KEEP] {
            for (offset, len) in
                [(0, 10), (50, 100), (4000, 5000), (INLINE_MAX - 5, 5), (INLINE_MAX - 5, 10), (big, 1000)]
            {
                let case = format!("{mode:?} {offset}+{len} of {size}");
                let (ino, file) = volume.create("a");
                let mut model = pattern(size, 7);
                volume.write(ino, file, 0, &model);
                run(volume.fs.fallocate(&CONTEXT, ino, file.handle, mode, offset as u64, len as u64))
                    .unwrap();
                apply(&mut model, mode, offset, len);
                assert_eq!(volume.stat(ino).size_bytes, model.len() as u64, "{case}");
                assert_eq!(volume.read(ino, file, 0, big * 2), model, "{case}");
                volume.close(ino, file);
                assert_eq!(volume.contents(ino), model, "{case}");
                volume.unlink("a");
            }
        }
    }
}

#[test]
fn what_the_file_system_below_cannot_zero_is_zeroed_by_hand() {
    let world = World::new();
    let volume = world.mount();
    for passing in [0, 1] {
        let (ino, file) = volume.create("a");
        let mut model = pattern(INLINE_MAX * 2, 3);
        volume.write(ino, file, 0, &model);
        let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
        // The second time the hole is refused as well.
        world.store.inject(Fault::new(&[Operation::Allocate], unsupported).times(1 + passing));
        run(volume.fs.fallocate(&CONTEXT, ino, file.handle, ZERO, 100, INLINE_MAX as u64 * 2)).unwrap();
        apply(&mut model, ZERO, 100, INLINE_MAX * 2);
        assert_eq!(volume.read(ino, file, 0, INLINE_MAX * 4), model);
        volume.close(ino, file);
        volume.unlink("a");
        world.store.heal();
    }
    assert!(world.store.injected() >= 3);
}

#[test]
fn space_asked_for_keeps_a_small_file_in_its_object() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"small");
    run(volume.fs.fallocate(&CONTEXT, ino, file.handle, KEEP, 0, 1 << 20)).unwrap();
    volume.close(ino, file);
    assert!(!volume.is_inline(ino));
    assert!(volume.stat(ino).blocks_512 >= 2048);
    assert_eq!(volume.contents(ino), b"small");
}

#[test]
fn space_asked_for_changes_the_times_wherever_the_file_stands() {
    let volume = World::new().mount();
    for (number, mode) in [KEEP, ZERO_KEEP].into_iter().enumerate() {
        // Inline, out of the metadata into an object, and in the object.
        let (ino, file) = volume.create(&number.to_string());
        for len in [100, INLINE_MAX as u64 * 2, INLINE_MAX as u64 * 3] {
            let old = SetTime::To(Timestamp::new(1_000_000_000, 5).unwrap());
            volume.setattr(ino, SetAttributes { mtime: Some(old), ..SetAttributes::default() }).unwrap();
            run(volume.fs.fallocate(&CONTEXT, ino, file.handle, mode, 0, len)).unwrap();
            let stat = volume.stat(ino);
            assert!(stat.mtime.secs > 1_000_000_000 && stat.size_bytes == 0, "{mode:?} {len}: {stat:?}");
        }
    }
}

#[test]
fn nonsense_ranges_are_refused() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    let ask = |offset, len| run(volume.fs.fallocate(&CONTEXT, ino, file.handle, GROW, offset, len));
    assert!(matches!(ask(0, 0), Err(FsError::InvalidArgument(_))));
    assert!(matches!(ask(u64::MAX, 2), Err(FsError::FileTooLarge)));
    assert!(matches!(ask(i64::MAX as u64, 1), Err(FsError::FileTooLarge)));
}

#[test]
fn data_and_holes_are_found() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    let seek = |offset, whence| run(volume.fs.lseek(ino, file.handle, offset, whence));
    assert!(matches!(seek(0, SeekWhence::Data), Err(FsError::NoData)));
    volume.write(ino, file, 0, &[1; 100]);
    assert_eq!(seek(10, SeekWhence::Data).unwrap(), 10);
    assert_eq!(seek(10, SeekWhence::Hole).unwrap(), 100);
    assert!(matches!(seek(100, SeekWhence::Hole), Err(FsError::NoData)));
    volume.write(ino, file, 1 << 20, &[1; 100]);
    assert_eq!(seek((1 << 20) + 200, SeekWhence::Data).unwrap_err().to_string(), FsError::NoData.to_string());
    assert!(seek(1 << 19, SeekWhence::Data).unwrap() <= 1 << 20);
    assert!(seek(0, SeekWhence::Hole).unwrap() <= (1 << 20) + 100);
}

#[test]
fn ranges_are_copied_between_all_layouts() {
    let volume = World::new().mount();
    for from_size in [0, 500, INLINE_MAX * 40] {
        for to_size in [0, 500, INLINE_MAX * 2] {
            for (from_at, to_at, len) in [(0, 0, 100), (100, 50, INLINE_MAX * 50), (10_000, 1 << 20, 1000)] {
                let case = format!("{from_at}..+{len} of {from_size} to {to_at} of {to_size}");
                let (source, from) = volume.create("from");
                let (target, to) = volume.create("to");
                let bytes = pattern(from_size, 1);
                let mut model = pattern(to_size, 2);
                volume.write(source, from, 0, &bytes);
                volume.write(target, to, 0, &model);
                let copied = copy(&volume, (source, from, from_at), (target, to, to_at), len).unwrap();
                let part = &bytes[from_at.min(from_size)..(from_at + len).min(from_size)];
                assert_eq!(copied, part.len(), "{case}");
                if !part.is_empty() {
                    let end = to_at + part.len();
                    model.resize(model.len().max(end), 0);
                    model[to_at..end].copy_from_slice(part);
                }
                volume.close(source, from);
                volume.close(target, to);
                assert_eq!(volume.contents(target), model, "{case}");
                assert_eq!(volume.contents(source), bytes, "{case}");
                volume.unlink("from");
                volume.unlink("to");
            }
        }
    }
}

fn copy(
    volume: &Volume,
    from: (InodeId, cofs_fs::Opened, usize),
    to: (InodeId, cofs_fs::Opened, usize),
    len: usize,
) -> FsResult<usize> {
    let source = (from.0, from.1.handle, from.2 as u64);
    let target = (to.0, to.1.handle, to.2 as u64);
    run(volume.fs.copy_range(&CONTEXT, source, target, len as u64)).map(|copied| copied as usize)
}

#[test]
fn a_file_is_copied_onto_itself_where_the_ranges_do_not_meet() {
    let volume = World::new().mount();
    for size in [1000, INLINE_MAX * 2] {
        let (ino, file) = volume.create("a");
        let mut model = pattern(size, 1);
        volume.write(ino, file, 0, &model);
        assert_eq!(copy(&volume, (ino, file, 0), (ino, file, 500), 100).unwrap(), 100);
        model.copy_within(0..100, 500);
        assert_eq!(volume.read(ino, file, 0, size), model);
        let refused = copy(&volume, (ino, file, 0), (ino, file, 50), 100);
        assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
        volume.close(ino, file);
        volume.unlink("a");
    }
}

#[test]
fn the_source_of_a_copy_was_read() {
    let volume = World::new().mount();
    for size in [1000, INLINE_MAX * 2] {
        let (source, from) = volume.create("from");
        let (target, to) = volume.create("to");
        volume.write(source, from, 0, &pattern(size, 1));
        volume.write(target, to, 0, &pattern(INLINE_MAX * 2, 2));
        let long_ago = cofs_types::Timestamp::new(1000, 0).unwrap();
        let set = SetAttributes { atime: Some(SetTime::To(long_ago)), ..SetAttributes::default() };
        for ino in [source, target] {
            volume.setattr(ino, set).unwrap();
        }
        assert_eq!(copy(&volume, (source, from, 0), (target, to, 0), size).unwrap(), size);
        assert!(volume.stat(source).atime > long_ago, "{size}");
        assert_eq!(volume.stat(target).atime, long_ago, "{size}");
        volume.unlink("from");
        volume.unlink("to");
    }
}

#[test]
fn objects_that_cannot_be_copied_below_are_copied_by_hand() {
    let world = World::new();
    let volume = world.mount();
    let (source, from) = volume.create("from");
    let (target, to) = volume.create("to");
    let bytes = pattern(INLINE_MAX * 40, 1);
    volume.write(source, from, 0, &bytes);
    volume.write(target, to, 0, &pattern(INLINE_MAX * 2, 2));
    world.store.inject(Fault::new(&[Operation::CopyRange], rustix::io::Errno::XDEV.raw_os_error()));
    assert_eq!(copy(&volume, (source, from, 0), (target, to, 0), bytes.len() + 10).unwrap(), bytes.len());
    assert!(world.store.injected() > 0);
    assert_eq!(volume.read(target, to, 0, bytes.len() + 10), bytes);
}

#[test]
fn what_is_copied_into_a_file_that_may_be_mapped_goes_through_the_pages_of_who_can_do_so() {
    for size in [1000, INLINE_MAX * 2] {
        for (copies, access, refused) in [(true, RW, true), (true, WO, false), (false, RW, false)] {
            let volume = World { copies, ..World::new() }.mount();
            let (from, source) = volume.create("from");
            volume.write(from, source, 0, b"abcdefgh");
            let (to, file) = volume.create("to");
            volume.write(to, file, 0, &pattern(size, 1));
            volume.close(to, file);
            let target = volume.open(to, access);
            let copied = copy(&volume, (from, source, 0), (to, target, 100), 8);
            let expected = if refused { Err(FsError::NotSupported) } else { Ok(8) };
            assert_eq!(format!("{copied:?}"), format!("{expected:?}"), "{size} {copies} {access:?}");
        }
    }
}

//! Files that are written past the kernel's page cache.

mod common;

use std::sync::atomic::Ordering;

use cofs_fs::{AtimeMode, DataPath, FileSystem, FsOptions, WriteFlags, run};
use cofs_placement::{Fault, Operation};
use cofs_types::{FsError, InodeId, OpenFlags, XattrMode, XattrName};
use common::*;

const TRUNCATE: OpenFlags = OpenFlags { truncate: true, ..WO };

#[test]
fn who_only_writes_a_file_that_is_empty_goes_past_the_page_cache() {
    let volume = World::new().mount();
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    assert_eq!(file.data_path, DataPath::Direct);
    volume.write(ino, file, 0, b"abc");
    volume.close(ino, file);
    let file = volume.open(ino, TRUNCATE);
    assert_eq!(file.data_path, DataPath::Direct);
    volume.close(ino, file);
    let file = volume.open(ino, WO);
    assert!(matches!(file.data_path, DataPath::Cached { .. }), "pages that somebody may want");
    volume.close(ino, file);
    let (ino, file) = volume.create("both");
    assert!(matches!(file.data_path, DataPath::Cached { .. }), "it may be read");
    let other = volume.open(ino, TRUNCATE);
    assert!(matches!(other.data_path, DataPath::Cached { .. }), "the first open chose the path");
    volume.close(ino, file);
    volume.close(ino, other);
}

#[test]
fn where_no_read_is_seen_the_pages_stay_for_the_first() {
    let world = World::new();
    for (atime, kept) in [(AtimeMode::Never, true), (AtimeMode::Relatime, false), (AtimeMode::Strict, false)]
    {
        let volume = world.mount_with(FsOptions { atime, ..FsOptions::default() });
        let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
        assert_eq!(file.data_path == DataPath::Direct, !kept, "{atime:?}, new");
        volume.write(ino, file, 0, b"abc");
        volume.close(ino, file);
        let file = volume.open(ino, TRUNCATE);
        assert_eq!(file.data_path == DataPath::Direct, !kept, "{atime:?}, cut");
        volume.write(ino, file, 0, b"abc");
        volume.close(ino, file);
        let file = volume.open(ino, RO);
        assert_eq!(file.data_path, DataPath::Cached { keep_cache: kept }, "{atime:?}, read");
        volume.close(ino, file);
        volume.unlink("new");
        volume.detach();
    }
}

#[test]
fn where_it_could_not_be_mapped_it_stays_in_the_page_cache() {
    let volume = World { maps_direct: false, ..World::new() }.mount();
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    assert!(matches!(file.data_path, DataPath::Cached { .. }));
    volume.close(ino, file);
}

#[test]
fn a_large_file_written_so_is_passed_through_for_its_next_reader() {
    let (world, _kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    let second = volume.open(ino, WO);
    assert_eq!(second.data_path, DataPath::Direct, "the first open chose the path");
    volume.close(ino, second);
    let second = volume.open(ino, RO);
    assert!(matches!(second.data_path, DataPath::Passthrough(_)), "he may map it");
    volume.write(ino, file, 0, b"x");
    assert_eq!(volume.read(ino, second, 0, 1), b"x");
    volume.write(ino, file, 0, &pattern(1, 1));
    volume.close(ino, file);
    volume.close(ino, second);
    let file = volume.open(ino, RO);
    assert!(matches!(file.data_path, DataPath::Passthrough(_)));
    volume.close(ino, file);
    assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 2, 1));
}

#[test]
fn pages_that_a_mapping_may_have_brought_are_recalled_and_dropped() {
    let world = World::new();
    let volume = world.mount();
    // By whom no read need be seen, so that pages would be kept.
    let unseen = OpenFlags { no_atime: true, ..RO };
    let recalls = || std::mem::take(&mut *world.recalls.0.lock());
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    volume.write(ino, file, 0, b"abc");
    assert_eq!(recalls(), [], "nobody else has it open");
    let mapped = volume.open(ino, RO);
    volume.read(ino, mapped, 0, 3);
    volume.write(ino, file, 3, b"de");
    assert_eq!(recalls(), [], "and who does has mapped nothing");
    volume.bring_page(ino, mapped);
    volume.write(ino, file, 5, b"f");
    assert_eq!(recalls(), [ino]);
    volume.close(ino, file);
    volume.close(ino, mapped);
    for keep_cache in [false, true] {
        let file = volume.open(ino, unseen);
        assert_eq!(file.data_path, DataPath::Cached { keep_cache });
        volume.close(ino, file);
    }
    let writer = volume.open(ino, OpenFlags { truncate: true, ..RW });
    volume.write(ino, writer, 0, b"abc");
    assert_eq!(recalls(), [], "the kernel has written the pages itself");
    volume.close(ino, writer);
    let (ino, file) = volume.create_in(InodeId::ROOT, "alone", WO);
    volume.write(ino, file, 0, b"abc");
    volume.close(ino, file);
    let file = volume.open(ino, unseen);
    assert_eq!(file.data_path, DataPath::Cached { keep_cache: true }, "nobody can have mapped it");
    volume.close(ino, file);
}

/// The kernel drops pages before a write past them, and the mapping brings them again before it is done.
#[test]
fn a_page_without_a_write_that_is_written_back_keeps_it() {
    for size in [8, INLINE_MAX * 2] {
        let world = World::new();
        let volume = world.mount();
        let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
        volume.write(ino, file, 0, &pattern(size, 1));
        let mapped = volume.open(ino, RW);
        assert_eq!(mapped.data_path, DataPath::Direct);
        volume.bring_page(ino, mapped);
        let write_back = |page: &[u8]| {
            let flags = WriteFlags { from_cache: true, ..WriteFlags::default() };
            assert_eq!(run(volume.fs.write(ino, mapped.handle, 0, page, flags)).unwrap(), page.len());
        };
        let mut page = pattern(size, 1);
        world.recalls.2.store(true, Ordering::Relaxed);
        volume.write(ino, file, 0, b"abcd");
        volume.write(ino, file, 3, b"x");
        page[1] = b'1';
        page[6] = b'6';
        write_back(&page);
        let kept = [b"a1cx", &page[4..]].concat();
        assert_eq!(volume.contents(ino), kept, "{size}");
        world.recalls.2.store(false, Ordering::Relaxed);
        write_back(&page);
        assert_eq!(volume.contents(ino), page, "{size}: no page of before is left");
    }
}

#[test]
fn a_write_takes_the_capabilities_away() {
    let volume = World::new().mount();
    let capability = XattrName::new(b"security.capability").unwrap();
    for size in [10, INLINE_MAX * 2] {
        let (ino, file) = volume.create_in(InodeId::ROOT, &size.to_string(), WO);
        assert_eq!(file.data_path, DataPath::Direct);
        volume.write(ino, file, 0, &pattern(size, 1));
        for _ in 0..2 {
            run(volume.fs.setxattr(&CONTEXT, ino, capability, b"cap", XattrMode::Set, false)).unwrap();
            assert!(run(volume.fs.getxattr(&CONTEXT, ino, capability)).is_ok());
            volume.write(ino, file, 0, b"x");
            let gone = run(volume.fs.getxattr(&CONTEXT, ino, capability));
            assert!(matches!(gone, Err(FsError::NoAttribute)), "{size}: {gone:?}");
        }
        run(volume.fs.setxattr(&CONTEXT, ino, capability, b"cap", XattrMode::Set, false)).unwrap();
        run(volume.fs.removexattr(&CONTEXT, ino, capability)).unwrap();
        volume.write(ino, file, 0, b"x");
        volume.close(ino, file);
    }
}

/// Which the kernel leaves them there.
#[test]
fn a_write_past_the_cache_takes_those_that_the_file_had_before_it_was_opened() {
    let world = World { loses_appended: true, ..World::new() };
    let volume = world.mount();
    let capability = XattrName::new(b"security.capability").unwrap();
    for size in [10, INLINE_MAX * 2] {
        let (ino, file) = volume.create(&size.to_string());
        volume.write(ino, file, 0, b"abc");
        volume.close(ino, file);
        run(volume.fs.setxattr(&CONTEXT, ino, capability, b"cap", XattrMode::Set, false)).unwrap();
        let file = volume.open(ino, RW);
        assert_eq!(file.data_path, DataPath::Direct);
        assert!(run(volume.fs.getxattr(&CONTEXT, ino, capability)).is_ok());
        volume.write(ino, file, 0, &pattern(size, 1));
        let gone = run(volume.fs.getxattr(&CONTEXT, ino, capability));
        assert!(matches!(gone, Err(FsError::NoAttribute)), "{size}: {gone:?}");
        volume.close(ino, file);
    }
}

/// As `cp -a` and `tar` give them: before the close, which settles what was written.
#[test]
fn capabilities_given_after_the_last_write_stay_at_the_close_and_go_with_the_next_size() {
    let capability = XattrName::new(b"security.capability").unwrap();
    for (size, passthrough) in [(10, false), (INLINE_MAX * 2, false), (INLINE_MAX * 2, true)] {
        let world = if passthrough { World::with_passthrough().0 } else { World::new() };
        let volume = world.mount();
        let give = |ino| {
            run(volume.fs.setxattr(&CONTEXT, ino, capability, b"cap", XattrMode::Set, false)).unwrap();
        };
        let has = |ino| run(volume.fs.getxattr(&CONTEXT, ino, capability)).is_ok();
        for flags in [WO, RW] {
            let (ino, file) = volume.create_in(InodeId::ROOT, &format!("{:?}", flags.access), flags);
            volume.write(ino, file, 0, &pattern(size, 1));
            give(ino);
            volume.close(ino, file);
            assert!(has(ino), "{size} {flags:?}");
            volume.truncate(ino, size as u64 + 1).unwrap();
            assert!(!has(ino), "{size} {flags:?}: its size was changed");
            give(ino);
            let file = volume.open(ino, OpenFlags { truncate: true, ..flags });
            assert!(!has(ino), "{size} {flags:?}: it was emptied");
            volume.close(ino, file);
        }
    }
}

/// Before users are cut off: what they have changed through mappings, only the kernel has.
#[test]
fn all_that_is_open_is_written_out() {
    let world = World::new();
    let volume = world.mount();
    let open = ["a", "b"].map(|name| volume.create(name));
    let (closed, file) = volume.create("c");
    volume.close(closed, file);
    world.recalls.0.lock().clear();
    volume.fs.write_out();
    let mut recalled = world.recalls.0.lock().clone();
    recalled.sort();
    assert_eq!(recalled, open.map(|(ino, _)| ino));
    open.into_iter().for_each(|(ino, file)| volume.close(ino, file));
}

/// With passthrough: he may map it, and mappings and writes past the page cache are not kept together.
#[test]
fn who_may_map_what_another_only_writes_meets_him_in_the_object() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, first) = volume.create_in(InodeId::ROOT, "new", WO);
    assert_eq!(first.data_path, DataPath::Direct);
    volume.write(ino, first, 0, b"abcdef");
    let writer = volume.open(ino, WO);
    assert_eq!(writer.data_path, DataPath::Direct, "he cannot map it");
    volume.close(ino, writer);
    let second = volume.open(ino, RW);
    let DataPath::Passthrough(id) = second.data_path else { panic!("{second:?}") };
    kernel.write(id, 0, b"XY");
    volume.write(ino, first, 4, b"second");
    assert_eq!(std::fs::read(volume.object_path(ino)).unwrap(), b"XYcdsecond");
    assert_eq!(volume.stat(ino).size_bytes, 10);
    assert!(
        matches!(volume.open(ino, TRUNCATE).data_path, DataPath::Passthrough(_)),
        "as for all from now on"
    );
    volume.write(ino, first, 0, b"end");
    (0..2).for_each(|_| volume.close(ino, second));
    volume.close(ino, first);
    assert!(volume.is_inline(ino));
    assert_eq!(volume.contents(ino), b"end");
    // Without an object they share it as before.
    let (ino, first) = volume.create_in(InodeId::ROOT, "other", WO);
    volume.write(ino, first, 0, b"abc");
    world.store.inject(Fault::new(&[Operation::Create, Operation::Write], 28));
    assert_eq!(volume.open(ino, RW).data_path, DataPath::Direct);
    volume.write(ino, first, 3, b"def");
    world.store.heal();
    assert_eq!(volume.open(ino, RO).data_path, DataPath::Direct, "the one before may have mapped it");
    assert_eq!(volume.contents(ino), b"abcdef");
}

#[test]
fn who_empties_what_another_writes_takes_his_path() {
    let volume = World::new().mount();
    let (ino, first) = volume.create_in(InodeId::ROOT, "new", WO);
    volume.write(ino, first, 0, b"abc");
    assert_eq!(volume.open(ino, OpenFlags { truncate: true, ..RW }).data_path, DataPath::Direct);
}

/// Through pages that are mapped.
#[test]
fn where_the_kernel_may_lose_what_is_appended_who_writes_goes_past_its_pages() {
    let passing = World { loses_appended: true, ..World::with_passthrough().0 };
    for world in [World { loses_appended: true, ..World::new() }, passing] {
        let volume = world.mount();
        let (ino, file) = volume.create("new");
        assert_eq!(file.data_path, DataPath::Direct);
        volume.write(ino, file, 0, b"abc");
        volume.close(ino, file);
        for flags in [WO, RW, OpenFlags { truncate: true, ..RW }] {
            let file = volume.open(ino, flags);
            assert_eq!(file.data_path, DataPath::Direct, "{flags:?}");
            volume.close(ino, file);
        }
        let file = volume.open(ino, RW);
        let joined = [RO, WO, RW].map(|flags| volume.open(ino, flags));
        assert!(joined.iter().all(|open| open.data_path == DataPath::Direct), "he may have mapped it");
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        let late = volume.open(ino, RW);
        assert_eq!(late.data_path, DataPath::Direct, "the first open chose the path");
        assert_eq!(volume.contents(ino), pattern(INLINE_MAX * 2, 1));
        joined.into_iter().chain([file, late]).for_each(|open| volume.close(ino, open));
        for flags in [WO, RW] {
            let file = volume.open(ino, flags);
            match world.kernel {
                Some(_) => assert!(matches!(file.data_path, DataPath::Passthrough(_))),
                None => assert_eq!(file.data_path, DataPath::Direct, "{flags:?}"),
            }
            volume.close(ino, file);
        }
    }
}

#[test]
fn who_only_reads_what_is_written_past_the_pages_keeps_his_and_each_write_has_them_let_go() {
    let world = World { loses_appended: true, ..World::new() };
    let volume = world.mount();
    for (round, flags) in [WO, RW].into_iter().enumerate() {
        let (ino, file) = volume.create(&round.to_string());
        volume.write(ino, file, 0, &pattern(8, 1));
        volume.close(ino, file);
        let reader = volume.open(ino, RO);
        assert!(matches!(reader.data_path, DataPath::Cached { .. }));
        volume.bring_page(ino, reader);
        let writer = volume.open(ino, flags);
        assert_eq!(writer.data_path, DataPath::Direct, "{flags:?}");
        world.recalls.0.lock().clear();
        world.recalls.2.store(true, Ordering::Relaxed);
        volume.write(ino, writer, 0, b"abcd");
        assert_eq!(*world.recalls.0.lock(), [ino], "{flags:?}");
        // Another who joins may have mapped what the reader has brought.
        let other = volume.open(ino, RW);
        assert_eq!(other.data_path, DataPath::Direct);
        let mut page = pattern(8, 1);
        page[6] = b'6';
        let from_cache = WriteFlags { from_cache: true, ..WriteFlags::default() };
        run(volume.fs.write(ino, other.handle, 0, &page, from_cache)).unwrap();
        assert_eq!(volume.contents(ino), [b"abcd", &page[4..]].concat(), "{flags:?}");
        world.recalls.2.store(false, Ordering::Relaxed);
        [reader, writer, other].into_iter().for_each(|open| volume.close(ino, open));
        let unseen = volume.open(ino, OpenFlags { no_atime: true, ..RO });
        assert_eq!(unseen.data_path, DataPath::Cached { keep_cache: false }, "pages that were brought go");
        volume.close(ino, unseen);
    }
}

#[test]
fn beside_who_writes_through_pages_nobody_goes_past_them() {
    let world = World { loses_appended: true, ..World::new() };
    let volume = world.mount_with(FsOptions { atime: AtimeMode::Never, ..FsOptions::default() });
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    for (flags, opened) in [WO, RW].map(|flags| (flags, volume.open(ino, flags))) {
        assert!(matches!(opened.data_path, DataPath::Cached { .. }), "{flags:?}");
    }
    volume.close(ino, file);
}

/// One opener maps the file and writes it, too.
#[test]
fn stores_of_who_writes_himself_past_the_cache_are_kept() {
    let world = World { loses_appended: true, ..World::new() };
    let volume = world.mount();
    let recalls = || std::mem::take(&mut *world.recalls.0.lock());
    let (ino, file) = volume.create("new");
    volume.write(ino, file, 0, &pattern(8, 1));
    assert_eq!(recalls(), [], "nothing is mapped");
    volume.bring_page(ino, file);
    world.recalls.2.store(true, Ordering::Relaxed);
    volume.write(ino, file, 0, b"abcd");
    assert_eq!(recalls(), [ino]);
    let mut page = pattern(8, 1);
    page[6] = b'6';
    let flags = WriteFlags { from_cache: true, ..WriteFlags::default() };
    run(volume.fs.write(ino, file.handle, 0, &page, flags)).unwrap();
    assert_eq!(volume.contents(ino), [b"abcd", &page[4..]].concat());
    world.recalls.2.store(false, Ordering::Relaxed);
    volume.close(ino, file);
}

/// Pages that one has brought who cannot change them, another who maps them can.
#[test]
fn who_joins_may_change_pages_that_are_there() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create_in(InodeId::ROOT, "new", WO);
    volume.write(ino, file, 0, b"abcdef");
    let reader = volume.open(ino, RO);
    volume.bring_page(ino, reader);
    let mapped = volume.open(ino, RW);
    world.recalls.2.store(true, Ordering::Relaxed);
    volume.write(ino, file, 0, b"ABC");
    let flags = WriteFlags { from_cache: true, ..WriteFlags::default() };
    run(volume.fs.write(ino, mapped.handle, 0, b"abcxef", flags)).unwrap();
    assert_eq!(volume.contents(ino), b"ABCxef");
}

//! Files from the first byte to the last close: inline, in an object, and back.

mod common;

use cofs_fs::{AtimeMode, DataPath, FileSystem, FsOptions, run};
use cofs_types::{AccessMode, FsError, InodeId, OpenFlags, SetAttributes, SetTime, Timestamp, limits};
use common::*;

#[test]
fn a_small_file_never_gets_an_object() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"hello");
    volume.write(ino, file, 5, b" world");
    assert_eq!(volume.read(ino, file, 0, 100), b"hello world");
    assert_eq!(volume.read(ino, file, 6, 3), b"wor");
    assert!(volume.read(ino, file, 11, 5).is_empty());
    volume.close(ino, file);
    assert_eq!(volume.objects_in_use(), 0);
    volume.detach();

    let volume = world.mount();
    let ino = volume.lookup("a").unwrap().attributes.ino;
    assert_eq!(volume.contents(ino), b"hello world");
}

#[test]
fn a_file_at_the_inline_maximum_stays_and_one_byte_more_moves_it() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    let mut bytes = pattern(INLINE_MAX, 1);
    volume.write(ino, file, 0, &bytes);
    assert!(volume.is_inline(ino));
    volume.write(ino, file, INLINE_MAX as u64, b"!");
    bytes.push(b'!');
    assert!(!volume.is_inline(ino));
    assert_eq!(volume.read(ino, file, 0, INLINE_MAX + 100), bytes);
    assert_eq!(volume.stat(ino).size_bytes, bytes.len() as u64);
    volume.close(ino, file);
    assert!(!volume.writing(ino));
    assert_eq!(volume.stat(ino).size_bytes, bytes.len() as u64);
    assert_eq!(volume.contents(ino), bytes);
}

#[test]
fn a_write_far_out_makes_a_sparse_object_and_no_large_buffer() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 1 << 30, b"end");
    assert_eq!(volume.stat(ino).size_bytes, (1 << 30) + 3);
    assert!(volume.stat(ino).blocks_512 < 1024);
    assert_eq!(volume.read(ino, file, (1 << 30) - 2, 10), b"\0\0end");
    volume.close(ino, file);
}

#[test]
fn a_write_beyond_the_largest_file_is_refused() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    let refused = volume.try_write(ino, file, limits::FILE_BYTES_MAX, b"x");
    assert!(matches!(refused, Err(FsError::FileTooLarge)), "{refused:?}");
    assert!(matches!(volume.truncate(ino, limits::FILE_BYTES_MAX + 1), Err(FsError::FileTooLarge)));
    volume.close(ino, file);
}

#[test]
fn a_file_that_ends_small_goes_back_inline_and_its_object_goes() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 3, 2));
    volume.truncate(ino, 100).unwrap();
    assert!(!volume.is_inline(ino), "it is open");
    let mtime = volume.stat(ino).mtime;
    volume.close(ino, file);
    assert!(volume.is_inline(ino));
    assert_eq!(volume.contents(ino), pattern(100, 2));
    assert_eq!(volume.stat(ino).mtime, mtime);
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

#[test]
fn truncation_works_at_every_boundary_open_or_not() {
    let sizes = [0, 1, 4095, 4096, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, INLINE_MAX * 4];
    let volume = World::new().mount();
    for open in [false, true] {
        for from in sizes {
            for to in sizes {
                let file_name = format!("{open}-{from}-{to}");
                let (ino, file) = volume.create(&file_name);
                let mut model = pattern(from, 9);
                volume.write(ino, file, 0, &model);
                if !open {
                    volume.close(ino, file);
                }
                let stat = volume.truncate(ino, to as u64).unwrap();
                model.resize(to, 0);
                assert_eq!(stat.size_bytes, to as u64, "{file_name}");
                if open {
                    assert_eq!(volume.read(ino, file, 0, to + 1), model, "{file_name}");
                    volume.close(ino, file);
                }
                assert_eq!(volume.is_inline(ino), to <= INLINE_MAX, "{file_name}");
                assert_eq!(volume.contents(ino), model, "{file_name}");
            }
        }
    }
}

#[test]
fn opening_with_truncation_empties_inline_files_and_objects() {
    let volume = World::new().mount();
    for size in [10, INLINE_MAX * 2] {
        let (ino, file) = volume.create(&format!("f{size}"));
        volume.write(ino, file, 0, &pattern(size, 3));
        volume.close(ino, file);
        let file = volume.open(ino, OpenFlags { truncate: true, ..RW });
        assert_eq!(volume.stat(ino).size_bytes, 0);
        volume.write(ino, file, 0, b"new");
        volume.close(ino, file);
        assert!(volume.is_inline(ino));
        assert_eq!(volume.contents(ino), b"new");
    }
}

#[test]
fn a_program_that_runs_is_not_emptied() {
    let volume = World::new().mount();
    for size in [10, INLINE_MAX * 2] {
        let (ino, file) = volume.create(&format!("f{size}"));
        volume.write(ino, file, 0, &pattern(size, 3));
        volume.close(ino, file);
        let exec = OpenFlags { exec: true, ..RO };
        let running = [volume.open(ino, exec), volume.open(ino, exec)];
        let emptied = || run(volume.fs.open(&CONTEXT, ino, OpenFlags { truncate: true, ..RO }));
        for program in running {
            assert!(matches!(emptied(), Err(FsError::ProgramRuns)));
            assert_eq!(volume.contents(ino), pattern(size, 3));
            volume.close(ino, program);
        }
        volume.close(ino, emptied().unwrap());
        assert_eq!(volume.stat(ino).size_bytes, 0);
    }
}

#[test]
fn creating_what_is_there_opens_it_unless_exclusive() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"old");
    volume.close(ino, file);
    let (again, file) = volume.create("a");
    assert_eq!(again, ino);
    assert_eq!(volume.read(ino, file, 0, 10), b"old");
    volume.close(ino, file);
    let exclusive = OpenFlags { exclusive: true, ..RW };
    let refused = run(volume.fs.create(&CONTEXT, InodeId::ROOT, name("a"), new_file(0o600), exclusive));
    assert!(matches!(refused, Err(FsError::Exists)));
}

#[test]
fn times_that_were_set_outlive_the_close_of_a_written_object() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 4));
    let old = Timestamp::new(1_000_000_000, 123_000_000).unwrap();
    let set = SetAttributes {
        mtime: Some(SetTime::To(old)),
        atime: Some(SetTime::To(old)),
        ..SetAttributes::default()
    };
    let before = volume.stat(ino).ctime;
    volume.setattr(ino, set).unwrap();
    assert_eq!(volume.stat(ino).mtime, old);
    volume.close(ino, file);
    let stat = volume.stat(ino);
    assert_eq!((stat.mtime, stat.atime), (old, old));
    assert!(stat.ctime >= before && stat.ctime > old);
    // Set while closed, then opened for writing without a write: still the same.
    let older = Timestamp::new(500_000_000, 7).unwrap();
    volume
        .setattr(ino, SetAttributes { mtime: Some(SetTime::To(older)), ..SetAttributes::default() })
        .unwrap();
    let ctime = volume.stat(ino).ctime;
    let file = volume.open(ino, RW);
    volume.close(ino, file);
    assert_eq!((volume.stat(ino).mtime, volume.stat(ino).ctime), (older, ctime));
    // And a write brings them up to date.
    let file = volume.open(ino, RW);
    volume.write(ino, file, 0, b"x");
    volume.close(ino, file);
    assert!(volume.stat(ino).mtime > old);
    assert!(volume.stat(ino).ctime >= ctime);
}

#[test]
fn a_mtime_in_the_future_does_not_become_the_ctime() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 4));
    let future = Timestamp::new(4_000_000_000, 0).unwrap();
    let set = SetAttributes { mtime: Some(SetTime::To(future)), ..SetAttributes::default() };
    volume.setattr(ino, set).unwrap();
    volume.truncate(ino, (INLINE_MAX * 3) as u64).unwrap();
    volume.close(ino, file);
    assert!(volume.stat(ino).ctime < future);
}

#[test]
fn a_read_is_recorded_under_relatime_once() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"abc");
    volume.close(ino, file);
    let long_ago = Timestamp::new(1000, 0).unwrap();
    let set = |time| SetAttributes { atime: Some(SetTime::To(time)), ..SetAttributes::default() };
    volume.setattr(ino, set(long_ago)).unwrap();
    let file = volume.open(ino, RO);
    assert_eq!(file.data_path, DataPath::Cached { keep_cache: false }, "the read must be seen");
    volume.read(ino, file, 0, 3);
    volume.close(ino, file);
    let touched = volume.stat(ino).atime;
    assert!(touched > long_ago);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let file = volume.open(ino, RO);
    volume.read(ino, file, 0, 3);
    volume.close(ino, file);
    // Not later than ctime (the setattr above) means due; from then on it is not.
    let again = volume.stat(ino).atime;
    let file = volume.open(ino, RO);
    assert_eq!(file.data_path, DataPath::Cached { keep_cache: true });
    volume.read(ino, file, 0, 3);
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).atime, again);
}

/// The kernel may have changed a page and not sent it yet: dropped now, and read again, it would stay as it was before.
#[test]
fn pages_that_another_writes_through_are_kept_though_the_read_is_not_seen_then() {
    let volume = World::new().mount();
    let (ino, creating) = volume.create("a");
    volume.close(ino, creating);
    let kept = |flags, keep_cache, who: &str| {
        let file = volume.open(ino, flags);
        assert_eq!(file.data_path, DataPath::Cached { keep_cache }, "{who}");
        file
    };
    let writer = volume.open(ino, RW);
    volume.write(ino, writer, 0, b"abc");
    for flags in [RO, RW] {
        let reader = kept(flags, true, "beside a writer");
        volume.write(ino, writer, 3, b"def");
        volume.close(ino, reader);
    }
    volume.close(ino, writer);
    for flags in [RO, RW] {
        let reader = kept(flags, false, "alone: the read must be seen");
        volume.close(ino, reader);
    }
}

#[test]
fn a_recorded_read_commits_nothing_and_outlives_an_unmount() {
    let world = World::new();
    let volume = world.mount();
    let files: Vec<_> = (0..20)
        .map(|number| {
            let (ino, file) = volume.create(&number.to_string());
            volume.write(ino, file, 0, b"abc");
            (ino, file)
        })
        .collect();
    let written: Vec<_> = files.iter().map(|&(ino, _)| volume.stat(ino).atime).collect();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let commits = world.engine.unsynced_commits();
    for &(ino, file) in &files {
        volume.read(ino, file, 0, 3);
    }
    // The ticker may come in between.
    assert!(world.engine.unsynced_commits() < commits + files.len() / 2);
    let read: Vec<_> = files.iter().map(|&(ino, _)| volume.stat(ino).atime).collect();
    assert!(written.iter().zip(&read).all(|(written, read)| written < read));
    files.iter().for_each(|&(ino, file)| volume.close(ino, file));
    volume.detach();
    let volume = world.mount();
    assert!(files.iter().zip(&read).all(|(&(ino, _), read)| volume.stat(ino).atime == *read));
}

#[test]
fn noatime_and_o_noatime_leave_the_access_time() {
    let world = World::new();
    let long_ago = Timestamp::new(1000, 0).unwrap();
    let volume = world.mount_with(FsOptions { atime: AtimeMode::Never, ..FsOptions::default() });
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"abc");
    let set = SetAttributes { atime: Some(SetTime::To(long_ago)), ..SetAttributes::default() };
    volume.setattr(ino, set).unwrap();
    assert_eq!(volume.read(ino, file, 0, 3), b"abc");
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).atime, long_ago);
    volume.detach();
    let volume = world.mount();
    let unseen = OpenFlags { no_atime: true, ..RO };
    let file = volume.open(ino, unseen);
    assert_eq!(volume.read(ino, file, 0, 3), b"abc");
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).atime, long_ago);

    volume.setattr(InodeId::ROOT, set).unwrap();
    let list = |flags| {
        let opened = run(volume.fs.opendir(&CONTEXT, InodeId::ROOT, flags)).unwrap();
        let of = cofs_fs::ListOf { cookie: 0, with_attributes: false, entries_max: 10 };
        run(volume.fs.readdir(&CONTEXT, InodeId::ROOT, opened.handle, of, &mut |_| true)).unwrap();
        (opened.keep_cache, volume.stat(InodeId::ROOT).atime)
    };
    assert_eq!(list(unseen), (true, long_ago));
    // Who may be seen must be: what the kernel has listed before would not tell of it.
    let (keep_cache, atime) = list(RO);
    assert!(!keep_cache && atime > long_ago);
}

#[test]
fn set_id_bits_go_when_another_writes_to_an_object() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 4));
    volume.setattr(ino, SetAttributes { permissions: Some(0o4755), ..SetAttributes::default() }).unwrap();
    volume.write(ino, file, 0, b"root may");
    assert_eq!(volume.stat(ino).permissions, 0o4755);
    let flags = cofs_fs::WriteFlags { kill_set_id: true, from_cache: false };
    run(volume.fs.write(ino, file.handle, 0, b"others may not", flags)).unwrap();
    assert_eq!(volume.stat(ino).permissions, 0o755);
    volume.close(ino, file);
    assert_eq!(volume.stat(ino).permissions, 0o755);
}

#[test]
fn a_handle_is_good_for_what_it_was_opened_for_and_while_it_is_open() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("a");
    volume.close(ino, file);
    assert!(matches!(volume.try_write(ino, file, 0, b"x"), Err(FsError::BadHandle)));
    let file = volume.open(ino, RO);
    assert!(matches!(volume.try_write(ino, file, 0, b"x"), Err(FsError::BadHandle)));
    volume.close(ino, file);
    let refused = run(volume.fs.open(&CONTEXT, InodeId::ROOT, RO));
    assert!(matches!(refused, Err(FsError::IsDirectory)));
    let nobody = InodeId::new(999_999).unwrap();
    assert!(matches!(run(volume.fs.open(&CONTEXT, nobody, RO)), Err(FsError::Stale)));
    assert!(matches!(volume.truncate(nobody, 1), Err(FsError::Stale)));
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let world = World::new();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, b"abc");
    volume.close(ino, file);
    volume.detach();
    let volume = world.mount_with(FsOptions { read_only: true, ..FsOptions::default() });
    let before = volume.stat(ino);
    let refused = run(volume.fs.open(&CONTEXT, ino, OpenFlags::new(AccessMode::Write)));
    assert!(matches!(refused, Err(FsError::ReadOnly)));
    assert!(matches!(volume.truncate(ino, 0), Err(FsError::ReadOnly)));
    let unlink = run(volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("a")));
    assert!(matches!(unlink, Err(FsError::ReadOnly)));
    assert_eq!(volume.contents(ino), b"abc");
    assert_eq!(volume.stat(ino), before);
}

#[test]
fn new_files_start_in_objects_where_the_last_ones_ended_large() {
    let volume = World::new().mount();
    for number in 0..3 {
        let (ino, file) = volume.create(&format!("large{number}"));
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
    }
    let (ino, file) = volume.create("next");
    assert!(!volume.is_inline(ino));
    let stat = volume.stat(ino);
    assert_eq!((stat.size_bytes, stat.mtime), (0, stat.btime));
    volume.write(ino, file, 0, b"small after all");
    volume.close(ino, file);
    assert!(volume.is_inline(ino));
    assert_eq!(volume.contents(ino), b"small after all");
    let (ino, file) = volume.create("after");
    assert!(volume.is_inline(ino), "the small one taught too");
    volume.close(ino, file);
}

#[test]
fn new_files_start_in_objects_in_directories_made_where_files_are_large() {
    let volume = World::new().mount();
    let directory = |parent, called: &str| {
        let made = run(volume.fs.make(&CONTEXT, parent, name(called), new_directory()));
        made.unwrap().attributes.ino
    };
    let huge = |parent| {
        let (ino, file) = volume.create_in(parent, "huge", WO);
        let started_large = !volume.is_inline(ino);
        volume.write(ino, file, 8 << 20, b"end");
        volume.close(ino, file);
        started_large
    };
    let first = directory(InodeId::ROOT, "first");
    assert!(!huge(first));
    assert!(huge(directory(first, "below")), "one huge file is a habit, and inherited");
    assert!(!huge(directory(InodeId::ROOT, "second")));
    assert!(huge(directory(InodeId::ROOT, "third")), "so were two directories beside it");
}

#[test]
fn a_synced_writer_leaves_nothing_unsynced() {
    let world = World::new();
    let volume = world.mount();
    let flags = OpenFlags { sync: true, ..RW };
    let (entry, file) =
        run(volume.fs.create(&CONTEXT, InodeId::ROOT, name("a"), new_file(0o600), flags)).unwrap();
    volume.write(entry.attributes.ino, file, 0, b"abc");
    assert_eq!(world.engine.unsynced_commits(), 0);
    volume.write(entry.attributes.ino, file, 0, &pattern(INLINE_MAX * 2, 3));
    assert_eq!(world.engine.unsynced_commits(), 0);
}

#[test]
fn the_hot_operations_cost_one_commit_or_none() {
    let world = World::new();
    // Access times would be commits of their own.
    let volume = world.mount_with(FsOptions { atime: AtimeMode::Never, ..FsOptions::default() });
    let (ino, file) = volume.create("warm");
    volume.close(ino, file);
    let commits = |work: &dyn Fn()| {
        // Again, if the second's tick falls into it.
        (0..5)
            .map(|_| {
                let before = world.engine.unsynced_commits();
                work();
                world.engine.unsynced_commits() - before
            })
            .min()
            .unwrap()
    };
    let number = std::cell::Cell::new(0);
    let next = || {
        number.set(number.get() + 1);
        format!("f{}", number.get())
    };
    let created = commits(&|| {
        let (ino, file) = volume.create(&next());
        volume.close(ino, file);
    });
    assert_eq!(created, 1, "create and close");
    let (ino, file) = volume.create("written");
    assert_eq!(commits(&|| volume.write(ino, file, 0, b"abc")), 1, "an inline write");
    volume.close(ino, file);
    let read = commits(&|| {
        let file = volume.open(ino, RO);
        assert_eq!(volume.read(ino, file, 0, 3), b"abc");
        volume.close(ino, file);
    });
    assert_eq!(read, 0, "open, read, close");
    let unlinked = commits(&|| {
        volume.unlink(&format!("f{}", number.get()));
        number.set(number.get() - 1);
    });
    assert_eq!(unlinked, 1, "unlink");
    assert_eq!(volume.objects_in_use(), 0);
}

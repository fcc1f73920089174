//! The three time stamps: nanoseconds, who moves which, and relatime.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, utimensat,
};

use crate::{
    ledger::deviates,
    support::{Mapping, nap, scratch},
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Time(i64, i64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Times {
    atime: Time,
    mtime: Time,
    ctime: Time,
}

fn times(path: &Path) -> Times {
    let meta = fs::symlink_metadata(path).unwrap();
    Times {
        atime: Time(meta.atime(), meta.atime_nsec()),
        mtime: Time(meta.mtime(), meta.mtime_nsec()),
        ctime: Time(meta.ctime(), meta.ctime_nsec()),
    }
}

fn set(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let spec = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec: tv_nsec as _ };
    let both = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    utimensat(CWD, path, &both, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Which of the three `work` moves forward, as letters.
fn moved(path: &Path, work: impl FnOnce()) -> String {
    let before = times(path);
    nap();
    work();
    let after = times(path);
    let letter = |name, was: Time, is: Time| {
        assert!(is >= was, "time does not go back");
        if is > was { name } else { "" }
    };
    [
        letter("a", before.atime, after.atime),
        letter("m", before.mtime, after.mtime),
        letter("c", before.ctime, after.ctime),
    ]
    .concat()
}

#[test]
fn nanoseconds_are_kept() {
    let Some(s) = scratch() else { return };
    std::os::unix::fs::symlink("nowhere", s.path("link")).unwrap();
    for path in [s.file("f", b"x"), s.file("large", &[0; 300_000]), s.dir("d", 0o755), s.path("link")] {
        for (atime, mtime) in [((1, 1), (999_999_999, 999_999_999)), ((0, 0), (2_500_000_000, 123_456_789))] {
            set(&path, atime, mtime);
            let now = times(&path);
            assert_eq!((now.atime, now.mtime), (Time(atime.0, atime.1), Time(mtime.0, mtime.1)), "{path:?}");
        }
        set(&path, (5, 5), (0, UTIME_OMIT));
        let now = times(&path);
        assert_eq!((now.atime, now.mtime), (Time(5, 5), Time(2_500_000_000, 123_456_789)));
        set(&path, (0, UTIME_OMIT), (0, UTIME_NOW));
        let now = times(&path);
        assert_eq!(now.atime, Time(5, 5));
        assert!(now.mtime.0 > 1_500_000_000 && now.mtime.0 < 2_500_000_000);
    }
    set(&s.path("f"), (-5, 7), (-2_000_000_000, 0));
    assert_eq!(times(&s.path("f")).mtime, Time(-2_000_000_000, 0), "before 1970");
}

#[test]
fn each_change_of_a_file_moves_what_it_must() {
    let Some(s) = scratch() else { return };
    for size in [100, 300_000] {
        let path = s.file(&format!("{size}"), &vec![1; size]);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(moved(&path, || file.write_all_at(b"x", 3).unwrap()), "mc", "write");
        assert_eq!(moved(&path, || file.set_len(50).unwrap()), "mc", "ftruncate");
        assert_eq!(moved(&path, || File::create(&path).map(drop).unwrap()), "mc", "O_TRUNC");
        assert_eq!(moved(&path, || file.write_all_at(&vec![1; size], 0).unwrap()), "mc", "growing write");
        assert_eq!(moved(&path, || file.set_len(size as u64).unwrap()), "mc", "ftruncate to the same size");
        let mode = PermissionsExt::from_mode(0o640);
        assert_eq!(moved(&path, || fs::set_permissions(&path, mode).unwrap()), "c", "chmod");
        assert_eq!(moved(&path, || std::os::unix::fs::chown(&path, Some(1), None).unwrap()), "c", "chown");
        let link = s.path(format!("{size}-link"));
        assert_eq!(moved(&path, || fs::hard_link(&path, &link).unwrap()), "c", "link");
        assert_eq!(moved(&path, || fs::remove_file(&link).unwrap()), "c", "unlink of another name");
        let attribute = || rustix::fs::setxattr(&path, "user.x", b"1", XattrFlags::empty()).unwrap();
        assert_eq!(moved(&path, attribute), "c", "setxattr");
        assert_eq!(moved(&path, || rustix::fs::removexattr(&path, "user.x").unwrap()), "c", "removexattr");
        let before = times(&path).ctime;
        nap();
        set(&path, (7, 7), (8, 8));
        assert!(times(&path).ctime > before, "utimensat");
    }
}

#[test]
fn a_rename_moves_the_change_time_of_the_file() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"x");
    let before = times(&path);
    nap();
    fs::rename(&path, s.path("g")).unwrap();
    let after = times(&s.path("g"));
    assert!(after.ctime > before.ctime);
    assert_eq!((after.mtime, after.atime), (before.mtime, before.atime));
}

#[test]
fn each_change_of_a_directory_moves_what_it_must() {
    let Some(s) = scratch() else { return };
    let dir = s.dir("d", 0o755);
    let other = s.dir("other", 0o755);
    assert_eq!(moved(&dir, || File::create(dir.join("f")).map(drop).unwrap()), "mc", "create");
    assert_eq!(moved(&dir, || fs::create_dir(dir.join("s")).unwrap()), "mc", "mkdir");
    assert_eq!(moved(&dir, || fs::hard_link(dir.join("f"), dir.join("l")).unwrap()), "mc", "link");
    assert_eq!(moved(&dir, || fs::remove_file(dir.join("l")).unwrap()), "mc", "unlink");
    assert_eq!(moved(&dir, || fs::rename(dir.join("f"), dir.join("g")).unwrap()), "mc", "rename inside");
    assert_eq!(moved(&dir, || fs::rename(dir.join("g"), other.join("g")).unwrap()), "mc", "rename out");
    assert_eq!(moved(&other, || fs::rename(other.join("g"), dir.join("g")).unwrap()), "mc", "and back");
    assert_eq!(moved(&dir, || fs::remove_dir(dir.join("s")).unwrap()), "mc", "rmdir");
    assert_eq!(moved(&dir, || std::os::unix::fs::symlink("x", dir.join("y")).unwrap()), "mc", "symlink");
    assert_eq!(moved(&dir, || fs::write(dir.join("g"), "more").unwrap()), "", "writing a file in it");
    assert_eq!(moved(&dir, || drop(fs::metadata(dir.join("missing")))), "", "looking for what is not there");
}

#[test]
fn a_read_moves_the_access_time_as_relatime_has_it() {
    let Some(s) = scratch() else { return };
    for size in [100, 300_000] {
        let path = s.file(&format!("{size}"), &vec![1; size]);
        nap();
        fs::write(&path, vec![2; size]).unwrap();
        assert_eq!(
            moved(&path, || drop(fs::read(&path).unwrap())),
            "a",
            "first read after a change, {size} bytes"
        );
        assert_eq!(moved(&path, || drop(fs::read(&path).unwrap())), "", "and not again");
        assert_eq!(moved(&path, || drop(fs::metadata(&path))), "", "stat reads nothing");
        // Older than a day: read again.
        let now = times(&path).mtime.0;
        set(&path, (now - 100_000, 0), (now - 200_000, 0));
        assert_eq!(moved(&path, || drop(fs::read(&path).unwrap())), "a", "after a day, {size} bytes");
    }
}

#[test]
fn listing_and_following_move_the_access_time_too() {
    let Some(s) = scratch() else { return };
    let dir = s.dir("d", 0o755);
    nap();
    File::create(dir.join("f")).unwrap();
    assert_eq!(moved(&dir, || assert_eq!(fs::read_dir(&dir).unwrap().count(), 1)), "a");
    assert_eq!(moved(&dir, || assert_eq!(fs::read_dir(&dir).unwrap().count(), 1)), "");
    let link = s.path("link");
    std::os::unix::fs::symlink("d", &link).unwrap();
    assert_eq!(moved(&link, || drop(fs::read_link(&link).unwrap())), "a");
}

#[test]
fn who_opens_without_access_times_moves_none() {
    let Some(s) = scratch() else { return };
    let (file, directory) = (s.file("f", b"x"), s.dir("d", 0o755));
    for path in [file, directory] {
        set(&path, (1_000_000_000, 0), (1_000_000_001, 0));
        let look = |flags| {
            let opened: File = rustix::fs::open(&path, flags, Mode::empty()).unwrap().into();
            if path.ends_with("d") {
                let mut buffer = vec![std::mem::MaybeUninit::uninit(); 1024];
                assert!(rustix::fs::RawDir::new(&opened, &mut buffer).next().is_some());
            } else {
                assert_eq!(opened.read_at(&mut [0], 0).unwrap(), 1);
            }
        };
        assert_eq!(moved(&path, || look(OFlags::RDONLY | OFlags::NOATIME)), "", "{path:?}");
        assert_eq!(moved(&path, || look(OFlags::RDONLY)), "a", "{path:?}");
    }
}

#[test]
fn a_write_through_a_mapping_moves_the_modification_time() {
    let Some(s) = scratch() else { return };
    for size in [5000, 300_000] {
        let path = s.file(&format!("{size}"), &vec![1; size]);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let change = || {
            let mut mapping = Mapping::new(&file, size);
            mapping.bytes()[0] = 9;
            mapping.sync();
        };
        assert!(moved(&path, change).contains("mc"), "{size} bytes");
    }
}

#[test]
fn times_do_not_change_when_the_file_is_closed_or_evicted() {
    let Some(s) = scratch() else { return };
    for size in [0, 100, 20_000, 300_000] {
        let path = s.path(format!("{size}"));
        let file = File::create(&path).unwrap();
        file.write_all_at(&vec![1; size], 0).unwrap();
        let open = times(&path);
        nap();
        drop(file);
        assert_eq!(times(&path), open, "{size} bytes, closed");
        set(&path, (1000, 1), (2000, 2));
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        drop(file);
        nap();
        crate::support::drop_caches();
        let now = times(&path);
        assert_eq!((now.atime, now.mtime), (Time(1000, 1), Time(2000, 2)), "{size} bytes, evicted");
        // Set while it is open for writing, after the last write: that is what tar and rsync do.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&vec![3; size], 0).unwrap();
        set(&path, (3000, 3), (4000, 4));
        drop(file);
        nap();
        let now = times(&path);
        assert_eq!(
            (now.atime, now.mtime),
            (Time(3000, 3), Time(4000, 4)),
            "{size} bytes, set before the close"
        );
    }
}

#[test]
fn times_that_are_set_stay_when_a_mapping_is_written_back() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", &[1; 100]);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut mapping = Mapping::new(&file, 100);
    let (atime, mtime) = ((1_000_000_000, 0), (1_000_000_000, 7));
    // Where the kernel happens to write back before the times are set, they stay in any case.
    let stayed = (0..20).all(|round| {
        mapping.bytes()[0] = round;
        set(&path, atime, mtime);
        mapping.sync();
        times(&path).mtime == Time(mtime.0, mtime.1)
    });
    assert_eq!(stayed, !deviates(&s, "times_that_are_set_stay_when_a_mapping_is_written_back"));
}

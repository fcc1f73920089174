//! Bytes: sizes on both sides of the inline bound, holes, appends, copies, direct I/O.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, seek},
    io::Errno,
};

use crate::support::{SIZES, errno, pattern, scratch};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    file.read_exact_at(&mut data, offset).unwrap();
    data
}

#[test]
fn a_file_of_any_size_reads_back() {
    let Some(s) = scratch() else { return };
    for size in SIZES {
        let data = pattern(*size as u64, *size);
        let path = s.file("f", &data);
        assert!(fs::read(&path).unwrap() == data, "{size} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len() as usize, *size);
        // XFS allots up to as much again ahead of a growing file.
        assert!(fs::metadata(&path).unwrap().blocks() * 512 <= 2 * *size as u64 + 131_072);
    }
}

/// The kernel asks for the file to be emptied before it sees that it may not be.
#[test]
fn a_program_that_runs_is_not_emptied() {
    let Some(s) = scratch() else { return };
    let path = s.path("sleep");
    fs::copy("/bin/sleep", &path).unwrap();
    let text = fs::read(&path).unwrap();
    let mut program = Command::new(&path).arg("100").spawn().unwrap();
    let emptied = || OpenOptions::new().read(true).custom_flags(OFlags::TRUNC.bits() as i32).open(&path);
    assert_eq!(errno(emptied()), Errno::TXTBSY.raw_os_error());
    assert!(fs::read(&path).unwrap() == text && program.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.wait().unwrap();
    // The kernel's last word of the program may come a little later.
    let from = Instant::now();
    while emptied().is_err() {
        assert!(from.elapsed().as_secs() < 60);
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn truncation_cuts_and_extends_with_zeros_from_any_size_to_any_size() {
    let Some(s) = scratch() else { return };
    for from in SIZES {
        for to in SIZES {
            let mut data = pattern(3, *from);
            let file = open(&s.path(format!("{from}-{to}")));
            file.write_all_at(&data, 0).unwrap();
            file.set_len(*to as u64).unwrap();
            data.resize(*to, 0);
            assert!(read_at(&file, 0, *to) == data, "{from} to {to}");
            // What was cut off must not come back.
            file.set_len((*from).max(*to) as u64 + 9).unwrap();
            data.resize((*from).max(*to) + 9, 0);
            assert!(fs::read(s.path(format!("{from}-{to}"))).unwrap() == data, "{from} to {to} and up");
            fs::remove_file(s.path(format!("{from}-{to}"))).unwrap();
        }
    }
}

#[test]
fn a_write_far_beyond_the_end_leaves_a_hole() {
    let Some(s) = scratch() else { return };
    for (start, at) in [(0, 10_000), (10, 200_000), (100_000, 5_000_000), (5, 1 << 40)] {
        let path = s.path(format!("{start}-{at}"));
        let file = open(&path);
        file.write_all_at(&vec![1; start], 0).unwrap();
        file.write_all_at(b"end", at).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), at + 3);
        assert!(meta.blocks() * 512 < 1_000_000, "{} blocks", meta.blocks());
        assert_eq!(read_at(&file, at - 5, 8), b"\0\0\0\0\0end");
        assert_eq!(read_at(&file, start as u64, 5), [0; 5]);
    }
}

#[test]
fn two_descriptors_see_the_same_file_at_once() {
    let Some(s) = scratch() else { return };
    let path = s.path("f");
    let (one, other) = (open(&path), open(&path));
    let mut size = 0;
    for (n, len) in SIZES.iter().enumerate() {
        let data = pattern(n as u64, *len);
        one.write_all_at(&data, size).unwrap();
        assert!(read_at(&other, size, *len) == data, "{len} bytes at {size}");
        size += *len as u64;
        assert_eq!(other.metadata().unwrap().len(), size);
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
    }
    other.set_len(2).unwrap();
    assert_eq!(one.metadata().unwrap().len(), 2);
    assert_eq!(one.read_at(&mut [0; 10], 0).unwrap(), 2);
    File::create(&path).unwrap();
    assert_eq!(one.metadata().unwrap().len(), 0, "O_TRUNC of another open");
}

#[test]
fn appends_from_many_descriptors_lose_nothing() {
    let Some(s) = scratch() else { return };
    let path = s.file("log", b"");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for n in 0..400 {
                    file.write_all(format!("{writer} {n:030}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1600);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 1600, "each line once");
    assert!(lines.iter().all(|line| line.len() == 32));
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    let Some(s) = scratch() else { return };
    for size in [3000, 20_000, 300_000] {
        let mut data = pattern(5, size);
        let file = open(&s.path(format!("{size}")));
        file.write_all_at(&data, 0).unwrap();
        let (third, end) = (size as u64 / 3, size as u64);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, third, third / 2).unwrap();
        data[third as usize..(third + third / 2) as usize].fill(0);
        assert!(read_at(&file, 0, size) == data, "punched {size}");
        fallocate(&file, FallocateFlags::ZERO_RANGE, end - 100, 200).unwrap();
        data[size - 100..].fill(0);
        data.resize(size + 100, 0);
        assert!(fs::read(s.path(format!("{size}"))).unwrap() == data, "zeroed {size}");
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, keep, end, 5000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), end + 100);
    }
}

#[test]
fn space_is_set_aside_with_and_without_growth() {
    let Some(s) = scratch() else { return };
    for (before, len) in [(0, 1000), (10, 60_000), (10, 3_000_000), (200_000, 400_000)] {
        let path = s.path(format!("{before}-{len}"));
        let file = open(&path);
        file.write_all_at(&vec![1; before], 0).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, len).unwrap();
        assert_eq!(file.metadata().unwrap().len() as usize, before);
        fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
        assert_eq!(file.metadata().unwrap().len(), len.max(before as u64));
        let data = fs::read(&path).unwrap();
        assert!(data[..before].iter().all(|byte| *byte == 1) && data[before..].iter().all(|byte| *byte == 0));
    }
    let file = open(&s.path("bad"));
    let empty = fallocate(&file, FallocateFlags::empty(), 0, 0);
    assert_eq!(empty.unwrap_err().raw_os_error(), libc::EINVAL);
}

#[test]
fn data_and_holes_are_found() {
    let Some(s) = scratch() else { return };
    let file = open(&s.path("f"));
    file.write_all_at(&vec![1; 65_536], 2 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
    let data = seek(&file, SeekFrom::Data(0)).unwrap();
    assert!((1..=2 << 20).contains(&data), "data at {data}");
    let hole = seek(&file, SeekFrom::Hole(2 << 20)).unwrap();
    assert!(((2 << 20) + 65_536..8 << 20).contains(&hole), "hole at {hole}");
    assert_eq!(seek(&file, SeekFrom::Hole(0)).unwrap(), 0);
    assert_eq!(seek(&file, SeekFrom::Data(8 << 20)).unwrap_err().raw_os_error(), libc::ENXIO);
    let small = File::open(s.file("small", b"some bytes")).unwrap();
    assert_eq!(seek(&small, SeekFrom::Data(3)).unwrap(), 3);
    assert_eq!(seek(&small, SeekFrom::Hole(3)).unwrap(), 10);
    assert_eq!(seek(&small, SeekFrom::Data(10)).unwrap_err().raw_os_error(), libc::ENXIO);
    assert_eq!(seek(&small, SeekFrom::Hole(11)).unwrap_err().raw_os_error(), libc::ENXIO);
    let empty = File::open(s.file("empty", b"")).unwrap();
    assert_eq!(seek(&empty, SeekFrom::Hole(0)).unwrap_err().raw_os_error(), libc::ENXIO);
}

#[test]
fn ranges_are_copied_between_files_of_any_size() {
    let Some(s) = scratch() else { return };
    for size in SIZES.iter().filter(|size| **size > 600) {
        let data = pattern(9, *size);
        let from = File::open(s.file("from", &data)).unwrap();
        let to = open(&s.path(format!("to-{size}")));
        let (mut source, mut target) = (100, 7);
        while source < *size as u64 {
            let copied = copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 1 << 20).unwrap();
            assert!(copied > 0);
        }
        assert!(read_at(&to, 7, *size - 100) == data[100..], "{size} bytes");
        assert_eq!(to.metadata().unwrap().len() as usize, *size - 93);
        let mut end = *size as u64;
        assert_eq!(copy_file_range(&from, Some(&mut end), &to, Some(&mut 0), 100).unwrap(), 0);
    }
    let file = open(&s.file("self", &pattern(1, 200_000)));
    assert_eq!(copy_file_range(&file, Some(&mut 0), &file, Some(&mut 150_000), 1000).unwrap(), 1000);
    assert_eq!(read_at(&file, 150_000, 1000), pattern(1, 1000));
    let overlapping = copy_file_range(&file, Some(&mut 0), &file, Some(&mut 500), 1000);
    assert_eq!(overlapping.unwrap_err().raw_os_error(), libc::EINVAL);
}

/// Bytes at an address that direct I/O takes.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buffer.resize(len + 4096, 0);
    let skip = buffer.as_ptr().align_offset(4096);
    &mut buffer[skip..skip + len]
}

#[test]
fn direct_and_buffered_io_see_each_other() {
    let Some(s) = scratch() else { return };
    let path = s.path("f");
    let buffered = open(&path);
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let mut buffer = Vec::new();
    for blocks in [1, 2, 4, 16, 17, 64] {
        let len = blocks * 4096;
        let data = pattern(blocks as u64, len);
        let block = aligned(&mut buffer, len);
        block.copy_from_slice(&data);
        direct.write_all_at(block, 4096).unwrap();
        assert!(read_at(&buffered, 4096, len) == data, "direct write of {len}");
        let data = pattern(99, len);
        buffered.write_all_at(&data, 4096).unwrap();
        direct.read_exact_at(block, 4096).unwrap();
        assert!(block == data, "direct read of {len}");
    }
    buffered.set_len(4096 + 100).unwrap();
    assert_eq!(direct.read_at(aligned(&mut buffer, 8192), 4096).unwrap(), 100, "up to the end");
}

#[test]
fn syncs_succeed_on_everything_that_can_be_synced() {
    let Some(s) = scratch() else { return };
    for size in [10, 500_000] {
        let path = s.path(format!("{size}"));
        let mut file = open(&path);
        file.write_all(&pattern(1, size)).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let mut now = OpenOptions::new().append(true).custom_flags(libc::O_SYNC).open(&path).unwrap();
        now.write_all(b"synced").unwrap();
    }
    let dir = File::open(s.top()).unwrap();
    dir.sync_all().unwrap();
    rustix::fs::syncfs(&dir).unwrap();
}

#[test]
fn the_mode_of_an_open_holds() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", b"0123456789");
    assert_eq!(errno(File::open(&path).unwrap().write_at(b"x", 0)), libc::EBADF);
    let write_only = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(errno(write_only.read_at(&mut [0], 0)), libc::EBADF);
    assert_eq!(errno(File::create_new(&path)), libc::EEXIST);
    assert_eq!(errno(OpenOptions::new().write(true).open(s.top())), libc::EISDIR);
    assert_eq!(errno(File::open(s.path("f/x"))), libc::ENOTDIR);
    let no_follow = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).clone();
    std::os::unix::fs::symlink("f", s.path("l")).unwrap();
    assert_eq!(errno(no_follow.open(s.path("l"))), libc::ELOOP);
    // Created without any permission, and yet writable through the descriptor that created it.
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o000).open(s.path("locked")).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(fs::metadata(s.path("locked")).unwrap().mode() & 0o7777, 0);
}

#[test]
fn files_written_at_once_by_many_threads_stay_apart() {
    let Some(s) = scratch() else { return };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let s = &s;
            scope.spawn(move || {
                for n in 0..60u64 {
                    let len = ((thread * 60 + n) * 977 % 90_000) as usize;
                    let path = s.file(&format!("{thread}-{n}"), &pattern(thread * 100 + n, len));
                    assert!(fs::read(&path).unwrap() == pattern(thread * 100 + n, len));
                    if n % 3 == 0 {
                        fs::remove_file(path).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(s.top()).unwrap().count(), 160);
}

/// One appends, others open the file, read it and close it: what write(2) has returned for is there, then and later.
#[test]
fn what_one_appends_is_seen_by_those_who_open_the_file_meanwhile() {
    const WORDS: u64 = 3000;
    let Some(s) = scratch() else { return };
    let until = Instant::now() + Duration::from_secs(2);
    for round in 0.. {
        if Instant::now() > until {
            break;
        }
        let path = s.file(&format!("{round}"), b"");
        let written = AtomicU64::new(0);
        let check = |seen: &[u8], words: u64| {
            assert!(seen.len() as u64 >= words * 8, "{} bytes of {words} words", seen.len());
            for (at, word) in seen.as_chunks::<8>().0.iter().take(words as usize).enumerate() {
                assert_eq!(u64::from_le_bytes(*word), at as u64 + 1, "of {words} words, round {round}");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while written.load(Ordering::Acquire) < WORDS {
                        let file = File::open(&path).unwrap();
                        for _ in 0..3 {
                            let words = written.load(Ordering::Acquire);
                            let mut seen = vec![0; WORDS as usize * 8];
                            let count = file.read_at(&mut seen, 0).unwrap();
                            check(&seen[..count], words);
                        }
                    }
                });
            }
            let file = open(&path);
            let mut next = 0;
            while next < WORDS {
                let some: Vec<u8> = (next..WORDS)
                    .take(1 + next as usize % 30)
                    .flat_map(|at| (at + 1).to_le_bytes())
                    .collect();
                file.write_all_at(&some, next * 8).unwrap();
                next += some.len() as u64 / 8;
                written.store(next, Ordering::Release);
            }
        });
        check(&fs::read(&path).unwrap(), WORDS);
        fs::remove_file(path).unwrap();
    }
}

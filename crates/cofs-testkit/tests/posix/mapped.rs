//! Shared mappings against reads, writes and truncation.

use std::{
    fs::{self, File, OpenOptions},
    hint::black_box,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant, SystemTime},
};

use crate::support::{Mapping, drop_caches, pattern, scratch};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_mapping_and_the_calls_see_the_same_bytes() {
    let Some(s) = scratch() else { return };
    for size in [5000, 300_000] {
        let path = s.file(&format!("{size}"), &pattern(1, size));
        let file = open(&path);
        let mut mapping = Mapping::new(&file, size);
        assert!(mapping.bytes() == pattern(1, size));
        mapping.bytes()[4097..4107].copy_from_slice(b"by mapping");
        let mut back = [0; 10];
        file.read_exact_at(&mut back, 4097).unwrap();
        assert_eq!(&back, b"by mapping");
        file.write_all_at(b"by write", 100).unwrap();
        assert_eq!(&mapping.bytes()[100..108], b"by write");
        mapping.sync();
        drop(mapping);
        drop(file);
        drop_caches();
        let mut expected = pattern(1, size);
        expected[4097..4107].copy_from_slice(b"by mapping");
        expected[100..108].copy_from_slice(b"by write");
        assert!(fs::read(&path).unwrap() == expected, "{size} bytes after eviction");
    }
}

#[test]
fn what_a_mapping_wrote_survives_the_close_without_a_sync() {
    let Some(s) = scratch() else { return };
    for size in [100, 5000, 300_000] {
        let path = s.file(&format!("{size}"), &vec![0; size]);
        let mut mapping = Mapping::new(open(&path), size);
        mapping.bytes().copy_from_slice(&pattern(2, size));
        drop(mapping);
        drop_caches();
        assert!(fs::read(&path).unwrap() == pattern(2, size), "{size} bytes");
    }
}

/// Files that were large, and become small while they are mapped.
#[test]
fn what_a_mapping_writes_long_after_the_close_is_there() {
    let Some(s) = scratch() else { return };
    for (before, size) in [(300_000, 5000), (300_000, 200_000), (5000, 100)] {
        let path = s.file(&format!("{before}-{size}"), &pattern(7, before));
        let file = open(&path);
        file.set_len(size as u64).unwrap();
        let mut mapping = Mapping::new(&file, size);
        mapping.bytes()[..5].copy_from_slice(b"first");
        drop(file);
        std::thread::sleep(Duration::from_millis(100));
        mapping.bytes()[10..14].copy_from_slice(b"late");
        mapping.sync();
        drop(mapping);
        drop_caches();
        let data = fs::read(&path).unwrap();
        assert_eq!(
            (data.len(), &data[..5], &data[10..14]),
            (size, &b"first"[..], &b"late"[..]),
            "{size} of {before}"
        );
    }
}

/// The same file by other names and other opens: what is known of its times is what the mapping has changed.
#[test]
fn what_a_mapping_stores_after_the_close_moves_the_times() {
    let Some(s) = scratch() else { return };
    for size in [5000, 300_000] {
        let path = s.file(&format!("{size}"), &pattern(9, size));
        let times = || {
            let stat = fs::metadata(&path).unwrap();
            (stat.modified().unwrap(), (stat.ctime(), stat.ctime_nsec()))
        };
        let file = open(&path);
        file.write_all_at(b"by write", 0).unwrap();
        let mut mapping = Mapping::new(&file, size);
        drop(file);
        let mut store = |byte| {
            let before = times();
            std::thread::sleep(Duration::from_millis(50));
            mapping.bytes()[1] = byte;
            mapping.sync();
            let after = times();
            assert!(before.0 < after.0 && before.1 < after.1, "{size}: {before:?}, {after:?}");
        };
        store(1);
        let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::open(&path).unwrap().set_modified(set).unwrap();
        assert_eq!(times().0, set, "{size}");
        store(2);
        drop(mapping);
        let last = times();
        drop_caches();
        assert_eq!(times(), last, "{size}");
        File::open(&path).unwrap().set_modified(set).unwrap();
        assert_eq!(times().0, set, "{size}");
    }
}

#[test]
fn what_a_mapping_wrote_past_the_end_never_shows() {
    let Some(s) = scratch() else { return };
    for size in [100, 5000, 70_000] {
        let path = s.file(&format!("{size}"), &vec![1; size]);
        let file = open(&path);
        let page = size.next_multiple_of(4096);
        let mut mapping = Mapping::new(&file, page);
        mapping.bytes()[size..].fill(0xee);
        mapping.sync();
        file.set_len(page as u64 * 2).unwrap();
        let data = fs::read(&path).unwrap();
        assert!(data[size..].iter().all(|byte| *byte == 0), "{size} bytes");
    }
}

#[test]
fn a_mapping_follows_truncation_down_and_up() {
    let Some(s) = scratch() else { return };
    for size in [20_000, 400_000] {
        let path = s.file(&format!("{size}"), &pattern(3, size));
        let file = open(&path);
        let mut mapping = Mapping::new(&file, size);
        mapping.bytes()[..10].copy_from_slice(b"0123456789");
        mapping.bytes()[size - 10..].fill(9);
        file.set_len(5).unwrap();
        file.set_len(size as u64).unwrap();
        let mut expected = vec![0; size];
        expected[..5].copy_from_slice(b"01234");
        assert!(mapping.bytes() == expected, "{size} bytes, through the mapping");
        mapping.bytes()[size - 1] = 7;
        expected[size - 1] = 7;
        assert!(fs::read(&path).unwrap() == expected, "{size} bytes, by read");
    }
}

#[test]
fn a_mapping_of_an_unlinked_file_works_on() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", &pattern(4, 10_000));
    let mut mapping = Mapping::new(open(&path), 10_000);
    fs::remove_file(&path).unwrap();
    drop_caches();
    assert!(mapping.bytes() == pattern(4, 10_000));
    mapping.bytes().fill(1);
    mapping.sync();
}

#[test]
fn a_file_grows_out_of_its_place_under_a_mapping() {
    let Some(s) = scratch() else { return };
    let path = s.file("f", &pattern(5, 4096));
    let file = open(&path);
    let mut mapping = Mapping::new(&file, 4096);
    mapping.bytes()[..4].copy_from_slice(b"once");
    file.write_all_at(&pattern(6, 500_000), 4096).unwrap();
    mapping.bytes()[4..9].copy_from_slice(b"twice");
    mapping.sync();
    drop((mapping, file));
    drop_caches();
    let data = fs::read(&path).unwrap();
    assert_eq!(&data[..9], b"oncetwice");
    assert!(data[9..4096] == pattern(5, 4096)[9..] && data[4096..] == pattern(6, 500_000));
}

/// The kernel drops pages of what was copied, with what was stored in them meanwhile.
#[test]
fn a_copy_and_stores_into_the_same_page_are_both_kept() {
    let Some(s) = scratch() else { return };
    for size in [4096, 300_000] {
        let path = s.file(&format!("{size}"), &vec![0; size]);
        let from = File::open(s.file(&format!("{size}.from"), b"a word..")).unwrap();
        let ended = AtomicBool::new(false);
        let mut mapping = Mapping::new(open(&path), 4096);
        let lost = std::thread::scope(|threads| {
            threads.spawn(|| {
                let (to, begin) = (open(&path), Instant::now());
                while begin.elapsed() < Duration::from_secs(1) {
                    let (mut at, mut there) = (0, 100);
                    rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut there), 8).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            let mut lost = Vec::new();
            for stored in 1_u64.. {
                black_box(mapping.bytes())[2048..2056].copy_from_slice(&stored.to_le_bytes());
                (0..50).for_each(|count| _ = black_box(count));
                if black_box(mapping.bytes())[2048..2056] != stored.to_le_bytes() {
                    lost.push(stored);
                }
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
            lost
        });
        assert!(lost.is_empty(), "{size}: {} stores, the first {:?}", lost.len(), lost.first());
        mapping.sync();
        assert_eq!(&fs::read(&path).unwrap()[100..108], b"a word..", "{size}");
    }
}

/// One writes a word by write(2), who has had the file from its beginning and for writing only; another stores into the same page all the time.
#[test]
fn a_write_and_stores_into_the_same_page_are_both_kept() {
    let Some(s) = scratch() else { return };
    for size in [4096, 300_000] {
        let path = s.path(format!("{size}"));
        let writer = File::create(&path).unwrap();
        writer.write_all_at(&pattern(8, size), 0).unwrap();
        let mut mapping = Mapping::new(open(&path), 4096);
        let reader = File::open(&path).unwrap();
        let word = |at| {
            let mut word = [0; 8];
            reader.read_exact_at(&mut word, at).unwrap();
            u64::from_le_bytes(word)
        };
        let ended = AtomicBool::new(false);
        let mut stored = 0_u64;
        let lost = std::thread::scope(|threads| {
            let writing = threads.spawn(|| {
                let begin = Instant::now();
                let lost = (1..).map_while(|count: u64| {
                    writer.write_all_at(&count.to_le_bytes(), 8).unwrap();
                    (begin.elapsed() < Duration::from_secs(1)).then(|| (count, word(8)))
                });
                let lost: Vec<_> = lost.filter(|(count, there)| count != there).collect();
                ended.store(true, Ordering::Relaxed);
                lost
            });
            while !ended.load(Ordering::Relaxed) {
                stored += 1;
                black_box(mapping.bytes())[2048..2056].copy_from_slice(&stored.to_le_bytes());
            }
            writing.join().unwrap()
        });
        assert!(lost.is_empty(), "{size}: {} writes, the first {:?}", lost.len(), lost.first());
        mapping.sync();
        assert_eq!(word(2048), stored, "{size}");
    }
}

/// One appends to the last page of a file, which he has mapped and changes, while another has it written back all the time.
#[test]
fn what_is_appended_to_a_page_that_is_written_back_is_kept() {
    const FILES: usize = 30;
    let Some(s) = scratch() else { return };
    for size in [10, 300_000] {
        let ended = AtomicBool::new(false);
        let lost = std::thread::scope(|threads| {
            threads.spawn(|| {
                let (top, begin) = (File::open(s.top()).unwrap(), Instant::now());
                // Where a file fails, nobody says that it is over.
                while !ended.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(60) {
                    rustix::fs::syncfs(&top).unwrap();
                }
            });
            let lost = |number: &usize| {
                let path = s.path(format!("{size}.{number}"));
                let mut open = OpenOptions::new();
                let mut file = open.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
                file.write_all_at(&vec![b'a'; size], 0).unwrap();
                if number.is_multiple_of(2) {
                    // No longer the open that it was created by.
                    drop(file);
                    file = open.open(&path).unwrap();
                }
                !append_beside_stores(&path, &file)
            };
            let lost = (0..FILES).filter(lost).count();
            ended.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, 0, "{size}: of {FILES} files");
    }
}

/// Whether all bytes that are appended to this file are there.
fn append_beside_stores(path: &Path, file: &File) -> bool {
    let size = file.metadata().unwrap().len();
    let page = size / 4096 * 4096;
    let mut mapping = Mapping::new_at(file, page, 4096);
    let mut expected = vec![b'a'; size as usize];
    for count in 0..40_u8 {
        black_box(mapping.bytes())[0] = count;
        file.write_all_at(&[b'0' + count; 10], expected.len() as u64).unwrap();
        expected.extend([b'0' + count; 10]);
    }
    expected[page as usize] = 39;
    let seen = fs::read(path).unwrap() == expected;
    drop(mapping);
    drop_caches();
    seen && fs::read(path).unwrap() == expected
}

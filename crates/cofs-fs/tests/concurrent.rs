//! Many threads on one file and on many: no bytes lost, no lock held for ever.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use cofs_fs::{FileSystem, run};
use common::*;

#[test]
fn writers_of_their_own_ranges_do_not_disturb_each_other_while_the_file_outgrows() {
    let volume = World::new().mount();
    for round in 0..20 {
        let (ino, file) = volume.create("a");
        std::thread::scope(|scope| {
            for writer in 0..4_usize {
                let volume = &volume;
                scope.spawn(move || {
                    let mine = volume.open(ino, RW);
                    for step in 0..16_usize {
                        let at = (step * 4 + writer) * 1000;
                        volume.write(ino, mine, at as u64, &[writer as u8 + 1; 1000]);
                    }
                    volume.close(ino, mine);
                });
            }
        });
        volume.close(ino, file);
        let bytes = volume.contents(ino);
        assert_eq!(bytes.len(), 64_000, "round {round}");
        for (at, block) in bytes.chunks(1000).enumerate() {
            assert!(block.iter().all(|&byte| byte == (at % 4) as u8 + 1), "round {round}, block {at}");
        }
        volume.unlink("a");
    }
}

#[test]
fn opens_closes_truncations_and_unlinks_race_without_losing_track() {
    let volume = World::new().mount();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                let sizes = [10, INLINE_MAX * 2, 0, INLINE_MAX];
                let mut step = usize::from(worker);
                while !stop.load(Ordering::Relaxed) {
                    step += 1;
                    churn(volume, worker, sizes[step % sizes.len()], step);
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
    });
    let _ = run(volume.fs.unlink(&CONTEXT, cofs_types::InodeId::ROOT, name("shared")));
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
    use cofs_metadata::MetadataDriver;
    assert_eq!(volume.fs.metadata().files(), 1);
    assert!(run(volume.fs.metadata().writing_set(None, 10)).unwrap().value.is_empty());
    assert!(run(volume.fs.metadata().unlinked_set(None, 10)).unwrap().value.is_empty());
}

/// One step on a name that all workers share. What others removed meanwhile may be gone: `Stale`, `NotFound`.
fn churn(volume: &Volume, worker: u8, size: usize, step: usize) {
    use cofs_types::{FsError, InodeId};
    let created = run(volume.fs.create(&CONTEXT, InodeId::ROOT, name("shared"), new_file(0o600), RW));
    let (entry, file) = match created {
        Ok(created) => created,
        Err(FsError::Stale | FsError::NotFound) => return,
        Err(error) => panic!("{error:?}"),
    };
    let ino = entry.attributes.ino;
    match volume.try_write(ino, file, 0, &pattern(size, worker)) {
        Ok(_) | Err(FsError::Stale) => {}
        Err(error) => panic!("{error:?}"),
    }
    match volume.truncate(ino, (size / 2) as u64) {
        Ok(_) | Err(FsError::Stale) => {}
        Err(error) => panic!("{error:?}"),
    }
    if step.is_multiple_of(3) {
        let _ = run(volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("shared")));
    }
    match run(volume.fs.release(ino, file.handle)) {
        Ok(()) | Err(FsError::Stale) => {}
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn truncation_and_writing_race_to_one_of_the_possible_ends() {
    let volume = World::new().mount();
    for round in 0..30 {
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(INLINE_MAX - 10, 1));
        std::thread::scope(|scope| {
            scope.spawn(|| volume.write(ino, file, INLINE_MAX as u64 - 10, &[2; 1000]));
            scope.spawn(|| volume.truncate(ino, 100).unwrap());
        });
        let size = volume.stat(ino).size_bytes as usize;
        let bytes = volume.read(ino, file, 0, INLINE_MAX * 2);
        assert_eq!(bytes.len(), size);
        assert_eq!(&bytes[..100], pattern(100, 1), "round {round}");
        match size {
            100 => {}
            _ => {
                assert_eq!(size, INLINE_MAX + 990);
                assert!(bytes[100..INLINE_MAX - 10].iter().all(|&byte| byte == 0));
                assert_eq!(&bytes[INLINE_MAX - 10..], [2; 1000]);
            }
        }
        volume.close(ino, file);
        assert_eq!(volume.contents(ino), bytes);
        volume.unlink("a");
    }
}

//! What stands in a journal's file and was not written there as a record.

use super::*;
use crate::embedded::intake::record::Place;

/// The newest segment of a journal that nobody has open: its file, its header, and where the next record would stand.
fn newest(world: &World) -> (fs::File, Header, Tail) {
    let slots = Intake::segments(world.directory.path());
    let (slot, _) = slots.into_iter().max_by_key(|(_, generation)| *generation).unwrap();
    let header = segment::header(world.directory.path(), slot).unwrap().unwrap();
    let segment = Segment::open(world.directory.path(), slot, header, false).unwrap();
    let found = segment.replay(drop).unwrap();
    let path = segment::path(world.directory.path(), slot);
    let file = fs::File::options().write(true).open(path).unwrap();
    (file, header, Tail { at: found.at, records: found.commits })
}

fn record(number: u32, place: Place) -> Vec<u8> {
    let head = Change::put(b"head", number.to_be_bytes().to_vec());
    let changes = [Change::put(number.to_be_bytes(), vec![1]), head];
    let mut bytes = Vec::new();
    Record::of(&changes).unwrap().at(place, |piece| bytes.extend_from_slice(piece));
    bytes
}

/// The bytes of small files stand in the journal as they are, and an earlier use of the file may have left them where the next record is looked for. All but the
/// salt can be counted.
#[test]
fn what_users_wrote_is_no_record_though_they_know_where_it_stands() {
    for knows_the_salt in [false, true] {
        let world = World::new();
        commit(&world.open(), 1);
        let (file, Header { generation, salt, .. }, Tail { at, records: index }) = newest(&world);
        assert!(salt.is_some());
        let salts =
            if knows_the_salt { vec![salt] } else { vec![None, Some(0), Some(1), Some(!salt.unwrap())] };
        for salt in salts {
            file.write_all_at(&record(2, Place { generation, index, salt }), at).unwrap();
            assert_eq!(prefix(&world.open()), 1 + u32::from(knows_the_salt));
            if knows_the_salt {
                break; // it is a record now
            }
        }
    }
}

#[test]
fn each_segment_has_a_salt_of_its_own() {
    let mut world = World::new();
    let intake = world.open();
    fill(&mut world, &intake, 1);
    drop(intake);
    let mut salts: Vec<_> = Intake::segments(world.directory.path())
        .into_iter()
        .map(|(slot, _)| segment::header(world.directory.path(), slot).unwrap().unwrap().salt.unwrap())
        .collect();
    let all = salts.len();
    salts.sort_unstable();
    salts.dedup();
    assert!(all > 2 && salts.len() == all, "{salts:?}");
}

/// Version 2 of the store had no salts.
#[test]
fn a_segment_without_a_salt_is_read_and_followed_by_one_that_has_one() {
    let world = World::new();
    let header = Header { generation: 7, previous: 0, oldest: 7, salt: None };
    let mut bytes = b"cofsjrn1".to_vec();
    for number in [7_u64, 0, 7] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.resize(64, 0);
    for index in 0..2 {
        bytes.extend(record(index as u32 + 1, Place { generation: 7, index, salt: None }));
    }
    bytes.resize(SEGMENT_BYTES as usize, 0);
    fs::write(segment::path(world.directory.path(), 0), bytes).unwrap();
    assert_eq!(segment::header(world.directory.path(), 0).unwrap(), Some(header));
    let intake = world.open();
    assert_eq!(prefix(&intake), 2);
    commit(&intake, 3);
    intake.sync(|| Ok(())).unwrap();
    drop(intake);
    assert_eq!(newest(&world).1.generation, 8);
    assert!(newest(&world).1.salt.is_some());
    assert_eq!(prefix(&world.open()), 3);
}

/// One that could not be made ready, nor be removed then, before another file was.
#[test]
fn of_two_files_that_claim_to_be_one_segment_the_one_with_records_counts() {
    for slot in [0, 9] {
        let mut world = World::new();
        let intake = world.open();
        let last = fill(&mut world, &intake, 1);
        drop(intake);
        for (_, generation) in Intake::segments(world.directory.path()) {
            let header = Header { generation, previous: generation - 1, oldest: 1, salt: None };
            let directory = tempfile::tempdir_in(world.directory.path()).unwrap();
            Segment::prepare(directory.path(), slot, header, SEGMENT_BYTES, false, None).unwrap();
            let from = segment::path(directory.path(), slot);
            // Its name comes before the others' and behind them.
            let to = if slot == 0 { SLOTS + generation as u32 } else { 90 + generation as u32 };
            fs::rename(from, segment::path(world.directory.path(), to)).unwrap();
        }
        assert_eq!(prefix(&world.open()), last);
        assert_eq!(prefix(&world.open()), last);
    }
}

#[test]
fn two_files_with_the_same_records_are_refused() {
    let world = World::new();
    commit(&world.open(), 1);
    fs::copy(segment::path(world.directory.path(), 0), segment::path(world.directory.path(), 5)).unwrap();
    let opened = world.try_open(SEGMENT_BYTES, true);
    let error = opened.err().unwrap();
    assert_eq!(error.errno, Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{error}");
}

/// A file may be of any length without anybody having written so much.
#[test]
fn what_stands_behind_the_records_is_not_read_whatever_it_claims() {
    let world = World::new();
    commit(&world.open(), 1);
    let (file, _, Tail { at, .. }) = newest(&world);
    file.set_len(8 << 40).unwrap();
    // A length that is not checked would be believed.
    file.write_all_at(&u32::MAX.to_le_bytes(), at).unwrap();
    let intake = world.open();
    assert_eq!(prefix(&intake), 1);
    commit(&intake, 2);
    drop(intake);
    assert_eq!(prefix(&world.open()), 2);
}

#[test]
fn a_record_larger_than_what_is_read_at_a_time_is_read() {
    let world = World::new();
    let intake = world.open();
    let large = |byte: u8, len: usize| Change::put([byte], vec![byte; len]);
    for (byte, len) in [(1, 40 << 20), (2, 17 << 20), (3, 100)] {
        change(&intake, &[large(byte, len)]).unwrap();
        make_ready_of(&intake);
    }
    drop(intake);
    let intake = world.open();
    for (byte, len) in [(1, 40 << 20), (2, 17 << 20), (3, 100)] {
        let value = intake.get(&[byte]).flatten().unwrap();
        assert!(value.len() == len && value.iter().all(|found| *found == byte), "{byte}");
    }
}

fn make_ready_of(intake: &Intake) {
    if intake.work.lock().spare.is_none()
        && let Some(Job::Prepare(slot, header)) = intake.next_job(|| false)
    {
        intake.prepare(slot, header).unwrap();
    }
}

//! A journal that was closed in order, and has lost something since.

use super::*;

fn open(world: &World) -> Result<Intake, EngineError> {
    world.try_open(SEGMENT_BYTES, true)
}

/// A journal of two segments, closed in order; the last commit.
fn closed(world: &mut World) -> u32 {
    let intake = world.open();
    let last = fill(world, &intake, 1);
    intake.note_end();
    last
}

#[test]
fn what_is_missing_behind_a_close_in_order_is_damage() {
    let mut world = World::new();
    let last = closed(&mut world);
    assert_eq!(prefix(&open(&world).unwrap()), last);
    let mut world = World::new();
    closed(&mut world);
    let mut refused = 0;
    for path in world.files() {
        let whole = fs::read(&path).unwrap();
        // (The ends of the two segments are further back, and of one nothing was used.)
        for at in [700, 2000, 5000, 9000] {
            if whole[at - 30..at + 30].iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, flipped).unwrap();
            let error = open(&world).err().unwrap_or_else(|| panic!("{} at {at}", path.display()));
            assert_eq!(error.errno, Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{error}");
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            refused += 1;
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(refused > 4, "{refused}");
}

/// Behind what was drained there is always another one.
#[test]
fn a_journal_that_ends_with_what_was_drained_is_damage() {
    let mut world = World::new();
    let intake = world.open();
    fill(&mut world, &intake, 1);
    world.drain(&intake);
    world.drain(&intake);
    drop(intake);
    open(&world).unwrap();
    for path in world.files() {
        let slot = path.to_str().and_then(|path| path.rsplit('-').next()?.parse().ok()).unwrap();
        let header = segment::header(world.directory.path(), slot).unwrap();
        if header.is_some_and(|header| header.generation > world.below.0) {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(!world.files().is_empty());
    let error = open(&world).err().unwrap();
    assert_eq!(error.errno, Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{error}");
}

#[test]
fn what_came_after_the_close_may_be_cut_off() {
    let mut world = World::new();
    let last = closed(&mut world);
    let intake = world.open();
    commit(&intake, last + 1);
    let slot = intake.layers.read()[0].segment.slot;
    drop(intake);
    let path = segment::path(world.directory.path(), slot);
    let mut bytes = fs::read(&path).unwrap();
    bytes[80] ^= 1;
    fs::write(path, bytes).unwrap();
    assert_eq!(prefix(&open(&world).unwrap()), last);
}

#[test]
fn a_note_that_is_not_whole_says_nothing() {
    for note in ["", "1", "1 ", "1 5", "x 5\n", "99999999999999999999 1\n", "0 9\n"] {
        let world = World::new();
        commit(&world.open(), 1);
        fs::write(world.directory.path().join("end-of-journal"), note).unwrap();
        assert_eq!(prefix(&open(&world).unwrap()), 1, "{note:?}");
    }
}

#[test]
fn a_journal_that_cannot_be_synced_notes_nothing() {
    let world = World::new();
    let intake = world.open();
    commit(&intake, 1);
    SYNC_FAILS.set(true);
    intake.note_end();
    assert_eq!(end::End::noted(world.directory.path()), None);
}

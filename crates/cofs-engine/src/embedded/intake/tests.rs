//! The journal and its recovery, without RocksDB: what counts is what is replayed.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    drain::{Job, Slot},
    *,
};
use crate::embedded::reserve;

mod damaged;
mod failing;
mod forged;
mod together;
mod waiting;

const SEGMENT_BYTES: u64 = 16 << 10;
const PAGE_BYTES: usize = 4096;

thread_local! {
    /// The files that were synced since the world looked last.
    static SYNCED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    /// The next sync fails, once, as the kernel tells once.
    static SYNC_FAILS: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn note_sync(slot: u32) -> std::io::Result<()> {
    if SYNC_FAILS.take() {
        return Err(rustix::io::Errno::IO.into());
    }
    SYNCED.with_borrow_mut(|synced| synced.push(slot));
    Ok(())
}

/// A journal in a directory of its own, with what of it is on stable storage.
struct World {
    directory: tempfile::TempDir,
    durable: BTreeMap<PathBuf, Vec<u8>>,
    /// What is below, and has been since it was put there, whatever becomes of the journal: up to that segment, and that commit.
    below: (u64, u32),
}

impl World {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), durable: BTreeMap::new(), below: (0, 0) }
    }

    fn open(&self) -> Intake {
        self.try_open(SEGMENT_BYTES, true).unwrap()
    }

    fn try_open(&self, segment_bytes: u64, may_store: bool) -> Result<Intake, EngineError> {
        let (directory, keys) = (self.directory.path(), KeyShape::default());
        Intake::open(directory, segment_bytes, may_store, keys, Arc::default(), self.below.0)
    }

    /// Has the next write fail: it goes to a file that cannot be written to. What was to be written to comes back.
    fn seal(&self, intake: &Intake) -> Arc<Layer> {
        let mut writer = intake.writer.lock();
        let layer = writer.layer.clone().unwrap();
        let Segment { slot, header, .. } = layer.segment;
        let segment = Segment::open(self.directory.path(), slot, header, false).unwrap();
        writer.layer = Some(Arc::new(Layer { segment, memtable: Arc::clone(&layer.memtable) }));
        layer
    }

    fn open_by_calls(&self) -> Intake {
        self.try_open(SEGMENT_BYTES, false).unwrap()
    }

    /// Where there is no space for another segment, as there is none for so large a one.
    fn open_without_space(&self) -> Result<Intake, EngineError> {
        self.try_open(1 << 60, true)
    }

    /// The journal's; the reserve lies beside them.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(self.directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| !file.file_name().is_some_and(|name| reserve::is_its(name) || name == END_NAME));
        files.sort();
        files
    }

    /// What was written to the files that have been synced is on stable storage now.
    fn take_synced(&mut self) {
        for slot in SYNCED.take() {
            self.harden(&segment::path(self.directory.path(), slot));
        }
    }

    fn harden(&mut self, path: &Path) {
        self.durable.insert(path.to_owned(), fs::read(path).unwrap());
    }

    /// Does the drain's work but for the draining: makes a segment ready, if one is wanted.
    fn make_ready(&mut self, intake: &Intake) {
        if intake.work.lock().spare.is_some() {
            return;
        }
        let Some(Job::Prepare(slot, header)) = intake.next_job(|| false) else { return };
        intake.prepare(slot, header).unwrap();
        self.harden_header(slot.number);
    }

    /// A file was made ready. If it is new it is on stable storage, else its header is, and what else there is to be written of it does not go with that.
    fn harden_header(&mut self, slot: u32) {
        let path = segment::path(self.directory.path(), slot);
        match self.durable.get_mut(&path) {
            Some(durable) => {
                durable[..PAGE_BYTES].copy_from_slice(&fs::read(&path).unwrap()[..PAGE_BYTES]);
            }
            None => self.harden(&path),
        }
    }

    /// Does the drain's work: the oldest segment is below from now on, and what the journal has of it on stable storage is as it was.
    fn drain(&mut self, intake: &Intake) {
        let oldest = intake.layers.read().last().cloned().unwrap();
        if let Some(Some(head)) = oldest.memtable.get(KeyHash::of(b"head"), &Rank::of(b"head")) {
            self.below.1 = number(&head);
        }
        self.below.0 = oldest.segment.header.generation;
        intake.drained(&oldest);
    }

    /// Cuts the power: of each file, any of its pages are as they were when last synced, the others as written.
    fn cut(&self, rng: &mut StdRng) {
        for path in self.files() {
            let old = self.durable.get(&path).cloned().unwrap_or_default();
            let mut bytes = fs::read(&path).unwrap();
            let share = rng.random_range(0.0..=1.0);
            for (at, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
                if rng.random_bool(share) {
                    page.fill(0);
                    let old = old.get(at * PAGE_BYTES..).unwrap_or_default();
                    let len = old.len().min(page.len());
                    page[..len].copy_from_slice(&old[..len]);
                }
            }
            fs::write(path, bytes).unwrap();
        }
    }
}

fn change(intake: &Intake, changes: &[Change]) -> Result<(), EngineError> {
    intake
        .commit(&Batch { changes: changes.to_vec(), ..Batch::default() }, |_| Ok(true))
        .map(|outcome| assert_eq!(outcome, Outcome::Committed))
}

fn commit(intake: &Intake, number: u32) {
    // Small ones and large ones in turn, of which the latter are written in pieces: before the value, it, and behind it.
    let value = vec![number as u8; 1 + number as usize * 37 % 1300];
    let put = |key: &[u8], value: Vec<u8>| Change::put(key, value);
    let numbered = put(&number.to_be_bytes(), value);
    change(intake, &[numbered, put(b"head", number.to_be_bytes().to_vec())]).unwrap();
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// The last commit, after making sure that all before it are there and none behind it.
fn prefix(intake: &Intake) -> u32 {
    prefix_over(intake, 0)
}

/// The same where all up to a commit are `below`.
fn prefix_over(intake: &Intake, below: u32) -> u32 {
    let head = intake.get(b"head").flatten().map_or(below, |bytes| number(&bytes));
    assert!(head >= below, "what is older than what is below came back: {head}, {below}");
    for number in below + 1..head + 50 {
        assert_eq!(intake.get(&number.to_be_bytes()).is_some(), number <= head, "{number} of {head}");
    }
    head
}

/// Makes commits as long as there is room for them without draining.
fn fill(world: &mut World, intake: &Intake, from: u32) -> u32 {
    let mut number = from;
    while {
        world.make_ready(intake);
        let full = intake.writer.lock().tail.at + 1500 > SEGMENT_BYTES;
        !full || intake.work.lock().spare.is_some()
    } {
        commit(intake, number);
        number += 1;
    }
    number - 1
}

#[test]
fn segments_follow_one_another_and_all_are_replayed() {
    let mut world = World::new();
    let intake = world.open();
    let last = fill(&mut world, &intake, 1);
    drop(intake);
    assert!(world.files().len() == SLOTS as usize && last > 60, "{last}");
    for _ in 0..3 {
        assert_eq!(prefix(&world.open()), last);
    }
    commit(&world.open(), last + 1);
    assert_eq!(prefix(&world.open()), last + 1);
    assert_eq!(
        prefix(&Intake::open_read_only(world.directory.path(), KeyShape::default(), 0).unwrap()),
        last + 1
    );
}

#[test]
fn a_drained_segment_is_used_again_and_replayed_no_more() {
    let mut world = World::new();
    let intake = world.open();
    let mut last = fill(&mut world, &intake, 1);
    for _ in 0..9 {
        let oldest = intake.layers.read().last().cloned().unwrap();
        intake.drained(&oldest);
        last = fill(&mut world, &intake, last + 1);
    }
    assert_eq!(world.files().len(), SLOTS as usize);
    drop(intake);
    let intake = world.open();
    assert_eq!(intake.get(b"head").flatten().as_deref(), Some(&last.to_be_bytes()[..]));
    assert_eq!(intake.get(&1_u32.to_be_bytes()), None, "what was drained is RocksDB's");
    let first = (1..=last).find(|number| intake.get(&number.to_be_bytes()).is_some()).unwrap();
    assert!((first..=last).all(|number| intake.get(&number.to_be_bytes()).is_some()));
}

#[test]
fn a_power_cut_leaves_a_prefix_that_holds_all_that_was_synced() {
    let mut rng = StdRng::seed_from_u64(1);
    let (mut lost, mut rounds_with_holes, mut gone_on, mut used_again) = (0, 0, 0, 0);
    for round in 0..200 {
        let mut world = World::new();
        let (mut number, mut synced) = (0, 0);
        // Some lives, the last of which the power cut ends.
        for _ in 0..rng.random_range(1..4) {
            let intake = world.open();
            // Of what was there before nothing need be on stable storage, but for the new segment's header and the
            // segments taken out of use.
            world.harden_header(intake.writer.lock().layer.as_ref().unwrap().segment.slot);
            for slot in segment::slots(world.directory.path()).unwrap() {
                if segment::header(world.directory.path(), slot).unwrap().is_none() {
                    world.harden(&segment::path(world.directory.path(), slot));
                }
            }
            assert_eq!(prefix_over(&intake, world.below.1), number);
            for _ in 0..rng.random_range(0..600) {
                world.make_ready(&intake);
                if intake.work.lock().spare.is_none() {
                    break;
                }
                number += 1;
                commit(&intake, number);
                if rng.random_bool(0.03) {
                    intake.sync(|| Ok(())).unwrap();
                    world.take_synced();
                    synced = number;
                }
                if rng.random_bool(0.05) && intake.layers.read().len() > 1 {
                    world.drain(&intake);
                    used_again += u32::from(world.below.0 > 4);
                }
            }
        }
        world.cut(&mut rng);
        // Where it is so, because there is no space for another segment, in the last one.
        let opened = if round % 4 > 0 { world.open_without_space().ok() } else { None };
        gone_on += u32::from(opened.is_some());
        let intake = opened.unwrap_or_else(|| world.open());
        let left = prefix_over(&intake, world.below.1);
        assert!(
            (synced.max(world.below.1)..=number).contains(&left),
            "round {round}: {left} of {number} left, {synced} synced"
        );
        lost += number - left;
        // It goes on, and what was cut off does not come back.
        commit(&intake, left + 1);
        drop(intake);
        assert_eq!(prefix_over(&world.open(), world.below.1), left + 1, "round {round}");
        rounds_with_holes += u32::from(left < number);
    }
    assert!(lost > 1000 && rounds_with_holes > 50, "too little was at stake: {lost}, {rounds_with_holes}");
    assert!(gone_on > 5 && used_again > 100, "{gone_on}, {used_again}");
}

#[test]
fn without_space_for_a_segment_lives_go_on_in_the_last() {
    let world = World::new();
    assert!(world.open_without_space().is_err());
    for number in [1, 2] {
        let intake = world.open();
        assert_eq!(prefix(&intake), number - 1);
        commit(&intake, number);
    }
    let files = world.files();
    for number in 3..30 {
        let intake = world.open_without_space().unwrap();
        assert_eq!(prefix(&intake), number - 1);
        commit(&intake, number);
    }
    assert_eq!(world.files(), files);
    let mut intake = world.open();
    assert_eq!(prefix(&intake), 29);
    commit(&intake, 30);
    drop(intake);
    intake = world.open();
    assert_eq!(prefix(&intake), 30);
}

/// What a power cut left behind a hole would follow what is written into that.
#[test]
fn what_stands_behind_the_last_record_does_not_count_when_it_is_gone_on_there() {
    let world = World::new();
    commit(&world.open(), 1);
    let intake = world.open();
    commit(&intake, 2);
    let (hole, slot) = {
        let writer = intake.writer.lock();
        (writer.tail.at, writer.layer.as_ref().unwrap().segment.slot)
    };
    for number in 3..6 {
        commit(&intake, number);
    }
    drop(intake);
    let file = fs::File::options().write(true).open(segment::path(world.directory.path(), slot)).unwrap();
    file.write_all_at(&[0xff; 64], hole).unwrap();
    let intake = world.open_without_space().unwrap();
    assert_eq!(prefix(&intake), 2);
    commit(&intake, 3);
    drop(intake);
    assert_eq!(prefix(&world.open()), 3);
}

#[test]
fn a_segment_that_was_made_ready_is_the_next_lifes() {
    let mut world = World::new();
    let intake = world.open();
    world.make_ready(&intake);
    commit(&intake, 1);
    drop(intake);
    commit(&world.open(), 2);
    assert_eq!(world.files().len(), 2);
    assert_eq!(prefix(&world.open()), 2);
}

#[test]
fn what_makes_room_and_the_first_of_a_life_have_the_rest_of_the_journal_while_space_is_short() {
    let world = World::new();
    commit(&world.open(), 1);
    let upkeep = |intake: &Intake, number: u32| {
        let changes = vec![Change::put(number.to_be_bytes(), vec![1; 100])];
        intake.commit(&Batch { changes, upkeep: true, ..Batch::default() }, |_| Ok(true))
    };
    commit(&world.open(), 2);
    for life in 0..9 {
        // As if there were no space for more than the segment that it goes on in.
        let mut intake = if life == 0 { world.open() } else { world.open_without_space().unwrap() };
        intake.segment_bytes = SEGMENT_BYTES;
        intake.change_space(&mut intake.work.lock(), |space| {
            space.failed(from_errno("draining", rustix::io::Errno::NOSPC), true, || None)
        });
        upkeep(&intake, 0).unwrap();
        let refused = (0..1000).find_map(|number| upkeep(&intake, number).err()).unwrap();
        assert!(is_full(&refused), "{refused}");
        change(&intake, &[Change::delete(b"absent")]).unwrap();
    }
}

#[test]
fn lives_that_drain_at_their_end_only_lose_nothing_and_leave_no_more_files() {
    let mut world = World::new();
    let mut number = 0;
    for life in 0..40 {
        let intake = world.open();
        world.make_ready(&intake);
        number += 1;
        commit(&intake, number);
        // Every few lives RocksDB gets what has been gathered.
        while life % 9 == 8 && intake.layers.read().len() > 1 {
            let oldest = intake.layers.read().last().cloned().unwrap();
            intake.drained(&oldest);
        }
        assert_eq!(intake.get(b"head").flatten().as_deref(), Some(&u32::to_be_bytes(number)[..]));
    }
    let intake = world.open();
    while intake.layers.read().len() > 1 {
        let oldest = intake.layers.read().last().cloned().unwrap();
        intake.drained(&oldest);
    }
    for _ in 0..9 {
        world.make_ready(&intake);
        number = fill(&mut world, &intake, number + 1);
        let oldest = intake.layers.read().last().cloned().unwrap();
        intake.drained(&oldest);
    }
    assert!(world.files().len() <= SLOTS as usize + 1, "{:?}", world.files());
    drop(intake);
    assert_eq!(world.open().get(b"head").flatten().as_deref(), Some(&u32::to_be_bytes(number)[..]));
}

#[test]
fn lives_that_end_anywhere_in_the_drains_work_leave_no_more_files() {
    let mut rng = StdRng::seed_from_u64(2);
    let mut number = 0;
    for round in 0..100 {
        let world = World::new();
        for _ in 0..12 {
            let intake = world.open();
            number += 1;
            commit(&intake, number);
            for _ in 0..rng.random_range(0..7) {
                let job = intake.job_at_once(&mut intake.work.lock());
                match job {
                    Some(Job::Prepare(slot, header)) => intake.prepare(slot, header).unwrap(),
                    Some(Job::Drain(layer)) => intake.drained(&layer),
                    _ => {}
                }
            }
            intake.leave_few_files(|_| true);
            let left = intake.layers.read().len();
            drop(intake);
            let found = recovery::read(world.directory.path(), false, KeyShape::default(), 0).unwrap();
            assert_eq!(found.layers.len(), left, "round {round}: what was drained counts");
            let files = world.files().len();
            assert!(files <= SLOTS as usize, "round {round}: {files} files");
        }
        assert_eq!(world.open().get(b"head").flatten().as_deref(), Some(&u32::to_be_bytes(number)[..]));
    }
}

#[test]
fn a_missing_segment_is_noticed() {
    let mut world = World::new();
    let intake = world.open();
    fill(&mut world, &intake, 1);
    drop(intake);
    let files = world.files();
    for victim in &files[..files.len() - 1] {
        let bytes = fs::read(victim).unwrap();
        fs::remove_file(victim).unwrap();
        let opened = world.try_open(SEGMENT_BYTES, true);
        let error = opened.err().unwrap_or_else(|| panic!("{} is not missed", victim.display()));
        assert_eq!(error.errno, Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{error}");
        fs::write(victim, bytes).unwrap();
    }
    world.open();
}

#[test]
fn a_batch_larger_than_a_segment_passes() {
    let world = World::new();
    let intake = world.open();
    let value = vec![5; 3 * SEGMENT_BYTES as usize];
    change(&intake, &[Change::put(b"large", value.clone())]).unwrap();
    drop(intake);
    assert_eq!(world.open().get(b"large").flatten().as_deref(), Some(&value[..]));
}

#[test]
fn a_failed_write_changes_nothing_and_the_next_one_may_succeed() {
    let world = World::new();
    let intake = world.open();
    commit(&intake, 1);
    let layer = world.seal(&intake);
    assert!(change(&intake, &[Change::delete(b"head")]).is_err());
    assert_eq!(prefix(&intake), 1);
    assert!(matches!(intake.health(), EngineHealth::Stuck(_)));
    intake.writer.lock().layer = Some(layer);
    commit(&intake, 2);
    assert!(matches!(intake.health(), EngineHealth::Healthy));
    drop(intake);
    assert_eq!(prefix(&world.open()), 2);
}

/// A device that is always full stands for a file system that is.
#[test]
fn a_file_that_cannot_be_made_ready_is_given_up_only_if_it_is_new() {
    for new in [true, false] {
        let world = World::new();
        let intake = world.open();
        let path = segment::path(world.directory.path(), 3);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let header = Header { generation: 2, previous: 1, oldest: 1, salt: None };
        let prepared = intake.prepare(Slot { number: 3, new }, header);
        assert_eq!(prepared.is_ok(), new);
        assert_eq!(path.symlink_metadata().is_ok(), !new, "what may still count stays");
    }
}

#[test]
fn garbage_is_no_journal() {
    let world = World::new();
    fs::write(segment::path(world.directory.path(), 0), [0xff; 100]).unwrap();
    assert!(!Intake::is_there(world.directory.path()));
    let intake = world.open();
    commit(&intake, 1);
    drop(intake);
    let file = fs::File::options().write(true).open(segment::path(world.directory.path(), 0)).unwrap();
    file.write_all_at(&[0xff; 64], 2000).unwrap();
    assert_eq!(prefix(&world.open()), 1);
}

/// Whoever stores into the journal's page then may have to wait, and must go where he may.
#[test]
fn a_journal_is_at_rest_until_the_next_commit() {
    let mut world = World::new();
    let intake = world.open();
    world.make_ready(&intake);
    assert_eq!(intake.pause(), Some(Duration::ZERO), "as it was opened");
    commit(&intake, 1);
    assert_eq!(intake.pause(), None);
    intake.tick();
    assert_eq!(intake.pause(), None, "something was committed since the last tick");
    intake.tick();
    assert_eq!(intake.pause(), Some(Duration::ZERO));
    commit(&intake, 2);
    assert_eq!(intake.pause(), None);
}

#[test]
fn the_reserve_comes_back_though_there_is_nothing_to_do() {
    let mut world = World::new();
    let intake = world.open();
    world.make_ready(&intake);
    reserve::make(world.directory.path());
    let bytes = reserve::release(world.directory.path()).unwrap();
    intake.opened_with_reserve(from_errno("opening", rustix::io::Errno::NOSPC), bytes);
    thread::scope(|scope| {
        let drain = scope.spawn(|| intake.next_job(|| false));
        let from = Instant::now();
        while intake.short.load(Ordering::Relaxed) && from.elapsed() < Duration::from_secs(60) {
            intake.changed.notify_all();
            thread::sleep(Duration::from_millis(1));
        }
        intake.work.lock().stopping = true;
        intake.changed.notify_all();
        assert!(drain.join().unwrap().is_none());
    });
    assert!(!intake.short.load(Ordering::Relaxed));
    assert_eq!(reserve::release(world.directory.path()), Some(bytes));
}

#[test]
fn files_that_are_not_needed_where_space_is_short_go_though_nothing_more_is_written() {
    let mut world = World::new();
    let intake = world.open();
    let last = fill(&mut world, &intake, 1);
    world.drain(&intake);
    world.make_ready(&intake);
    while intake.layers.read().len() > 1 {
        world.drain(&intake);
    }
    assert_eq!(world.files().len(), SLOTS as usize);
    intake.change_space(&mut intake.work.lock(), |space| {
        space.opened_with_reserve(from_errno("draining", rustix::io::Errno::NOSPC), u64::MAX);
    });
    let Some(Job::Prepare(slot, header)) = intake.next_job(|| true) else { panic!() };
    // A first attempt fails; the next is made as that one was.
    intake.work.lock().again = Some(slot);
    let Some(Job::Prepare(again, Header { generation, previous, oldest, .. })) = intake.next_job(|| true)
    else {
        panic!()
    };
    assert_eq!((again.number, generation, previous), (slot.number, header.generation, header.previous));
    assert_eq!(oldest, header.oldest);
    intake.prepare(slot, header).unwrap();
    assert!(world.files().len() <= SLOTS as usize / 2 + 2, "{:?}", world.files());
    drop(intake);
    assert_eq!(prefix_over(&world.open(), world.below.1), last);
}

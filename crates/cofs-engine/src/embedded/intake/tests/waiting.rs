//! What waits for a lull, and what for a long one.

use super::*;

#[test]
fn memory_is_given_back_in_a_long_pause() {
    let mut world = World::new();
    let intake = world.open();
    world.make_ready(&intake);
    fill(&mut world, &intake, 1);
    while intake.layers.read().len() > 1 {
        let oldest = intake.layers.read().last().cloned().unwrap();
        intake.drained(&oldest);
    }
    world.make_ready(&intake);
    assert_eq!(intake.work.lock().mapped.is_empty(), !intake.stores, "of free files");
    let memtable = Memtable::with_pool(SEGMENT_BYTES, KeyShape::default(), &intake.pool);
    memtable.apply(&[Change::put(b"key", vec![1; 100])]);
    drop(memtable);
    assert!(!intake.pool.is_empty());
    intake.work.lock().lull.pretend(Duration::from_secs(30), intake.committed.load(Ordering::Relaxed));
    thread::scope(|scope| {
        let drain = scope.spawn(|| intake.next_job(|| false));
        let from = Instant::now();
        while !intake.pool.is_empty() && from.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
        }
        intake.work.lock().stopping = true;
        intake.changed.notify_all();
        assert!(drain.join().unwrap().is_none());
    });
    assert!(intake.pool.is_empty() && intake.work.lock().mapped.is_empty());
}

#[test]
fn what_can_wait_waits_for_a_lull_as_long_as_there_is_room() {
    // Larger than a piece of a memtable's memory.
    const LARGE_BYTES: u64 = 1 << 20;
    let mut world = World::new();
    let intake = world.try_open(LARGE_BYTES, true).unwrap();
    let drains = |busy| {
        let mut work = intake.work.lock();
        work.lull.pretend_busy(busy);
        matches!(intake.job_at_once(&mut work), Some(Job::Drain(_)))
    };
    let layers = || intake.layers.read().len();
    let fill = |world: &mut World| {
        for (before, key) in std::iter::repeat(layers()).zip(0_u32..) {
            world.make_ready(&intake);
            change(&intake, &[Change::put(key.to_be_bytes(), vec![1; 16 << 10])]).unwrap();
            if layers() > before {
                return;
            }
        }
    };
    for waiting in 1..4 {
        fill(&mut world);
        world.make_ready(&intake);
        assert!(layers() == waiting + 1 && !drains(true), "{waiting}");
        let slots = std::mem::replace(&mut intake.work.lock().slots, SLOTS);
        assert!(drains(true), "there is no file for another segment");
        let mut work = intake.work.lock();
        (work.slots, work.catching_up) = (slots, false);
    }
    fill(&mut world);
    world.make_ready(&intake);
    let oldest = || intake.layers.read().last().cloned().unwrap();
    // From here on until there is a lull, however few are left.
    while layers() > 2 {
        assert!(drains(true));
        intake.drained(&oldest());
    }
    assert!(drains(true) && drains(false));
    assert!(!drains(true), "there was one");
    assert!(drains(false));
    intake.drained(&oldest());
    assert!(!drains(false), "the newest stays");
}

#[test]
fn a_segment_with_many_removals_ends_in_a_short_pause() {
    let world = World::new();
    // With room for all of them.
    let intake = world.try_open(1 << 20, true).unwrap();
    let removals: Vec<_> = (0_u32..4096).map(|key| Change::delete(key.to_be_bytes())).collect();
    let next = || {
        thread::scope(|scope| {
            let drain = scope.spawn(|| intake.next_job(|| false));
            let from = Instant::now();
            while !drain.is_finished() && from.elapsed() < Duration::from_millis(1500) {
                thread::sleep(Duration::from_millis(10));
            }
            intake.work.lock().stopping = true;
            intake.changed.notify_all();
            let job = drain.join().unwrap();
            intake.work.lock().stopping = false;
            job
        })
    };
    make_ready(&intake);
    change(&intake, &removals[1..]).unwrap();
    assert!(next().is_none(), "one too few");
    change(&intake, &removals[..1]).unwrap();
    assert!(matches!(next(), Some(Job::EndSegment)));
    intake.end_segment().unwrap();
    assert_eq!(intake.layers.read().len(), 2);
}

fn make_ready(intake: &Intake) {
    let Some(Job::Prepare(slot, header)) = intake.next_job(|| false) else { panic!() };
    intake.prepare(slot, header).unwrap();
}

//! Layers that are moved below while commits go on.

use rocksdb::{DB, Options};

use super::*;
use crate::embedded::{below::Below, intake::mover::Mover, log::InheritedLogs, records::Records};

fn below(directory: &Path) -> Below {
    let mut options = Options::default();
    options.create_if_missing(true);
    let inherited = InheritedLogs::of(directory).unwrap();
    let db = Arc::new(DB::open(&options, directory).unwrap());
    let to = (db, Arc::default(), Arc::new(Records::new(0, 0)));
    Below::new(to, directory, options, KeyShape::default(), inherited)
}

fn wait_until(happens: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while !happens() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    happens()
}

#[test]
fn while_a_layer_is_moved_segments_are_made_ready_and_it_takes_its_time_as_long_as_there_are_files() {
    let (mut world, stands) = (World::new(), tempfile::tempdir().unwrap());
    let intake = Arc::new(world.open());
    let mover = Mover::start(Arc::clone(&intake), below(stands.path())).unwrap();
    world.make_ready(&intake);
    let layers = || intake.layers.read().len();
    let mut number = 0;
    let mut commit_next = || {
        number += 1;
        commit(&intake, number);
    };
    while layers() < 2 {
        commit_next();
    }
    world.make_ready(&intake);
    let Some(Job::Drain(oldest)) = intake.job_at_once(&mut intake.work.lock()) else { panic!("it is full") };
    let below = mover.below(); // nothing can be moved
    let full = SLOTS as usize;
    thread::scope(|scope| {
        let draining = scope.spawn(|| intake.drain(&oldest, &mover));
        assert!(!mover.hurries());
        let committing = scope.spawn(|| {
            while layers() < full {
                commit_next();
            }
        });
        let all_are_used = wait_until(|| layers() == full);
        let hurries = wait_until(|| mover.hurries());
        let goes_on = !draining.is_finished();
        drop(below);
        draining.join().unwrap().unwrap();
        // Where it was not made ready before it would be now.
        world.make_ready(&intake);
        committing.join().unwrap();
        assert!(all_are_used && hurries && goes_on, "{all_are_used} {hurries} {goes_on}");
    });
    intake.drained(&oldest);
    assert_eq!(layers(), SLOTS as usize - 1);
    drop(mover);
    let db = DB::open_for_read_only(&Options::default(), stands.path(), false).unwrap();
    assert!(db.get(1_u32.to_be_bytes()).unwrap().is_some());
}

#[test]
fn who_closes_or_lacks_space_waits_for_what_is_moved() {
    let mut world = World::new();
    let intake = world.open();
    let has_time = || intake.has_time(&intake.work.lock());
    assert!(!has_time(), "no segment is ready");
    world.make_ready(&intake);
    assert!(has_time());
    intake.work.lock().stopping = true;
    assert!(!has_time());
    intake.work.lock().stopping = false;
    intake.change_space(&mut intake.work.lock(), |space| {
        let full = from_errno("writing", rustix::io::Errno::NOSPC);
        space.failed(full, false, || None);
    });
    assert!(!has_time());
}

//! Rounds of `kill -9` at random times, under load.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{judge::Outcome, volume::Volume, work::Worker};

const WORKERS: u64 = 4;

#[derive(Default, Debug)]
struct Score {
    acknowledged: u64,
    rounds_with_ops_in_flight: u64,
    done: u64,
    not_done: u64,
    in_part: u64,
}

#[test]
fn what_was_acknowledged_survives_kill_nine() {
    let Some(mut volume) = Volume::format("rounds") else { return };
    let number = |name, otherwise: u64| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (rounds, seed) = (number("COFS_TEST_ROUNDS", 15), number("COFS_TEST_SEED", 1));
    println!("seed {seed}, {rounds} rounds");
    let mut random = SmallRng::seed_from_u64(seed);
    volume.mount(None);
    let top = volume.top().to_owned();
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|n| Worker::new(top.join(format!("worker-{n}")), seed * 1000 + n)).collect();
    let mut score = Score::default();
    for round in 0..rounds {
        let patience = Duration::from_millis(random.random_range(20..500));
        run_until_killed(&mut volume, &mut workers, patience, &mut score);
        // In every other round the checker goes first, and the mount finds what it has left.
        if round % 2 == 1 {
            volume.assert_only_orphans();
        }
        volume.mount(None);
        for worker in &mut workers {
            match worker.check() {
                Outcome::Done => score.done += 1,
                Outcome::NotDone => score.not_done += 1,
                Outcome::InPart => score.in_part += 1,
                Outcome::NothingInFlight => {}
            }
        }
        assert!(volume.stop(), "round {round}: the daemon ended badly after a clean unmount");
        volume.assert_tidies_up();
        volume.mount(None);
    }
    assert!(volume.stop());
    score.acknowledged = workers.iter().map(|worker| worker.acknowledged).sum();
    println!("{score:?}, slowest mount {:?}", volume.mount_max);
    assert!(score.rounds_with_ops_in_flight * 2 > rounds, "too little was at stake");
    assert!(score.acknowledged > rounds * 20, "too little was at stake");
}

fn run_until_killed(volume: &mut Volume, workers: &mut [Worker], patience: Duration, score: &mut Score) {
    let stop = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        for worker in workers.iter_mut() {
            let stop = &stop;
            scope.spawn(move || worker.run(stop, u64::MAX));
        }
        std::thread::sleep(patience);
        let killed = Instant::now();
        volume.kill();
        stop.store(true, Ordering::Relaxed);
        killed
    });
    if workers.iter().any(|worker| worker.was_in_flight(killed)) {
        score.rounds_with_ops_in_flight += 1;
    }
    workers.iter_mut().for_each(Worker::close_all);
    volume.bury();
}

/// The same work on a directory that nobody kills: the model is right about every operation.
#[test]
fn the_model_is_right_about_the_work() {
    let Some(top) = std::env::var_os("COFS_TEST_DIR") else {
        eprintln!("SKIPPED: COFS_TEST_DIR is not set; ./test posix sets it");
        return;
    };
    let stop = AtomicBool::new(false);
    for seed in 0..5 {
        let mut worker = Worker::new(std::path::Path::new(&top).join(format!("model-{seed}")), seed);
        worker.run(&stop, 1500);
        worker.close_all();
        assert_eq!(worker.check(), Outcome::NothingInFlight);
        std::fs::remove_dir_all(&worker.top).unwrap();
    }
}

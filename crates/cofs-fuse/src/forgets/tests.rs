//! Over the null file system, whose work for a forgotten inode is the test's.

use std::sync::{
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use super::*;

#[allow(dead_code, reason = "the examples' file system, of which little is used here")]
#[path = "../../examples/null/fs.rs"]
mod fs;
#[allow(dead_code, reason = "as above")]
#[path = "../../examples/null/node.rs"]
mod node;

struct World {
    forgets: Arc<Forgets>,
    fs: Arc<fs::NullFs>,
    pool: Arc<Pool>,
}

impl World {
    /// What is left is done by `work`, in the pool.
    fn new(work: impl Fn() + Send + Sync + 'static) -> Self {
        let fs = Arc::new(fs::NullFs::new(false, work));
        Self { forgets: Arc::default(), fs, pool: Pool::new().unwrap() }
    }

    fn leave(&self, inodes: usize) {
        (0..inodes).for_each(|_| self.forgets.leave(InodeId::ROOT, &self.fs, &self.pool));
    }

    fn until_nobody_is_at_it(&self) {
        while self.forgets.0.lock().is_served {
            std::thread::yield_now();
        }
    }
}

/// Opens when the sender is dropped.
fn gate() -> (mpsc::Sender<()>, impl Fn() + Send + Sync + Clone + 'static) {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    (open, move || gate.lock().recv().unwrap_or_default())
}

#[test]
fn all_have_their_turn_whatever_panics_and_whenever_they_come() {
    let done = Arc::new(AtomicUsize::new(0));
    let counts = done.clone();
    let world = World::new(move || {
        assert!(counts.fetch_add(1, Ordering::SeqCst) != 1, "the second one: this is part of the test");
    });
    for round in 1..=3 {
        world.leave(5);
        world.until_nobody_is_at_it();
        assert_eq!(done.load(Ordering::SeqCst), 5 * round);
    }
    world.pool.close();
}

#[test]
fn what_is_too_much_is_left_to_the_end_of_the_mount() {
    let done = Arc::new(AtomicUsize::new(0));
    let (open, waits) = gate();
    let counts = done.clone();
    let world = World::new(move || {
        waits();
        counts.fetch_add(1, Ordering::SeqCst);
    });
    world.leave(1);
    while !world.forgets.0.lock().inodes.is_empty() {
        std::thread::yield_now();
    }
    world.leave(limits::FUSE_FORGETS_MAX + 100);
    assert_eq!(world.forgets.0.lock().inodes.len(), limits::FUSE_FORGETS_MAX);
    drop(open);
    world.until_nobody_is_at_it();
    assert_eq!(done.load(Ordering::SeqCst), 1 + limits::FUSE_FORGETS_MAX);
    world.pool.close();
}

#[test]
fn where_the_pool_takes_nothing_more_the_next_one_tries_again() {
    let done = Arc::new(AtomicUsize::new(0));
    let counts = done.clone();
    let world = World::new(move || {
        counts.fetch_add(1, Ordering::SeqCst);
    });
    let (open, waits) = gate();
    let waiting = Arc::new(AtomicUsize::new(0));
    let fill = || {
        let (waits, waiting) = (waits.clone(), waiting.clone());
        world.pool.take_over(Box::pin(async move {
            waiting.fetch_add(1, Ordering::SeqCst);
            waits();
        }))
    };
    // Each takes a thread before the next comes.
    while waiting.load(Ordering::SeqCst) < limits::BLOCKING_THREADS_MAX {
        let before = waiting.load(Ordering::SeqCst);
        assert!(fill().is_ok());
        while waiting.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
    while fill().is_ok() {}
    world.leave(1);
    assert!(!world.forgets.0.lock().is_served);
    drop(open);
    while waiting.load(Ordering::SeqCst) < limits::BLOCKING_THREADS_MAX + limits::BLOCKING_QUEUE_MAX {
        std::thread::yield_now();
    }
    world.leave(1);
    world.until_nobody_is_at_it();
    assert_eq!(done.load(Ordering::SeqCst), 2);
    world.pool.close();
}

//! The objects of a pool that were created ahead of need.
//!
//! Two queues, oldest first: those whose names are durable, and fresh ones whose directory has not been
//! synced yet. The durable ones are handed out first, so that after a power cut an inode's object is
//! there. Each object is in one queue once, and whoever takes it out owns it.

use std::{
    collections::VecDeque,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use cofs_types::limits::{OBJECTS_READY_MIN, OBJECTS_READY_OPEN_MAX};
use parking_lot::Mutex;

use crate::{era::Since, object_directory::ObjectDirectory, path::DirectoryNumber};

/// An object that nobody has yet.
pub struct ReadyObject {
    pub sequence: u64,
    pub directory: Arc<ObjectDirectory>,
    /// The turn of its entry in the directory.
    pub turn: u64,
    /// Open for reading and writing, and since when, if it is among the few that are kept open.
    pub file: Option<(File, Since)>,
}

#[derive(Default)]
struct Queues {
    durable: VecDeque<ReadyObject>,
    fresh: VecDeque<ReadyObject>,
    open: usize,
}

impl Queues {
    fn len(&self) -> usize {
        self.durable.len() + self.fresh.len()
    }

    fn all(&self) -> impl Iterator<Item = &ReadyObject> {
        self.durable.iter().chain(&self.fresh)
    }

    fn left(&mut self, object: Option<ReadyObject>) -> Option<ReadyObject> {
        self.open -= usize::from(object.as_ref().is_some_and(|object| object.file.is_some()));
        object
    }
}

pub struct Ready {
    queues: Mutex<Queues>,
    /// Below this many the filler is woken.
    low: AtomicUsize,
    taken: AtomicU64,
    /// Of those, how many had to be created at once.
    missed: AtomicU64,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            queues: Mutex::default(),
            low: AtomicUsize::new(OBJECTS_READY_MIN),
            taken: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }
}

impl Ready {
    /// The next object to hand out, and whether the filler should be woken.
    pub fn pop(&self) -> (Option<ReadyObject>, bool) {
        let mut queues = self.queues.lock();
        let object = queues.durable.pop_front().or_else(|| queues.fresh.pop_front());
        let object = queues.left(object);
        let wake = queues.len() < self.low.load(Ordering::Relaxed);
        drop(queues);
        self.taken.fetch_add(1, Ordering::Relaxed);
        if object.is_none() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        (object, wake)
    }

    /// Puts an object at the end. It is closed if enough are open.
    pub fn push(&self, mut object: ReadyObject) {
        let mut queues = self.queues.lock();
        let surplus = if queues.open < OBJECTS_READY_OPEN_MAX { None } else { object.file.take() };
        queues.open += usize::from(object.file.is_some());
        if object.directory.is_durable(object.turn) {
            queues.durable.push_back(object);
        } else {
            queues.fresh.push_back(object);
        }
        drop(queues);
        drop(surplus);
    }

    /// The newest object, to be removed.
    pub fn pop_newest(&self) -> Option<ReadyObject> {
        let mut queues = self.queues.lock();
        let object = queues.fresh.pop_back().or_else(|| queues.durable.pop_back());
        queues.left(object)
    }

    /// Moves what has become durable in the meantime.
    pub fn promote(&self) {
        let mut queues = self.queues.lock();
        for _ in 0..queues.fresh.len() {
            let Some(object) = queues.fresh.pop_front() else { break };
            if object.directory.is_durable(object.turn) {
                queues.durable.push_back(object);
            } else {
                queues.fresh.push_back(object);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.queues.lock().len()
    }

    pub fn has_fresh(&self) -> bool {
        !self.queues.lock().fresh.is_empty()
    }

    /// The lowest number of all.
    pub fn lowest(&self) -> Option<u64> {
        self.queues.lock().all().map(|object| object.sequence).min()
    }

    pub fn any_in(&self, directory: DirectoryNumber) -> bool {
        self.queues.lock().all().any(|object| DirectoryNumber::of(object.sequence) == directory)
    }

    pub fn set_low(&self, low: usize) {
        self.low.store(low, Ordering::Relaxed);
    }

    /// Objects taken, and of those the ones that were not ready, since the beginning.
    pub fn counts(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.missed.load(Ordering::Relaxed))
    }
}

//! What wakes a thread that has nothing to do until there is traffic.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
};

/// Rung by many, slept by one.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    asleep: AtomicBool,
    over: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Alarm {
    /// The calling thread is the one to be woken. Only one ever is.
    pub fn is_mine(&self) {
        let _ = self.sleeper.set(std::thread::current());
    }

    /// Costs no more than a look where nobody sleeps.
    pub fn ring(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.unpark();
        }
    }

    /// Returns when somebody has rung, or it is over.
    pub fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        while self.asleep.load(Ordering::Relaxed) && !self.is_over() {
            std::thread::park();
        }
    }

    /// Nobody is to sleep any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.unpark();
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn unpark(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }
}

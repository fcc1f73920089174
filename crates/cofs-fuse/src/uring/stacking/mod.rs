//! Workers that stack: while a client is busy, the worker of its CPU gives way to it, so that it stays there.
//!
//! A worker answers on the CPU that its client asked on. The scheduler sees that CPU busy (the worker runs)
//! and perhaps another idle, and wakes the client there. The next request goes to that CPU's queue, and so back
//! and forth: each request pays for waking a halted CPU, several times the request itself. But a CPU that
//! runs only `SCHED_IDLE` threads counts as idle, so that the client of such a worker stays, and goes on at once.
//!
//! `SCHED_IDLE` also means to run after everybody else, and where other programs want the CPU that is a stall. So
//! a worker is given it in bursts of traffic only, and by a watcher thread: every [`INTERVAL`] it looks at what each
//! worker has served and how long it has waited for its CPU, and [`judge`] decides. The watcher runs before
//! everybody else, for some microseconds: a guard that is kept waiting by what it guards against is none.
//!
//! Clients that have come to crowd on one CPU are spread again ([`crowd`]).
//!
//! The process's own threads in the background give way with them ([`background`]).
//!
//! Invariants: a worker is `SCHED_IDLE` only while the watcher is awake; without traffic the watcher sleeps, and
//! no timer runs; a request costs no system call and no shared cache line for all this, but for the one
//! that wakes the watcher.

mod background;
mod crowd;
mod judge;
mod watcher;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::thread::Pid;

pub(crate) use self::watcher::Watcher;
use crate::{alarm::Alarm, scheduling::Policy};

/// A worker looks whether the watcher sleeps once in so many requests.
const RING_EVERY: u64 = 64;

/// What a worker shows of itself, on cache lines of its own (two: CPUs fetch them in pairs).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Post {
    served: AtomicU64,
    /// Of those, the ones that did not come alone.
    together: AtomicU64,
    /// `None` once the worker ends: its number may then become another thread's.
    thread: Mutex<Option<Pid>>,
    alarm: Arc<Alarm>,
}

impl Post {
    /// The calling thread's.
    pub fn of_this_thread(alarm: Arc<Alarm>) -> Self {
        let thread = Mutex::new(Some(rustix::thread::gettid()));
        Self { served: AtomicU64::new(0), together: AtomicU64::new(0), thread, alarm }
    }

    /// Counts a request. Only for the worker itself.
    pub fn count(&self) {
        let served = self.served().wrapping_add(1);
        self.served.store(served, Ordering::Relaxed);
        if served.is_multiple_of(RING_EVERY) {
            self.alarm.ring();
        }
    }

    /// So many requests were there when the worker looked. Only for the worker itself.
    pub fn came(&self, requests: u64) {
        if requests > 1 {
            self.together.store(self.together().wrapping_add(requests), Ordering::Relaxed);
        }
    }

    /// Gives the worker a policy, unless it has ended. Errors: see [`Policy::give`].
    fn give(&self, policy: Policy) -> io::Result<()> {
        // Held while the number is used.
        self.thread.lock().map_or(Ok(()), |thread| policy.give(thread))
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn together(&self) -> u64 {
        self.together.load(Ordering::Relaxed)
    }

    /// The worker ends.
    pub fn leave(&self) {
        *self.thread.lock() = None;
    }
}

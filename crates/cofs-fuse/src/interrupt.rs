//! Callers who are killed while they wait for a sync, or for a look at what hangs.
//!
//! The kernel tells of any signal (INTERRUPT, once for each request), and has the caller wait on until he is answered, even one who is
//! killed. File systems of the kernel let nobody go from a sync for a signal that he survives, and programs rely on that: few expect EINTR of
//! fsync(2). So here, too, only a caller who is about to be killed is answered (EINTR, which he does not live to see), and the work goes on
//! without him. That he will be killed stands in `/proc/TID/status`: of every fatal signal the kernel makes a SIGKILL for each thread. It is
//! looked at when INTERRUPT comes, and from then on each [`INTERVAL`] as long as he waits.
//!
//! Only what borrows nothing from its request's memory, which the kernel takes back with the answer, and brings nothing that somebody
//! would have to give back, can be left like this: syncs, and looks at attributes and space.

use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread::JoinHandle,
    time::Duration,
};

use cofs_face::at_once;
use parking_lot::{Condvar, Mutex};

use crate::{
    errno::Errno,
    executor::{Pool, wake_last},
    translate::Seen,
};

const INTERVAL: Duration = Duration::from_millis(50);
/// INTERRUPTs that came before it was known that their requests wait; the latest are kept.
const EARLY_MAX: usize = 256;
/// SIGKILL in the masks of `/proc/TID/status`.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

type Outcome = Result<Seen, Errno>;
/// What can be left: it borrows nothing.
pub(crate) type Leavable = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One who waits.
#[derive(Debug, Default)]
struct Wait {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
}

impl Wait {
    /// The first word counts. To be woken: who waits.
    #[must_use]
    fn finish(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = self.state.lock();
        if state.0.is_none() {
            state.0 = Some(outcome);
        }
        state.1.take()
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Outcome> {
        let mut state = self.state.lock();
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[derive(Debug)]
struct Waiting {
    wait: Arc<Wait>,
    /// His thread.
    caller: u32,
    interrupted: bool,
}

#[derive(Debug, Default)]
struct Callers {
    /// By the request's number.
    waiting: HashMap<u64, Waiting>,
    early: VecDeque<u64>,
    closed: bool,
}

/// Who waits, and who of them has had a signal.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    callers: Mutex<Callers>,
    changed: Condvar,
}

impl Interrupts {
    /// Starts the thread that looks after them; it ends after [`Interrupts::close`].
    pub fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let interrupts = self.clone();
        std::thread::Builder::new().name("cofs-interrupt".into()).spawn(move || interrupts.run())
    }

    pub fn close(&self) {
        self.callers.lock().closed = true;
        self.changed.notify_all();
    }

    /// INTERRUPT has come for this request.
    pub fn tell(&self, unique: u64) {
        let mut callers = self.callers.lock();
        match callers.waiting.get_mut(&unique) {
            Some(waiting) => waiting.interrupted = true,
            None => {
                // Perhaps it is just being taken up; most often it is nothing that waits here.
                callers.early.push_back(unique);
                if callers.early.len() > EARLY_MAX {
                    callers.early.pop_front();
                }
                return;
            }
        }
        drop(callers);
        self.changed.notify_all();
    }

    /// What `work` comes to, or EINTR for a caller who is killed; then it is left to the pool.
    pub async fn unless_killed(
        &self,
        unique: u64,
        caller: u32,
        mut work: Leavable,
        pool: &Arc<Pool>,
    ) -> Outcome {
        // There may be nothing to wait for. Polled again it tells its next poller's waker.
        if let Poll::Ready(outcome) = at_once(|| work.as_mut().poll(&mut Context::from_waker(Waker::noop())))
        {
            return outcome;
        }
        let wait = Arc::new(Wait::default());
        let entered = self.enter(unique, caller, wait.clone());
        let tells = wait.clone();
        if let Err(work) = pool.take_over(Box::pin(async move {
            if let Some(waker) = tells.finish(work.await) {
                wake_last(waker);
            }
        })) {
            // Too many have been left already: this one cannot be.
            work.await;
        }
        let outcome = poll_fn(|cx| wait.poll(cx)).await;
        drop(entered);
        outcome
    }

    fn enter(&self, unique: u64, caller: u32, wait: Arc<Wait>) -> Entered<'_> {
        let mut callers = self.callers.lock();
        let early = callers.early.iter().position(|told| *told == unique);
        if let Some(at) = early {
            callers.early.remove(at);
            self.changed.notify_all();
        }
        callers.waiting.insert(unique, Waiting { wait, caller, interrupted: early.is_some() });
        Entered { interrupts: self, unique }
    }

    fn run(&self) {
        let mut callers = self.callers.lock();
        while !callers.closed {
            let interrupted = callers.waiting.values().filter(|waiting| waiting.interrupted);
            let interrupted: Vec<_> =
                interrupted.map(|waiting| (waiting.wait.clone(), waiting.caller)).collect();
            if interrupted.is_empty() {
                self.changed.wait(&mut callers);
                continue;
            }
            drop(callers);
            for (wait, _) in interrupted.into_iter().filter(|(_, caller)| will_be_killed(*caller)) {
                wait.finish(Err(Errno(libc::EINTR))).into_iter().for_each(Waker::wake);
            }
            callers = self.callers.lock();
            if !callers.closed {
                self.changed.wait_for(&mut callers, INTERVAL);
            }
        }
    }
}

/// Waits as long as this lives.
struct Entered<'a> {
    interrupts: &'a Interrupts,
    unique: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.interrupts.callers.lock().waiting.remove(&self.unique);
    }
}

/// Whether that thread has a SIGKILL to come. One that cannot be seen (another namespace's) has not.
fn will_be_killed(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| has_kill(&status))
}

fn has_kill(status: &str) -> bool {
    let masks = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & KILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_to_come_is_read_from_the_status_of_a_thread() {
        let status =
            |own, shared| format!("Name:\tx\nSigQ:\t0/1\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0\n");
        let none = "0000000000000000";
        assert!(!has_kill(&status(none, none)));
        assert!(has_kill(&status("0000000000000100", none)));
        assert!(has_kill(&status(none, "0000000000000100")));
        assert!(!has_kill(&status("0000000000000200", "fffffffffffffeff")));
        assert!(!has_kill("SigPnd:\tx\nSigBlk:\t0000000000000100\n"));
        assert!(!will_be_killed(std::process::id()) && !will_be_killed(0));
    }

    #[test]
    fn what_has_no_need_to_wait_is_not_left_to_anybody() {
        let (interrupts, pool) = (Interrupts::default(), Pool::new().unwrap());
        let sync: Leavable = Box::pin(async { Ok(Seen::Nothing) });
        let outcome = cofs_face::run(interrupts.unless_killed(1, 0, sync, &pool));
        assert!(matches!(outcome, Ok(Seen::Nothing)));
        pool.close();
    }

    #[test]
    fn early_word_is_kept_for_the_latest_only() {
        let interrupts = Interrupts::default();
        (0..=EARLY_MAX as u64).for_each(|unique| interrupts.tell(unique));
        drop(interrupts.enter(0, 1, Arc::default()));
        let is_interrupted = |unique| {
            let _entered = interrupts.enter(unique, 1, Arc::default());
            interrupts.callers.lock().waiting[&unique].interrupted
        };
        assert!(!is_interrupted(0) && is_interrupted(1) && !is_interrupted(1));
    }
}

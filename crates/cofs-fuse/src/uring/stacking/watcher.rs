//! The thread that watches the workers and gives them their policies.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Alarm, Post,
    background::Background,
    judge::{Judge, Sample},
};
use crate::scheduling::{Policy, WaitClock};

/// Between two looks, and so about the longest that a worker starves.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looks without a busy worker after which the watcher sleeps: 100 ms.
const QUIET_LOOKS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Watcher {
    alarm: Arc<Alarm>,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// Watches the workers at `posts`, which ring `alarm`; the threads called `background` give way with them. Errors: why they
    /// cannot stack here, in words for the report.
    pub fn start(alarm: Arc<Alarm>, posts: Vec<Arc<Post>>, background: Vec<String>) -> Result<Self, String> {
        let (tell, told) = mpsc::channel();
        let own = alarm.clone();
        let life = move || {
            let prepared = prepare(&own, posts);
            // The starter waits for this word.
            let _ = tell.send(prepared.as_ref().map(drop).map_err(String::clone));
            if let Ok(workers) = prepared {
                watch(&own, workers, Background::new(background));
            }
        };
        let thread = std::thread::Builder::new().name("cofs-fuse-watch".into()).spawn(life);
        let thread = thread.map_err(|error| format!("no thread to watch the workers: {error}"))?;
        told.recv().unwrap_or_else(|_| Err("the watcher has panicked".into()))?;
        Ok(Self { alarm, thread })
    }

    /// To be called when the workers have ended.
    pub fn join(self) {
        self.alarm.end();
        if self.thread.join().is_err() {
            tracing::error!("the watcher of the io_uring workers has panicked");
        }
    }
}

/// On the watcher's own thread. Errors: in words for the report.
fn prepare(alarm: &Alarm, posts: Vec<Arc<Post>>) -> Result<Vec<Watched>, String> {
    try_policies()?;
    let workers = posts.into_iter().map(Watched::new).collect::<io::Result<_>>();
    let workers = workers.map_err(|error| format!("the kernel does not tell how threads wait: {error}"))?;
    // Nobody else sets it.
    let _ = alarm.watcher.set(std::thread::current());
    Ok(workers)
}

/// Whether a thread may be given `SCHED_IDLE` and taken back, tried on this one; which then runs first.
fn try_policies() -> Result<(), String> {
    let this = rustix::thread::gettid();
    let words = |error: io::Error| {
        format!("a thread's policy cannot be changed both ways: {error} (it needs root, or CAP_SYS_NICE)")
    };
    if Policy::current().map_err(words)? != Policy::OTHER {
        return Err("cofs was started with a scheduling policy of its own".into());
    }
    let ways = [Policy::IDLE, Policy::OTHER, Policy::FIRST];
    ways.into_iter().try_for_each(|policy| policy.give(this)).map_err(words)
}

/// The watcher's life.
fn watch(alarm: &Alarm, mut workers: Vec<Watched>, mut background: Background) {
    let mut last = Instant::now();
    while !alarm.is_over() {
        alarm.sleep();
        let mut quiet_looks = 0;
        while quiet_looks < QUIET_LOOKS && !alarm.is_over() {
            std::thread::sleep(INTERVAL);
            let now = Instant::now();
            let elapsed = now - std::mem::replace(&mut last, now);
            quiet_looks = if look_at_all(&mut workers, elapsed) { 0 } else { quiet_looks + 1 };
            background.give_way(workers.iter().any(|worker| worker.stacks));
        }
        background.give_way(false);
    }
}

/// Whether any of them is busy. One that cannot be watched is unstacked, and not looked at again.
fn look_at_all(workers: &mut Vec<Watched>, elapsed: Duration) -> bool {
    let mut busy = false;
    workers.retain_mut(|worker| match worker.look(elapsed) {
        Ok(is_busy) => {
            busy |= is_busy;
            true
        }
        Err(error) => {
            tracing::error!(%error, "an io_uring worker no longer stacks on its clients' CPU");
            worker.unstack();
            false
        }
    });
    busy
}

/// A worker under the watcher's eyes.
struct Watched {
    post: Arc<Post>,
    clock: WaitClock,
    served: u64,
    judge: Judge,
    stacks: bool,
}

impl Watched {
    fn new(post: Arc<Post>) -> io::Result<Self> {
        let thread = post.thread.lock().ok_or_else(|| io::Error::other("a worker has ended"))?;
        let (clock, served) = (WaitClock::open(thread)?, post.served());
        Ok(Self { post, clock, served, judge: Judge::default(), stacks: false })
    }

    /// Judges what it did since the last look, and gives it its policy. Whether it is busy.
    fn look(&mut self, elapsed: Duration) -> io::Result<bool> {
        // Held while the number is used.
        let post = self.post.clone();
        let thread = post.thread.lock();
        let Some(thread) = *thread else { return Ok(false) };
        let total = self.post.served();
        let served = total.wrapping_sub(std::mem::replace(&mut self.served, total));
        let sample = Sample { elapsed, served, waited: self.clock.lap()? };
        let stacks = self.judge.judge(&sample);
        if stacks != self.stacks {
            tracing::debug!(thread = thread.as_raw_pid(), stacks, ?sample, "stacking");
            let policy = if stacks { Policy::IDLE } else { Policy::OTHER };
            policy.give(thread)?;
            self.stacks = stacks;
        }
        Ok(sample.is_busy())
    }

    fn unstack(&self) {
        if let Some(thread) = *self.post.thread.lock()
            && let Err(error) = Policy::OTHER.give(thread)
        {
            tracing::error!(%error, "an io_uring worker stays at SCHED_IDLE");
        }
    }
}

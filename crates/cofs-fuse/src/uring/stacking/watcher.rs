//! The thread that watches the workers and gives them their policies.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Post,
    background::{Background, Ran},
    crowd::Crowd,
    judge::{Judge, Sample},
};
use crate::{
    alarm::Alarm,
    scheduling::{Policy, ThreadClock},
};

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
    /// Watches the workers at `posts`, those of a CPU together, with its number, which ring `alarm`; the threads called `background` give way with
    /// them. Errors: why they cannot stack here, in words for the report.
    pub fn start(
        alarm: Arc<Alarm>,
        posts: impl IntoIterator<Item = (usize, Vec<Arc<Post>>)>,
        background: Vec<String>,
    ) -> Result<Self, String> {
        let (tell, told) = mpsc::channel();
        let own = alarm.clone();
        let posts: Vec<_> = posts.into_iter().collect();
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
fn prepare(alarm: &Alarm, posts: Vec<(usize, Vec<Arc<Post>>)>) -> Result<Vec<Watched>, String> {
    try_policies()?;
    let workers = posts.into_iter().map(|(cpu, posts)| Watched::new(cpu, posts)).collect::<io::Result<_>>();
    let workers = workers.map_err(|error| format!("the kernel does not tell how threads wait: {error}"))?;
    alarm.is_mine();
    Ok(workers)
}

/// Whether a thread may be given `SCHED_IDLE` and taken back, tried on this one; which then runs first.
fn try_policies() -> Result<(), String> {
    let this = rustix::thread::gettid();
    let words = |error: io::Error| {
        format!("a thread's policy cannot be changed both ways: {error} (it needs root, or CAP_SYS_NICE)")
    };
    if Policy::current().map_err(words)? != Policy::OTHER {
        return Err("this process was started with a scheduling policy of its own".into());
    }
    let ways = [Policy::IDLE, Policy::OTHER, Policy::FIRST];
    ways.into_iter().try_for_each(|policy| policy.give(this)).map_err(words)
}

/// The watcher's life.
fn watch(alarm: &Alarm, mut crews: Vec<Watched>, mut background: Background) {
    let (mut last, mut crowd) = (Instant::now(), Crowd::default());
    while !alarm.is_over() {
        alarm.sleep();
        let mut quiet_looks = 0;
        while quiet_looks < QUIET_LOOKS && !alarm.is_over() {
            std::thread::sleep(INTERVAL);
            let now = Instant::now();
            let elapsed = now - std::mem::replace(&mut last, now);
            quiet_looks = if look_at_all(&mut crews, &mut crowd, elapsed, &background.look()) {
                0
            } else {
                quiet_looks + 1
            };
            background.give_way(crews.iter().any(|crew| crew.stacks));
        }
        background.give_way(false);
    }
}

/// Whether any of them is busy, where the background has run `ours`. One that cannot be watched is unstacked, and not looked at again.
fn look_at_all(crews: &mut Vec<Watched>, crowd: &mut Crowd, elapsed: Duration, ours: &[Ran]) -> bool {
    keep_watched(crews, |crew| crew.look(elapsed, ours));
    let spreads = crowd.spreads(elapsed, crews.iter().map(|crew| &crew.sample));
    keep_watched(crews, |crew| crew.decide(spreads));
    crews.iter().any(|crew| crew.sample.is_busy())
}

fn keep_watched(crews: &mut Vec<Watched>, mut watch: impl FnMut(&mut Watched) -> io::Result<()>) {
    crews.retain_mut(|crew| match watch(crew) {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "an io_uring worker no longer stacks on its clients' CPU");
            crew.unstack();
            false
        }
    });
}

/// The workers of a CPU, under the watcher's eyes: one, or a crew. They stack together, as whoever serves next may be any of them.
struct Watched {
    cpu: usize,
    hands: Vec<Hand>,
    /// What the background has run here since one of them was last seen running: they may be waiting for that.
    own_work: Duration,
    /// What was seen of them last.
    sample: Sample,
    judge: Judge,
    stacks: bool,
}

struct Hand {
    post: Arc<Post>,
    clock: ThreadClock,
    served: u64,
    together: u64,
}

impl Watched {
    fn new(cpu: usize, posts: Vec<Arc<Post>>) -> io::Result<Self> {
        let hands = posts.into_iter().map(Hand::new).collect::<io::Result<_>>()?;
        let (own_work, sample, judge) = Default::default();
        Ok(Self { cpu, hands, own_work, sample, judge, stacks: false })
    }

    /// Takes up what they did since the last look.
    fn look(&mut self, elapsed: Duration, ours: &[Ran]) -> io::Result<()> {
        self.own_work += ours.iter().filter(|ran| ran.cpu == self.cpu).map(|ran| ran.time).sum::<Duration>();
        let mut sample = Sample { elapsed, ..Sample::default() };
        for hand in &mut self.hands {
            hand.add_to(&mut sample)?;
        }
        if sample.served > 0 {
            sample.own_work = std::mem::take(&mut self.own_work);
        }
        self.sample = sample;
        Ok(())
    }

    /// Judges what they did, and gives them their policy. `spreads`: crowded ones are to spread their clients.
    fn decide(&mut self, spreads: bool) -> io::Result<()> {
        let sample = &self.sample;
        let stacks = self.judge.judge(sample) && !(spreads && sample.is_crowded());
        if stacks != self.stacks {
            tracing::debug!(workers = self.hands.len(), stacks, ?sample, "stacking");
            let policy = if stacks { Policy::IDLE } else { Policy::OTHER };
            self.hands.iter().try_for_each(|hand| hand.post.give(policy))?;
            self.stacks = stacks;
        }
        Ok(())
    }

    fn unstack(&self) {
        for hand in &self.hands {
            if let Err(error) = hand.post.give(Policy::OTHER) {
                tracing::error!(%error, "an io_uring worker stays at SCHED_IDLE");
            }
        }
    }
}

impl Hand {
    fn new(post: Arc<Post>) -> io::Result<Self> {
        let thread = post.thread.lock().ok_or_else(|| io::Error::other("a worker has ended"))?;
        let (clock, served, together) = (ThreadClock::open(thread)?, post.served(), post.together());
        Ok(Self { post, clock, served, together })
    }

    /// What it did since the last look. Who has served nothing has not run, so that no wait of his has ended.
    fn add_to(&mut self, sample: &mut Sample) -> io::Result<()> {
        let total = self.post.served();
        let served = total.wrapping_sub(std::mem::replace(&mut self.served, total));
        let together = self.post.together();
        let came_together = together.wrapping_sub(std::mem::replace(&mut self.together, together));
        // Held while the clock is read.
        let thread = self.post.thread.lock();
        if served > 0 && thread.is_some() {
            sample.served += served;
            sample.together += came_together;
            sample.waited += self.clock.lap()?.waited;
        }
        Ok(())
    }
}

//! The process's own work in the background (making tables, filling pools), which must not starve a stacked worker.
//!
//! An ordinary thread that works for a hundred milliseconds on a stacked worker's CPU keeps it waiting for as long: the guard
//! would unstack it and then bar it from stacking. So these threads are `SCHED_IDLE` too while any worker stacks; among
//! such threads the worker, which runs for microseconds, comes first in the long run. They starve only where the workers do, and then
//! the guard takes all of them back.
//!
//! In the short run the one that has the CPU keeps it: among `SCHED_IDLE` threads none is preempted when another wakes up, so that a worker waits until the
//! next tick, up to four milliseconds. That is no starvation, as it is soon over. So the guard is told what these threads have run, and where.

use std::{io, time::Duration};

use rustix::thread::{Pid, RawPid};

use crate::scheduling::{Policy, ThreadClock, ThreadPlace};

/// What runs shorter than this between two looks keeps nobody waiting to speak of.
const SHORT: Duration = Duration::from_micros(200);

/// Threads of this process, by their names. They live as long as the watcher; others may come meanwhile.
#[derive(Debug)]
pub(super) struct Background {
    names: Vec<String>,
    gives_way: bool,
    /// Those that were found when they began to give way.
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    clock: ThreadClock,
    place: ThreadPlace,
    /// Where it was seen last.
    cpu: usize,
}

/// What a thread of the background has run since the last look, on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ran {
    pub cpu: usize,
    pub time: Duration,
}

impl Background {
    pub fn new(names: Vec<String>) -> Self {
        Self { names, gives_way: false, threads: Vec::new() }
    }

    /// What they have run since the last look, those that have begun to give way. One that has moved meanwhile may have run it on either CPU, and
    /// is told of twice.
    pub fn look(&mut self) -> Vec<Ran> {
        let mut all = Vec::new();
        // One that is gone is found no more.
        self.threads.retain_mut(|thread| thread.look(&mut all).is_ok());
        all
    }

    /// They give way from now on, or no longer do. A thread that one of them has started meanwhile has its policy, and is found
    /// at the next change.
    pub fn give_way(&mut self, gives_way: bool) {
        if self.names.is_empty() || std::mem::replace(&mut self.gives_way, gives_way) == gives_way {
            return;
        }
        let policy = if gives_way { Policy::IDLE } else { Policy::OTHER };
        let found = threads(&self.names);
        for thread in &found {
            // One that is gone needs nothing; the watcher has tried both ways on itself.
            let _ = policy.give(*thread);
        }
        if gives_way {
            self.threads = found.into_iter().filter_map(|thread| Thread::open(thread).ok()).collect();
        }
    }
}

impl Thread {
    fn open(thread: Pid) -> io::Result<Self> {
        let (clock, place) = (ThreadClock::open(thread)?, ThreadPlace::open(thread)?);
        let cpu = place.cpu()?;
        Ok(Self { clock, place, cpu })
    }

    fn look(&mut self, all: &mut Vec<Ran>) -> io::Result<()> {
        let time = self.clock.lap()?.ran;
        if time < SHORT {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.cpu, self.place.cpu()?);
        all.push(Ran { cpu: self.cpu, time });
        if before != self.cpu {
            all.push(Ran { cpu: before, time });
        }
        Ok(())
    }
}

/// The threads of this process that have one of the names.
fn threads(names: &[String]) -> Vec<Pid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let named = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let thread = task.file_name().to_str()?.parse::<RawPid>().ok()?;
        names.iter().any(|wanted| wanted == name.trim_end()).then(|| Pid::from_raw(thread))?
    };
    tasks.flatten().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    fn policy_of(thread: Pid) -> i32 {
        // SAFETY: no memory is involved.
        unsafe { libc::sched_getscheduler(thread.as_raw_pid()) }
    }

    #[test]
    fn what_they_run_is_told_with_the_cpu() {
        let this = rustix::thread::gettid();
        if Policy::IDLE.give(this).and_then(|()| Policy::OTHER.give(this)).is_err() {
            return; // not permitted here; then nobody stacks either
        }
        let (work, wanted) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let life = move || {
            tell.send(0).unwrap();
            for time in wanted {
                // Its own time: it may get little of a busy machine's.
                let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
                let until = now() + time;
                while now() < until {
                    std::hint::spin_loop();
                }
                tell.send(rustix::thread::sched_getcpu()).unwrap();
            }
        };
        let thread = std::thread::Builder::new().name("test-busy".into()).spawn(life).unwrap();
        let mut background = Background::new(vec!["test-busy".into()]);
        told.recv().unwrap();
        assert_eq!(background.look(), [], "before anybody gives way");
        background.give_way(true);
        for _ in 0..3 {
            // At rest, so that all that it has run is counted.
            let mut run = |time| {
                work.send(time).unwrap();
                let cpu = told.recv().unwrap();
                std::thread::sleep(Duration::from_millis(20));
                (cpu, background.look())
            };
            let (cpu, ran) = run(Duration::from_millis(20));
            assert!(ran.iter().any(|ran| ran.cpu == cpu), "{ran:?}, {cpu}");
            assert!(ran.iter().all(|ran| ran.time.as_millis().abs_diff(20) < 5), "{ran:?}");
            assert_eq!(run(Duration::ZERO).1, []);
        }
        drop(work);
        thread.join().unwrap();
        assert_eq!((background.look(), background.threads.len()), (vec![], 0));
    }

    #[test]
    fn threads_of_these_names_give_way_and_come_back_and_no_others() {
        if Policy::IDLE
            .give(rustix::thread::gettid())
            .and_then(|()| Policy::OTHER.give(rustix::thread::gettid()))
            .is_err()
        {
            return; // not permitted here; then nobody stacks either
        }
        let live = |name: &str| {
            let (tell, told) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let life = move || {
                let _ = tell.send(rustix::thread::gettid());
                let _ = ended.recv();
            };
            let thread = std::thread::Builder::new().name(name.into()).spawn(life).unwrap();
            (told.recv().unwrap(), end, thread)
        };
        let (ours, others) = (live("test-background"), live("test-foreground"));
        let mut background = Background::new(vec!["test-background".into()]);
        for (gives_way, expected) in [
            (false, libc::SCHED_OTHER),
            (true, libc::SCHED_IDLE),
            (true, libc::SCHED_IDLE),
            (false, libc::SCHED_OTHER),
        ] {
            background.give_way(gives_way);
            assert_eq!(policy_of(ours.0), expected);
            assert_eq!(policy_of(others.0), libc::SCHED_OTHER);
        }
        for (_, end, thread) in [ours, others] {
            drop(end);
            thread.join().unwrap();
        }
    }
}

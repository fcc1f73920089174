//! The process's own work in the background (making tables, filling pools), which must not starve a stacked worker.
//!
//! An ordinary thread that works for a hundred milliseconds on a stacked worker's CPU keeps it waiting for as long: the guard
//! would unstack it and then bar it from stacking. So these threads are `SCHED_IDLE` too while any worker stacks; among
//! such threads the worker, which runs for microseconds, comes first. They starve only where the workers do, and then
//! the guard takes all of them back.

use rustix::thread::{Pid, RawPid};

use crate::scheduling::Policy;

/// Threads of this process, by their names. They live as long as the watcher; others may come meanwhile.
#[derive(Debug)]
pub(super) struct Background {
    names: Vec<String>,
    gives_way: bool,
}

impl Background {
    pub fn new(names: Vec<String>) -> Self {
        Self { names, gives_way: false }
    }

    /// They give way from now on, or no longer do. A thread that one of them has started meanwhile has its policy, and is found
    /// at the next change.
    pub fn give_way(&mut self, gives_way: bool) {
        if self.names.is_empty() || std::mem::replace(&mut self.gives_way, gives_way) == gives_way {
            return;
        }
        let policy = if gives_way { Policy::IDLE } else { Policy::OTHER };
        for thread in threads(&self.names) {
            // One that is gone needs nothing; the watcher has tried both ways on itself.
            let _ = policy.give(thread);
        }
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

    use super::*;

    fn policy_of(thread: Pid) -> i32 {
        // SAFETY: no memory is involved.
        unsafe { libc::sched_getscheduler(thread.as_raw_pid()) }
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

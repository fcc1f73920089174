//! Waiting for a machine that has nothing to do: what a file system puts off, and does when there is time, is not to be done at another's cost.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

const LOOK: Duration = Duration::from_millis(100);
/// In a row, so that what waits for a quiet moment itself has begun.
const QUIET_LOOKS: u32 = 3;
/// Others may have the machine.
const LONGEST: Duration = Duration::from_secs(3);
/// Of all processors.
const BUSY_MAX: f64 = 0.1;

/// Returns when the processors have had little to do for a while, or after three seconds.
pub fn rest() {
    let until = Instant::now() + LONGEST;
    let mut before = Ticks::now();
    let mut quiet_looks = 0;
    while quiet_looks < QUIET_LOOKS && Instant::now() < until {
        sleep(LOOK);
        let now = Ticks::now();
        let quiet = matches!((before, now), (Some(before), Some(now)) if now.busy_since(before) <= BUSY_MAX);
        quiet_looks = if quiet { quiet_looks + 1 } else { 0 };
        before = now;
    }
}

/// Of all processors, since the machine was started.
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    /// `None` where that cannot be told.
    fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// See proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are counted among the first two.
    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|field| field.parse().ok()).collect();
        let ticks = ticks?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { all: ticks.iter().sum(), idle })
    }

    fn busy_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle).min(all);
        if all == 0 { 0.0 } else { (all - idle) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_busy() {
        let before = Ticks::of("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1").unwrap();
        let after = Ticks::of("cpu  110 5 115 760 110 0 0 0 60 0\n").unwrap();
        assert!((after.busy_since(before) - 0.3).abs() < 1e-9);
        assert!(before.busy_since(before).abs() < 1e-9);
        assert!(Ticks::of("").is_none() && Ticks::of("cpu  1 2 3\n").is_none());
        assert!(Ticks::now().is_some());
    }

    #[test]
    fn it_ends() {
        let from = Instant::now();
        rest();
        assert!(from.elapsed() >= QUIET_LOOKS * LOOK);
    }
}

//! When there is time for what can wait: the drain's work costs those who commit a tenth of their rate where they have all processors busy, and
//! most bursts are over before the journal is full.
//!
//! This process has time when its threads, but for the one that asks, use little of the processors; what others do there is not its business. And it has
//! time when nothing has been committed for a while, however much is read.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Over so much time it is seen what is used.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A pause of the commits.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// Of one processor: a part of so many.
const LITTLE_PART: u32 = 5;

pub(super) struct Lull {
    looked: Instant,
    /// Of the processors, until then, by the threads of this process but for the one that asks.
    used: Duration,
    little: bool,
    committed: u64,
    /// Nothing has been committed since.
    since: Instant,
}

impl Default for Lull {
    fn default() -> Self {
        let now = Instant::now();
        Self { looked: now, used: used_by_others(), little: true, committed: 0, since: now }
    }
}

impl Lull {
    /// To be called by one thread, now and then. `committed`: how many commits there have been.
    pub(super) fn look(&mut self, committed: u64) {
        self.look_at(Instant::now(), committed, used_by_others);
    }

    fn look_at(&mut self, now: Instant, committed: u64, used: impl FnOnce() -> Duration) {
        if committed != self.committed {
            (self.committed, self.since) = (committed, now);
        }
        let time = now.saturating_duration_since(self.looked);
        if time >= LOOK {
            let used = used();
            // Of more time it says too little of how it is now.
            self.little = time < LOOK * 2 && used.saturating_sub(self.used) * LITTLE_PART <= time;
            (self.looked, self.used) = (now, used);
        }
    }

    pub(super) fn is_now(&self) -> bool {
        self.little || self.is_pause()
    }

    /// Whether nothing has been committed for [`PAUSE`].
    pub(super) fn is_pause(&self) -> bool {
        self.quiet() >= PAUSE
    }

    /// How long nothing had been committed at the last look.
    pub(super) fn quiet(&self) -> Duration {
        self.looked.saturating_duration_since(self.since)
    }

    /// As if nothing had been committed for so long, and then so many times.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, quiet: Duration, committed: u64) {
        self.since = self.since.checked_sub(quiet).unwrap_or(self.since);
        self.committed = committed;
    }

    /// As if this process had been busy at the last look, or not.
    #[cfg(test)]
    pub(super) fn pretend_busy(&mut self, busy: bool) {
        self.little = !busy;
    }
}

/// Zero where that cannot be told.
fn used_by_others() -> Duration {
    let used = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    used(ClockId::ProcessCPUTime).saturating_sub(used(ClockId::ThreadCPUTime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lull_is_when_little_is_used_or_nothing_committed() {
        let begin = Instant::now();
        let mut lull = Lull { looked: begin, used: Duration::ZERO, little: true, committed: 0, since: begin };
        let mut look = |now_ms: u64, committed, used_ms: u64| {
            let used = || Duration::from_millis(used_ms);
            lull.look_at(begin + Duration::from_millis(now_ms), committed, used);
            (lull.is_now(), lull.is_pause())
        };
        assert_eq!(look(50, 1, 50), (true, false), "too early to say");
        assert_eq!(look(100, 2, 100), (false, false));
        assert_eq!(look(150, 3, 100), (false, false));
        assert_eq!(look(200, 3, 120), (true, false), "a fifth of one");
        assert_eq!(look(1000, 3, 120), (false, false), "what it was for long says nothing of now");
        assert_eq!(look(1100, 3, 120), (true, false));
        assert_eq!(look(2050, 3, 900), (false, false));
        assert_eq!(look(2150, 3, 1000), (true, true), "two seconds after the third");
        assert_eq!(look(2250, 4, 1100), (false, false));
    }
}

//! How fast the directory below takes what is written: whether the thread that received a write may wait for it.
//!
//! A local file system copies the bytes into its cache, which takes less time than the way to a thread that may wait and
//! back (`docs/measured.md`: a large file is written half as fast again). But now and then it makes
//! the writer wait: for its journal, or because more is dirty than the disk can take. So the first write that takes long
//! sends those that follow to the other threads, until none has taken long for a while.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Longer than this is long: what all others on this CPU may have to wait, once.
const LONG: Duration = Duration::from_millis(3);
const WHILE: Duration = Duration::from_secs(2);

pub(crate) struct Pace {
    origin: Instant,
    /// Slow until then, in milliseconds since the origin.
    slow_until_ms: AtomicU64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), slow_until_ms: AtomicU64::new(0) }
    }

    /// Whether writes return at once now, as far as is known.
    pub(crate) fn is_brisk(&self, now: Instant) -> bool {
        self.ms(now) >= self.slow_until_ms.load(Ordering::Relaxed)
    }

    /// A write began at `begin` and has returned at `now`.
    pub(crate) fn took(&self, begin: Instant, now: Instant) {
        if now.saturating_duration_since(begin) > LONG {
            self.slow_until_ms.fetch_max(self.ms(now + WHILE), Ordering::Relaxed);
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_write_sends_the_next_ones_away_for_a_while() {
        let pace = Pace::new();
        let begin = pace.origin + Duration::from_secs(10);
        pace.took(begin, begin + LONG);
        assert!(pace.is_brisk(begin + LONG));
        let end = begin + LONG * 2;
        pace.took(begin, end);
        assert!(!pace.is_brisk(end));
        assert!(!pace.is_brisk(end + WHILE - LONG));
        // One that was slower, and began before.
        pace.took(begin - WHILE, end - LONG);
        assert!(!pace.is_brisk(end + WHILE - LONG), "the latest counts");
        assert!(pace.is_brisk(end + WHILE));
    }
}

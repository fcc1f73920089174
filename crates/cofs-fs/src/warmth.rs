//! Whether small files' bytes that the engine has to read come from a cache at present, where the metadata are on a network.
//!
//! The engine keeps none of them in its memory (the kernel does, above and below), so that it cannot tell before it has read
//! them. To send each to a thread that may wait costs a quarter of the rate of those that the kernel's cache answers. So one a second goes
//! that way, and is timed; as long as they are quick, others are done where they come in.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A network takes longer.
const QUICK: Duration = Duration::from_micros(60);
/// So long a quick one is believed.
const WHILE: Duration = Duration::from_secs(1);

pub(crate) struct Warmth {
    origin: Instant,
    /// In milliseconds since the origin.
    warm_until_ms: AtomicU64,
}

impl Warmth {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), warm_until_ms: AtomicU64::new(0) }
    }

    pub(crate) fn is_warm(&self, now: Instant) -> bool {
        self.ms(now) < self.warm_until_ms.load(Ordering::Relaxed)
    }

    /// A read began at `begin` and has ended `now`; `sent` to a thread that may wait, as the engine's memory did not have the bytes. (What was
    /// read where it came in may have been there.)
    pub(crate) fn took(&self, begin: Instant, now: Instant, sent: bool) {
        let quick = now.saturating_duration_since(begin) <= QUICK;
        if !quick {
            self.warm_until_ms.store(0, Ordering::Relaxed);
        } else if sent {
            self.warm_until_ms.store(self.ms(now + WHILE), Ordering::Relaxed);
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
    fn a_quick_read_from_below_is_believed_for_a_while_and_a_slow_one_at_once() {
        let warmth = Warmth::new();
        let begin = warmth.origin + Duration::from_secs(10);
        assert!(!warmth.is_warm(begin), "nothing is known");
        warmth.took(begin, begin + QUICK, false);
        assert!(!warmth.is_warm(begin), "it may have been in memory");
        warmth.took(begin, begin + QUICK, true);
        assert!(warmth.is_warm(begin + WHILE / 2) && !warmth.is_warm(begin + WHILE + WHILE));
        warmth.took(begin, begin + QUICK * 2, false);
        assert!(!warmth.is_warm(begin));
    }
}

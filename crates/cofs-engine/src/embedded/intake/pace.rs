//! How fast commits may come while what is below has fallen behind.
//!
//! The drain waits then, and the journal has room for so much more. Taken at full speed that is used up in a second, and all wait until
//! compaction has caught up, which takes seconds. So the room that is left is spread: in each [`SPREAD`] all but an e-th part of it. Commits
//! become slower and slower, and none waits long.
//!
//! Nobody is held back within a commit, as he may hold what others want: who is about to begin something asks first ([`Pace::pause`]).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

const SPREAD: Duration = Duration::from_secs(4);
/// Less is let pass until it has become that much.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Where many come at a time, or the room is nearly used up.
const PAUSE_MAX: Duration = Duration::from_millis(250);

pub(super) struct Pace {
    is_behind: AtomicBool,
    begin: Instant,
    /// When all commits so far would have come at the right pace, in ns from `begin`.
    due: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { is_behind: AtomicBool::new(false), begin: Instant::now(), due: AtomicU64::new(0) }
    }
}

impl Pace {
    /// Whether the drain has to wait.
    pub(super) fn set_behind(&self, is_behind: bool) {
        if self.is_behind.swap(is_behind, Ordering::Relaxed) != is_behind {
            self.due.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Somebody has taken so many bytes, and so many are left. Called by one at a time.
    pub(super) fn took(&self, bytes: u64, room: u64) {
        self.took_at(self.begin.elapsed(), bytes, room);
    }

    /// How long to wait before beginning something.
    pub(super) fn pause(&self) -> Duration {
        if self.is_behind() { self.pause_at(self.begin.elapsed()) } else { Duration::ZERO }
    }

    fn took_at(&self, now: Duration, bytes: u64, room: u64) {
        let share = bytes as f64 / bytes.max(room).max(1) as f64;
        let due = Duration::from_nanos(self.due.load(Ordering::Relaxed)).max(now) + SPREAD.mul_f64(share);
        self.due.store(due.as_nanos() as u64, Ordering::Relaxed);
    }

    fn pause_at(&self, now: Duration) -> Duration {
        let pause = Duration::from_nanos(self.due.load(Ordering::Relaxed)).saturating_sub(now);
        if pause < PAUSE_MIN { Duration::ZERO } else { pause.min(PAUSE_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_up_is_not_held_back() {
        let pace = Pace::default();
        pace.took(1 << 20, 1 << 20);
        assert_eq!(pace.pause(), Duration::ZERO);
        pace.set_behind(true);
        assert_eq!(pace.pause(), Duration::ZERO, "of what was taken before");
        pace.took(1 << 20, 1 << 20);
        assert_eq!(pace.pause(), PAUSE_MAX);
        pace.set_behind(false);
        assert_eq!(pace.pause(), Duration::ZERO);
    }

    /// One who asks before each commit, which takes no time.
    #[test]
    fn the_room_is_spread_and_nobody_waits_long() {
        const RECORD: u64 = 250;
        const ALL: u64 = 48 << 20;
        let pace = Pace::default();
        pace.set_behind(true);
        let (mut now, mut room, mut longest) = (Duration::ZERO, ALL, Duration::ZERO);
        let mut left_after = Vec::new();
        while now < SPREAD * 3 {
            let pause = pace.pause_at(now);
            longest = longest.max(pause);
            if (now + pause).as_secs() / SPREAD.as_secs() > now.as_secs() / SPREAD.as_secs() {
                left_after.push(ALL as f64 / room as f64);
            }
            now += pause;
            room -= RECORD;
            pace.took_at(now, RECORD, room);
        }
        for (left, e) in left_after.into_iter().zip([1.0_f64.exp(), 2.0_f64.exp(), 3.0_f64.exp()]) {
            assert!((left / e - 1.0).abs() < 0.05, "{left} instead of {e}");
        }
        assert!(longest < Duration::from_millis(2), "{longest:?}");
    }
}

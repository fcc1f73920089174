//! Time, and how far another machine's clock is from this one's.

use rustix::{
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec, clock_gettime},
};

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the clock shows `nanos`; a time that has passed does not wait.
pub fn sleep_until(nanos: u64) {
    let time = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
    // A signal that is handled wakes early.
    while now() < nanos {
        if clock_nanosleep_absolute(ClockId::Monotonic, &time).is_ok() {
            break;
        }
    }
}

/// One question for another clock: when it was sent and answered by this clock, and what the other one showed.
#[derive(Clone, Copy, Debug)]
pub struct Ping {
    pub sent: u64,
    pub theirs: u64,
    pub answered: u64,
}

/// Another clock: what it shows more than this one, and by how much that may be wrong; nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offset {
    pub ahead: i64,
    pub error: u64,
}

impl Offset {
    /// From the question with the quickest answer, whose middle is least in doubt (NTP does the same).
    pub fn of(pings: &[Ping]) -> Self {
        let best = pings.iter().min_by_key(|ping| ping.answered.saturating_sub(ping.sent));
        best.map_or_else(Self::default, |ping| {
            let half = ping.answered.saturating_sub(ping.sent) / 2;
            Self { ahead: ping.theirs.wrapping_sub(ping.sent + half) as i64, error: half }
        })
    }

    /// What this clock shows when the other one shows `nanos`.
    pub fn ours(self, nanos: u64) -> u64 {
        nanos.wrapping_sub(self.ahead as u64)
    }

    /// What the other clock shows when this one shows `nanos`.
    pub fn theirs(self, nanos: u64) -> u64 {
        nanos.wrapping_add(self.ahead as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_answer_counts() {
        let slow = Ping { sent: 1000, theirs: 99_000, answered: 9000 };
        let quick = Ping { sent: 10_000, theirs: 60_050, answered: 10_100 };
        let offset = Offset::of(&[slow, quick]);
        assert_eq!(offset, Offset { ahead: 50_000, error: 50 });
        assert_eq!((offset.ours(60_050), offset.theirs(10_050)), (10_050, 60_050));
    }

    #[test]
    fn a_clock_behind_is_understood() {
        let offset = Offset::of(&[Ping { sent: 1_000_000, theirs: 5, answered: 1_000_010 }]);
        assert_eq!(offset.ahead, -1_000_000);
        assert_eq!((offset.ours(5), offset.theirs(1_000_005)), (1_000_005, 5));
        assert_eq!(Offset::of(&[]), Offset::default());
    }

    #[test]
    fn sleeping_ends_not_before_its_time() {
        let until = now() + 2_000_000;
        sleep_until(until);
        assert!(now() >= until);
        sleep_until(0);
    }
}

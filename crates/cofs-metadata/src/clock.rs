//! The wall clock of the local driver.
//!
//! It is the kernel's coarse real-time clock, because that is what the kernel stamps the objects below with:
//! so the times of an inline file and of one in an object can be compared (make(1) does). Kernels with
//! multigrain time stamps (Linux 6.13) stamp a file finer once somebody has looked at its times; such a stamp is
//! ahead of the coarse clock for a moment. Whoever meets one shows it to [`Clock::witness`], and what is stamped
//! here afterwards is not earlier.
//!
//! The kernel advances the coarse clock with its tick. Where the CPU that keeps it is taken away (a virtual machine on a
//! busy host) it stands still (seen: 34 ms behind, with ticks of 4 ms), and two changes that lie far apart would carry the
//! same stamp: it is believed to be [`BEHIND_MAX`] behind the fine clock, no more.

use std::sync::atomic::{AtomicI64, Ordering};

use cofs_types::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS: i64 = Timestamp::NANOS_PER_SEC as i64;

/// In nanoseconds: the longest tick that Linux can be built with (100 Hz).
const BEHIND_MAX: u32 = 10_000_000;

#[derive(Default)]
pub(crate) struct Clock {
    /// The latest stamp witnessed ahead of the coarse clock, in nanoseconds since 1970 (until 2262).
    floor_nanos: AtomicI64,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        let (coarse, fine) = read();
        self.at(coarse, fine)
    }

    /// What is stamped when the two clocks of the kernel show `coarse` and `fine`.
    fn at(&self, coarse: Timestamp, fine: Timestamp) -> Timestamp {
        let coarse = coarse.max(behind(fine));
        let floor = self.floor_nanos.load(Ordering::Relaxed);
        let floor = Timestamp { secs: floor.div_euclid(NANOS), nanos: floor.rem_euclid(NANOS) as u32 };
        // A clock that was set back is followed: a floor holds for a tick, not for ever.
        if floor > coarse && floor <= fine { floor } else { coarse }
    }

    /// A file below carries `stamp`. One in the future (another machine's clock) is not believed.
    pub(crate) fn witness(&self, stamp: Timestamp) {
        let (coarse, fine) = read();
        if stamp <= self.at(coarse, fine) || stamp > fine {
            return;
        }
        let nanos = stamp.secs.checked_mul(NANOS).and_then(|secs| secs.checked_add(stamp.nanos.into()));
        if let Some(nanos) = nanos {
            self.floor_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
    }
}

/// The kernel's clocks, the coarse one and the fine one.
fn read() -> (Timestamp, Timestamp) {
    let coarse = timestamp(clock_gettime(ClockId::RealtimeCoarse));
    (coarse, timestamp(clock_gettime(ClockId::Realtime)))
}

/// [`BEHIND_MAX`] before `time`.
fn behind(time: Timestamp) -> Timestamp {
    match time.nanos.checked_sub(BEHIND_MAX) {
        Some(nanos) => Timestamp { nanos, ..time },
        None => Timestamp { secs: time.secs - 1, nanos: time.nanos + Timestamp::NANOS_PER_SEC - BEHIND_MAX },
    }
}

fn timestamp(time: Timespec) -> Timestamp {
    Timestamp { secs: time.tv_sec, nanos: u32::try_from(time.tv_nsec).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_not_behind_a_stamp_it_has_seen_nor_believes_the_future() {
        let clock = Clock::default();
        let fine = timestamp(clock_gettime(ClockId::Realtime));
        clock.witness(fine);
        assert!(clock.now() >= fine);
        clock.witness(Timestamp { secs: fine.secs + 1000, nanos: 0 });
        assert!(clock.now().secs < fine.secs + 1000);
    }

    #[test]
    fn a_coarse_clock_that_stands_still_is_followed_no_further_than_the_longest_tick() {
        let clock = Clock::default();
        let at = |secs, millis: u32| Timestamp { secs, nanos: millis * 1_000_000 };
        assert_eq!(clock.at(at(7, 990), at(7, 994)), at(7, 990));
        assert_eq!(clock.at(at(7, 990), at(8, 0)), at(7, 990));
        assert_eq!(clock.at(at(7, 990), at(8, 4)), at(7, 994), "in the second before");
        assert_eq!(clock.at(at(7, 990), at(8, 30)), at(8, 20));
        assert_eq!(clock.at(at(8, 28), at(8, 30)), at(8, 28));
        clock.floor_nanos.store(8 * NANOS + 5_000_000, Ordering::Relaxed);
        assert_eq!(clock.at(at(7, 990), at(8, 10)), at(8, 5), "what was witnessed is later");
    }
}

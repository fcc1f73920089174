//! Which worker stacks: the decision alone, without clock, files or system calls.
//!
//! A stacked worker runs when nobody else wants its CPU. Among FUSE clients that is soon: a client that waits for
//! an answer gives the CPU away, and the worker has waited some microseconds for each request (up to 12 on
//! average with a file system that does nothing, four clients on two CPUs). A program that does not wait for us
//! keeps the CPU for milliseconds. Signs of it: the waits are longer than the requests served account for; or
//! hardly any are served, and no wait shows, because the kernel counts one when it ends. The latter may as well be
//! the end of the traffic: the worker is unstacked, and the wait that ends next tells which it was.
//!
//! Waiting for the process's own work in the background is none of this: it is over soon, and has to be done.

use std::time::Duration;

/// Requests from which on stacking is worth while: 20 in 5 ms.
const BUSY_PER_SECOND: u64 = 4000;
/// Waiting that tells nothing, in any interval ...
const WAIT_FREE: Duration = Duration::from_millis(1);
/// ... and for each request served in it: while requests flow, and when a stall is looked for.
const WAIT_PER_REQUEST: Duration = Duration::from_micros(50);
const WAIT_PER_REQUEST_SUSPECT: Duration = Duration::from_micros(20);
/// How long a worker that was starved does not stack: at first, doubled each time, and at most.
const PENALTY_MIN: Duration = Duration::from_millis(100);
const PENALTY_MAX: Duration = Duration::from_secs(10);
/// Stacked so long without being starved, a worker has half its penalty forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(1);

/// What was seen of a worker in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub elapsed: Duration,
    pub served: u64,
    /// Of those, the ones that did not come alone.
    pub together: u64,
    /// The waits for a CPU that ended in it; they may have begun before it.
    pub waited: Duration,
    /// What the process's own background has run on the worker's CPU meanwhile: so long the worker may have waited for that.
    pub own_work: Duration,
}

impl Sample {
    pub fn is_busy(&self) -> bool {
        u128::from(self.served) * 1_000_000 >= u128::from(BUSY_PER_SECOND) * self.elapsed.as_micros()
    }

    /// Whether it has had several clients at a time.
    pub fn is_crowded(&self) -> bool {
        self.is_busy() && self.together * 2 >= self.served
    }

    /// Whether it waited for others longer than by so much for each request.
    fn is_starved(&self, per_request: Duration) -> bool {
        let requests = u32::try_from(self.served).unwrap_or(u32::MAX);
        let waited = self.waited.saturating_sub(self.own_work);
        waited > WAIT_FREE.saturating_add(per_request.saturating_mul(requests))
    }
}

/// What is known of one worker.
#[derive(Debug, Default)]
pub(super) struct Judge {
    stacks: bool,
    /// Unstacked for want of requests and not seen running since: the wait that ends next may have begun before.
    suspect: bool,
    /// Until it may stack again.
    barred: Duration,
    /// The latest one; the next is twice as long.
    penalty: Duration,
    /// How long it has stacked since the penalty changed.
    good: Duration,
}

impl Judge {
    /// Whether the worker is to stack from now on.
    pub fn judge(&mut self, sample: &Sample) -> bool {
        let stacked = self.stacks;
        self.barred = self.barred.saturating_sub(sample.elapsed);
        if sample.is_starved(if self.suspect { WAIT_PER_REQUEST_SUSPECT } else { WAIT_PER_REQUEST }) {
            self.stacks = false;
            if stacked || self.suspect {
                self.punish();
            }
        } else {
            self.stacks = sample.is_busy() && self.barred.is_zero();
            if stacked {
                self.forgive(sample.elapsed);
            }
        }
        let has_run = sample.served > 0 || !sample.waited.is_zero();
        self.suspect = !self.stacks && (stacked || (self.suspect && !has_run));
        self.stacks
    }

    fn punish(&mut self) {
        self.penalty = (self.penalty * 2).clamp(PENALTY_MIN, PENALTY_MAX);
        self.barred = self.penalty;
        self.good = Duration::ZERO;
    }

    fn forgive(&mut self, elapsed: Duration) {
        self.good += elapsed;
        if self.good >= FORGIVEN_AFTER {
            self.penalty /= 2;
            self.good = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(5);

    fn sample(served: u64, waited_micros: u64) -> Sample {
        Sample {
            elapsed: INTERVAL,
            served,
            together: 0,
            waited: Duration::from_micros(waited_micros),
            own_work: Duration::ZERO,
        }
    }

    /// Intervals without stacking until the worker stacks again, under good traffic.
    fn barred(judge: &mut Judge) -> u32 {
        (0..100_000).take_while(|_| !judge.judge(&sample(100, 0))).count() as u32
    }

    fn stacking() -> Judge {
        let mut judge = Judge::default();
        assert!(judge.judge(&sample(100, 0)));
        judge
    }

    #[test]
    fn traffic_stacks_a_worker_and_its_end_unstacks_it() {
        let mut judge = Judge::default();
        assert!(!judge.judge(&sample(19, 0)));
        assert!(judge.judge(&sample(20, 0)));
        assert!(judge.judge(&sample(400, 0)));
        assert!(!judge.judge(&sample(0, 0)));
        assert!(judge.judge(&sample(50, 100)), "without a penalty");
    }

    #[test]
    fn what_counts_is_the_rate_however_long_the_watcher_looked_away() {
        let mut judge = Judge::default();
        let slow = Sample { elapsed: Duration::from_secs(3), ..sample(64, 0) };
        assert!(!judge.judge(&slow));
        let long = Sample { elapsed: 4 * INTERVAL, ..sample(79, 0) };
        assert!(!judge.judge(&long));
        assert!(judge.judge(&Sample { served: 80, ..long }));
    }

    #[test]
    fn hand_over_among_clients_is_no_starvation() {
        let mut judge = stacking();
        // As seen, and slower ones.
        for (served, waited_micros) in [(330, 3519), (250, 3000), (20, 240), (500, 630), (50, 2500)] {
            assert!(judge.judge(&sample(served, waited_micros)));
        }
    }

    #[test]
    fn waiting_for_our_own_work_is_no_starvation() {
        let own_work = Duration::from_micros(4000);
        let mut judge = stacking();
        assert!(judge.judge(&Sample { own_work, ..sample(30, 4900) }));
        assert!(!judge.judge(&Sample { own_work, ..sample(30, 6600) }), "what is beyond it is");
        // Nor is it where the worker got to nothing at all meanwhile, and was unstacked for that.
        let mut judge = stacking();
        assert!(!judge.judge(&sample(2, 0)));
        assert!(judge.judge(&Sample { own_work, ..sample(50, 4500) }));
        assert!(
            judge.judge(&Sample { own_work, ..sample(20, 0) }),
            "who did not wait has nothing to be excused"
        );
    }

    #[test]
    fn a_starved_worker_does_not_stack_for_a_while_which_doubles_up_to_a_bound() {
        let mut judge = stacking();
        let mut bars = Vec::new();
        for _ in 0..9 {
            assert!(!judge.judge(&sample(30, 4900)));
            bars.push(barred(&mut judge) + 1);
        }
        assert_eq!(bars, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
    }

    #[test]
    fn a_wait_that_ends_after_the_worker_was_unstacked_is_punished_too() {
        for idle in [0, 1, 5] {
            let mut judge = stacking();
            assert!(!judge.judge(&sample(2, 0)), "it waits: nothing is served, and no wait has ended");
            (0..idle).for_each(|_| assert!(!judge.judge(&sample(0, 0))));
            assert!(!judge.judge(&sample(100, 4500)));
            assert_eq!(barred(&mut judge) + 1, 20, "{idle}");
        }
    }

    #[test]
    fn a_wait_that_has_nothing_to_do_with_stacking_only_keeps_it_off() {
        let mut judge = Judge::default();
        assert!(!judge.judge(&sample(50, 5000)));
        assert!(judge.judge(&sample(100, 0)));
        // It stacked, had no traffic, ran, and waited later.
        let mut judge = stacking();
        judge.judge(&sample(1, 0));
        judge.judge(&sample(1, 0));
        assert!(!judge.judge(&sample(1, 5000)));
        assert!(judge.judge(&sample(100, 0)));
    }

    #[test]
    fn penalties_are_forgiven_by_stacking_well() {
        let mut judge = stacking();
        for _ in 0..3 {
            judge.judge(&sample(0, 4000));
            barred(&mut judge);
        }
        let good = FORGIVEN_AFTER.as_millis() / INTERVAL.as_millis();
        (0..2 * good).for_each(|_| assert!(judge.judge(&sample(100, 0))));
        judge.judge(&sample(0, 4000));
        assert_eq!(barred(&mut judge) + 1, 40, "twice 100 ms, of 400 ms that were halved twice");
    }
}

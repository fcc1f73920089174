//! Clients that crowd on one CPU while another has none: the decision alone, as [`judge`](super::judge).
//!
//! Where workers stack each client stays where it is woken. So once all of several clients are on one CPU, as chance (a load balancer's move at a tick, a
//! worker that was barred from stacking meanwhile) brings about now and then, they stay there: at most one of them can run at any time, the others wait
//! for the worker, and the scheduler, which looks for threads that could run, finds nothing to move. The other CPU is idle for tens of milliseconds.
//!
//! A worker that does not stack has its clients woken on an idle CPU, if there is one. So a crowded worker stops stacking for one look. Several clients
//! show in that requests come together; but so do those of one client that reads ahead, or of several that may run nowhere else: where it has changed
//! nothing, it is not tried again for a while.

use std::time::Duration;

use super::judge::Sample;

/// How long nothing is done after a vain attempt: at first, doubled each time, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is known of all workers together.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Workers were to spread their clients in the look that ends.
    tried: bool,
    /// Until it may be tried again.
    rest: Duration,
    /// After the latest vain attempt; the next is twice as long.
    pause: Duration,
}

impl Crowd {
    /// Whether crowded workers are to spread their clients until the next look. `samples`: what was seen of the workers of each CPU.
    pub fn spreads<'a>(
        &mut self,
        elapsed: Duration,
        samples: impl Iterator<Item = &'a Sample> + Clone,
    ) -> bool {
        self.rest = self.rest.saturating_sub(elapsed);
        let crowded =
            samples.clone().any(Sample::is_crowded) && samples.clone().any(|sample| sample.served == 0);
        if std::mem::take(&mut self.tried) {
            self.pause = if crowded { (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { Duration::ZERO };
            self.rest = self.pause;
        }
        self.tried = crowded && self.rest.is_zero();
        self.tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(5);

    fn sample(served: u64, together: u64) -> Sample {
        Sample { elapsed: LOOK, served, together, waited: Duration::ZERO, own_work: Duration::ZERO }
    }

    fn spreads(crowd: &mut Crowd, samples: [Sample; 2]) -> bool {
        crowd.spreads(LOOK, samples.iter())
    }

    #[test]
    fn a_crowd_beside_an_idle_worker_spreads_for_one_look() {
        let mut crowd = Crowd::default();
        assert!(!spreads(&mut crowd, [sample(200, 0), sample(0, 0)]), "one client");
        assert!(!spreads(&mut crowd, [sample(200, 200), sample(1, 0)]), "the other has some");
        assert!(!spreads(&mut crowd, [sample(10, 10), sample(0, 0)]), "hardly anything to do");
        for _ in 0..3 {
            assert!(spreads(&mut crowd, [sample(0, 0), sample(200, 150)]));
            assert!(!spreads(&mut crowd, [sample(100, 80), sample(100, 80)]));
        }
    }

    #[test]
    fn what_is_in_vain_is_tried_less_and_less_often() {
        let mut crowd = Crowd::default();
        let crowded = [sample(200, 150), sample(0, 0)];
        let mut tries = Vec::new();
        for look in 0..4000 {
            if spreads(&mut crowd, crowded) {
                tries.push(look);
            }
        }
        let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(&pauses[..10], [3, 5, 9, 17, 33, 65, 129, 257, 401, 401]);
        assert!(!spreads(&mut crowd, [sample(100, 80), sample(100, 80)]));
        // It works again: without a pause from then on.
        while !spreads(&mut crowd, crowded) {}
        assert!(!spreads(&mut crowd, [sample(100, 80), sample(100, 80)]));
        assert!(spreads(&mut crowd, crowded));
    }
}

//! Times operations so that timing them costs little of what they take.

use std::io;

use crate::{Latencies, clock::now, suite::Timer};

/// What measuring may cost of the time of what is measured. Reading the clock twice takes more than that of an operation that
/// a kernel does without a disk; of such operations only every so-manyth is timed, and stands for those since the last one.
const COST_MAX: f64 = 0.01;
/// Between system calls, whose code and data push those of the clock from the processor's caches, timing takes so many times what
/// it takes in a loop of nothing else (examples/harness_cost.rs shows what remains).
const COLD: f64 = 3.0;
/// Operations of which at least one is timed.
const EVERY_MAX: u64 = 64;
/// So many are timed before it is judged how long one takes.
const JUDGED_AFTER: u64 = 8;

/// The times of one phase's operations, of one process or thread.
pub struct Meter {
    pub latencies: Latencies,
    /// Operations that were timed and stand for others, and those that stand for themselves.
    pub timed: u64,
    pub singles: u64,
    /// When the last timed operation ended, and when no other may begin.
    last: u64,
    until: u64,
    /// Operations that go untimed before the next is timed, and that did since the last one.
    skip: u64,
    untimed: u64,
    /// Of timed operations: nanoseconds of all, and of the last one.
    timed_nanos: u64,
    last_nanos: u64,
    /// An operation takes as long as this many nanoseconds, or only some are timed.
    worth_timing: f64,
}

impl Default for Meter {
    fn default() -> Self {
        let mut latencies = Latencies::default();
        let worth_timing = cost_nanos(&mut latencies) * COLD / COST_MAX;
        latencies.reset();
        Self {
            latencies,
            timed: 0,
            singles: 0,
            last: 0,
            until: u64::MAX,
            skip: 0,
            untimed: 0,
            timed_nanos: 0,
            last_nanos: 0,
            worth_timing,
        }
    }
}

impl Meter {
    /// It is `begin`, and no operation begins after `seconds`.
    pub fn begin(&mut self, begin: u64, seconds: Option<f64>) {
        self.last = begin;
        self.until = seconds.map_or(u64::MAX, |seconds| begin.saturating_add((seconds * 1e9) as u64));
    }

    /// Something else took time until now.
    pub fn pass(&mut self) {
        self.last = now();
    }

    /// Nothing more is to come: those that nothing stands for yet are counted.
    pub fn end(&mut self) {
        self.latencies.record_many(self.last_nanos, std::mem::take(&mut self.untimed));
    }

    /// Times one that is unlike those before it.
    pub fn single(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        // It says nothing of those before it, nor they of it.
        self.end();
        let (nanos, last) = (self.timed_nanos, self.last_nanos);
        let result = self.time(work);
        (self.timed_nanos, self.last_nanos) = (nanos, last);
        self.timed -= 1;
        self.singles += 1;
        result
    }

    fn time(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = now();
        let result = work();
        self.last = now();
        self.last_nanos = self.last.saturating_sub(begin);
        self.latencies.record_many(self.last_nanos, 1 + std::mem::take(&mut self.untimed));
        self.timed_nanos = self.timed_nanos.saturating_add(self.last_nanos);
        self.timed += 1;
        result
    }

    /// How many operations go untimed after one that was timed.
    fn untimed_next(&self) -> u64 {
        if self.timed < JUDGED_AFTER {
            return 0;
        }
        let mean = self.timed_nanos as f64 / self.timed as f64;
        // A number that is none, or too large, becomes one that fits.
        ((self.worth_timing / mean.max(1.0)) as u64).min(EVERY_MAX - 1)
    }
}

impl Timer for Meter {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if self.untimed(1) > 0 {
            return work();
        }
        let result = self.time(work);
        self.skip = self.untimed_next();
        result
    }

    fn untimed(&mut self, most: u64) -> u64 {
        let count = self.skip.min(most);
        self.skip -= count;
        self.untimed += count;
        count
    }

    fn go_on(&mut self) -> bool {
        self.last < self.until
    }
}

/// Nanoseconds that timing one operation takes in a loop: the clock is read twice, and a number counted.
fn cost_nanos(latencies: &mut Latencies) -> f64 {
    let mut least = u64::MAX;
    for _ in 0..8 {
        let begin = now();
        for _ in 0..8 {
            latencies.record_many(now(), 1);
        }
        least = least.min(now().saturating_sub(begin));
    }
    // Nine readings and eight counts; an operation has two readings and a count.
    least as f64 / 9.0 * 2.0
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, time::Duration};

    use super::*;
    use crate::suite::each;

    const MANY: u64 = 1_000_001;

    fn nothing(number: u64) -> io::Result<()> {
        black_box(number);
        Ok(())
    }

    fn nap(time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    fn metered(work: impl FnOnce(&mut Meter) -> io::Result<()>) -> Meter {
        let mut meter = Meter::default();
        meter.begin(now(), None);
        work(&mut meter).unwrap();
        meter.end();
        meter
    }

    #[test]
    fn short_operations_are_all_counted_and_few_are_timed() {
        let one_by_one =
            metered(|meter| (0..MANY).try_for_each(|number| meter.operation(&mut || nothing(number))));
        let mut seen = Vec::new();
        let together = metered(|meter| {
            each(meter, 0..MANY, |number| {
                seen.push(number);
                nothing(number)
            })
            .map(drop)
        });
        assert_eq!(seen, (0..MANY).collect::<Vec<u64>>());
        for meter in [one_by_one, together] {
            assert_eq!(meter.latencies.count(), MANY);
            // One that the machine interrupted makes the next ones look worth timing.
            assert!((MANY / EVERY_MAX..MANY / 16).contains(&meter.timed), "{}", meter.timed);
        }
    }

    #[test]
    fn long_operations_are_all_timed() {
        let meter = metered(|meter| each(meter, 0..100, |_| nap(Duration::from_micros(50))).map(drop));
        assert_eq!((meter.latencies.count(), meter.timed), (100, 100));
    }

    #[test]
    fn time_that_is_over_ends_operations() {
        let done = |seconds| {
            let mut meter = Meter::default();
            meter.begin(now(), seconds);
            each(&mut meter, 5..20, |_| nap(Duration::from_millis(20))).unwrap()
        };
        assert!((6..20).contains(&done(Some(0.03))));
        assert_eq!((done(Some(0.0)), done(None)), (5, 20));
    }

    #[test]
    fn an_operation_unlike_the_others_is_timed_and_stands_for_itself() {
        let meter = metered(|meter| {
            each(meter, 0..1000, nothing)?;
            meter.single(&mut || nap(Duration::from_millis(20)))
        });
        assert_eq!((meter.latencies.count(), meter.singles), (1001, 1));
        assert!(meter.latencies.max() >= 20_000_000);
        // The machine may stop this process at any time, but not so often.
        assert!(meter.latencies.quantile(0.99) < 20_000_000);
    }
}

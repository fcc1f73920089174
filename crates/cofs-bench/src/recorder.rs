//! What a worker writes down while it works.

use std::io;

use crate::{
    Latencies, Observer,
    clock::now,
    worker::{Done, Span},
};

/// Asks all workers for a number; see [`Observer::agree`].
pub type Agree<'a> = &'a mut dyn FnMut(u64) -> io::Result<Vec<u64>>;

/// What measuring may cost of the time of what is measured. Reading the clock twice takes more than that of an operation that
/// a kernel does without a disk; of such operations only every so-manyth is timed, and stands for those since the last one.
const COST_MAX: f64 = 0.01;
/// Operations of which at least one is timed.
const EVERY_MAX: u64 = 32;
/// So many are timed before it is judged how long one takes.
const JUDGED_AFTER: u64 = 8;

/// The record of one phase.
pub struct Recorder<'a> {
    done: Done,
    latencies: Latencies,
    agree: Agree<'a>,
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

impl<'a> Recorder<'a> {
    pub fn new(agree: Agree<'a>) -> Self {
        let mut latencies = Latencies::default();
        let worth_timing = cost_nanos(&mut latencies) / COST_MAX;
        latencies.reset();
        Self {
            done: Done::default(),
            latencies,
            agree,
            last: 0,
            until: u64::MAX,
            skip: 0,
            untimed: 0,
            timed_nanos: 0,
            last_nanos: 0,
            worth_timing,
        }
    }

    /// The phase begins now, and in it no operation begins after `seconds`.
    pub fn begin(&mut self, seconds: Option<f64>) {
        let begin = now();
        (self.done.begin, self.last) = (begin, begin);
        self.until = seconds.map_or(u64::MAX, |seconds| begin.saturating_add((seconds * 1e9) as u64));
    }

    /// The phase is over.
    pub fn end(mut self, result: io::Result<()>) -> Done {
        self.done.end = now();
        self.latencies.record_many(self.last_nanos, self.untimed);
        let error = result.err().map(|error| error.to_string());
        Done { latencies: self.latencies.pack(), error, ..self.done }
    }

    fn timed(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = now();
        let result = work();
        self.last = now();
        self.last_nanos = self.last.saturating_sub(begin);
        self.latencies.record_many(self.last_nanos, 1 + std::mem::take(&mut self.untimed));
        self.timed_nanos = self.timed_nanos.saturating_add(self.last_nanos);
        self.done.timed += 1;
        result
    }

    /// How many operations go untimed after one that was timed.
    fn untimed_next(&self) -> u64 {
        if self.done.timed < JUDGED_AFTER {
            return 0;
        }
        let mean = self.timed_nanos as f64 / self.done.timed as f64;
        // A number that is none, or too large, becomes one that fits.
        ((self.worth_timing / mean.max(1.0)) as u64).min(EVERY_MAX - 1)
    }
}

/// Nanoseconds that timing one operation takes at least: the clock is read twice, and a number counted.
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

impl Observer for Recorder<'_> {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if self.skip > 0 {
            self.skip -= 1;
            self.untimed += 1;
            return work();
        }
        let result = self.timed(work);
        self.skip = self.untimed_next();
        result
    }

    fn single(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        // It says nothing of those before it, nor they of it.
        self.latencies.record_many(self.last_nanos, std::mem::take(&mut self.untimed));
        let (nanos, last) = (self.timed_nanos, self.last_nanos);
        let result = self.timed(work);
        (self.timed_nanos, self.last_nanos) = (nanos, last);
        self.done.timed -= 1;
        self.done.singles += 1;
        result
    }

    fn of_thread(&mut self, latencies: &Latencies) {
        self.latencies.merge(latencies);
        self.done.singles += latencies.count();
        self.last = now();
    }

    fn bytes(&mut self, bytes: u64) {
        self.done.bytes += bytes;
    }

    fn span(
        &mut self,
        name: &str,
        work: &mut dyn FnMut(&mut dyn Observer) -> io::Result<()>,
    ) -> io::Result<()> {
        let begin = now();
        let result = work(self);
        self.done.spans.push(Span { name: name.to_owned(), begin, end: now() });
        result
    }

    fn count(&mut self, name: &str, more: u64) {
        *self.done.counts.entry(name.to_owned()).or_default() += more;
    }

    fn agree(&mut self, mine: u64) -> io::Result<Vec<u64>> {
        let all = (self.agree)(mine)?;
        self.last = now();
        Ok(all)
    }

    fn go_on(&mut self) -> bool {
        self.last < self.until
    }
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, time::Duration};

    use super::*;

    fn recorded(work: impl FnOnce(&mut Recorder) -> io::Result<()>) -> Done {
        let mut agree = |_| Ok(Vec::new());
        let mut recorder = Recorder::new(&mut agree);
        recorder.begin(None);
        let result = work(&mut recorder);
        recorder.end(result)
    }

    fn nothing(number: u64) -> io::Result<()> {
        black_box(number);
        Ok(())
    }

    fn nap(time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    #[test]
    fn short_operations_are_all_counted_and_few_are_timed() {
        let done = recorded(|recorder| {
            (0..10_001).try_for_each(|number| recorder.operation(&mut || nothing(number)))
        });
        assert_eq!(done.latencies.count(), 10_001);
        let few = 10_001 / EVERY_MAX + JUDGED_AFTER;
        assert!((10_001 / EVERY_MAX..=few + 1).contains(&done.timed), "{}", done.timed);
    }

    #[test]
    fn long_operations_are_all_timed() {
        let mut nap = || nap(Duration::from_micros(50));
        let done = recorded(|recorder| (0..100).try_for_each(|_| recorder.operation(&mut nap)));
        assert_eq!((done.latencies.count(), done.timed), (100, 100));
    }

    #[test]
    fn an_operation_unlike_the_others_is_timed_and_stands_for_itself() {
        let mut nap = || nap(Duration::from_millis(20));
        let done = recorded(|recorder| {
            (0..1000).try_for_each(|number| recorder.operation(&mut || nothing(number)))?;
            recorder.single(&mut nap)
        });
        let mut latencies = Latencies::default();
        latencies.add(&done.latencies);
        assert_eq!(latencies.count(), 1001);
        assert!(latencies.max() >= 20_000_000);
        // The machine may stop this process at any time, but not so often.
        assert!(latencies.quantile(0.99) < 20_000_000);
    }
}

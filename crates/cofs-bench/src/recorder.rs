//! What a worker writes down while it works.

use std::io;

use crate::{
    Observer,
    clock::now,
    meter::Meter,
    suite::Timer,
    worker::{Done, Span},
};

/// Asks all workers for a number; see [`Observer::agree`].
pub type Agree<'a> = &'a mut dyn FnMut(u64) -> io::Result<Vec<u64>>;

/// The record of one phase.
pub struct Recorder<'a> {
    done: Done,
    meter: Meter,
    agree: Agree<'a>,
}

impl<'a> Recorder<'a> {
    pub fn new(agree: Agree<'a>) -> Self {
        Self { done: Done::default(), meter: Meter::default(), agree }
    }

    /// The phase begins now, and in it no operation begins after `seconds`.
    pub fn begin(&mut self, seconds: Option<f64>) {
        self.done.begin = now();
        self.meter.begin(self.done.begin, seconds);
    }

    /// The phase is over.
    pub fn end(mut self, result: io::Result<()>) -> Done {
        self.done.end = now();
        self.meter.end();
        let Meter { latencies, timed, singles, .. } = self.meter;
        let error = result.err().map(|error| error.to_string());
        Done { latencies: latencies.pack(), timed, singles, error, ..self.done }
    }
}

impl Timer for Recorder<'_> {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.meter.operation(work)
    }

    fn untimed(&mut self, most: u64) -> u64 {
        self.meter.untimed(most)
    }

    fn go_on(&mut self) -> bool {
        self.meter.go_on()
    }
}

impl Observer for Recorder<'_> {
    fn single(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.meter.single(work)
    }

    fn of_thread(&mut self, thread: &Meter) {
        self.meter.latencies.merge(&thread.latencies);
        self.meter.timed += thread.timed;
        self.meter.singles += thread.singles;
        self.meter.pass();
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
        self.meter.pass();
        Ok(all)
    }
}

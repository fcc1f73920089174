//! What a worker writes down while it works.

use std::io;

use crate::{
    Latencies, Observer,
    clock::now,
    worker::{Done, Span},
};

/// Asks all workers for a number; see [`Observer::agree`].
pub type Agree<'a> = &'a mut dyn FnMut(u64) -> io::Result<Vec<u64>>;

/// The record of one phase.
pub struct Recorder<'a> {
    done: Done,
    latencies: Latencies,
    agree: Agree<'a>,
    /// When the last operation ended, and when no other may begin.
    last: u64,
    until: u64,
}

impl<'a> Recorder<'a> {
    /// A phase that begins now, and in which no operation begins after `seconds`.
    pub fn new(seconds: Option<f64>, agree: Agree<'a>) -> Self {
        let begin = now();
        let until = seconds.map_or(u64::MAX, |seconds| begin.saturating_add((seconds * 1e9) as u64));
        let done = Done { begin, ..Done::default() };
        Self { done, latencies: Latencies::default(), agree, last: begin, until }
    }

    /// The phase is over.
    pub fn end(self, result: io::Result<()>) -> Done {
        let error = result.err().map(|error| error.to_string());
        Done { end: now(), latencies: self.latencies.pack(), error, ..self.done }
    }
}

impl Observer for Recorder<'_> {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = now();
        let result = work();
        self.last = now();
        self.latencies.record(self.last.saturating_sub(begin));
        result
    }

    fn of_thread(&mut self, latencies: &Latencies) {
        self.latencies.merge(latencies);
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

//! What a suite is.

use std::{io, ops::Range, path::Path};

use serde::{Deserialize, Serialize};

use crate::{Meter, report::Report, worker::Seat};

/// What a phase's figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// More is better.
    #[serde(rename = "ops/s")]
    OperationsPerSecond,
    /// More is better.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Less is better.
    #[serde(rename = "s")]
    Seconds,
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "ops/s",
            Self::MebibytesPerSecond => "MiB/s",
            Self::Seconds => "s",
        }
    }

    pub const fn more_is_better(self) -> bool {
        !matches!(self, Self::Seconds)
    }
}

/// One phase of a suite: all workers do it at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    pub name: &'static str,
    pub unit: Unit,
    /// The kernel's caches are dropped before (only root can: else the phase is left out).
    pub cold: bool,
    /// It makes what later phases need, and tells nothing.
    pub silent: bool,
    /// Later phases rely on it, cold or not.
    pub needed: bool,
}

impl Phase {
    pub const fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, cold: false, silent: false, needed: false }
    }

    pub const fn cold(self) -> Self {
        Self { cold: true, ..self }
    }

    pub const fn silent(self) -> Self {
        Self { silent: true, ..self }
    }

    /// Something later phases rely on: without `cold` caches it is done warm, and tells nothing.
    pub const fn needed(self) -> Self {
        Self { needed: true, ..self }
    }

    pub(crate) fn warm_unless(self, cold: bool) -> Option<Self> {
        match (self.cold && !cold, self.needed) {
            (false, _) => Some(self),
            (true, true) => Some(Self { cold: false, silent: true, ..self }),
            (true, false) => None,
        }
    }
}

/// Counts operations and times them.
pub trait Timer {
    /// Runs one operation and counts it. Of a phase's operations, which are alike, all are timed, or, where that would cost too
    /// much of what they take, some that stand for the others.
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

    /// How many of the operations that come next, at most `most`, are counted hereby and need not be told: those between two
    /// that are timed.
    fn untimed(&mut self, most: u64) -> u64;

    /// Whether there is time for one more operation: false where the phase's time
    /// ([`Options::seconds`](crate::Options::seconds)) is over. Costs nothing.
    fn go_on(&mut self) -> bool;
}

/// Does `work`, one operation, for each of `numbers` while there is time; the number that comes next, then. Between timed
/// operations nothing is called but `work`: a call through a pointer takes a good part of what the cheapest operations take.
///
/// Errors: those of `work`, with which it ends.
pub fn each<T: Timer + ?Sized>(
    timer: &mut T,
    numbers: Range<u64>,
    mut work: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut next = numbers.start;
    while next < numbers.end && timer.go_on() {
        timer.operation(&mut || work(next))?;
        next += 1;
        let untold = next + timer.untimed(numbers.end - next);
        while next < untold {
            work(next)?;
            next += 1;
        }
    }
    Ok(next)
}

/// What a worker tells while it works, and what it can ask of the others.
pub trait Observer: Timer {
    /// Runs, counts and times one operation that is unlike those before it (an fsync after writes).
    fn single(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

    /// Records the operations of a thread of the worker.
    fn of_thread(&mut self, thread: &Meter);

    /// Counts bytes that were moved.
    fn bytes(&mut self, bytes: u64);

    /// Runs a named part of a phase. Of all workers together it lasts from the first's begin to the last's end.
    fn span(
        &mut self,
        name: &str,
        work: &mut dyn FnMut(&mut dyn Observer) -> io::Result<()>,
    ) -> io::Result<()>;

    /// Adds to a named count, which is summed over all workers.
    fn count(&mut self, name: &str, more: u64);

    /// Waits until every worker of the phase has come here, and gives what each brought, in their order. All
    /// workers must call it equally often.
    ///
    /// Errors: another worker failed, or ended.
    fn agree(&mut self, mine: u64) -> io::Result<Vec<u64>>;
}

/// What a suite takes of the file system at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// A benchmark, with the options it was given.
pub trait Suite: Send {
    fn name(&self) -> &'static str;

    /// Puts what its short forms mean (a hard form, IOR's defaults) in place of them, so that what is recorded is what is
    /// done. Comes before all below; twice is as once.
    fn spell_out(&mut self) {}

    /// What it does in this order.
    fn phases(&self) -> Vec<Phase>;

    /// A round begins, in this seat: whatever takes time and is not to be measured is done here. All workers wait for it.
    fn enter(&mut self, _seat: &Seat) -> io::Result<()> {
        Ok(())
    }

    /// Does this worker's part of the phase called `phase`. It may remember things from one phase of a round to the
    /// next: each round begins with the options as they were given.
    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()>;

    /// Whether these options go together, with so many workers. Nothing has been written yet.
    ///
    /// Errors: one line for the person who gave the options.
    fn check(&self, _processes: usize) -> Result<(), String> {
        Ok(())
    }

    /// Why [`Observer::go_on`] does not bound its phases, and what does.
    fn own_time(&self) -> Option<&'static str> {
        None
    }

    /// What it will take of the file system with so many workers.
    fn need(&self, _processes: usize) -> Need {
        Need::default()
    }

    /// The most workers that make sense.
    fn processes_max(&self) -> usize {
        usize::MAX
    }

    /// Its files stay, for a later run that [`finds`](Self::finds) them.
    fn leaves(&self) -> bool {
        false
    }

    /// It works on what an earlier run left.
    fn finds(&self) -> bool {
        false
    }

    /// Whether it can work, with so many workers, on `target` itself, which is not a directory.
    ///
    /// Errors: one line that says why not.
    fn takes(&self, target: &Path, _processes: usize) -> Result<(), String> {
        Err(format!("{} is not a directory; name one", target.display()))
    }

    /// The result in the form of the program that the suite follows; `target` is 0 for the first directory, 1
    /// for the one it is compared with. Empty where there is no such form.
    fn original(&self, _report: &Report, _target: usize) -> String {
        String::new()
    }
}

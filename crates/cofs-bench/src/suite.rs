//! What a suite is.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{options::Load, suites::ALL, worker::Seat};

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

/// Tells of each operation, or of a piece of a phase.
pub trait Observer {
    /// Runs one operation and records its time.
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
    /// Counts bytes that were moved.
    fn bytes(&mut self, bytes: u64);
}

/// A benchmark.
pub trait Suite: Sync {
    fn name(&self) -> &'static str;
    /// One line of what it measures.
    fn about(&self) -> &'static str;
    fn phases(&self) -> &'static [Phase];
    /// Does this worker's part of the phase called `phase`.
    fn work(&self, phase: &str, load: &Load, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()>;
    /// The most workers that make sense.
    fn processes_max(&self) -> usize {
        usize::MAX
    }
}

/// All suites.
pub fn suites() -> &'static [&'static dyn Suite] {
    ALL
}

/// The suite of this name.
pub fn suite(name: &str) -> Option<&'static dyn Suite> {
    suites().iter().copied().find(|suite| suite.name() == name)
}

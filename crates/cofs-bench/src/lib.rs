//! The field's benchmarks, on any mounted directory. Nothing here knows cofs: what runs on a mount runs as well
//! on the directory below or on another file system, and [`Options::versus`] runs both in turns, so that their
//! ratio is of one hour and one machine.
//!
//! A suite is one file under `suites/` and knows two things: its phases, and how to do one of them on a
//! directory. Phases are done by worker processes (this program started anew), which wait for each other on
//! pipes and so do not spin; a [`Launcher`] says how a worker is started.

mod environment;
mod latency;
mod options;
mod paths;
mod report;
mod runner;
mod suite;
mod suites;
mod worker;

pub use environment::Environment;
pub use latency::Latencies;
pub use options::{Launcher, Load, Options};
pub use report::{Figure, Report, Row, table};
pub use runner::run;
pub use suite::{Suite, Unit, suite, suites};
pub use worker::work;

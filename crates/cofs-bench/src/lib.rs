//! The field's benchmarks, on any mounted directory. Nothing here knows cofs: what runs on a mount runs as well
//! on the directory below or on another file system, and [`Options::versus`] runs both in turns, so that their
//! ratio is of one hour and one machine.
//!
//! A suite is one file under `suites/`: its options (which are its command line, too), its phases, and how to do
//! one of them on a directory. Phases are done by worker processes (this program started anew), which wait for
//! each other on pipes and so do not spin; a [`Launcher`] says how a worker is started.

mod environment;
mod latency;
mod options;
mod paths;
mod report;
mod runner;
mod scratch;
mod suite;
mod suites;
mod worker;

pub use environment::Environment;
pub use latency::Latencies;
pub use options::{Launcher, Options};
pub use report::{Figure, Report, Row, table};
pub use runner::run;
pub use suite::{Need, Observer, Phase, Suite, Unit};
pub use suites::{Io, Kind, Metarates, Tree};
pub use worker::{Seat, work};

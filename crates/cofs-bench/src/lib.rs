//! The field's benchmarks, on any mounted directory. Nothing here knows cofs: what runs on a mount runs as well
//! on the directory below or on another file system, and [`Options::versus`] runs both in turns, so that their
//! ratio is of one hour and one machine.
//!
//! A suite is one file under `suites/`: its options (which are its command line, too), its phases, and how to do
//! one of them on a directory. Phases are done by worker processes: this program started anew (a [`Launcher`] says
//! how), or ranks that `mpirun`, `srun` or a person started on many nodes ([`place`]). A coordinator, rank 0, orders
//! them over pipes or TCP, so that none spins while it waits.

mod aligned;
mod caches;
mod clock;
mod crew;
mod csv;
mod environment;
mod frame;
mod latency;
mod meeting;
mod message;
mod meter;
mod options;
mod page;
mod paths;
mod place;
mod profile;
mod quiet;
mod recorder;
mod report;
mod results;
mod runner;
mod scratch;
mod settings;
mod suite;
mod suites;
mod worker;

pub use csv::csv;
pub use environment::Environment;
pub use latency::Latencies;
pub use meeting::Ways;
pub use meter::Meter;
pub use options::{Launcher, Options};
pub use page::{Heading, page};
pub use place::{MEETING, Place, Told, Unclear, place};
pub use profile::{Half, Outcome, Profile, Score, Total, join_profile, run_profile, score_table};
pub use report::{Figure, Part, Report, Row, Work, table};
pub use results::results;
pub use runner::{Step, join, run};
pub use scratch::{clean, left};
pub use suite::{Need, Observer, Phase, Suite, Timer, Unit, each};
pub use suites::{
    Btio, Dataset, Io, Ior, Kind, Mdtest, Metabench, Metarates, Mptio, Python, Source, Tool, Tree,
};
pub use worker::{Seat, alone, work};

//! `cofs bench`: the field's benchmarks, on any directory. What a suite can be told stands with the suite.

use std::path::PathBuf;

use cofs_bench::{Io, Kind, Launcher, Metarates, Options, Tree, run as measure, table, work};
use serde_json::to_value;

use crate::{
    failure::{Done, Failure, plain},
    output::{self, Format},
    progress::Progress,
};

/// Measure a directory of any file system, or two in turns.
///
/// A directory is made in DIR and removed. As root the caches of the machine are dropped before cold phases.
#[derive(clap::Args, Debug)]
#[command(subcommand_value_name = "SUITE", subcommand_help_heading = "Suites")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    Metarates(Measured<Metarates>),
    Tree(Measured<Tree>),
    Io(Measured<Io>),
    /// Be one of the processes of a bench.
    #[command(hide = true)]
    Worker,
}

/// One suite's options, and those of all.
#[derive(clap::Args, Debug)]
struct Measured<S: clap::Args> {
    #[command(flatten)]
    suite: S,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Every suite")]
struct Common {
    /// Where.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Measure this directory too, in turns, and show the ratio.
    #[arg(long, value_name = "DIR")]
    vs: Option<PathBuf>,

    /// Processes that work at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: u16,

    /// How often everything is measured; medians are shown.
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,

    /// Leave out what begins with cold caches.
    #[arg(long)]
    warm: bool,

    /// DIR may hold other things; they are left alone.
    #[arg(long)]
    beside: bool,
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done {
    match &args.what {
        What::Worker => {
            work().map_err(|error| Failure::new(format!("a worker of a bench: {}", plain(&error))))
        }
        What::Metarates(args) => bench(args, form, progress),
        What::Tree(args) => bench(args, form, progress),
        What::Io(args) => bench(args, form, progress),
    }
}

fn bench<S: clap::Args + Clone + Into<Kind>>(args: &Measured<S>, form: Format, progress: Progress) -> Done {
    let options = options(args.suite.clone().into(), &args.common)?;
    let sign = progress.stage("measuring");
    let report = measure(&options, &mut |what| sign.set_message(what.to_owned()));
    drop(sign);
    let report = report.map_err(|error| Failure::new(format!("bench: {}", plain(&error))))?;
    match form {
        Format::Table => Ok(output::print(&table(&report))?),
        Format::Json => {
            let report = to_value(&report).map_err(|error| Failure::new(error.to_string()))?;
            Ok(output::document(form, &report)?)
        }
    }
}

fn options(suite: Kind, common: &Common) -> Done<Options> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find this program to start workers: {}", plain(&error)))
    })?;
    Ok(Options {
        suite,
        directory: common.directory.clone(),
        versus: common.vs.clone(),
        processes: common.processes.into(),
        repeats: common.repeats.into(),
        cold: !common.warm,
        beside: common.beside,
        launcher: Launcher { program, arguments: vec!["bench".into(), "worker".into()] },
    })
}

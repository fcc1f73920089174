//! `cofs bench`: the field's benchmarks, on any directory.

use std::path::PathBuf;

use cofs_bench::{Launcher, Options, run as measure, suites, table, work};
use serde_json::to_value;

use crate::{
    failure::{Done, Failure, plain},
    output::{self, Format},
    progress::Progress,
    size::parse_size,
};

/// Measure a directory of any file system, or two in turns.
///
/// Suites: metarates (create, open, stat, utime, unlink, small files), tree (ls -lR, find, du, rm -rf), io (large
/// files). A directory is made in DIR and removed. As root the caches of the machine are dropped before cold phases.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What is measured.
    #[arg(value_name = "SUITE", required_unless_present = "worker", value_parser = suite_names())]
    suite: Option<String>,

    /// Where.
    #[arg(value_name = "DIR", required_unless_present = "worker")]
    directory: Option<PathBuf>,

    /// Measure this directory too, in turns, and show the ratio.
    #[arg(long, value_name = "DIR")]
    vs: Option<PathBuf>,

    /// Files of all processes together.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,

    /// Processes that work at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: u16,

    /// Give each process a directory of its own.
    #[arg(long)]
    own: bool,

    /// How often everything is measured; medians are shown.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,

    /// Files in each directory of a tree.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    per_directory: u64,

    /// Bytes of a small file.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    small: u64,

    /// Bytes of the large file of each process.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    large: u64,

    /// Random reads, and random writes, of each process.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    random: u64,

    /// Leave out what begins with cold caches.
    #[arg(long)]
    warm: bool,

    /// Be one of the processes of a bench.
    #[arg(long, hide = true)]
    worker: bool,
}

fn suite_names() -> clap::builder::PossibleValuesParser {
    suites().iter().map(|suite| clap::builder::PossibleValue::new(suite.name()).help(suite.about())).into()
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done {
    if args.worker {
        return work().map_err(|error| Failure::new(format!("a worker of a bench: {}", plain(&error))));
    }
    let options = options(args)?;
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

fn options(args: &Args) -> Done<Options> {
    let (Some(suite), Some(directory)) = (&args.suite, &args.directory) else {
        return Err(Failure::usage("name a suite and a directory"));
    };
    if args.small > 1 << 30 || args.large < 1 << 20 {
        return Err(Failure::usage("--small is at most 1G, --large at least 1M"));
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find this program to start workers: {}", plain(&error)))
    })?;
    let load = cofs_bench::Load {
        files: args.files,
        processes: args.processes.into(),
        own_directories: args.own,
        per_directory: args.per_directory,
        small_bytes: args.small as usize,
        large_bytes: args.large,
        random_operations: args.random,
    };
    Ok(Options {
        suite: suite.clone(),
        directory: directory.clone(),
        versus: args.vs.clone(),
        repeats: args.repeats.into(),
        cold: !args.warm,
        load,
        launcher: Launcher { program, arguments: vec!["bench".into(), "--worker".into()] },
    })
}

//! `cofs bench`: the field's benchmarks, on any directory. What a suite can be told stands with the suite.

use std::path::{Path, PathBuf};

use cofs_bench::{
    Btio, Dataset, Heading, Io, Ior, Kind, Launcher, Mdtest, Metabench, Metarates, Mptio, Options, Place,
    Profile, Python, Source, Step, Told, Tree, clean, csv, join, join_profile, left, page, place, results,
    run as measure, run_profile, score_table, table, work,
};
use serde_json::{json, to_value};

use crate::{
    failure::{Done, Failure, plain},
    output::{self, Format},
    progress::{Progress, Sign},
    staged::Staged,
};

/// Measure a directory of any file system, or two in turns.
///
/// A directory is made in DIR and removed. As root the caches of the machine are dropped before cold phases. Started
/// by mpirun or srun on many nodes, its processes are the ranks of one run, and rank 0 says what it found.
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
    Mdtest(Measured<Mdtest>),
    Ior(Measured<Ior>),
    Metabench(Measured<Metabench>),
    Mptio(Measured<Mptio>),
    Btio(Measured<Btio>),
    Source(Measured<Source>),
    Python(Measured<Python>),
    Dataset(Measured<Dataset>),
    /// Measure the set that matters, in one go, with one score: easy and hard, metadata and data, and find.
    ///
    /// The phases and the score are IO500's; how long they take is not.
    Suite(SuiteArgs),
    /// Make one page, with plots and tables, of results (of `cofs bench --output json`).
    Report(PageArgs),
    /// Remove what runs that failed have left in DIR.
    Clean {
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// Only list it.
        #[arg(long)]
        list: bool,
    },
    /// Be one of the processes of a bench.
    #[command(hide = true)]
    Worker,
}

// One suite's options, and those of all. (No doc comment: it would stand where the help tells what the suite is.)
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
    #[arg(value_name = "DIR", required_unless_present = "letter")]
    directory: Option<PathBuf>,

    /// As DIR, with mdtest's letter.
    #[arg(short = 'd', id = "letter", value_name = "DIR", conflicts_with = "directory")]
    letter: Option<PathBuf>,

    /// Measure this directory too, in turns, and show the ratio.
    #[arg(long, value_name = "DIR")]
    vs: Option<PathBuf>,

    /// Other mounts of the file system of DIR: processes take them in turn, and so stand for nodes.
    #[arg(long, value_name = "DIR,...", value_delimiter = ',')]
    mounts: Vec<PathBuf>,

    /// Other mounts of the file system of --vs.
    #[arg(long, value_name = "DIR,...", value_delimiter = ',', requires = "vs")]
    vs_mounts: Vec<PathBuf>,

    /// Processes that work at the same time, on this machine.
    #[arg(short, long, visible_alias = "ranks", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: Option<u16>,

    /// Which of --size processes this one is, where no launcher tells. Processes are counted from 0.
    #[arg(long, value_name = "N", requires = "size", conflicts_with = "processes")]
    rank: Option<u16>,

    /// How many processes are started, each with its --rank.
    #[arg(long, value_name = "N", requires = "rank", value_parser = clap::value_parser!(u16).range(1..=4096))]
    size: Option<u16>,

    /// Where rank 0 listens for the others.
    #[arg(long, value_name = "HOST[:PORT]", env = cofs_bench::MEETING, value_parser = parse_meeting)]
    rendezvous: Option<String>,

    /// Rounds before those that count.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1000))]
    warm_ups: u16,

    /// How often everything is measured; medians are shown.
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,

    /// No phase begins an operation after this time; counts hold as well, whichever is reached first.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Have the file system write what is dirty before each phase.
    #[arg(long)]
    sync: bool,

    /// Drop the caches of the machine before each phase, cold or not.
    #[arg(long)]
    drop_caches: bool,

    /// Leave out what begins with cold caches.
    #[arg(long)]
    warm: bool,

    /// DIR may hold other things; they are left alone.
    #[arg(long)]
    beside: bool,

    /// How DIR, and the directory of --vs, are called on a page of results; else by their file systems.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    names: Vec<String>,

    /// What this run belongs to: a page makes a chapter of all results of a group.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done {
    match &args.what {
        What::Worker => {
            work().map_err(|error| Failure::new(format!("a worker of a bench: {}", plain(&error))))
        }
        What::Suite(args) => bench_suite(args, form, progress),
        What::Report(args) => write_page(args),
        What::Clean { directory, list } => remove(directory, *list, form),
        What::Metarates(args) => bench(args, form, progress),
        What::Tree(args) => bench(args, form, progress),
        What::Io(args) => bench(args, form, progress),
        What::Mdtest(args) => bench(args, form, progress),
        What::Ior(args) => bench(args, form, progress),
        What::Metabench(args) => bench(args, form, progress),
        What::Mptio(args) => bench(args, form, progress),
        What::Btio(args) => bench(args, form, progress),
        What::Source(args) => bench(args, form, progress),
        What::Python(args) => bench(args, form, progress),
        What::Dataset(args) => bench(args, form, progress),
    }
}

#[derive(clap::Args, Debug)]
struct SuiteArgs {
    /// How much is done.
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    #[command(flatten)]
    common: Common,
}

fn bench_suite(args: &SuiteArgs, form: Format, progress: Progress) -> Done {
    let profile = args.profile;
    // Each test of the profile puts its own suite there.
    let options = options(Ior::default().into(), &args.common)?;
    if let Some(place) = options.place.as_ref().filter(|place| place.rank > 0) {
        return Ok(join_profile(profile, &options, place)?);
    }
    let sign = progress.count("measuring");
    let outcome = run_profile(profile, &options, &mut |step| show(&sign, step));
    drop(sign);
    let outcome = outcome?;
    match form {
        Format::Table => Ok(output::print(&score_table(&outcome))?),
        Format::Csv => Ok(output::print(&csv(&outcome.reports))?),
        Format::Json => {
            let outcome = to_value(&outcome).map_err(|error| Failure::new(error.to_string()))?;
            Ok(output::document(form, &outcome)?)
        }
    }
}

fn show(sign: &Sign, step: &Step) {
    sign.set_length(step.of as u64);
    sign.set_position(step.done as u64);
    sign.set_message(step.what.to_owned());
}

#[derive(clap::Args, Debug)]
struct PageArgs {
    /// Files of results; one may hold many, one after the other.
    #[arg(value_name = "RESULTS", required = true)]
    results: Vec<PathBuf>,

    /// Where the page goes.
    #[arg(short = 'o', long, value_name = "FILE", default_value = "report.html")]
    page: PathBuf,

    /// How the directory, and the one that it is compared with, are called; else by their file systems.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', num_args = 1..=2)]
    names: Vec<String>,

    #[arg(long, value_name = "TEXT", default_value = "What was measured")]
    title: String,

    /// A paragraph that readers need to understand the results; may be given several times.
    #[arg(long = "note", value_name = "TEXT")]
    notes: Vec<String>,
}

fn write_page(args: &PageArgs) -> Done {
    let mut all = Vec::new();
    for path in &args.results {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::io("cannot read", path, &error))?;
        let found = results(&text).map_err(|error| {
            Failure::new(format!("{} holds no results of a bench: {error}", path.display()))
                .next("write them with cofs bench --output json")
        })?;
        all.extend(found);
    }
    let heading = Heading { title: args.title.clone(), names: args.names.clone(), notes: args.notes.clone() };
    let page =
        page(&all, &heading).map_err(|error| Failure::new(format!("cannot draw the page: {error}")))?;
    Staged::of(&args.page, page.as_bytes())?.place()
}

/// Checked even for who meets nobody.
fn parse_meeting(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let told = Told { rank: Some(0), size: Some(2), meeting: Some(text.to_owned()) };
    place(&told, &|_| None).map(|_| text.to_owned()).map_err(|unclear| unclear.to_string())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        _ => Err("a number of seconds above 0".to_owned()),
    }
}

fn remove(directory: &Path, only_list: bool, form: Format) -> Done {
    let found = if only_list { left(directory) } else { clean(directory) }?;
    match form {
        Format::Table | Format::Csv => {
            found.iter().try_for_each(|path| Ok(output::print(&format!("{}\n", path.display()))?))
        }
        Format::Json => {
            let found: Vec<_> = found.iter().map(|path| path.to_string_lossy()).collect();
            Ok(output::document(form, &json!({ if only_list { "left" } else { "removed" }: found }))?)
        }
    }
}

fn bench<S: clap::Args + Clone + Into<Kind>>(args: &Measured<S>, form: Format, progress: Progress) -> Done {
    let options = options(args.suite.clone().into(), &args.common)?;
    if let Some(place) = options.place.as_ref().filter(|place| place.rank > 0) {
        return Ok(join(&options, place)?);
    }
    let sign = progress.count("measuring");
    let report = measure(&options, &mut |step| show(&sign, step));
    drop(sign);
    let report = report?;
    match form {
        Format::Table => Ok(output::print(&table(&report))?),
        Format::Csv => Ok(output::print(&csv(&[report]))?),
        Format::Json => {
            let report = to_value(&report).map_err(|error| Failure::new(error.to_string()))?;
            Ok(output::document(form, &report)?)
        }
    }
}

/// This process among those that a launcher started; none where it is told how many to start itself.
fn seat(common: &Common) -> Done<Option<Place>> {
    if common.processes.is_some() {
        return Ok(None);
    }
    let told = Told {
        rank: common.rank.map(usize::from),
        size: common.size.map(usize::from),
        meeting: common.rendezvous.clone(),
    };
    place(&told, &|name| std::env::var(name).ok()).map_err(|unclear| Failure::usage(unclear.to_string()))
}

fn options(suite: Kind, common: &Common) -> Done<Options> {
    let directories = if common.vs.is_some() { 2 } else { 1 };
    if common.names.len() > directories {
        let text = format!("--names tells {} names of {directories} directories", common.names.len());
        return Err(Failure::usage(text).next("give one to each, with commas between them"));
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find this program to start workers: {}", plain(&error)))
    })?;
    let place = seat(common)?;
    let processes = place.as_ref().map_or(common.processes.unwrap_or(1).into(), |place| place.size);
    Ok(Options {
        suite,
        // The command line has one of them.
        directory: common.directory.clone().or_else(|| common.letter.clone()).unwrap_or_default(),
        mounts: common.mounts.clone(),
        versus: common.vs.clone(),
        versus_mounts: common.vs_mounts.clone(),
        processes,
        place,
        warm_ups: common.warm_ups.into(),
        repeats: common.repeats.into(),
        seconds: common.seconds,
        sync: common.sync,
        drop_caches: common.drop_caches,
        cold: !common.warm,
        beside: common.beside,
        names: common.names.clone(),
        group: common.group.clone(),
        launcher: Launcher { program, arguments: vec!["bench".into(), "worker".into()] },
    })
}

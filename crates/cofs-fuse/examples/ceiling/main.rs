//! What the interface can do, and what of it the crate reaches: `ceiling [--rounds N] [--files N] [--with NAME=DIR]...`, as root.
//!
//! Over each transport stand, in turns: a hand-written loop with fixed answers ([`raw`]), the crate with the same answers
//! ([`fixed`]; also plainly as the loop: its workers do not stack, and idle CPUs are not kept awake), and the crate with the null file system. Each is a
//! daemon in a session of its own. `--with` adds directories, such as a mounted volume, against the null file system of the first transport. Rates are
//! medians; ratios are medians of the ratios of single rounds, with their quartiles.
//!
//! `ceiling --saved` tells what each measure that saves requests is worth: the null file system without it, as a share of the one that has all.

mod clients;
mod figures;
mod fixed;
#[path = "../null/fs.rs"]
mod fs;
#[path = "../null/node.rs"]
mod node;
mod raw;
mod table;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};
use clients::{Crew, VERBS};
use cofs_face::FileSystem;
use cofs_fuse::{IdleCpus, MountOptions, Transport, Unmount};
use figures::{Rates, print_rates, print_shares};
use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};
use table::Table;

/// Rates of the transports: a hand-written loop, the crate, the null file system, in turns.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Files of all processes together, in each round.
    #[arg(long, default_value_t = 4000)]
    files: usize,
    /// Measure this directory, too, against the null file system.
    #[arg(long, value_name = "NAME=DIR")]
    with: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "uring,dev")]
    transports: Vec<Way>,
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    processes: Vec<usize>,
    /// Measure the null file system without each of what saves requests, over the first transport, and nothing else.
    #[arg(long, conflicts_with = "with")]
    saved: bool,
}

/// What this program is when it starts itself.
#[derive(Subcommand)]
enum Part {
    #[command(hide = true)]
    Serve { kind: Kind, way: Way, point: PathBuf, lack: Option<Lack> },
    #[command(hide = true)]
    Client { dir: PathBuf, first: usize, count: usize },
}

/// So long after the last request no mount keeps CPUs awake any more.
const CPUS_AS_EVER: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Dev,
    Uring,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Loop,
    Crate,
    /// The crate, whose workers do not stack and which keeps no CPU awake.
    Plain,
    Null,
}

/// A measure that the null file system does without.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lack {
    /// `FOPEN_NOFLUSH`.
    NoFlush,
    /// `FOPEN_KEEP_CACHE`.
    KeepCache,
    /// Time-outs for names and attributes.
    TimeOuts,
    /// Time-outs for names that are not there.
    Negative,
    /// Unseen first reads: with relatime they must be seen, and new files are written past the page cache, which saves a GETXATTR.
    Unseen,
    /// Permissions that the kernel checks: it asks for the parent's attributes before each change in it.
    Checks,
}

impl Lack {
    fn words(self) -> &'static str {
        match self {
            Self::NoFlush => "without FOPEN_NOFLUSH",
            Self::KeepCache => "without FOPEN_KEEP_CACHE",
            Self::TimeOuts => "without time-outs for names and attributes",
            Self::Negative => "without time-outs for names that are not there",
            Self::Unseen => "with relatime: first reads are seen, new files written past the page cache",
            Self::Checks => "without the kernel's checks of permissions",
        }
    }
}

/// So many processes, in one directory or each in its own.
pub struct Cell {
    processes: usize,
    own: bool,
}

impl Cell {
    fn all(processes: &[usize]) -> Vec<Self> {
        let layouts = |&processes: &usize| {
            let both: &[bool] = if processes > 1 { &[false, true] } else { &[false] };
            both.iter().map(move |&own| Self { processes, own })
        };
        processes.iter().flat_map(layouts).collect()
    }

    fn title(&self) -> String {
        match (self.processes, self.own) {
            (1, _) => "1".to_owned(),
            (processes, false) => format!("{processes}, one dir"),
            (processes, true) => format!("{processes}, own dirs"),
        }
    }
}

/// A mounted directory and who serves it.
struct Subject {
    name: String,
    /// `None` for a directory of others.
    served: Option<(Kind, Way)>,
    top: PathBuf,
    daemon: Option<Child>,
    _point: Option<tempfile::TempDir>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Its standard input's end tells it to unmount.
            drop(daemon.stdin.take());
            let _ = daemon.wait();
        }
    }
}

impl Subject {
    fn start(kind: Kind, way: Way, lack: Option<Lack>) -> io::Result<Self> {
        let point = tempfile::tempdir()?;
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        let (kind_word, way_word) = (word(&|| kind.to_possible_value()), word(&|| way.to_possible_value()));
        let lack_word = lack.and_then(|lack| word(&|| lack.to_possible_value()));
        let name = lack_word.clone().or(kind_word.clone()).unwrap_or_default();
        let mut command = Command::new("setsid");
        command
            .arg(std::env::current_exe()?)
            .arg("serve")
            .args(kind_word)
            .args(way_word)
            .arg(point.path())
            .args(lack_word);
        let mut daemon = command.stdin(Stdio::piped()).spawn()?;
        let stands = || {
            std::fs::read_to_string("/proc/self/mountinfo")
                .is_ok_and(|table| table.contains(&*point.path().to_string_lossy()))
        };
        while !stands() {
            if let Some(status) = daemon.try_wait()? {
                return Err(io::Error::other(format!("the daemon of {name} ended: {status}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let top = point.path().to_path_buf();
        Ok(Self { name, served: Some((kind, way)), top, daemon: Some(daemon), _point: Some(point) })
    }

    fn of_others(text: &str) -> io::Result<Self> {
        let (name, dir) =
            text.split_once('=').ok_or_else(|| io::Error::other(format!("--with {text}: say NAME=DIR")))?;
        let top = Path::new(dir)
            .canonicalize()
            .map_err(|error| io::Error::other(format!("--with {text}: {error}")))?;
        Ok(Self { name: name.to_owned(), served: None, top, daemon: None, _point: None })
    }

    /// Everything once, with files that have not been before. Returns rates, by verb.
    fn measure(&self, cell: &Cell, files: usize, first: usize) -> io::Result<Vec<f64>> {
        for number in 0..cell.processes {
            match std::fs::create_dir(clients::directory(&self.top, number)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let each = files / cell.processes;
        let mut crew = Crew::start(&self.top, cell.processes, cell.own, first, each)?;
        // What the one before has asked of the CPUs is over.
        std::thread::sleep(CPUS_AS_EVER);
        let mut rates = Vec::new();
        for verb in &VERBS {
            if verb.cold {
                std::fs::write("/proc/sys/vm/drop_caches", "2")?;
            }
            let took = crew.act(verb).map_err(|error| io::Error::other(format!("{}: {error}", self.name)))?;
            rates.push((each * cell.processes) as f64 / took.as_secs_f64());
        }
        crew.end()?;
        Ok(rates)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.part {
        Some(Part::Serve { kind, way, point, lack }) => serve(*kind, *way, point, *lack),
        Some(Part::Client { dir, first, count }) => clients::work(dir, *first, *count),
        None => measure(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ceiling: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A daemon's life: until its standard input ends, which takes the mount down.
fn serve(kind: Kind, way: Way, point: &Path, lack: Option<Lack>) -> io::Result<()> {
    let at = point.to_path_buf();
    std::thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        if let Err(error) = cofs_fuse::unmount(&at, Unmount::Lazily) {
            eprintln!("ceiling: {}: {error}", at.display());
        }
    });
    let table: &'static Table = Box::leak(Box::new(Table::new()));
    match (kind, way) {
        (Kind::Loop, Way::Dev) => raw::dev::serve(table, point),
        (Kind::Loop, Way::Uring) => raw::uring::serve(table, point),
        (Kind::Null, _) => {
            let options = MountOptions { default_permissions: lack != Some(Lack::Checks), ..options(way) };
            serve_by_crate(null(lack), &options, point)
        }
        (Kind::Crate | Kind::Plain, _) => {
            let is_plain = kind == Kind::Plain;
            let idle_cpus = if is_plain { IdleCpus::Halt } else { IdleCpus::Auto };
            let options = MountOptions { stacking: !is_plain, idle_cpus, ..options(way) };
            serve_by_crate(fixed::Fixed(table), &options, point)
        }
    }
}

fn null(lack: Option<Lack>) -> fs::NullFs {
    let has = |measure| lack != Some(measure);
    let mut null = fs::NullFs::new(!has(Lack::NoFlush), || ());
    null.keeps =
        fs::Keeps { names: has(Lack::TimeOuts), absent: has(Lack::Negative), bytes: has(Lack::KeepCache) };
    *null.relatime.get_mut() = !has(Lack::Unseen);
    null
}

fn options(way: Way) -> MountOptions {
    let transport = if way == Way::Dev { Transport::DevFuse } else { Transport::Uring };
    MountOptions { fs_name: "ceiling".into(), allow_other: true, transport, ..Default::default() }
}

fn serve_by_crate(fs: impl FileSystem, options: &MountOptions, point: &Path) -> io::Result<()> {
    let transport = options.transport;
    let mount = cofs_fuse::mount(Arc::new(fs), point, options).map_err(io::Error::other)?;
    if mount.report().transport != transport {
        return Err(io::Error::other(mount.report().reason.clone()));
    }
    mount.join().map_err(io::Error::other)
}

fn measure(arguments: &Arguments) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("only root mounts without a helper and drops caches: run it as root"));
    }
    let cells = Cell::all(&arguments.processes);
    let subjects = if arguments.saved { without_each(arguments) } else { all_ways(arguments) }?;
    let mut rates: Vec<Rates> = subjects.iter().map(|_| Rates::new(cells.len())).collect();
    let (mut first, random) = (0, &mut SmallRng::from_os_rng());
    // The first round warms up and does not count.
    for round in 0..=arguments.rounds {
        for (number, cell) in cells.iter().enumerate() {
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            order.shuffle(random);
            for subject in order {
                let measured = subjects[subject].measure(cell, arguments.files, first)?;
                first += arguments.files;
                if round > 0 {
                    measured
                        .into_iter()
                        .enumerate()
                        .for_each(|(verb, rate)| rates[subject].add(number, verb, rate));
                }
            }
        }
        eprint!("\rround {round} of {} ", arguments.rounds);
    }
    eprintln!();
    if arguments.saved {
        print_saved(arguments, &cells, &rates);
    } else {
        print_all(arguments, &cells, &subjects, &rates);
    }
    Ok(())
}

fn all_ways(arguments: &Arguments) -> io::Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for &way in &arguments.transports {
        for kind in [Kind::Loop, Kind::Plain, Kind::Crate, Kind::Null] {
            subjects.push(Subject::start(kind, way, None)?);
        }
    }
    for text in &arguments.with {
        subjects.push(Subject::of_others(text)?);
    }
    Ok(subjects)
}

/// The null file system with all, and without each.
fn without_each(arguments: &Arguments) -> io::Result<Vec<Subject>> {
    let way = arguments.transports.first().copied().unwrap_or(Way::Uring);
    let lacks = Lack::value_variants().iter().map(|&lack| Some(lack));
    std::iter::once(None).chain(lacks).map(|lack| Subject::start(Kind::Null, way, lack)).collect()
}

fn print_saved(arguments: &Arguments, cells: &[Cell], rates: &[Rates]) {
    println!(
        "{} files in each of {} rounds; thousands per second, then shares",
        arguments.files, arguments.rounds
    );
    let Some((all, others)) = rates.split_first() else { return };
    print_rates("the null file system, 1000/s", cells, all);
    for (lack, lacking) in Lack::value_variants().iter().zip(others) {
        print_shares(lack.words(), cells, lacking, all);
    }
}

fn print_all(arguments: &Arguments, cells: &[Cell], subjects: &[Subject], rates: &[Rates]) {
    println!(
        "{} files in each of {} rounds; the hand-written loop in thousands per second, others as shares",
        arguments.files, arguments.rounds
    );
    let find = |kind, way| subjects.iter().position(|subject| subject.served == Some((kind, way)));
    for &way in &arguments.transports {
        let transport = if way == Way::Dev { "/dev/fuse" } else { "io_uring" };
        let Some(base) = find(Kind::Loop, way) else { continue };
        print_rates(&format!("{transport}: the loop, 1000/s"), cells, &rates[base]);
        for (kind, words) in [
            (Kind::Plain, "the crate, as plain as the loop / the loop"),
            (Kind::Crate, "the crate / the loop"),
            (Kind::Null, "the crate with the null file system / the loop"),
        ] {
            if let Some(subject) = find(kind, way) {
                print_shares(&format!("{transport}: {words}"), cells, &rates[subject], &rates[base]);
            }
        }
    }
    let null = arguments.transports.first().and_then(|way| find(Kind::Null, *way));
    for (subject, rates_of) in subjects.iter().zip(rates).filter(|(subject, _)| subject.served.is_none()) {
        print_rates(&format!("{}, 1000/s", subject.name), cells, rates_of);
        if let Some(null) = null {
            print_shares(&format!("{} / the null file system", subject.name), cells, rates_of, &rates[null]);
        }
    }
}

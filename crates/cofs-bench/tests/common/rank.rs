//! Ranks: processes that meet over TCP, each of them the test program, started anew.

use std::{
    env,
    io::Read,
    net::TcpListener,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio, exit},
    thread,
    time::{Duration, Instant},
};

use cofs_bench::{
    Btio, Dataset, Io, Ior, Kind, Metabench, Metarates, Mptio, Options, Place, Report, join, run,
};

use super::{options, suite};

/// What a rank is told.
const TOLD: &str = "COFS_BENCH_TEST_RANK";

/// A suite and its options, as a rank is told them.
pub fn kind(told: &str) -> Kind {
    match told.split_once(' ').unwrap() {
        ("metarates", words) => suite::<Metarates>(words),
        ("metabench", words) => suite::<Metabench>(words),
        ("dataset", words) => suite::<Dataset>(words),
        ("mptio", words) => suite::<Mptio>(words),
        ("btio", words) => suite::<Btio>(words),
        ("ior", words) => suite::<Ior>(words),
        ("io", words) => suite::<Io>(words),
        _ => panic!("no suite: {told}"),
    }
}

/// What this rank is to do: two rounds.
pub fn ranked(suite: &str, place: &Place, directory: &Path) -> Options {
    Options { place: Some(place.clone()), repeats: 2, ..options(kind(suite), place.size, directory) }
}

/// Is the rank that this program was started as, if it was: then it does not come back. A test of the name `a_rank` calls
/// this and nothing else.
pub fn be() {
    let Ok(told) = env::var(TOLD) else { return };
    let mut words = told.splitn(5, ' ');
    let mut next = || words.next().unwrap();
    let (rank, size) = (next().parse().unwrap(), next().parse().unwrap());
    let place = Place { rank, size, meeting: next().to_owned() };
    let directory = Path::new(next());
    let options = ranked(next(), &place, directory);
    let result = match rank {
        0 => run(&options, &mut |_| {}).map(|report| println!("{}", outcome(&report))),
        _ => join(&options, &place),
    };
    if let Err(error) = result {
        eprintln!("bench: {error}");
        exit(1);
    }
    exit(0);
}

fn outcome(report: &Report) -> String {
    format!("phases {} operations {}", report.rows.len(), report.rows[0].median.work.operations)
}

pub struct Rank {
    pub child: Child,
}

impl Rank {
    /// Starts a rank as a process of its own, in the namespace of this name if there is one.
    pub fn start(node: Option<&str>, place: &Place, suite: &str, directory: &Path) -> Self {
        let program = env::current_exe().unwrap();
        let mut command = match node {
            None => Command::new(program),
            Some(node) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", node]).arg(program);
                command
            }
        };
        let Place { rank, size, meeting } = place;
        let told = format!("{rank} {size} {meeting} {} {suite}", directory.display());
        command.args(["--exact", "a_rank", "--nocapture"]).env(TOLD, told);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    /// How it ended, and what it said.
    pub fn end(mut self, patience: Duration) -> (ExitStatus, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < patience, "a rank does not end");
            thread::sleep(Duration::from_millis(10));
        };
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status, text)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of this machine that nobody listens at.
pub fn free_place() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

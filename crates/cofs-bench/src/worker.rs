//! A worker: it joins the coordinator, on a pipe (a process that the coordinator started) or over TCP (a rank
//! of a launcher), and does what it is ordered to. A thread of its own waits for orders, so that a worker in
//! the midst of a phase ends as soon as the coordinator says so, or is gone.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    path::PathBuf,
    process::exit,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::to_value;

use crate::{
    Environment, Kind, Suite,
    caches::{can_drop_caches, settle},
    clock,
    frame::{BYTES_MAX, receive, send, why_lost},
    latency::Packed,
    meeting::Ways,
    message::{Answer, Job, Join, Order, Setup, VERSION},
    quiet,
    recorder::Recorder,
    scratch,
};

/// How long a file system may take to show one node what another has made.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Where one worker sits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    /// The suite's directory in the file system that is measured; or the device.
    pub root: PathBuf,
    /// From 0.
    pub index: usize,
    /// How many workers there are.
    pub size: usize,
    /// From here to the others.
    pub ways: Ways,
}

/// A worker's answer to one phase. Times are those of its machine's monotonic clock, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Done {
    pub begin: u64,
    pub end: u64,
    pub bytes: u64,
    pub latencies: Packed,
    /// Of the operations whose times these are: those that were timed and stand for others, and those that stand for
    /// themselves.
    pub timed: u64,
    pub singles: u64,
    pub spans: Vec<Span>,
    pub counts: BTreeMap<String, u64>,
    pub error: Option<String>,
}

/// A named part of a phase.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub name: String,
    pub begin: u64,
    pub end: u64,
}

/// The whole life of a worker that the coordinator started. The program that a [`Launcher`](crate::Launcher)
/// names calls this and nothing else.
pub fn work() -> io::Result<()> {
    let mut input = io::stdin();
    let setup: Setup = match receive(&mut input, BYTES_MAX) {
        Ok(setup) => setup,
        // Nothing to do, and nobody to tell.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        Err(error) => return Err(error),
    };
    serve(setup, input, &mut io::stdout(), Loss::Silent)
}

/// Does one phase as a worker does, in this process and without others: operations, and the seconds that they took
/// together. It tells what the harness costs (`examples/harness_cost.rs`).
///
/// Errors: those of the phase.
pub fn alone(suite: &mut dyn Suite, phase: &str, seat: &Seat) -> io::Result<(u64, f64)> {
    let mut agree = |mine| Ok(vec![mine]);
    let mut recorder = Recorder::new(&mut agree);
    recorder.begin(None);
    suite.work(phase, seat, &mut recorder)?;
    let done = recorder.end(Ok(()));
    Ok((done.latencies.count(), done.end.saturating_sub(done.begin) as f64 / 1e9))
}

/// Whether a worker whose coordinator is gone says so: one at a terminal of its own does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    Silent,
    Told,
}

/// Joins, and does what it is ordered to, until the end. The process exits where the run fails elsewhere.
pub fn serve(
    setup: Setup,
    mut from: impl Read + Send + 'static,
    to: &mut impl Write,
    loss: Loss,
) -> io::Result<()> {
    send(to, &join(&setup)?)?;
    let (orders, inbox) = channel();
    thread::Builder::new().name("orders".to_owned()).spawn(move || {
        loop {
            let order = receive(&mut from, BYTES_MAX).unwrap_or_else(|error| Order::End {
                error: Some(format!("rank 0 is gone: {}", why_lost(&error))),
            });
            let last = matches!(order, Order::End { .. });
            if let Order::End { error: Some(error) } = &order {
                if loss == Loss::Told {
                    let _ = writeln!(io::stderr(), "bench: {error}");
                }
                // The worker may be in the midst of a phase that takes long.
                exit(1);
            }
            if orders.send(order).is_err() || last {
                return;
            }
        }
    })?;
    Worker { seat: None, suite: setup.job.suite.clone(), setup, inbox, to }.run()
}

fn join(setup: &Setup) -> io::Result<Join> {
    Ok(Join {
        version: VERSION.to_owned(),
        rank: setup.rank,
        job: to_value(&setup.job)?,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        process: std::process::id(),
        boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
        can_drop_caches: can_drop_caches(),
        environments: setup.targets.iter().map(|target| Environment::of(target)).collect(),
    })
}

struct Worker<'a, W> {
    setup: Setup,
    /// As the last round left it; it may remember things from one phase to the next.
    suite: Kind,
    seat: Option<Seat>,
    inbox: Receiver<Order>,
    to: &'a mut W,
}

impl<W: Write> Worker<'_, W> {
    fn run(mut self) -> io::Result<()> {
        // Without orders the run is over.
        while let Ok(order) = self.inbox.recv() {
            let answer = match order {
                Order::Check => ready(self.check()),
                Order::Enter { target, name } => ready(self.enter(target, name)),
                Order::Leave => {
                    self.suite = self.job().suite.clone();
                    Answer::Ready
                }
                Order::Ping => Answer::Time(clock::now()),
                Order::Settle { sync, drop_caches } => ready(self.settle(sync, drop_caches)),
                Order::Rest => {
                    quiet::rest();
                    Answer::Ready
                }
                Order::Phase { name, begin } => self.phase(&name, begin),
                Order::Agreed(_) => Answer::Failed("an answer that was not asked for".to_owned()),
                Order::End { .. } => return Ok(()),
            };
            send(self.to, &answer)?;
        }
        Ok(())
    }

    fn job(&self) -> &Job {
        &self.setup.job
    }

    fn check(&self) -> io::Result<()> {
        let suite = self.job().suite.suite();
        let job = self.job();
        self.setup
            .targets
            .iter()
            .try_for_each(|target| scratch::check(target, suite, job.processes, job.beside))
    }

    /// Goes into the directory that the coordinator made: seen from here it must be there too.
    fn enter(&mut self, target: usize, name: Option<String>) -> io::Result<()> {
        let target = self.setup.targets.get(target).ok_or_else(|| io::Error::other("no such target"))?;
        let root = name.as_ref().map_or_else(|| target.clone(), |name| target.join(name));
        let begin = Instant::now();
        while !root.exists() {
            if begin.elapsed() > SEEN_WITHIN {
                let text = format!("{} is not there: not the file system that rank 0 sees?", root.display());
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.suite = self.job().suite.clone();
        let seat = Seat { root, index: self.setup.rank, size: self.job().processes, ways: self.setup.ways };
        self.suite.suite_mut().enter(&seat)?;
        self.seat = Some(seat);
        Ok(())
    }

    fn settle(&self, sync: bool, drop_caches: bool) -> io::Result<()> {
        let root = self.seat.as_ref().map(|seat| seat.root.as_path());
        settle(root.filter(|_| sync), drop_caches)
    }

    fn phase(&mut self, name: &str, begin: u64) -> Answer {
        let Some(seat) = &self.seat else { return Answer::Failed("no directory to work in".to_owned()) };
        let (to, inbox) = (&mut *self.to, &self.inbox);
        let mut agree = |mine| {
            send(to, &Answer::Agree(mine))?;
            match inbox.recv() {
                Ok(Order::Agreed(all)) => Ok(all),
                _ => Err(io::Error::other("the others went on")),
            }
        };
        let mut recorder = Recorder::new(&mut agree);
        clock::sleep_until(begin);
        recorder.begin(self.setup.job.seconds);
        let result = self.suite.suite_mut().work(name, seat, &mut recorder);
        Answer::Done(Box::new(recorder.end(result)))
    }
}

fn ready(result: io::Result<()>) -> Answer {
    result.map_or_else(|error| Answer::Failed(error.to_string()), |()| Answer::Ready)
}

//! A worker process: it reads its place from its standard input, then a line for each phase, and answers
//! each with a line. Waiting is a read of a pipe.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Latencies, Launcher, Suite,
    latency::Packed,
    options::Load,
    suite::{self, Observer},
};

/// Where one worker sits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    /// The suite's directory in the file system that is measured.
    pub root: PathBuf,
    pub index: usize,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    suite: String,
    load: Load,
    seat: Seat,
}

/// A worker's answer to one phase. Times are those of the machine's monotonic clock, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Done {
    pub begin: u64,
    pub end: u64,
    pub bytes: u64,
    pub latencies: Packed,
    pub error: Option<String>,
}

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Default)]
struct Recorder {
    latencies: Latencies,
    bytes: u64,
}

impl Observer for Recorder {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = now();
        let result = work();
        self.latencies.record(now().saturating_sub(begin));
        result
    }

    fn bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

/// The whole life of a worker. The program that a [`Launcher`] names calls this and nothing else.
pub fn work() -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(hello) = lines.next() else { return Ok(()) };
    let hello: Hello = serde_json::from_str(&hello?)?;
    let suite = suite::suite(&hello.suite).ok_or_else(|| io::Error::other("no such suite"))?;
    for phase in lines {
        let done = do_phase(suite, &phase?, &hello);
        send(&mut io::stdout().lock(), &done)?;
    }
    Ok(())
}

fn do_phase(suite: &dyn Suite, phase: &str, hello: &Hello) -> Done {
    let mut recorder = Recorder::default();
    let begin = now();
    let result = suite.work(phase, &hello.load, &hello.seat, &mut recorder);
    let end = now();
    let error = result.err().map(|error| error.to_string());
    Done { begin, end, bytes: recorder.bytes, latencies: recorder.latencies.pack(), error }
}

fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The workers of one run, which end with it.
pub struct Workers(Vec<Worker>);

struct Worker {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Workers {
    pub fn start(launcher: &Launcher, suite: &str, load: &Load, root: &std::path::Path) -> io::Result<Self> {
        let mut workers = Self(Vec::new());
        for index in 0..load.processes {
            let mut command = Command::new(&launcher.program);
            command.args(&launcher.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn()?;
            let missing = || io::Error::other("a worker without pipes");
            let mut to = process.stdin.take().ok_or_else(missing)?;
            let from = BufReader::new(process.stdout.take().ok_or_else(missing)?);
            let seat = Seat { root: root.to_owned(), index };
            send(&mut to, &Hello { suite: suite.to_owned(), load: load.clone(), seat })?;
            workers.0.push(Worker { process, to: Some(to), from });
        }
        Ok(workers)
    }

    /// All workers do `phase` at once; their answers, in their order.
    pub fn phase(&mut self, phase: &str) -> io::Result<Vec<Done>> {
        for worker in &mut self.0 {
            let to = worker.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            to.write_all(format!("{phase}\n").as_bytes())?;
            to.flush()?;
        }
        let done: Vec<Done> = self.0.iter_mut().map(|w| receive(&mut w.from)).collect::<io::Result<_>>()?;
        match done.iter().find_map(|done| done.error.as_ref()) {
            Some(error) => Err(io::Error::other(format!("{phase}: {error}"))),
            None => Ok(done),
        }
    }
}

fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::Error::other("a worker ended before its time"));
    }
    Ok(serde_json::from_str(&line)?)
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            // Its input ends, and so does it.
            worker.to = None;
            let _ = worker.process.wait();
        }
    }
}

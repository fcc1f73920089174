//! A worker process: it reads its place from its standard input, then a line for each phase, and answers
//! each with a line. In the midst of a phase it may say a number and wait for those of the others. Waiting is a
//! read of a pipe.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, StdinLock, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Kind, Latencies, Launcher, Observer, latency::Packed};

/// Where one worker sits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    /// The suite's directory in the file system that is measured; or the device.
    pub root: PathBuf,
    /// From 0.
    pub index: usize,
    /// How many workers there are.
    pub size: usize,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    suite: Kind,
    seat: Seat,
}

/// What a worker says.
#[derive(Serialize, Deserialize, Debug)]
enum Message {
    /// See [`Observer::agree`].
    Agree(u64),
    Done(Done),
}

/// A worker's answer to one phase. Times are those of the machine's monotonic clock, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Done {
    pub begin: u64,
    pub end: u64,
    pub bytes: u64,
    pub latencies: Packed,
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

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Recorder<'a> {
    input: &'a mut StdinLock<'static>,
    done: Done,
    latencies: Latencies,
}

impl Observer for Recorder<'_> {
    fn operation(&mut self, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = now();
        let result = work();
        self.latencies.record(now().saturating_sub(begin));
        result
    }

    fn bytes(&mut self, bytes: u64) {
        self.done.bytes += bytes;
    }

    fn span(
        &mut self,
        name: &str,
        work: &mut dyn FnMut(&mut dyn Observer) -> io::Result<()>,
    ) -> io::Result<()> {
        let begin = now();
        let result = work(self);
        self.done.spans.push(Span { name: name.to_owned(), begin, end: now() });
        result
    }

    fn count(&mut self, name: &str, more: u64) {
        *self.done.counts.entry(name.to_owned()).or_default() += more;
    }

    fn agree(&mut self, mine: u64) -> io::Result<Vec<u64>> {
        send(&mut io::stdout().lock(), &Message::Agree(mine))?;
        receive(self.input)
    }
}

/// The whole life of a worker. The program that a [`Launcher`] names calls this and nothing else.
pub fn work() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let Some(hello) = line(&mut input)? else { return Ok(()) };
    let mut hello: Hello = serde_json::from_str(&hello)?;
    while let Some(phase) = line(&mut input)? {
        let done = do_phase(&mut hello, phase.trim_end(), &mut input);
        send(&mut io::stdout().lock(), &Message::Done(done))?;
    }
    Ok(())
}

fn do_phase(hello: &mut Hello, phase: &str, input: &mut StdinLock<'static>) -> Done {
    let mut recorder = Recorder { input, done: Done::default(), latencies: Latencies::default() };
    let begin = now();
    let result = hello.suite.suite_mut().work(phase, &hello.seat, &mut recorder);
    let end = now();
    let Recorder { done, latencies, .. } = recorder;
    Done { begin, end, latencies: latencies.pack(), error: result.err().map(|e| e.to_string()), ..done }
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
    pub fn start(launcher: &Launcher, suite: &Kind, size: usize, root: &Path) -> io::Result<Self> {
        let mut workers = Self(Vec::new());
        for index in 0..size {
            let mut command = Command::new(&launcher.program);
            command.args(&launcher.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn()?;
            let missing = || io::Error::other("a worker without pipes");
            let mut to = process.stdin.take().ok_or_else(missing)?;
            let from = BufReader::new(process.stdout.take().ok_or_else(missing)?);
            let seat = Seat { root: root.to_owned(), index, size };
            send(&mut to, &Hello { suite: suite.clone(), seat })?;
            workers.0.push(Worker { process, to: Some(to), from });
        }
        Ok(workers)
    }

    /// All workers do `phase` at once; their answers, in their order.
    pub fn phase(&mut self, phase: &str) -> io::Result<Vec<Done>> {
        self.tell(format!("{phase}\n").as_bytes())?;
        loop {
            let messages: Vec<Message> =
                self.0.iter_mut().map(|w| receive(&mut w.from)).collect::<io::Result<_>>()?;
            let (done, agree) = sorted(messages);
            if let Some(error) = done.iter().find_map(|done| done.error.as_ref()) {
                return Err(io::Error::other(format!("{phase}: {error}")));
            }
            match (done.is_empty(), agree.is_empty()) {
                (_, true) => return Ok(done),
                (true, false) => {
                    let mut line = serde_json::to_vec(&agree)?;
                    line.push(b'\n');
                    self.tell(&line)?;
                }
                (false, false) => {
                    return Err(io::Error::other(format!("{phase}: not all workers went along")));
                }
            }
        }
    }

    fn tell(&mut self, line: &[u8]) -> io::Result<()> {
        for worker in &mut self.0 {
            let to = worker.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            to.write_all(line)?;
            to.flush()?;
        }
        Ok(())
    }
}

fn sorted(messages: Vec<Message>) -> (Vec<Done>, Vec<u64>) {
    let (mut done, mut agree) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Message::Done(one) => done.push(one),
            Message::Agree(one) => agree.push(one),
        }
    }
    (done, agree)
}

/// The next line, or nothing at the end.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    Ok((from.read_line(&mut line)? > 0).then_some(line))
}

fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let line = line(from)?.ok_or_else(|| io::Error::other("a worker ended before its time"))?;
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

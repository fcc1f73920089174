//! All workers of a run, as the coordinator sees them. Whatever is lost, refused or failed anywhere ends the run:
//! every worker that can still be told is told why.

mod gathering;

use std::{
    io::{self, Write},
    process::Child,
    sync::mpsc::Receiver,
    thread,
    time::{Duration, Instant},
};

pub use self::gathering::{Gathering, admit};

use crate::{
    Environment,
    clock::{self, Offset, Ping},
    frame::{send, why_lost},
    message::{Answer, Join, Order},
    report::Node,
    worker::Done,
};

/// Questions to a clock, of which the quickest counts.
const PINGS: usize = 5;
/// All workers begin a phase at one time, which is this far off, and a little more for each worker to be told and to get
/// ready.
const BEGIN_IN: Duration = Duration::from_millis(1);
const BEGIN_PER_WORKER: Duration = Duration::from_micros(100);
/// How long a worker of this machine may take to end when it is told to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What the threads that listen to workers hear.
pub enum Event {
    Joined(Join, Box<dyn Write + Send>),
    Said(usize, io::Result<Answer>),
    /// A process that was started here is no worker, or ended without a word.
    Nobody(io::Error),
}

/// Everybody.
pub struct Crew {
    peers: Vec<Peer>,
    inbox: Receiver<Event>,
    /// They have been told that it is over.
    ended: bool,
    /// Last, because they end when the pipes to them are closed.
    _children: Children,
}

struct Peer {
    to: Box<dyn Write + Send>,
    join: Join,
    offset: Offset,
}

impl Crew {
    /// How many machines there are, by their first worker.
    pub fn machines(&self) -> Vec<usize> {
        let boot = |rank: &usize| self.peers.get(*rank).map(|peer| &peer.join.boot);
        (0..self.peers.len()).filter(|rank| (0..*rank).all(|other| boot(&other) != boot(rank))).collect()
    }

    pub fn can_drop_caches(&self) -> bool {
        self.machines().iter().all(|rank| self.peers.get(*rank).is_some_and(|peer| peer.join.can_drop_caches))
    }

    /// Of the first rank's targets.
    pub fn environments(&self) -> Vec<Environment> {
        self.peers.first().map(|peer| peer.join.environments.clone()).unwrap_or_default()
    }

    /// The machines, and where their workers work.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for Peer { join, .. } in &self.peers {
            let directories: Vec<String> = join.environments.iter().map(|e| e.directory.clone()).collect();
            let same = |node: &&mut Node| node.host == join.host && node.directories == directories;
            match nodes.iter_mut().find(same) {
                Some(node) => node.processes += 1,
                None => nodes.push(Node { host: join.host.clone(), directories, processes: 1 }),
            }
        }
        nodes
    }

    /// All do the same, and say that they did.
    pub fn all(&mut self, order: &Order) -> io::Result<()> {
        self.some(&(0..self.peers.len()).collect::<Vec<_>>(), order)
    }

    /// One of each machine does it.
    pub fn each_machine(&mut self, order: &Order) -> io::Result<()> {
        self.some(&self.machines(), order)
    }

    fn some(&mut self, ranks: &[usize], order: &Order) -> io::Result<()> {
        ranks.iter().try_for_each(|rank| self.say(*rank, order))?;
        for _ in ranks {
            match self.hear()? {
                (_, Answer::Ready) => {}
                (rank, answer) => return Err(self.surprise(rank, &answer)),
            }
        }
        Ok(())
    }

    /// All workers do `phase` at once; their answers, in their order, with times of this machine's clock. The second
    /// value is by how many nanoseconds the times of other machines may be wrong.
    pub fn phase(&mut self, phase: &str) -> io::Result<(Vec<Done>, u64)> {
        self.synchronise()?;
        let workers = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        let begin = clock::now() + (BEGIN_IN + BEGIN_PER_WORKER * workers).as_nanos() as u64;
        for rank in 0..self.peers.len() {
            let offset = self.peers.get(rank).map(|peer| peer.offset).unwrap_or_default();
            self.say(rank, &Order::Phase { name: phase.to_owned(), begin: offset.theirs(begin) })?;
        }
        let mut done = self.until_done(phase)?;
        for (done, peer) in done.iter_mut().zip(&self.peers) {
            done.shift(|time| peer.offset.ours(time));
        }
        Ok((done, self.peers.iter().map(|peer| peer.offset.error).max().unwrap_or_default()))
    }

    /// Asks the clocks of other machines; on this one all processes have the same.
    fn synchronise(&mut self) -> io::Result<()> {
        let first = self.peers.first().map(|peer| peer.join.boot.clone()).unwrap_or_default();
        for rank in 0..self.peers.len() {
            if self.peers.get(rank).is_some_and(|peer| peer.join.boot == first && !first.is_empty()) {
                continue;
            }
            let pings = (0..PINGS).map(|_| self.ping(rank)).collect::<io::Result<Vec<_>>>()?;
            if let Some(peer) = self.peers.get_mut(rank) {
                peer.offset = Offset::of(&pings);
            }
        }
        Ok(())
    }

    fn ping(&mut self, rank: usize) -> io::Result<Ping> {
        let sent = clock::now();
        self.say(rank, &Order::Ping)?;
        match self.hear()? {
            (heard, Answer::Time(theirs)) if heard == rank => {
                Ok(Ping { sent, theirs, answered: clock::now() })
            }
            (rank, answer) => Err(self.surprise(rank, &answer)),
        }
    }

    fn until_done(&mut self, phase: &str) -> io::Result<Vec<Done>> {
        let size = self.peers.len();
        loop {
            let mut done: Vec<Option<Done>> = (0..size).map(|_| None).collect();
            let mut agree: Vec<Option<u64>> = vec![None; size];
            for _ in 0..size {
                match self.hear()? {
                    (rank, Answer::Done(one)) => {
                        if let Some(error) = &one.error {
                            return Err(self.told(rank, &format!("{phase}: {error}")));
                        }
                        put(&mut done, rank, *one);
                    }
                    (rank, Answer::Agree(mine)) => put(&mut agree, rank, mine),
                    (rank, answer) => return Err(self.surprise(rank, &answer)),
                }
                if done.iter().any(Option::is_some) && agree.iter().any(Option::is_some) {
                    return Err(io::Error::other(format!("{phase}: not all workers went along")));
                }
            }
            let (done, agree): (Vec<Done>, Vec<u64>) =
                (done.into_iter().flatten().collect(), agree.into_iter().flatten().collect());
            match (done.len() == size, agree.len() == size) {
                (true, _) => return Ok(done),
                (_, true) => {
                    let order = Order::Agreed(agree);
                    (0..size).try_for_each(|rank| self.say(rank, &order))?;
                }
                _ => return Err(io::Error::other(format!("{phase}: a worker answered twice"))),
            }
        }
    }

    fn say(&mut self, rank: usize, order: &Order) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        match send(&mut peer.to, order) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(rank, &error)),
        }
    }

    fn hear(&mut self) -> io::Result<(usize, Answer)> {
        loop {
            match self.inbox.recv() {
                Ok(Event::Said(rank, Ok(Answer::Failed(text)))) => return Err(self.told(rank, &text)),
                Ok(Event::Said(rank, Ok(answer))) => return Ok((rank, answer)),
                Ok(Event::Said(rank, Err(error))) => return Err(self.lost(rank, &error)),
                // Too late to take part.
                Ok(Event::Joined(..) | Event::Nobody(_)) => {}
                Err(_) => return Err(io::Error::other("all workers are gone")),
            }
        }
    }

    fn who(&self, rank: usize) -> String {
        match self.peers.get(rank) {
            Some(peer) if self.peers.len() > 1 => format!("rank {rank} on {}", peer.join.host),
            _ => "the worker".to_owned(),
        }
    }

    fn told(&self, rank: usize, text: &str) -> io::Error {
        match self.peers.len() {
            1 => io::Error::other(text.to_owned()),
            _ => io::Error::other(format!("{}: {text}", self.who(rank))),
        }
    }

    fn lost(&self, rank: usize, error: &io::Error) -> io::Error {
        let process = self.peers.get(rank).map_or(0, |peer| peer.join.process);
        io::Error::other(format!("{} (process {process}) was lost: {}", self.who(rank), why_lost(error)))
    }

    fn surprise(&self, rank: usize, answer: &Answer) -> io::Error {
        let text: String = format!("{answer:?}").chars().take(40).collect();
        self.told(rank, &format!("an answer that was not asked for: {text}"))
    }

    /// Tells all that the run is over, because of `error` or because all is done.
    pub fn end(&mut self, error: Option<&io::Error>) {
        if !std::mem::replace(&mut self.ended, true) {
            let order = Order::End { error: error.map(ToString::to_string) };
            for peer in &mut self.peers {
                // Those that are gone need not be told.
                let _ = send(&mut peer.to, &order);
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end(Some(&io::Error::other("the run was given up")));
    }
}

/// Workers of this machine, which end when nobody speaks to them.
#[derive(Default)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        let until = Instant::now() + END_WITHIN;
        for child in &mut self.0 {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > until {
                    // One that waits for a file system that does not answer ends when that does.
                    let _ = child.kill();
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn put<T>(places: &mut [Option<T>], at: usize, value: T) {
    if let Some(place) = places.get_mut(at) {
        *place = Some(value);
    }
}

impl Done {
    /// Puts all times on another clock.
    fn shift(&mut self, clock: impl Fn(u64) -> u64) {
        (self.begin, self.end) = (clock(self.begin), clock(self.end));
        for span in &mut self.spans {
            (span.begin, span.end) = (clock(span.begin), clock(span.end));
        }
    }
}

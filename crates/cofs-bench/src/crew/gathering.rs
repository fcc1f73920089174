//! How a crew comes together: workers are started here or come by themselves, and must be about the same thing.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, to_value};

use super::{Children, Crew, Event, Peer};
use crate::{
    Launcher,
    clock::Offset,
    frame::{BYTES_MAX, FIRST_BYTES_MAX, receive, send, why_lost},
    message::{Answer, Job, Join, Order, Setup, VERSION, difference},
};

/// How long ranks that come late are still told why there will be no run.
const TELL_WITHIN: Duration = Duration::from_secs(3);

/// Who is not there yet.
pub struct Gathering {
    pub events: SyncSender<Event>,
    inbox: Receiver<Event>,
    job: Value,
    size: usize,
    /// Last, because they end when the pipes to them are closed.
    children: Children,
}

impl Gathering {
    pub fn new(job: &Job) -> io::Result<Self> {
        let (events, inbox) = sync_channel(2 * job.processes + 64);
        Ok(Self { events, inbox, children: Children::default(), job: to_value(job)?, size: job.processes })
    }

    /// Starts a worker on this machine.
    pub fn start(&mut self, launcher: &Launcher, setup: &Setup) -> io::Result<()> {
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a worker without pipes");
        let mut to = child.stdin.take().ok_or_else(missing)?;
        let from = child.stdout.take().ok_or_else(missing)?;
        self.children.0.push(child);
        send(&mut to, setup)?;
        let events = self.events.clone();
        thread::Builder::new().name("worker".to_owned()).spawn(move || {
            if let Err(error) = listen(from, Box::new(to), &events, || {}) {
                let _ = events.send(Event::Nobody(error));
            }
        })?;
        Ok(())
    }

    /// Waits until all ranks have come and say that they are about the same thing.
    ///
    /// Errors: one that is not, or does not come within `patience`; all are told then.
    pub fn complete(mut self, patience: Duration) -> io::Result<Crew> {
        let mut places: Vec<Option<Peer>> = (0..self.size).map(|_| None).collect();
        let mut wrong: Option<io::Error> = None;
        let mut until = Instant::now() + patience;
        while places.iter().any(Option::is_none) {
            let event = self.inbox.recv_timeout(until.saturating_duration_since(Instant::now()));
            let failure = match event {
                Ok(Event::Joined(join, to)) => self.seat(&mut places, join, to, wrong.as_ref()).err(),
                Ok(Event::Said(rank, said)) => Some(too_early(rank, said)),
                Ok(Event::Nobody(error)) => Some(self.nobody(&error)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    wrong.get_or_insert_with(|| missing(&places, patience));
                    break;
                }
            };
            if let (Some(failure), None) = (failure, &wrong) {
                wrong = Some(failure);
                until = until.min(Instant::now() + TELL_WITHIN);
            }
        }
        let peers = places.into_iter().flatten().collect();
        let mut crew = Crew { peers, inbox: self.inbox, ended: false, _children: self.children };
        match wrong {
            None => Ok(crew),
            Some(error) => {
                crew.end(Some(&error));
                Err(error)
            }
        }
    }

    fn nobody(&mut self, error: &io::Error) -> io::Error {
        let status = self.children.0.iter_mut().find_map(|child| child.try_wait().ok().flatten());
        let why = status.map_or_else(|| error.to_string(), |status| status.to_string());
        io::Error::other(format!("a worker ended before its time: {why}"))
    }

    fn seat(
        &self,
        places: &mut [Option<Peer>],
        join: Join,
        mut to: Box<dyn Write + Send>,
        wrong: Option<&io::Error>,
    ) -> io::Result<()> {
        let refused = match wrong {
            Some(error) => Some(error.to_string()),
            None => self.objection(places, &join),
        };
        if let Some(text) = refused {
            // It may be gone already, which does not matter.
            let _ = send(&mut to, &Order::End { error: Some(text.clone()) });
            return Err(io::Error::other(text));
        }
        if let Some(place) = places.get_mut(join.rank) {
            *place = Some(Peer { to, join, offset: Offset::default() });
        }
        Ok(())
    }

    fn objection(&self, places: &[Option<Peer>], join: &Join) -> Option<String> {
        let Join { rank, host, process, version, .. } = join;
        let who = format!("rank {rank} on {host} (process {process})");
        if version != VERSION {
            return Some(format!("{who} is of version {version}, rank 0 of {VERSION}"));
        }
        if let Some(difference) = difference(&self.job, &join.job) {
            return Some(format!("{who} was told something else than rank 0: {difference}"));
        }
        match places.get(*rank) {
            None => Some(format!("{who}: there are only {} ranks", self.size)),
            Some(Some(other)) => Some(format!("{who}: {} is that already", other.join.host)),
            Some(None) => None,
        }
    }
}

fn missing(places: &[Option<Peer>], patience: Duration) -> io::Error {
    let absent: Vec<String> =
        places.iter().enumerate().filter(|(_, p)| p.is_none()).map(|(r, _)| r.to_string()).collect();
    let (shown, more) = absent.split_at(absent.len().min(8));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let text = format!(
        "of {} ranks these did not come within {} s: {}{more}",
        places.len(),
        patience.as_secs(),
        shown.join(", ")
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn too_early(rank: usize, said: io::Result<Answer>) -> io::Error {
    match said {
        Ok(_) => io::Error::other(format!("rank {rank} speaks before it is asked")),
        Err(error) => io::Error::other(format!("rank {rank} was lost: {}", why_lost(&error))),
    }
}

/// Listens to a rank that came over the network.
pub fn admit(stream: TcpStream, events: &SyncSender<Event>) -> io::Result<()> {
    let (to, named) = (stream.try_clone()?, stream.try_clone()?);
    listen(stream, Box::new(to), events, || {
        let _ = named.set_read_timeout(None);
    })
}

/// The life of a thread that listens to one worker, who is `named` by its first word.
///
/// Errors: the first word was none.
fn listen(
    mut from: impl Read,
    to: Box<dyn Write + Send>,
    events: &SyncSender<Event>,
    named: impl FnOnce(),
) -> io::Result<()> {
    let join: Join = receive(&mut from, FIRST_BYTES_MAX)?;
    named();
    let rank = join.rank;
    let mut heard = events.send(Event::Joined(join, to)).is_ok();
    while heard {
        let said = receive(&mut from, BYTES_MAX);
        let last = said.is_err();
        heard = events.send(Event::Said(rank, said)).is_ok() && !last;
    }
    Ok(())
}

//! The processes that ask: each does one verb after the other on its own files, when it is told to.
//!
//! A process is this program again (`ceiling client DIR FIRST COUNT`). It reads `VERB TIME` from its standard input, begins at that time
//! (CLOCK_MONOTONIC, nanoseconds), and writes when it began and when it ended.

use std::{
    ffi::{CStr, CString},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW},
    io::Errno,
    time::{ClockId, clock_gettime},
};

type Act = fn(&CStr) -> rustix::io::Result<()>;

pub struct Verb {
    pub name: &'static str,
    act: Act,
    /// The kernel's caches are dropped before.
    pub cold: bool,
    /// Only there for the others.
    pub silent: bool,
    /// The kernel asks; else it answers from what it remembers, and nobody's transport is measured.
    pub asks: bool,
}

const fn verb(name: &'static str, act: Act) -> Verb {
    Verb { name, act, cold: false, silent: false, asks: true }
}

/// In this order, on the same files.
pub const VERBS: [Verb; 12] = [
    verb("create", |name| {
        rustix::fs::open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::from(0o644)).map(drop)
    }),
    verb("open", |name| rustix::fs::open(name, OFlags::RDONLY, Mode::empty()).map(drop)),
    Verb { asks: false, ..verb("stat", stat) },
    verb("utime", |name| {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        rustix::fs::utimensat(CWD, name, &times, AtFlags::empty())
    }),
    Verb { cold: true, ..verb("lookup", stat) },
    verb("unlink", |name| rustix::fs::unlink(name)),
    Verb { silent: true, ..verb("absent", absent) },
    Verb { asks: false, ..verb("absent again", absent) },
    verb("create+write", |name| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = rustix::fs::open(name, flags, Mode::from(0o644))?;
        rustix::io::write(&file, &[7; 4096]).map(drop)
    }),
    verb("read", read),
    verb("read again", read),
    Verb { silent: true, ..verb("unlink written", |name| rustix::fs::unlink(name)) },
];

fn read(name: &CStr) -> rustix::io::Result<()> {
    let file = rustix::fs::open(name, OFlags::RDONLY, Mode::empty())?;
    rustix::io::read(&file, &mut [0; 4096][..]).map(drop)
}

/// Looks for a name that is not there.
fn absent(name: &CStr) -> rustix::io::Result<()> {
    match rustix::fs::stat(name) {
        Err(Errno::NOENT) => Ok(()),
        Ok(_) => Err(Errno::EXIST),
        Err(error) => Err(error),
    }
}

fn stat(name: &CStr) -> rustix::io::Result<()> {
    rustix::fs::stat(name).map(drop)
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A client's life.
pub fn work(dir: &Path, first: usize, count: usize) -> io::Result<()> {
    std::env::set_current_dir(dir)?;
    let names: Vec<CString> =
        (first..first + count).map(|number| CString::new(format!("f{number}"))).collect::<Result<_, _>>()?;
    for line in io::stdin().lines() {
        let line = line?;
        let (name, at) = line.rsplit_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let verb = VERBS.iter().find(|verb| verb.name == name).ok_or(io::ErrorKind::InvalidData)?;
        let at: u64 = at.parse().map_err(io::Error::other)?;
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
        let began = now();
        for name in &names {
            (verb.act)(name).map_err(|error| io::Error::other(format!("{} {name:?}: {error}", verb.name)))?;
        }
        println!("{began} {}", now());
    }
    Ok(())
}

struct Client {
    process: Child,
    tell: ChildStdin,
    told: BufReader<ChildStdout>,
}

/// Clients that work together.
pub struct Crew(Vec<Client>);

impl Crew {
    /// `processes` clients for `each` files, numbered from `first`; in `top/d0`, or each in a directory of its own.
    pub fn start(top: &Path, processes: usize, own: bool, first: usize, each: usize) -> io::Result<Self> {
        let client = |number: usize| -> io::Result<Client> {
            let dir = directory(top, if own { number } else { 0 });
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("client").arg(dir).arg((first + number * each).to_string()).arg(each.to_string());
            let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let tell = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let told = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
            Ok(Client { process, tell, told })
        };
        (0..processes).map(client).collect::<io::Result<_>>().map(Self)
    }

    /// Has all do `verb`; how long it took from the first one's begin to the last one's end.
    pub fn act(&mut self, verb: &Verb) -> io::Result<Duration> {
        let at = now() + 3_000_000;
        for client in &mut self.0 {
            writeln!(client.tell, "{} {at}", verb.name)?;
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for client in &mut self.0 {
            let mut line = String::new();
            client.told.read_line(&mut line)?;
            let times =
                line.trim().split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            let (began, ended): (u64, u64) = times.ok_or_else(|| io::Error::other("a client has failed"))?;
            (first, last) = (first.min(began), last.max(ended));
        }
        Ok(Duration::from_nanos(last.saturating_sub(first)))
    }

    pub fn end(self) -> io::Result<()> {
        for Client { mut process, tell, told } in self.0 {
            drop((tell, told));
            process.wait()?;
        }
        Ok(())
    }
}

/// Where a client works.
pub fn directory(top: &Path, number: usize) -> PathBuf {
    top.join(format!("d{number}"))
}

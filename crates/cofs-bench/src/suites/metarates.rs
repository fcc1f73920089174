//! Rates of single metadata operations, as NCAR's metarates measures them: every process does one kind of
//! operation on its files, in a directory that all share or in its own. Its source, and what differs, stand in docs/bench.md.

use std::{
    ffi::CStr,
    fs::{self, File},
    io::{self, Read, Write},
};

use cofs_types::size::parse_size;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, lstat, utimensat};
use serde::{Deserialize, Serialize};

use crate::{
    Figure, Need, Observer, Phase, Report, Seat, Suite, Unit, Work, each, paths::Names, settings::processes,
};

/// Create, open, stat, utime and unlink files, and write and read small ones.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Metarates {
    /// Files of all processes together.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,

    /// Give each process a directory of its own; else all share one.
    #[arg(long)]
    pub own: bool,

    /// Bytes of each file that is written.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    pub small: u64,

    /// Files of this process that stand.
    #[arg(skip)]
    #[serde(skip)]
    made: u64,

    /// The files' names.
    #[arg(skip)]
    #[serde(skip)]
    names: Option<Names>,
}

impl Metarates {
    /// With files of 4 KiB, in one directory.
    pub const fn new(files: u64) -> Self {
        Self { files, own: false, small: 4096, made: 0, names: None }
    }
}

/// A small file is held in memory.
const SMALL_MAX: u64 = 1 << 30;

const fn rate(name: &'static str) -> Phase {
    Phase::new(name, Unit::OperationsPerSecond)
}

const PHASES: &[Phase] = &[
    rate("create"),
    rate("open"),
    rate("stat"),
    rate("stat again"),
    rate("stat cold").cold(),
    rate("utime"),
    rate("unlink"),
    rate("create+write"),
    rate("read"),
    rate("read again"),
    rate("read cold").cold(),
    rate("unlink written").silent(),
];

impl Suite for Metarates {
    fn name(&self) -> &'static str {
        "metarates"
    }

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        match self.small <= SMALL_MAX {
            true => Ok(()),
            false => Err("--small is at most 1G".to_owned()),
        }
    }

    fn need(&self, processes: usize) -> Need {
        let directories = if self.own { processes as u64 } else { 1 };
        Need { bytes: self.files.saturating_mul(self.small), inodes: self.files.saturating_add(directories) }
    }

    fn enter(&mut self, seat: &Seat) -> io::Result<()> {
        let directory = seat.directory(self.own);
        fs::create_dir_all(&directory)?;
        self.names = Some(Names::new(seat, &directory, seat.share(self.files))?);
        Ok(())
    }

    fn original(&self, report: &Report, target: usize) -> String {
        let place = if self.own { "a directory for each process" } else { "one directory" };
        let mut out = format!(
            "{}, {} files, {place}\n\n{:<14} {:>10} {:>14} {:>14} {:>12}\n",
            processes(report.processes),
            self.files,
            "operation",
            "files",
            "time each(us)",
            "time all(s)",
            "rate(1/s)"
        );
        for Phase { name, .. } in PHASES.iter().filter(|phase| !phase.silent) {
            for Figure { work: Work { operations, .. }, seconds, mean_nanos, .. } in
                report.samples(name, target)
            {
                let (each, rate) = (mean_nanos / 1e3, *operations as f64 / seconds);
                let line = format!("{name:<14} {operations:>10} {each:>14.2} {seconds:>14.3} {rate:>12.1}\n");
                out.push_str(&line);
            }
        }
        out + "\ntime each: what a process waited for one operation, on average\n"
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let Some(names) = &mut self.names else { return Err(io::Error::other("a phase before its round")) };
        let step = Step::of(phase);
        let most = if step.makes() { seat.share(self.files) } else { self.made };
        let number = step.all(names, most, self.small as usize, observer)?;
        if step.makes() {
            self.made = number;
        }
        if step == Step::Unlink {
            // What there was no time for goes untold, for its names are made again.
            (number..self.made).try_for_each(|number| unlink(names.at(number)?))?;
            self.made = 0;
        }
        Ok(())
    }
}

/// What is done to each file, told apart once for a phase and not once for an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Open,
    Stat,
    Utime,
    Write,
    Read,
    Unlink,
}

impl Step {
    fn of(phase: &str) -> Self {
        match phase {
            "create" => Self::Create,
            "open" => Self::Open,
            "stat" | "stat again" | "stat cold" => Self::Stat,
            "utime" => Self::Utime,
            "create+write" => Self::Write,
            "read" | "read again" | "read cold" => Self::Read,
            _ => Self::Unlink,
        }
    }

    fn makes(self) -> bool {
        matches!(self, Self::Create | Self::Write)
    }

    /// Does it to the first `most` files while there is time; how many there was time for. Written files have `size` bytes.
    fn all(self, names: &mut Names, most: u64, size: usize, observer: &mut dyn Observer) -> io::Result<u64> {
        let data = vec![0x5a; if self == Self::Write { size } else { 0 }];
        let mut buffer = Vec::with_capacity(if self == Self::Read { size + 1 } else { 0 });
        let files = 0..most;
        match self {
            Self::Create => each(observer, files, |number| create(names.at(number)?).map(drop)),
            Self::Open => each(observer, files, |number| reads(names.at(number)?).map(drop)),
            Self::Stat => each(observer, files, |number| Ok(lstat(names.at(number)?).map(drop)?)),
            Self::Utime => each(observer, files, |number| utime(names.at(number)?)),
            Self::Write => each(observer, files, |number| create(names.at(number)?)?.write_all(&data)),
            Self::Read => each(observer, files, |number| read(names.at(number)?, size, &mut buffer)),
            Self::Unlink => each(observer, files, |number| unlink(names.at(number)?)),
        }
    }
}

fn utime(path: &CStr) -> io::Result<()> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn read(path: &CStr, size: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    reads(path)?.take(size as u64).read_to_end(buffer)?;
    if buffer.len() == size { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn unlink(path: &CStr) -> io::Result<()> {
    Ok(rustix::fs::unlink(path)?)
}

fn create(path: &CStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?.into())
}

fn reads(path: &CStr) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

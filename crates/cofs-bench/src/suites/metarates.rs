//! Rates of single metadata operations, as NCAR's metarates measures them: every process does one kind of
//! operation on its files, in a directory that all share or in its own. Its source, and what differs, stand in docs/bench.md.

use std::{
    ffi::CStr,
    fs::{self, File},
    io::{self, Read, Write},
};

use cofs_types::size::parse_size;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use crate::{Figure, Need, Observer, Phase, Report, Seat, Suite, Unit, paths::Names};

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
            "{} processes, {} files, {place}\n\n{:<14} {:>10} {:>14} {:>14} {:>12}\n",
            report.processes, self.files, "operation", "files", "time each(us)", "time all(s)", "rate(1/s)"
        );
        for Phase { name, .. } in PHASES.iter().filter(|phase| !phase.silent) {
            for Figure { operations, seconds, mean_nanos, .. } in report.samples(name, target) {
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
        let data = vec![0x5a; self.small as usize];
        let mut buffer = Vec::with_capacity(data.len() + 1);
        let most = if step.makes() { seat.share(self.files) } else { self.made };
        let mut number = 0;
        while number < most && observer.go_on() {
            let path = names.at(number)?;
            observer.operation(&mut || step.one(path, &data, &mut buffer))?;
            number += 1;
        }
        if step.makes() {
            self.made = number;
        }
        if step == Step::Unlink {
            // What there was no time for goes untold, for its names are made again.
            (number..self.made)
                .try_for_each(|number| Step::Unlink.one(names.at(number)?, &[], &mut buffer))?;
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

    fn one(self, path: &CStr, data: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Create => create(path).map(drop),
            Self::Open => reads(path).map(drop),
            Self::Stat => Ok(rustix::fs::lstat(path).map(drop)?),
            Self::Utime => {
                let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
            }
            Self::Write => create(path)?.write_all(data),
            Self::Read => {
                buffer.clear();
                reads(path)?.take(data.len() as u64).read_to_end(buffer)?;
                if buffer.len() == data.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            Self::Unlink => Ok(rustix::fs::unlink(path)?),
        }
    }
}

fn create(path: &CStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?.into())
}

fn reads(path: &CStr) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

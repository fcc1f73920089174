//! METABENCH: rates of creating, looking at, touching and appending to files, of processes that begin each phase
//! together, in one directory or each in its own.
//!
//! Follows what NERSC published of METABENCH, the metadata benchmark of its project for a Global Unified Parallel
//! File System; the program itself is not to be had. What that leaves open stands in docs/bench.md.

use std::{
    ffi::CStr,
    fs::{self, File},
    io::{self, Write},
};

use cofs_types::size::parse_size;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, stat, unlink, utimensat};
use serde::{Deserialize, Serialize};

use crate::{
    Figure, Need, Observer, Phase, Report, Seat, Suite, Unit, Work, each, paths::Names, report::Spread,
    settings::processes,
};

/// METABENCH: create, stat, utime and append to files, synchronised processes.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Metabench {
    /// Files of each process.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,

    /// Give each process a directory of its own; else all share one.
    #[arg(long)]
    pub own: bool,

    /// Bytes that are appended to each file.
    #[arg(short = 'a', long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    pub append: u64,

    /// Files of each process that were made in this round.
    #[arg(skip)]
    #[serde(skip)]
    made: u64,

    /// The files' names.
    #[arg(skip)]
    #[serde(skip)]
    names: Option<Names>,
}

/// What is appended is held in memory.
const APPEND_MAX: u64 = 1 << 30;
const DIRECTORIES: &str = "directories";
const REMOVE: &str = "remove";

const MEASURED: [&str; 4] = ["create", "stat", "utime", "append"];

impl Metabench {
    /// The directories, before anyone works in them.
    fn directories(&self, seat: &Seat) -> io::Result<()> {
        match self.own || seat.index == 0 {
            true => fs::create_dir(seat.directory(self.own)),
            false => Ok(()),
        }
    }
}

impl Suite for Metabench {
    fn name(&self) -> &'static str {
        "metabench"
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |name| Phase::new(name, Unit::OperationsPerSecond);
        let mut phases = vec![phase(DIRECTORIES).silent()];
        phases.extend(MEASURED.map(phase));
        phases.push(phase(REMOVE).silent());
        phases
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        match self.append {
            0 => Err("--append must be above 0".to_owned()),
            1..=APPEND_MAX => Ok(()),
            _ => Err("--append is at most 1G".to_owned()),
        }
    }

    fn need(&self, processes: usize) -> Need {
        let files = self.files.saturating_mul(processes as u64);
        let directories = if self.own { processes as u64 } else { 1 };
        Need { bytes: files.saturating_mul(self.append), inodes: files.saturating_add(directories) }
    }

    fn enter(&mut self, seat: &Seat) -> io::Result<()> {
        self.names = Some(Names::new(seat, &seat.directory(self.own), self.files)?);
        Ok(())
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        if phase == DIRECTORIES {
            return self.directories(seat);
        }
        let Some(names) = &mut self.names else { return Err(io::Error::other("a phase before its round")) };
        let files = 0..if phase == "create" { self.files } else { self.made };
        match phase {
            "create" => {
                self.made = each(observer, files, |number| create(names.at(number)?).map(drop))?;
            }
            "stat" => {
                each(observer, files, |number| Ok(stat(names.at(number)?).map(drop)?))?;
            }
            "utime" => {
                each(observer, files, |number| touch(names.at(number)?))?;
            }
            "append" => {
                let data = vec![0x4d; self.append as usize];
                let done = each(observer, files, |number| append(names.at(number)?)?.write_all(&data))?;
                observer.bytes(done * self.append);
            }
            // However much time there was.
            _ => files.into_iter().try_for_each(|number| io::Result::Ok(unlink(names.at(number)?)?))?,
        }
        Ok(())
    }

    fn original(&self, report: &Report, target: usize) -> String {
        let place = if self.own { "a directory for each process" } else { "one directory" };
        let mut out = format!(
            "{}, {} files each, {place}\n\n\
             {:<10} {:>12} {:>10} {:>12} {:>12} {:>12} {:>12}\n",
            processes(report.processes),
            self.files,
            "operation",
            "operations",
            "time(s)",
            "rate(1/s)",
            "least",
            "mean",
            "most"
        );
        for phase in MEASURED {
            for figure in report.samples(phase, target) {
                out.push_str(&line(phase, figure));
            }
        }
        out + "\nleast, mean, most: rates of single processes\n"
    }
}

/// The rate of all, by the time from the first begin to the last end; and those of single processes, by their own.
fn line(phase: &str, figure: &Figure) -> String {
    let own =
        figure.processes.iter().map(|part| part.work.operations as f64 / (part.end - part.begin).max(1e-9));
    let Spread { max, min, mean, .. } = Spread::of(own);
    let Figure { seconds, work: Work { operations, .. }, .. } = figure;
    let rate = *operations as f64 / seconds;
    format!(
        "{phase:<10} {operations:>12} {seconds:>10.3} {rate:>12.1} {min:>12.1} {mean:>12.1} {max:>12.1}\n"
    )
}

fn create(path: &CStr) -> io::Result<File> {
    open(path, OFlags::CREATE | OFlags::EXCL)
}

fn append(path: &CStr) -> io::Result<File> {
    open(path, OFlags::APPEND)
}

fn open(path: &CStr, how: OFlags) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | how;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?.into())
}

fn touch(path: &CStr) -> io::Result<()> {
    let time = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

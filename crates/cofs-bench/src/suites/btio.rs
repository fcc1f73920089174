//! BTIO: the I/O of BT, a solver of the NAS Parallel Benchmarks whose processes each own cells along a diagonal of
//! a cube, and which writes the whole cube every few steps.
//!
//! Follows NPB 3.4 (BT/bt.f90, make_set.f90, epio.f90, simple_mpiio.f90, full_mpiio.f90) without the solver: its
//! decomposition, its files, its accesses, its statistics. What differs stands in docs/bench.md.

mod access;
mod cube;
mod data;
mod exchange;
mod summary;

use std::io;

use cofs_types::size::parse_size;
use serde::{Deserialize, Serialize};

use self::{access::Access, cube::Cube};
use crate::{Need, Observer, Phase, Report, Seat, Suite, Unit, clock::now};

/// BTIO: write the cube of NAS BT every few steps, and verify it.
///
/// The number of processes must be a square. Forms: epio (a file for each process), simple (one file, a write for each row
/// of a cell), full (one file, collective: rows are gathered into large writes; from other machines over TCP).
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Btio {
    /// Size of the cube: S 12, W 24, A 64, B 102, C 162 points an edge.
    #[arg(short = 'c', long, value_enum, ignore_case = true, value_name = "CLASS", default_value_t)]
    pub class: Class,

    /// How the cube is written.
    #[arg(short = 'f', long, value_enum, value_name = "FORM", default_value_t)]
    pub form: Form,

    /// Write after every N-th step, and after the last.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: u64,

    /// Steps; else those of the class (S 60, others 200).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,

    /// full: processes that gather and write (cb_nodes); else all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub aggregators: Option<u64>,

    /// full: bytes that are gathered for one write (cb_buffer_size).
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub buffer: u64,

    /// Keep the files.
    #[arg(short = 'k', long)]
    pub keep: bool,

    /// Only verify what an earlier run with --keep wrote.
    #[arg(long)]
    pub verify: bool,
}

/// The classes of NPB, by the points of an edge.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Class {
    #[value(name = "S")]
    S,
    #[value(name = "W")]
    W,
    #[default]
    #[value(name = "A")]
    A,
    #[value(name = "B")]
    B,
    #[value(name = "C")]
    C,
}

impl Class {
    fn points(self) -> u64 {
        match self {
            Self::S => 12,
            Self::W => 24,
            Self::A => 64,
            Self::B => 102,
            Self::C => 162,
        }
    }

    fn steps(self) -> u64 {
        if self == Self::S { 60 } else { 200 }
    }
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Epio,
    Simple,
    #[default]
    Full,
}

const WRITE: &str = "write";
const VERIFY: &str = "verify";
/// Nanoseconds that a process spent in the calls that NPB's I/O timer covers.
const IO_NANOS: &str = "i/o nanoseconds";
/// The least points of a cell's edge that BT can work with.
const EDGE_MIN: u64 = 3;
/// What is gathered is held in memory.
const BUFFER_MAX: u64 = 1 << 30;

impl Btio {
    /// How often the cube is written.
    fn dumps(&self) -> u64 {
        self.steps().div_ceil(self.interval)
    }

    fn steps(&self) -> u64 {
        self.steps.unwrap_or(self.class.steps())
    }

    fn bytes(&self) -> u64 {
        (self.class.points().pow(3) * cube::POINT_BYTES).saturating_mul(self.dumps())
    }

    /// Everything that this process does in a phase.
    fn phase(&self, writes: bool, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let cube = Cube::new(self.class.points(), seat.size as u64);
        let mut data = data::Data::new(&cube, seat.index);
        let mut io_nanos = 0;
        let mut errors = 0;
        let mut access = Access::new(self, &cube, seat, writes, observer)?;
        for dump in 0..self.dumps() {
            if writes {
                data.fill(&cube, dump);
            } else {
                data.clear();
            }
            let begin = now();
            match writes {
                true => access.write(&data, dump, observer)?,
                false => access.read(&mut data, dump, observer)?,
            }
            io_nanos += now().saturating_sub(begin);
            if !writes {
                errors += data.differences(&cube, dump);
            }
        }
        let begin = now();
        drop(access);
        io_nanos += now().saturating_sub(begin);
        observer.count(IO_NANOS, io_nanos);
        if !writes {
            observer.count("errors", errors);
        }
        Ok(())
    }
}

impl Suite for Btio {
    fn name(&self) -> &'static str {
        "btio"
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |name| Phase::new(name, Unit::MebibytesPerSecond);
        match self.verify {
            true => vec![phase(VERIFY)],
            false => vec![phase(WRITE), phase(VERIFY)],
        }
    }

    fn check(&self, processes: usize) -> Result<(), String> {
        let edge = processes.isqrt();
        if edge * edge != processes {
            let next = (edge + 1) * (edge + 1);
            return Err(format!("{processes} processes are not a square: take {} or {next}", edge * edge));
        }
        if self.class.points() / (edge as u64) < EDGE_MIN {
            return Err(format!("class {:?} is too small for {processes} processes", self.class));
        }
        if self.aggregators.is_some_and(|aggregators| aggregators > processes as u64) {
            return Err("there are fewer processes than --aggregators".to_owned());
        }
        if !(cube::POINT_BYTES..=BUFFER_MAX).contains(&self.buffer) {
            return Err("--buffer is at least 40 bytes and at most 1G".to_owned());
        }
        Ok(())
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("--steps do")
    }

    fn need(&self, processes: usize) -> Need {
        let (inodes, markers) = match self.form {
            Form::Epio => (processes as u64, processes as u64 * self.dumps() * 2 * access::MARKER as u64),
            _ => (1, 0),
        };
        Need { bytes: self.bytes().saturating_add(markers * processes.isqrt() as u64), inodes }
    }

    fn leaves(&self) -> bool {
        self.keep
    }

    fn finds(&self) -> bool {
        self.verify
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        self.phase(phase == WRITE, seat, observer)
    }

    fn original(&self, report: &Report, target: usize) -> String {
        summary::statistics(self, report, target)
    }
}

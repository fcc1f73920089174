//! MPTIO: I/O of many processes with many threads each, on one file, a file for each process or for each thread,
//! or a block device.
//!
//! Follows what NERSC published of MPTIO, the I/O benchmark of its project for a Global Unified Parallel File
//! System; the program itself is not to be had. What that leaves open stands in docs/bench.md.

mod regions;
mod threads;

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use cofs_types::size::{parse_size, show_size};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use self::{regions::Region, threads::Test};
use crate::{
    Figure, Need, Observer, Phase, Report, Seat, Suite, Unit,
    settings::{processes, size},
};

/// MPTIO: processes with threads read and write files or a block device, in order and at random.
///
/// Five tests, in this order: sequential write, sequential read, random write, random read, and read-modify-write. DIR may be a
/// block device, which all processes share; what is on it is lost.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Mptio {
    /// Threads of each process.
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// One file for all, or one for each process or thread.
    #[arg(short = 'f', long, value_enum, value_name = "WHICH", default_value_t)]
    pub files: Files,

    /// Bytes that each thread works on.
    #[arg(short = 'r', long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    pub region: u64,

    /// Bytes of one read or write.
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "64K", value_parser = parse_size)]
    pub block: u64,

    /// Reads or writes of each thread in a random test; else as many as there are blocks in its region.
    #[arg(short = 'n', long, value_name = "N")]
    pub operations: Option<u64>,

    /// All threads that share a file work on the same bytes of it; else each on its own.
    #[arg(long)]
    pub overlap: bool,

    /// Direct I/O, past the kernel's cache.
    #[arg(long)]
    pub direct: bool,

    /// Leave out the fsync at the end of each test that writes.
    #[arg(long)]
    pub no_fsync: bool,

    /// Only these tests.
    #[arg(long, value_enum, value_name = "TEST,...", value_delimiter = ',')]
    pub tests: Vec<Test>,

    /// The block device may be overwritten.
    #[arg(long)]
    pub overwrite: bool,
}

/// Which threads share a file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    #[default]
    Global,
    Process,
    Thread,
}

impl Files {
    const fn said(self) -> &'static str {
        match self {
            Self::Global => "one global file",
            Self::Process => "a file for each process",
            Self::Thread => "a file for each thread",
        }
    }
}

const PREPARE: &str = "prepare";
/// What direct I/O and devices take is a multiple of this.
const SECTOR: u64 = 512;
/// A block is held in memory, once for each thread.
const BLOCK_MAX: u64 = 1 << 30;

impl Mptio {
    fn wanted(&self) -> Vec<Test> {
        Test::ALL.into_iter().filter(|test| self.tests.is_empty() || self.tests.contains(test)).collect()
    }

    fn wrong(&self) -> Option<&'static str> {
        Some(match () {
            () if self.block == 0 || self.region == 0 => "--block and --region must be above 0",
            () if !self.region.is_multiple_of(self.block) => "--region must be a multiple of --block",
            () if self.block > BLOCK_MAX => "--block is at most 1G",
            () if self.direct && !self.block.is_multiple_of(SECTOR) => {
                "for direct I/O --block must be a multiple of 512"
            }
            () => return None,
        })
    }

    fn bytes(&self, processes: usize) -> Option<u64> {
        regions::bytes(self, processes as u64)
    }

    /// The file of a region, or the device.
    fn open(&self, region: &Region, seat: &Seat) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        match seat.root.is_dir() {
            true => options.create(true).truncate(false).open(seat.root.join(&region.file)),
            false => options.open(&seat.root),
        }
    }

    fn device_fits(&self, device: &Path, processes: usize) -> io::Result<Result<(), String>> {
        let name = device.display();
        if !device.metadata()?.file_type().is_block_device() {
            return Ok(Err(format!("{name} is neither a directory nor a block device")));
        }
        if !self.overwrite {
            return Ok(Err(format!("what is on {name} would be lost: say --overwrite if that is meant")));
        }
        if self.files != Files::Global {
            return Ok(Err("a block device is one file for all: leave out --files".to_owned()));
        }
        let size = claimed(device)?.seek(SeekFrom::End(0))?;
        Ok(match self.bytes(processes) {
            Some(bytes) if bytes <= size => Ok(()),
            _ => Err(format!("not enough space: {name} has {}", show_size(size))),
        })
    }
}

/// The device, exclusively: not one that is mounted. All processes look at the same moment, each for a moment.
fn claimed(device: &Path) -> io::Result<File> {
    const ATTEMPTS: u32 = 100;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32);
    for _ in 1..ATTEMPTS {
        match options.open(device) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    options.open(device)
}

impl Suite for Mptio {
    fn name(&self) -> &'static str {
        "mptio"
    }

    fn phases(&self) -> Vec<Phase> {
        let tests = self.wanted();
        // What is read must have been written, by the first test or before it.
        let first = (!tests.contains(&Test::SequentialWrite))
            .then_some(Phase::new(PREPARE, Unit::MebibytesPerSecond).silent());
        let tests = tests.into_iter().map(|test| Phase::new(test.name(), Unit::MebibytesPerSecond));
        first.into_iter().chain(tests).collect()
    }

    fn check(&self, processes: usize) -> Result<(), String> {
        match (self.wrong(), self.bytes(processes)) {
            (Some(wrong), _) => Err(wrong.to_owned()),
            (None, None) => Err("the files would be too large".to_owned()),
            (None, Some(_)) => Ok(()),
        }
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("--region and --operations do")
    }

    fn need(&self, processes: usize) -> Need {
        let threads = u64::from(self.threads);
        let inodes = match self.files {
            Files::Global => 1,
            Files::Process => processes as u64,
            Files::Thread => processes as u64 * threads,
        };
        Need { bytes: self.bytes(processes).unwrap_or(u64::MAX), inodes }
    }

    fn takes(&self, target: &Path, processes: usize) -> Result<(), String> {
        self.device_fits(target, processes)
            .unwrap_or_else(|error| Err(format!("{} cannot be used: {error}", target.display())))
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let test = Test::ALL.into_iter().find(|test| test.name() == phase).unwrap_or(Test::SequentialWrite);
        threads::run(self, test, seat, observer)
    }

    fn original(&self, report: &Report, target: usize) -> String {
        let mut out = format!(
            "{}, {} threads each, {}, {} regions, blocks of {}\n",
            processes(report.processes),
            self.threads,
            self.files.said(),
            if self.overlap { "overlapping" } else { "distinct" },
            size(self.block as f64)
        );
        for test in self.wanted() {
            for (repeat, figure) in report.samples(test.name(), target).iter().enumerate() {
                out.push_str(&results(test, repeat, figure));
            }
        }
        out
    }
}

/// All processes together, and each of them by its own time.
fn results(test: Test, repeat: usize, figure: &Figure) -> String {
    let line = |who: &str, bytes: u64, operations: u64, seconds: f64| {
        let rate = bytes as f64 / f64::from(1 << 20) / seconds;
        let each = operations as f64 / seconds;
        format!("  {who:<12} {bytes:>16} bytes {seconds:>10.3} s {rate:>12.2} MiB/s {each:>12.1} ops/s\n")
    };
    let mut out = format!("\n{} ({repeat})\n", test.name());
    out.push_str(&line("aggregate", figure.work.bytes, figure.work.operations, figure.seconds));
    for (number, part) in figure.processes.iter().enumerate() {
        let seconds = (part.end - part.begin).max(1e-9);
        out.push_str(&line(&format!("process {number}"), part.work.bytes, part.work.operations, seconds));
    }
    out
}

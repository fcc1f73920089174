//! IOR: bandwidth of large files, each process its own or all one, in order or at random.
//!
//! Follows IOR 4.0 with its POSIX back end (src/ior.c, src/aiori-POSIX.c): its letters, its layout of segments,
//! blocks and transfers, its data, its times, its table. What differs stands in docs/bench.md.

mod pattern;
mod places;
mod summary;
mod transfers;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use cofs_types::size::parse_size;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use self::{pattern::Pattern, transfers::Transfers};
use crate::{Need, Observer, Phase, Report, Seat, Suite, Unit};

/// IOR (POSIX): write and read large files, shared or one for each process.
///
/// The letters are IOR's. Without -w, -r, -W and -R files are written and read. A file is SEGMENTS times, for each process, a block
/// of BLOCK bytes, which is moved in transfers of TRANSFER bytes.
#[derive(clap::Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ior {
    /// Write.
    #[arg(short = 'w', long)]
    pub write: bool,

    /// Read.
    #[arg(short = 'r', long)]
    pub read: bool,

    /// Compare what was written, after writing; not in the times.
    #[arg(short = 'W', long)]
    pub check_write: bool,

    /// Read, and compare what is read.
    #[arg(short = 'R', long)]
    pub check_read: bool,

    /// Bytes of a block: what a process has in one piece.
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1M", value_parser = parse_size)]
    pub block: u64,

    /// Bytes of a transfer: what is moved by one call.
    #[arg(short = 't', long, value_name = "SIZE", default_value = "256K", value_parser = parse_size)]
    pub transfer: u64,

    /// Segments: how often the blocks of all processes follow each other.
    #[arg(short = 's', long, value_name = "N", default_value_t = 1)]
    pub segments: u64,

    /// A file for each process; else all share one.
    #[arg(short = 'F', long)]
    pub file_per_process: bool,

    /// Read what another process wrote (see -Q): avoids a client's own cache.
    #[arg(short = 'C', long)]
    pub reorder: bool,

    /// With -C: how many processes further.
    #[arg(short = 'Q', long, value_name = "N", default_value_t = 1)]
    pub offset: usize,

    /// In random order; in a shared file each transfer falls to a random process.
    #[arg(short = 'z', long)]
    pub random: bool,

    /// Sync the file after writing, in its time.
    #[arg(short = 'e', long)]
    pub fsync: bool,

    /// Sync the file after each write.
    #[arg(short = 'Y', long)]
    pub fsync_each: bool,

    /// Keep the files, so that a later run can read them.
    #[arg(short = 'k', long)]
    pub keep: bool,

    /// Write into the files that an earlier run with -k left.
    #[arg(short = 'E', long)]
    pub existing: bool,

    /// Write for so many seconds, and read for so many.
    #[arg(short = 'D', long, value_name = "SECONDS", default_value_t = 0)]
    pub stonewall: u64,

    /// With -D: after the time all processes go on to what the fastest has.
    #[arg(long)]
    pub wear_out: bool,

    /// Barriers between open, transfers and close.
    #[arg(short = 'g', long)]
    pub barriers: bool,

    /// Write the offset into each transfer, so that misplaced ones are found.
    #[arg(short = 'l', long)]
    pub store_offset: bool,

    /// The number that is in all data; -R without -w needs the one it was written with.
    #[arg(short = 'G', long, value_name = "N")]
    pub signature: Option<u32>,

    /// Direct I/O, past the kernel's cache.
    #[arg(short = 'B', long)]
    pub direct: bool,

    /// Name of the file.
    #[arg(short = 'o', long, value_name = "NAME", default_value = "testFile")]
    pub file: String,

    /// The hard form of IO500: -C -Q 1 -g -e -t 47008 -b 47008; say -s.
    #[arg(long, conflicts_with_all = ["block", "transfer", "file_per_process", "random"])]
    pub hard: bool,

    /// Transfers that each process wrote, where time was over before all were.
    #[arg(skip)]
    #[serde(skip)]
    written: Option<Vec<u64>>,
}

/// Bytes of a transfer of the hard form.
const HARD_BYTES: u64 = 47008;
/// What the data consist of.
const WORD: u64 = size_of::<u64>() as u64;
/// What direct I/O moves is a multiple of this on every device.
const SECTOR: u64 = 512;
/// A transfer is held in memory.
const TRANSFER_MAX: u64 = 1 << 30;

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    WriteCheck,
    Read,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteCheck => "write check",
            Self::Read => "read",
        }
    }
}

const REMOVE: &str = "remove";

impl Ior {
    fn accesses(&self) -> Vec<Access> {
        let all = [
            (Access::Write, self.write),
            (Access::WriteCheck, self.check_write),
            (Access::Read, self.read || self.check_read),
        ];
        all.into_iter().filter(|(_, wanted)| *wanted).map(|(access, _)| access).collect()
    }

    fn wrong(&self, processes: usize) -> Option<&'static str> {
        let shared_random = self.random && self.reorder && !self.file_per_process;
        Some(match () {
            () if self.transfer == 0 || self.block == 0 || self.segments == 0 => {
                "-t, -b and -s must be above 0"
            }
            () if !self.block.is_multiple_of(self.transfer) => {
                "the block (-b) must be a multiple of the transfer (-t)"
            }
            () if !self.transfer.is_multiple_of(WORD) => "the transfer (-t) must be a multiple of 8",
            () if self.transfer > TRANSFER_MAX => "the transfer (-t) is at most 1G",
            () if self.direct && !self.transfer.is_multiple_of(SECTOR) => {
                "for direct I/O (-B) the transfer (-t) must be a multiple of 512"
            }
            () if shared_random => "-z and -C do not go together in a shared file",
            () if self.random && self.check_read => "-z and -R do not go together (take -W)",
            () if self.check_read && !self.write && self.signature.is_none() => {
                "-R without -w needs the signature of what was written (-G)"
            }
            () if self.check_write && !self.write && self.signature.is_none() => {
                "-W without -w needs the signature of what was written (-G)"
            }
            () if self.wear_out && self.stonewall == 0 => "--wear-out needs -D",
            () if self.existing && !self.write => "-E needs -w",
            () if self.offset >= processes.max(2) => "-Q must be less than the number of processes",
            () if self.file.is_empty() || self.file.contains('/') => "-o is a name, not a path",
            () if places::bytes(self, processes).is_none() => "the file would be too large",
            () => return None,
        })
    }

    /// The process whose data this one works on.
    fn source(&self, access: Access, seat: &Seat) -> usize {
        let further = match access {
            Access::Write => 0,
            Access::WriteCheck => 2 * self.offset,
            Access::Read => self.offset,
        };
        if self.reorder { (seat.index + further) % seat.size } else { seat.index }
    }

    fn path(&self, seat: &Seat, process: usize) -> PathBuf {
        match self.file_per_process {
            true => seat.root.join(format!("{}.{process:08}", self.file)),
            false => seat.root.join(&self.file),
        }
    }

    fn open(&self, access: Access, path: &PathBuf) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        if access == Access::Write {
            options.write(true).create(true).truncate(false);
        }
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        match options.open(path) {
            // Some file systems say so where another mount makes the file at the same moment (MooseFS 3), which
            // open(2) knows only with O_EXCL: it is there, then.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.create(false).open(path),
            opened => opened,
        }
    }

    fn access(&mut self, access: Access, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let source = self.source(access, seat);
        let path = self.path(seat, source);
        let pattern = Pattern::new(self, source as u32, seat);
        let this = self.clone();
        let mut transfers = Transfers::new(&this, access, self.places(access, source, seat), pattern);
        let mut file = None;
        observer.span("open", &mut |_| {
            file = Some(self.open(access, &path)?);
            Ok(())
        })?;
        self.barrier(observer)?;
        let mut done = None;
        observer.span("access", &mut |observer| {
            let Some(file) = &file else { return Ok(()) };
            done = transfers.run(file, observer)?;
            if access == Access::Write && self.fsync { file.sync_all() } else { Ok(()) }
        })?;
        self.barrier(observer)?;
        observer.span("close", &mut |_| {
            drop(file.take());
            Ok(())
        })?;
        if access == Access::Write {
            self.written = done;
        }
        Ok(())
    }

    fn barrier(&self, observer: &mut dyn Observer) -> io::Result<()> {
        if self.barriers { observer.agree(0).map(drop) } else { Ok(()) }
    }

    /// Where this process reads or writes; nothing that was not written for lack of time.
    fn places(&self, access: Access, source: usize, seat: &Seat) -> Vec<u64> {
        // What was cut short is read in the order in which it was written.
        let other = access == Access::Read && self.written.is_none();
        let mut places = places::of(self, source, seat.size, u64::from(other));
        if let (Some(written), true) = (&self.written, access != Access::Write) {
            places.truncate(written.get(source).map_or(0, |transfers| *transfers as usize));
        }
        places
    }

    fn remove(&self, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        if seat.index > 0 && !self.file_per_process {
            return Ok(());
        }
        observer.operation(&mut || fs::remove_file(self.path(seat, seat.index)))
    }
}

impl Suite for Ior {
    fn name(&self) -> &'static str {
        "ior"
    }

    fn spell_out(&mut self) {
        if self.hard {
            (self.block, self.transfer) = (HARD_BYTES, HARD_BYTES);
            (self.reorder, self.barriers, self.fsync) = (true, true, true);
        }
        if !(self.write || self.read || self.check_write || self.check_read) {
            (self.write, self.read) = (true, true);
        }
    }

    fn phases(&self) -> Vec<Phase> {
        let bandwidth = |access: Access| Phase::new(access.name(), Unit::MebibytesPerSecond);
        let remove = (!self.keep).then_some(Phase::new(REMOVE, Unit::Seconds));
        self.accesses().into_iter().map(bandwidth).chain(remove).collect()
    }

    fn check(&self, processes: usize) -> Result<(), String> {
        self.wrong(processes).map_or(Ok(()), |wrong| Err(wrong.to_owned()))
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("it has -D, as IOR has")
    }

    fn need(&self, processes: usize) -> Need {
        // Against a stonewall nobody knows.
        if !self.write || self.stonewall > 0 {
            return Need::default();
        }
        let bytes = places::bytes(self, processes).unwrap_or(u64::MAX);
        Need { bytes, inodes: if self.file_per_process { processes as u64 } else { 1 } }
    }

    fn leaves(&self) -> bool {
        self.keep
    }

    fn finds(&self) -> bool {
        !self.write || self.existing
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        match [Access::Write, Access::WriteCheck, Access::Read].into_iter().find(|a| a.name() == phase) {
            Some(access) => self.access(access, seat, observer),
            None => self.remove(seat, observer),
        }
    }

    fn original(&self, report: &Report, target: usize) -> String {
        summary::table(self, report, target)
    }
}

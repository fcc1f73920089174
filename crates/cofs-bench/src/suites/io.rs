//! Large files: written (as a new file, and over what is there) and read in order in pieces of 1 MiB, and at random in
//! pieces of 4 KiB. Writing ends with an fsync, which is part of its time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
};

use cofs_types::size::parse_size;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use crate::{Need, Observer, Phase, Seat, Suite, Unit};

/// Write and read large files, in order (1 MiB) and at random (4 KiB).
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Io {
    /// Bytes of the large file of each process.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub large: u64,

    /// Random reads, and random writes, of each process.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub random: u64,

    /// Bytes of this process's file that stand.
    #[arg(skip)]
    #[serde(skip)]
    written: u64,
}

const PIECE: usize = 1 << 20;
const SMALL: usize = 4096;

const PHASES: &[Phase] = &[
    Phase::new("write", Unit::MebibytesPerSecond),
    Phase::new("rewrite", Unit::MebibytesPerSecond),
    Phase::new("read cold", Unit::MebibytesPerSecond).cold(),
    Phase::new("read", Unit::MebibytesPerSecond),
    Phase::new("random read cold", Unit::OperationsPerSecond).cold(),
    Phase::new("random read", Unit::OperationsPerSecond),
    Phase::new("random write", Unit::OperationsPerSecond),
    Phase::new("remove", Unit::Seconds).silent(),
];

impl Suite for Io {
    fn name(&self) -> &'static str {
        "io"
    }

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        match self.large >= PIECE as u64 {
            true => Ok(()),
            false => Err("--large is at least 1M".to_owned()),
        }
    }

    fn need(&self, processes: usize) -> Need {
        let processes = processes as u64;
        Need { bytes: self.large.saturating_mul(processes), inodes: processes }
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let path = seat.root.join(format!("large-{}", seat.index));
        match phase {
            "write" => {
                let file = File::create(&path)?;
                self.written =
                    pieces(self.large, observer, |buffer, offset| file.write_all_at(buffer, offset))?;
                observer.single(&mut || file.sync_all())
            }
            "rewrite" => {
                let file = OpenOptions::new().write(true).open(&path)?;
                pieces(self.written, observer, |buffer, offset| file.write_all_at(buffer, offset))?;
                observer.single(&mut || file.sync_all())
            }
            "read" | "read cold" => {
                let file = File::open(&path)?;
                pieces(self.written, observer, |buffer, offset| file.read_exact_at(buffer, offset)).map(drop)
            }
            "random read" | "random read cold" => {
                let file = File::open(&path)?;
                at_random(self, seat, observer, |buffer, offset| file.read_exact_at(buffer, offset))
            }
            "random write" => {
                let file = OpenOptions::new().write(true).open(&path)?;
                at_random(self, seat, observer, |buffer, offset| file.write_all_at(buffer, offset))?;
                observer.single(&mut || file.sync_all())
            }
            _ => fs::remove_file(&path),
        }
    }
}

/// Does `each` with pieces of the first `bytes`, in order; how many bytes there was time for.
fn pieces(
    bytes: u64,
    observer: &mut dyn Observer,
    mut each: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut buffer = vec![0xa5; PIECE];
    let mut offset = 0;
    while offset + PIECE as u64 <= bytes && observer.go_on() {
        observer.operation(&mut || each(&mut buffer, offset))?;
        observer.bytes(PIECE as u64);
        offset += PIECE as u64;
    }
    Ok(offset)
}

fn at_random(
    io: &Io,
    seat: &Seat,
    observer: &mut dyn Observer,
    mut each: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut random = SmallRng::seed_from_u64(seat.index as u64);
    let mut buffer = vec![0x3c; SMALL];
    let blocks = (io.written / SMALL as u64).max(1);
    for _ in 0..io.random {
        if !observer.go_on() {
            break;
        }
        let offset = random.random_range(0..blocks) * SMALL as u64;
        observer.operation(&mut || each(&mut buffer, offset))?;
        observer.bytes(SMALL as u64);
    }
    Ok(())
}

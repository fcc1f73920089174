//! Large files: written and read in order in pieces of 1 MiB, and at random in pieces of 4 KiB. Writing ends with
//! an fsync, which is part of its time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    Suite, Unit,
    options::Load,
    suite::{Observer, Phase},
    worker::Seat,
};

pub struct Io;

const PIECE: usize = 1 << 20;
const SMALL: usize = 4096;

const PHASES: &[Phase] = &[
    Phase::new("write", Unit::MebibytesPerSecond),
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

    fn about(&self) -> &'static str {
        "large files, in order (1 MiB) and at random (4 KiB)"
    }

    fn phases(&self) -> &'static [Phase] {
        PHASES
    }

    fn work(&self, phase: &str, load: &Load, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let path = seat.root.join(format!("large-{}", seat.index));
        match phase {
            "write" => {
                let file = File::create(&path)?;
                pieces(load, observer, |buffer, offset| file.write_all_at(buffer, offset))?;
                observer.operation(&mut || file.sync_all())
            }
            "read" | "read cold" => {
                let file = File::open(&path)?;
                pieces(load, observer, |buffer, offset| file.read_exact_at(buffer, offset))
            }
            "random read" | "random read cold" => {
                let file = File::open(&path)?;
                at_random(load, seat, observer, |buffer, offset| file.read_exact_at(buffer, offset))
            }
            "random write" => {
                let file = OpenOptions::new().write(true).open(&path)?;
                at_random(load, seat, observer, |buffer, offset| file.write_all_at(buffer, offset))?;
                observer.operation(&mut || file.sync_all())
            }
            _ => fs::remove_file(&path),
        }
    }
}

fn pieces(
    load: &Load,
    observer: &mut dyn Observer,
    mut each: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0xa5; PIECE];
    for piece in 0..load.large_bytes / PIECE as u64 {
        observer.operation(&mut || each(&mut buffer, piece * PIECE as u64))?;
        observer.bytes(PIECE as u64);
    }
    Ok(())
}

fn at_random(
    load: &Load,
    seat: &Seat,
    observer: &mut dyn Observer,
    mut each: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut random = SmallRng::seed_from_u64(seat.index as u64);
    let mut buffer = vec![0x3c; SMALL];
    let blocks = (load.large_bytes / SMALL as u64).max(1);
    for _ in 0..load.random_operations {
        let offset = random.random_range(0..blocks) * SMALL as u64;
        observer.operation(&mut || each(&mut buffer, offset))?;
        observer.bytes(SMALL as u64);
    }
    Ok(())
}

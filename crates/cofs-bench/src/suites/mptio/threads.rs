//! One test, by all threads of one process, which begin together.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Barrier, thread};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use super::{Mptio, regions};
use crate::{Meter, Observer, Seat, aligned::Aligned, each};

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    SequentialWrite,
    SequentialRead,
    RandomWrite,
    RandomRead,
    ReadModifyWrite,
}

impl Test {
    pub const ALL: [Self; 5] = [
        Self::SequentialWrite,
        Self::SequentialRead,
        Self::RandomWrite,
        Self::RandomRead,
        Self::ReadModifyWrite,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::SequentialWrite => "sequential write",
            Self::SequentialRead => "sequential read",
            Self::RandomWrite => "random write",
            Self::RandomRead => "random read",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }

    fn reads(self) -> bool {
        !matches!(self, Self::SequentialWrite | Self::RandomWrite)
    }

    fn writes(self) -> bool {
        !matches!(self, Self::SequentialRead | Self::RandomRead)
    }

    fn is_random(self) -> bool {
        !matches!(self, Self::SequentialWrite | Self::SequentialRead)
    }
}

pub fn run(mptio: &Mptio, test: Test, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
    let threads = u64::from(mptio.threads);
    let together = Barrier::new(threads as usize);
    let work: Vec<io::Result<(Meter, u64)>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|number| (number, &together))
            .map(|(number, together)| scope.spawn(move || one_thread(mptio, test, seat, number, together)))
            .collect();
        let lost = |_| Err(io::Error::other("a thread failed"));
        started.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    for work in work {
        let (meter, bytes) = work?;
        observer.of_thread(&meter);
        observer.bytes(bytes);
    }
    Ok(())
}

/// Its operations' times, and the bytes that it moved.
fn one_thread(
    mptio: &Mptio,
    test: Test,
    seat: &Seat,
    number: u64,
    together: &Barrier,
) -> io::Result<(Meter, u64)> {
    let region = regions::of(mptio, seat.index as u64, number);
    let file = mptio.open(&region, seat);
    let mut buffer = Aligned::new(mptio.block as usize, number as u8);
    let mut meter = Meter::default();
    // All come here, also one that has no file: nobody waits for ever.
    together.wait();
    let file = file?;
    let blocks = mptio.region / mptio.block;
    let count = if test.is_random() { mptio.operations.unwrap_or(blocks) } else { blocks };
    let seed = (seat.index as u64) << 32 | number;
    let mut random = SmallRng::seed_from_u64(seed);
    each(&mut meter, 0..count, |turn| {
        let block = if test.is_random() { random.random_range(0..blocks) } else { turn };
        one(test, &file, buffer.bytes(), region.begin + block * mptio.block)
    })?;
    meter.end();
    if test.writes() && !mptio.no_fsync {
        file.sync_all()?;
    }
    let bytes = count * mptio.block * (u64::from(test.reads()) + u64::from(test.writes()));
    Ok((meter, bytes))
}

fn one(test: Test, file: &File, buffer: &mut [u8], place: u64) -> io::Result<()> {
    if test.reads() {
        file.read_exact_at(buffer, place)?;
    }
    if test == Test::ReadModifyWrite {
        buffer.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    }
    if test.writes() {
        file.write_all_at(buffer, place)?;
    }
    Ok(())
}

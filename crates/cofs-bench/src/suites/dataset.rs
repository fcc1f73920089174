//! A data set of many small files, read in random order, as programs do that learn from examples: each epoch reads every
//! file once, whichever process made it, in an order of its own.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use cofs_types::size::parse_size;
use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

use crate::{Need, Observer, Phase, Seat, Suite, Unit};

/// Read a data set of many small files in random order, each epoch in another.
///
/// Files lie in directories as classes do. In an epoch all processes together read every file once: open, fstat, read to the
/// end, close; and see that it is the file that they wanted.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Dataset {
    /// Files of all processes together.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub files: u64,

    /// Files in each directory.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,

    /// Bytes of the smallest file.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    pub least: u64,

    /// Bytes of the largest file; sizes between are as often half as large as twice as large.
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = parse_size)]
    pub most: u64,

    /// What sizes and orders begin from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub random_seed: u64,

    /// Files that stand, of each process.
    #[arg(skip)]
    #[serde(skip)]
    made: Vec<u64>,
}

/// The order of an epoch is held in memory.
const MOST: u64 = 1 << 24;
/// A file is held in memory.
const BYTES_MAX: u64 = 1 << 30;
/// What a file begins with: its number.
const MARK: u64 = size_of::<u64>() as u64;

const MAKE: &str = "make";
const REMOVE: &str = "remove";
/// Of which the first needs cold caches.
const EPOCHS: [&str; 3] = ["read cold", "read", "read again"];

impl Dataset {
    /// Bytes of a file: spread evenly over the doublings from the least to the most.
    fn size(&self, number: u64) -> u64 {
        let mixed = mix(number ^ self.random_seed.rotate_left(32));
        let part = (mixed >> 11) as f64 / (1u64 << 53) as f64;
        let (least, most) = (self.least as f64, self.most as f64);
        (least * (most / least).powf(part)).round().clamp(least, most) as u64
    }

    fn directory(&self, seat: &Seat, number: u64) -> PathBuf {
        seat.root.join(format!("class-{:06}", number / self.per_directory))
    }

    fn path(&self, seat: &Seat, number: u64) -> PathBuf {
        self.directory(seat, number).join(format!("{number:09}.bin"))
    }

    /// This process makes every `size`th file.
    fn make(&mut self, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let mut bytes = vec![0x6d; self.most as usize];
        let mut made = 0;
        while made < seat.share(self.files) && observer.go_on() {
            let number = made * seat.size as u64 + seat.index as u64;
            let size = self.size(number);
            let mine = bytes.get_mut(..size as usize).ok_or(io::ErrorKind::InvalidInput)?;
            mine.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
            let path = self.path(seat, number);
            observer.operation(&mut || create(&path)?.write_all(mine))?;
            observer.bytes(size);
            made += 1;
        }
        self.made = observer.agree(made)?;
        Ok(())
    }

    /// This process's part of an epoch: every `size`th file of an order that all processes have.
    fn epoch(&self, epoch: usize, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let stands = |number: &u64| {
            let of = self.made.get((number % seat.size as u64) as usize);
            of.is_some_and(|made| number / (seat.size as u64) < *made)
        };
        let mut order: Vec<u64> = (0..self.files).filter(stands).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(self.random_seed.wrapping_add(epoch as u64)));
        let mut buffer = Vec::with_capacity(self.most as usize + 1);
        for number in order.into_iter().skip(seat.index).step_by(seat.size) {
            if !observer.go_on() {
                break;
            }
            let path = self.path(seat, number);
            observer.operation(&mut || read(&path, &mut buffer))?;
            observer.bytes(buffer.len() as u64);
            if buffer.len() as u64 != self.size(number) || !buffer.starts_with(&number.to_le_bytes()) {
                let text = format!("{} is not what was written there", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(())
    }

    fn remove(&self, seat: &Seat) -> io::Result<()> {
        let made = self.made.get(seat.index).copied().unwrap_or_default();
        let mine = (0..made).map(|turn| turn * seat.size as u64 + seat.index as u64);
        mine.into_iter().try_for_each(|number| fs::remove_file(self.path(seat, number)))
    }
}

/// The directory of a file is made by who comes first.
fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(path);
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => File::create_new(path),
            }
        }
        result => result,
    }
}

fn read(path: &Path, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer).map(drop)
}

/// A number that shows nothing of the one it was made from (the finisher of SplitMix64, Steele et al. 2014).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Suite for Dataset {
    fn name(&self) -> &'static str {
        "dataset"
    }

    fn phases(&self) -> Vec<Phase> {
        let [cold, epochs @ ..] = EPOCHS.map(|name| Phase::new(name, Unit::OperationsPerSecond));
        let make = Phase::new(MAKE, Unit::OperationsPerSecond);
        let remove = Phase::new(REMOVE, Unit::OperationsPerSecond).silent();
        [make, cold.cold()].into_iter().chain(epochs).chain([remove]).collect()
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        match (self.least, self.most) {
            (least, _) if least < MARK => Err(format!("--least is at least {MARK}")),
            (_, most) if most > BYTES_MAX => Err("--most is at most 1G".to_owned()),
            (least, most) if least > most => Err("--least cannot be more than --most".to_owned()),
            _ => Ok(()),
        }
    }

    fn need(&self, _processes: usize) -> Need {
        let directories = self.files.div_ceil(self.per_directory);
        let bytes = (0..self.files).map(|number| self.size(number)).fold(0, u64::saturating_add);
        Need { bytes, inodes: self.files + directories }
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        match EPOCHS.iter().position(|name| *name == phase) {
            Some(epoch) => self.epoch(epoch, seat, observer),
            None if phase == MAKE => self.make(seat, observer),
            None => self.remove(seat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_bounds_and_halves_are_as_frequent_as_doubles() {
        let set =
            |least, most| Dataset { files: 1, per_directory: 1, least, most, random_seed: 7, made: vec![] };
        let set = set(1000, 16_000);
        let sizes: Vec<u64> = (0..10_000).map(|number| set.size(number)).collect();
        assert!(sizes.iter().all(|size| (1000..=16_000).contains(size)));
        // The middle of 1000 and 16000 is 4000, by doublings.
        let below = sizes.iter().filter(|size| **size < 4000).count();
        assert!((4500..5500).contains(&below), "{below}");
        assert!(sizes[0] == set.size(0) && sizes[0] != sizes[1]);
    }
}

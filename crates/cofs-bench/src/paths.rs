//! Where the files of a worker lie.

use std::path::{Path, PathBuf};

use crate::{options::Load, worker::Seat};

impl Load {
    /// How many of the files are this worker's.
    pub fn share(&self, seat: &Seat) -> u64 {
        let processes = self.processes.max(1) as u64;
        self.files / processes + u64::from((seat.index as u64) < self.files % processes)
    }
}

impl Seat {
    /// The directory that this worker's small files lie in.
    pub fn directory(&self, load: &Load) -> PathBuf {
        match load.own_directories {
            true => self.root.join(format!("own-{}", self.index)),
            false => self.root.join("shared"),
        }
    }

    /// This worker's `number`th file in `directory`.
    pub fn file(&self, directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("f{}-{number}", self.index))
    }
}

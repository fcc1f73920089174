//! Where the files of a worker lie.

use std::path::{Path, PathBuf};

use crate::worker::Seat;

impl Seat {
    /// How many of `files` are this worker's.
    pub fn share(&self, files: u64) -> u64 {
        let size = self.size.max(1) as u64;
        files / size + u64::from((self.index as u64) < files % size)
    }

    /// The directory that this worker's small files lie in: its `own`, or the one that all share.
    pub fn directory(&self, own: bool) -> PathBuf {
        match own {
            true => self.root.join(format!("own-{}", self.index)),
            false => self.root.join("shared"),
        }
    }

    /// This worker's `number`th file in `directory`.
    pub fn file(&self, directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("f{}-{number}", self.index))
    }
}

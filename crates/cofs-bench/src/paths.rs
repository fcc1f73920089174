//! Where the files of a worker lie.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

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

/// The paths of a worker's files, one after the other in one piece of memory, because making a path anew takes a good part
/// of the time that the cheapest operations take.
pub struct Names {
    path: PathBuf,
    name: String,
    /// Bytes of the name that all have.
    prefix: usize,
}

impl Names {
    pub fn new(seat: &Seat, directory: &Path) -> Self {
        let name = format!("f{}-", seat.index);
        Self { path: directory.join(&name), prefix: name.len(), name }
    }

    /// The same as [`Seat::file`].
    pub fn at(&mut self, number: u64) -> &Path {
        self.name.truncate(self.prefix);
        // Writing to a string does not fail.
        let _ = write!(self.name, "{number}");
        self.path.set_file_name(&self.name);
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_files() {
        let seat = Seat { root: "/r".into(), index: 3, size: 4 };
        let directory = seat.directory(false);
        let mut names = Names::new(&seat, &directory);
        for number in [0, 12, 7, 1 << 40] {
            assert_eq!(names.at(number), seat.file(&directory, number));
        }
    }
}

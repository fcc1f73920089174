//! Where the files of a worker lie.

use std::{
    ffi::{CStr, CString},
    io,
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
        directory.join(file_name(self.index, number))
    }
}

/// So many paths are made before a round begins; more would be more than a worker should take of the memory.
const READY_MAX: u64 = 1 << 20;

/// The paths of a worker's files as the kernel takes them. They are made before, because making a path takes a good
/// part of the time that the cheapest operations take.
#[derive(Clone, Debug)]
pub struct Names {
    directory: PathBuf,
    index: usize,
    ready: Vec<CString>,
    other: CString,
}

impl Names {
    /// Of the files with numbers below `files`.
    ///
    /// Errors: the directory's path has a zero in it.
    pub fn new(seat: &Seat, directory: &Path, files: u64) -> io::Result<Self> {
        let mut names = Self {
            directory: directory.to_owned(),
            index: seat.index,
            ready: Vec::new(),
            other: CString::default(),
        };
        names.ready =
            (0..files.min(READY_MAX)).map(|number| names.make(number)).collect::<io::Result<_>>()?;
        Ok(names)
    }

    /// The same as [`Seat::file`].
    ///
    /// Errors: as [`new`](Self::new).
    pub fn at(&mut self, number: u64) -> io::Result<&CStr> {
        match usize::try_from(number) {
            Ok(number) if number < self.ready.len() => {
                Ok(self.ready.get(number).map(CString::as_c_str).unwrap_or_default())
            }
            _ => {
                self.other = self.make(number)?;
                Ok(&self.other)
            }
        }
    }

    fn make(&self, number: u64) -> io::Result<CString> {
        let path = self.directory.join(file_name(self.index, number));
        // A copy has no more bytes than it needs, and so the names lie close together: one that the processor must fetch from
        // afar takes some hundredths of the cheapest operations.
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::from)
    }
}

fn file_name(index: usize, number: u64) -> String {
    format!("f{index}-{number}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn names_are_those_of_the_files() {
        let seat = Seat { root: "/r".into(), index: 3, size: 4, ways: crate::Ways::default() };
        let directory = seat.directory(false);
        let mut names = Names::new(&seat, &directory, 100).unwrap();
        for number in (0..120).chain([7, 8, 1 << 40, 99, 100, 100]) {
            let path = seat.file(&directory, number);
            assert_eq!(names.at(number).unwrap().to_bytes(), path.as_os_str().as_bytes());
        }
        assert!(Names::new(&seat, Path::new("a\0b"), 1).is_err());
    }
}

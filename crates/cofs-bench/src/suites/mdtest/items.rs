//! What is done to one file: its name, what is in it, and whether that is found again.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory = 0,
    File = 1,
}

impl Kind {
    /// Item `item` of the process `owner` in `directory`.
    pub fn name(self, directory: &Path, owner: usize, item: u64) -> PathBuf {
        match self {
            Self::Directory => directory.join(format!("dir.mdtest.{owner}.{item}")),
            Self::File => directory.join(format!("file.mdtest.{owner}.{item}")),
        }
    }
}

/// The bytes of a file: its item's number, then a pattern.
pub struct Data {
    pattern: Vec<u8>,
    buffer: Vec<u8>,
}

impl Data {
    pub fn new(size: usize) -> Self {
        let pattern: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        Self { buffer: pattern.clone(), pattern }
    }

    pub fn create(&mut self, path: &Path, item: u64, size: u64, sync: bool) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if size == 0 {
            return Ok(());
        }
        number(&mut self.pattern, item);
        let bytes = self.pattern.get(..size as usize).ok_or(io::ErrorKind::InvalidInput)?;
        file.write_all_at(bytes, 0)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    /// Whether what stands there is what was written: the item's number only, or `all` of it.
    pub fn read(&mut self, path: &Path, item: u64, size: u64, all: bool) -> io::Result<bool> {
        let file = File::open(path)?;
        let buffer = self.buffer.get_mut(..size as usize).ok_or(io::ErrorKind::InvalidInput)?;
        file.read_exact_at(buffer, 0)?;
        number(&mut self.pattern, item);
        let compared = if all { buffer.len() } else { buffer.len().min(size_of_val(&item)) };
        Ok(self.pattern.get(..compared) == buffer.get(..compared))
    }
}

/// Writes the number to the begin, as much of it as there is space for.
fn number(bytes: &mut [u8], item: u64) {
    bytes.iter_mut().zip(item.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
}

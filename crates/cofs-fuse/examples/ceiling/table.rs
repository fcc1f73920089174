//! The fixed answers that the hand-written loops and the crate give alike: nothing but which of so many numbered files exist, and how long
//! they are. What is measured around it is the way of a request, not a file system.
//!
//! Directories `d0` to `d63` are always there. A file is called `fN` in any of them; its number is its inode's.

use std::sync::atomic::{AtomicU64, Ordering};

/// Files that can exist at one time.
pub const FILES_MAX: usize = 1 << 21;
const DIRECTORIES: u64 = 64;
const FIRST_DIRECTORY: u64 = 16;
const FIRST_FILE: u64 = 1 << 32;
/// All times of all files, in seconds.
pub const TIME: u64 = 1_700_000_000;

pub struct Table {
    /// By file: 0, or one more than its size.
    sizes: Vec<AtomicU64>,
}

impl Table {
    pub fn new() -> Self {
        Self { sizes: std::iter::repeat_with(AtomicU64::default).take(FILES_MAX).collect() }
    }

    /// The inode of that name, there or not.
    pub fn number(name: &[u8]) -> Option<u64> {
        let (kind, digits) = name.split_first()?;
        let number = digits.iter().try_fold(0_u64, |sum, digit| {
            digit.is_ascii_digit().then(|| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
        })?;
        match kind {
            b'd' if number < DIRECTORIES => Some(FIRST_DIRECTORY + number),
            b'f' => Some(FIRST_FILE + number % FILES_MAX as u64),
            _ => None,
        }
    }

    pub fn is_directory(ino: u64) -> bool {
        ino < FIRST_FILE
    }

    fn slot(&self, ino: u64) -> Option<&AtomicU64> {
        self.sizes.get(usize::try_from(ino.checked_sub(FIRST_FILE)?).ok()?)
    }

    /// `None` where nothing of that number is.
    pub fn size(&self, ino: u64) -> Option<u64> {
        if Self::is_directory(ino) {
            return Some(0);
        }
        self.slot(ino)?.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn create(&self, ino: u64) {
        self.set(ino, 1);
    }

    pub fn remove(&self, ino: u64) {
        self.set(ino, 0);
    }

    pub fn grow(&self, ino: u64, end: u64) {
        if let Some(slot) = self.slot(ino) {
            slot.fetch_max(end + 1, Ordering::Relaxed);
        }
    }

    fn set(&self, ino: u64, to: u64) {
        if let Some(slot) = self.slot(ino) {
            slot.store(to, Ordering::Relaxed);
        }
    }
}

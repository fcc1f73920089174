//! What stands in the files: words in pairs, first the writer and the run's signature, then the word's offset.

use super::{Ior, WORD};
use crate::Seat;

pub struct Pattern {
    bytes: Vec<u8>,
    /// Who wrote, and in which run.
    even: u64,
}

impl Pattern {
    /// What `process` writes, as of offset 0.
    pub fn new(ior: &Ior, process: u32, seat: &Seat) -> Self {
        let signature = ior.signature.unwrap_or_else(|| signature(seat));
        let even = u64::from(process) << 32 | u64::from(signature);
        let mut pattern = Self { bytes: vec![0; ior.transfer as usize], even };
        pattern.at(0);
        pattern
    }

    /// Makes it the transfer at `offset` of the file.
    pub fn at(&mut self, offset: u64) {
        for (number, word) in self.bytes.chunks_exact_mut(WORD as usize).enumerate() {
            let value = if number % 2 == 0 { self.even } else { offset + number as u64 * WORD };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Words that are others than these.
    pub fn differences(&self, found: &[u8]) -> u64 {
        if found == self.bytes {
            return 0;
        }
        let pairs = found.chunks(WORD as usize).zip(self.bytes.chunks(WORD as usize));
        pairs.filter(|(found, expected)| found != expected).count() as u64
    }
}

/// A number for this run that all its processes know: it comes from the name of its directory (FNV-1a).
fn signature(seat: &Seat) -> u32 {
    let name = seat.root.file_name().unwrap_or_default().as_encoded_bytes();
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

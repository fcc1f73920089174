//! A file's bytes with holes: only the blocks that were written are kept.

use std::collections::BTreeMap;

const BLOCK: u64 = 512;

/// Bytes from 0 to `size`; what no block holds is zero, and so is everything behind `size`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sparse {
    size: u64,
    blocks: BTreeMap<u64, [u8; BLOCK as usize]>,
}

impl Sparse {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset));
        (offset..offset + len).map(|at| self.byte(at)).collect()
    }

    fn byte(&self, at: u64) -> u8 {
        self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize])
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in (offset..).zip(data) {
            self.blocks.entry(at / BLOCK).or_insert([0; BLOCK as usize])[(at % BLOCK) as usize] = *byte;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, u64::MAX);
        }
        self.size = size;
    }

    /// Zeros from `offset` up to `end` (exclusive); the size stays.
    pub fn zero(&mut self, offset: u64, end: u64) {
        if offset >= end {
            return;
        }
        let (first, last) = (offset / BLOCK, end.saturating_sub(1) / BLOCK);
        let touched: Vec<u64> = self.blocks.range(first..=last).map(|(index, _)| *index).collect();
        for index in touched {
            let Some(block) = self.blocks.get_mut(&index) else { continue };
            for (at, byte) in (index * BLOCK..).zip(block.iter_mut()) {
                if (offset..end).contains(&at) {
                    *byte = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_forgets_what_lay_behind() {
        let mut data = Sparse::default();
        data.write(0, &[7; 2000]);
        data.truncate(700);
        data.truncate(1500);
        assert_eq!(data.read(0, 9999), [&[7u8; 700][..], &[0; 800]].concat());
    }

    #[test]
    fn a_hole_reads_as_zeros() {
        let mut data = Sparse::default();
        data.write(1 << 40, b"x");
        assert_eq!(data.size(), (1 << 40) + 1);
        assert_eq!(data.read((1 << 40) - 2, 10), b"\0\0x");
        data.zero(0, u64::MAX);
        assert_eq!(data.read(1 << 40, 10), b"\0");
    }
}

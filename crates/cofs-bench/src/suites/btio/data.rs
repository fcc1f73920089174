//! The numbers: each is its own place in the file, so that a shared file of any form reads 0, 1, 2, 3 …

use super::cube::{Cell, Cube};

const NUMBER: usize = size_of::<f64>();
const NUMBERS_OF_POINT: u64 = 5;

/// One process's cells, one after the other, each row by row.
pub struct Data {
    pub bytes: Vec<u8>,
    pub cells: Vec<Cell>,
}

impl Data {
    pub fn new(cube: &Cube, process: usize) -> Self {
        let cells = cube.cells(process).to_vec();
        let size: u64 = cells.iter().map(Cell::bytes).sum();
        Self { bytes: vec![0; size as usize], cells }
    }

    pub fn fill(&mut self, cube: &Cube, dump: u64) {
        let places = places(&self.cells, cube, dump);
        for (number, place) in self.bytes.chunks_exact_mut(NUMBER).zip(places) {
            number.copy_from_slice(&(place as f64).to_le_bytes());
        }
    }

    /// Nothing of what was written is left: what is found was read.
    pub fn clear(&mut self) {
        self.bytes.fill(0xff);
    }

    /// Numbers that are others than `fill` gives.
    pub fn differences(&self, cube: &Cube, dump: u64) -> u64 {
        let places = places(&self.cells, cube, dump);
        let pairs = self.bytes.chunks_exact(NUMBER).zip(places);
        pairs.filter(|(number, place)| *number != (*place as f64).to_le_bytes()).count() as u64
    }

    pub fn row(&self, cell: &Cell, at: u64) -> &[u8] {
        self.bytes.get(at as usize..(at + cell.row_bytes()) as usize).unwrap_or_default()
    }

    pub fn row_mut(&mut self, cell: &Cell, at: u64) -> &mut [u8] {
        self.bytes.get_mut(at as usize..(at + cell.row_bytes()) as usize).unwrap_or_default()
    }
}

/// Places of all numbers, in the order in which they are held.
fn places<'a>(cells: &'a [Cell], cube: &'a Cube, dump: u64) -> impl Iterator<Item = u64> + 'a {
    let before = dump * cube.bytes() / NUMBER as u64;
    cells.iter().flat_map(move |cell| {
        let ([low, ..], [size, ..]) = (cell.low, cell.size);
        cell.rows().flat_map(move |([y, z], _)| {
            let first = before + cube.offset([low, y, z]) / NUMBER as u64;
            first..first + size * NUMBERS_OF_POINT
        })
    })
}

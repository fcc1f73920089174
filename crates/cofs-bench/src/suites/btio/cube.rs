//! The cube and who owns what of it: NPB's multi-partition (make_set.f90). With P = q² processes the cube is cut
//! into q³ cells; each process owns q of them, one in each layer, so that every plane has one of each process.

/// Five numbers of eight bytes.
pub const POINT_BYTES: u64 = 40;

/// A box of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The first point, and how many there are, in x, y and z.
    pub low: [u64; 3],
    pub size: [u64; 3],
    /// Where it begins among its owner's bytes.
    pub begin: u64,
}

impl Cell {
    pub fn bytes(&self) -> u64 {
        self.size.iter().product::<u64>() * POINT_BYTES
    }

    /// Bytes of the points that lie side by side in a file.
    pub fn row_bytes(&self) -> u64 {
        let [x, ..] = self.size;
        x * POINT_BYTES
    }

    /// Its rows: y and z of each, and where its bytes begin among the owner's.
    pub fn rows(&self) -> impl Iterator<Item = ([u64; 2], u64)> + use<> {
        let (this, [_, sy, sz], [_, y, z]) = (*self, self.size, self.low);
        let rows = (0..sz).flat_map(move |k| (0..sy).map(move |j| (j, k)));
        rows.map(move |(j, k)| ([y + j, z + k], this.begin + (k * sy + j) * this.row_bytes()))
    }
}

/// A piece of the cube that lies in one row of one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub owner: usize,
    /// Where it is among the owner's bytes.
    pub at: u64,
    pub bytes: u64,
}

pub struct Cube {
    points: u64,
    edge: u64,
    cells: Vec<Vec<Cell>>,
}

impl Cube {
    /// `processes` is a square.
    pub fn new(points: u64, processes: u64) -> Self {
        let edge = processes.isqrt().max(1);
        let cells = (0..processes).map(|process| owned(points, edge, process)).collect();
        Self { points, edge, cells }
    }

    pub fn bytes(&self) -> u64 {
        self.points.pow(3) * POINT_BYTES
    }

    pub fn cells(&self, process: usize) -> &[Cell] {
        self.cells.get(process).map_or(&[], Vec::as_slice)
    }

    /// Where a point lies in the shared file, counted from the begin of its dump.
    pub fn offset(&self, [x, y, z]: [u64; 3]) -> u64 {
        (x + self.points * (y + self.points * z)) * POINT_BYTES
    }

    /// The pieces of the bytes from `begin` to `end` of a dump, both at whole points, in order.
    pub fn pieces(&self, begin: u64, end: u64) -> impl Iterator<Item = Piece> {
        let mut at = begin;
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| self.piece(at, end - at))??;
            at += piece.bytes;
            Some(piece)
        })
    }

    fn piece(&self, at: u64, most: u64) -> Option<Piece> {
        let point = at / POINT_BYTES;
        let place = [point, point / self.points, point / self.points.pow(2)].map(|n| n % self.points);
        let [cx, cy, cz] = place.map(|n| block(self.points, self.edge, n));
        // The inverse of `owned`: back along the diagonal to the lowest layer.
        let edge = self.edge;
        let owner = ((cx + edge - cz) % edge + edge * ((cy + cz) % edge)) as usize;
        let cell = self.cells(owner).get(cz as usize)?;
        let [x, y, z] = [0, 1, 2].map(|axis| place[axis] - cell.low[axis]);
        let [sx, sy, _] = cell.size;
        let within = ((z * sy + y) * sx + x) * POINT_BYTES;
        let bytes = ((sx - x) * POINT_BYTES).min(most);
        Some(Piece { owner, at: cell.begin + within, bytes })
    }
}

/// The cells of one process, layer by layer.
fn owned(points: u64, edge: u64, process: u64) -> Vec<Cell> {
    let mut begin = 0;
    let cells = (0..edge).map(|layer| {
        let coordinates = [(process % edge + layer) % edge, (process / edge + edge - layer) % edge, layer];
        let [x, y, z] = coordinates.map(|coordinate| extent(points, edge, coordinate));
        let cell = Cell { low: [x.0, y.0, z.0], size: [x.1, y.1, z.1], begin };
        begin += cell.bytes();
        cell
    });
    cells.collect()
}

/// The first point and the number of points of block `coordinate` of `edge`: what does not divide goes to the
/// first ones.
fn extent(points: u64, edge: u64, coordinate: u64) -> (u64, u64) {
    let (size, excess) = (points / edge, points % edge);
    (coordinate * size + coordinate.min(excess), size + u64::from(coordinate < excess))
}

/// The block that a point lies in.
fn block(points: u64, edge: u64, point: u64) -> u64 {
    let (size, excess) = (points / edge, points % edge);
    match point < excess * (size + 1) {
        true => point / (size + 1),
        false => (point - excess) / size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_processes_are_the_cube() {
        for (points, processes) in [(12, 1), (12, 4), (13, 9), (64, 16)] {
            let cube = Cube::new(points, processes);
            let mut seen = vec![0; (points * points * points) as usize];
            for process in 0..processes as usize {
                let mut bytes = 0;
                for cell in cube.cells(process) {
                    assert_eq!(cell.begin, bytes);
                    bytes += cell.bytes();
                    for ([y, z], at) in cell.rows() {
                        let from = cube.offset([cell.low[0], y, z]);
                        let first = cube.pieces(from, cube.bytes()).next().unwrap();
                        assert_eq!(first, Piece { owner: process, at, bytes: cell.row_bytes() });
                        let begin = (from / POINT_BYTES) as usize;
                        seen[begin..begin + cell.size[0] as usize].iter_mut().for_each(|n| *n += 1);
                    }
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{points} {processes}");
            let pieces: u64 = cube.pieces(40, cube.bytes() - 80).map(|piece| piece.bytes).sum();
            assert_eq!(pieces, cube.bytes() - 120);
        }
    }

    #[test]
    fn every_plane_has_a_cell_of_every_process() {
        let cube = Cube::new(102, 9);
        for axis in 0..3 {
            for process in 0..9 {
                let mut lows: Vec<u64> = cube.cells(process).iter().map(|cell| cell.low[axis]).collect();
                lows.sort();
                assert_eq!(lows, [0, 34, 68]);
            }
        }
    }
}

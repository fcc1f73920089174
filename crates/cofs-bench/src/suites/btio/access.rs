//! How a dump gets to its file or files, and back, in each of the forms.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
};

use super::{
    Btio, Form,
    cube::{Cell, Cube, POINT_BYTES, Piece},
    data::Data,
    exchange::Exchange,
};
use crate::{Observer, Seat};

/// Bytes before and after a record of an unformatted Fortran file, each the record's length.
pub const MARKER: usize = 4;

pub struct Access<'a> {
    cube: &'a Cube,
    seat: &'a Seat,
    form: Form,
    file: File,
    full: Option<Full>,
    /// epio: where the next record is.
    at: u64,
}

/// What the collective form needs.
struct Full {
    exchange: Exchange,
    aggregators: u64,
    /// Bytes of a dump that each aggregator moves, the last one fewer.
    domain: u64,
    buffer: Vec<u8>,
}

impl<'a> Access<'a> {
    /// Opens the file. All processes must come here.
    pub fn new(
        btio: &Btio,
        cube: &'a Cube,
        seat: &'a Seat,
        writes: bool,
        observer: &mut dyn Observer,
    ) -> io::Result<Self> {
        let path = match btio.form {
            Form::Epio => seat.root.join(format!("btio.{:04}.out", seat.index)),
            Form::Simple | Form::Full => seat.root.join("btio.out"),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(writes).create(writes).truncate(false);
        let file = options.open(path)?;
        let full = match btio.form {
            Form::Full => Some(Full::new(btio, cube, seat, observer)?),
            Form::Epio | Form::Simple => None,
        };
        Ok(Self { cube, seat, form: btio.form, file, full, at: 0 })
    }

    pub fn write(&mut self, data: &Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        match self.form {
            Form::Epio => self.write_records(data, observer),
            Form::Simple => self.write_rows(data, dump, observer),
            Form::Full => self.write_together(data, dump, observer),
        }
    }

    pub fn read(&mut self, data: &mut Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        match self.form {
            Form::Epio => self.read_records(data, observer),
            Form::Simple => self.read_rows(data, dump, observer),
            Form::Full => self.read_together(data, dump, observer),
        }
    }

    /// Each cell is a record.
    fn write_records(&mut self, data: &Data, observer: &mut dyn Observer) -> io::Result<()> {
        for cell in &data.cells {
            let end = (cell.begin + cell.bytes()) as usize;
            let bytes = data.bytes.get(cell.begin as usize..end).unwrap_or_default();
            let marker = (bytes.len() as u32).to_le_bytes();
            let record = [&marker, bytes, &marker].concat();
            put(&self.file, &record, self.at, observer)?;
            self.at += record.len() as u64;
        }
        Ok(())
    }

    fn read_records(&mut self, data: &mut Data, observer: &mut dyn Observer) -> io::Result<()> {
        for cell in data.cells.clone() {
            let mut record = vec![0; cell.bytes() as usize + 2 * MARKER];
            get(&self.file, &mut record, self.at, observer)?;
            self.at += record.len() as u64;
            let end = (cell.begin + cell.bytes()) as usize;
            let own = data.bytes.get_mut(cell.begin as usize..end).unwrap_or_default();
            own.copy_from_slice(record.get(MARKER..MARKER + own.len()).unwrap_or_default());
        }
        Ok(())
    }

    /// Each row of a cell is written where it belongs.
    fn write_rows(&mut self, data: &Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        for cell in &data.cells {
            for ([y, z], at) in cell.rows() {
                let [x, ..] = cell.low;
                let place = dump * self.cube.bytes() + self.cube.offset([x, y, z]);
                put(&self.file, data.row(cell, at), place, observer)?;
            }
        }
        Ok(())
    }

    fn read_rows(&mut self, data: &mut Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        for cell in data.cells.clone() {
            for ([y, z], at) in cell.rows() {
                let [x, ..] = cell.low;
                let place = dump * self.cube.bytes() + self.cube.offset([x, y, z]);
                get(&self.file, data.row_mut(&cell, at), place, observer)?;
            }
        }
        Ok(())
    }

    /// All put their cells into their windows; each aggregator gathers its part of the dump and writes it.
    fn write_together(&mut self, data: &Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        let Some(full) = &mut self.full else { return Ok(()) };
        full.exchange.put(&data.bytes, 0)?;
        observer.agree(dump)?;
        for (begin, end) in full.rounds(self.cube, self.seat.index) {
            let buffer = full.buffer.get_mut(..(end - begin) as usize).unwrap_or_default();
            full.exchange.take(buffer, self.cube.pieces(begin, end))?;
            put(&self.file, buffer, dump * self.cube.bytes() + begin, observer)?;
        }
        // Nobody fills its window anew before all is taken.
        observer.agree(dump).map(drop)
    }

    /// Each aggregator reads its part of the dump into its window; all take their rows from there.
    fn read_together(&mut self, data: &mut Data, dump: u64, observer: &mut dyn Observer) -> io::Result<()> {
        let Some(full) = &mut self.full else { return Ok(()) };
        let first = self.seat.index as u64 * full.domain;
        for (begin, end) in full.rounds(self.cube, self.seat.index) {
            let buffer = full.buffer.get_mut(..(end - begin) as usize).unwrap_or_default();
            get(&self.file, buffer, dump * self.cube.bytes() + begin, observer)?;
            full.exchange.put(buffer, begin - first)?;
        }
        observer.agree(dump)?;
        let domain = full.domain;
        let pieces = data.cells.iter().flat_map(|cell| in_domains(self.cube, *cell, domain));
        full.exchange.take(&mut data.bytes, pieces)?;
        observer.agree(dump).map(drop)
    }
}

/// The rows of a cell, in its order, as pieces of the windows of aggregators: a row may lie in those of two.
fn in_domains(cube: &Cube, cell: Cell, domain: u64) -> impl Iterator<Item = Piece> + use<'_> {
    let [x, ..] = cell.low;
    let rows = cell.rows().map(move |([y, z], _)| cube.offset([x, y, z]));
    rows.flat_map(move |begin| {
        let (mut place, end) = (begin, begin + cell.row_bytes());
        std::iter::from_fn(move || {
            let at = place % domain;
            let piece = Piece { owner: (place / domain) as usize, at, bytes: (domain - at).min(end - place) };
            place += piece.bytes;
            (piece.bytes > 0).then_some(piece)
        })
    })
}

impl Full {
    fn new(btio: &Btio, cube: &Cube, seat: &Seat, observer: &mut dyn Observer) -> io::Result<Self> {
        let aggregators = btio.aggregators.unwrap_or(seat.size as u64);
        let domain = cube.bytes().div_ceil(aggregators).next_multiple_of(POINT_BYTES);
        let buffer = (btio.buffer / POINT_BYTES * POINT_BYTES).min(domain);
        let exchange = Exchange::open(seat, observer)?;
        Ok(Self { exchange, aggregators, domain, buffer: vec![0; buffer as usize] })
    }

    /// The pieces of a dump, as large as the buffer, that process `index` moves.
    fn rounds(&self, cube: &Cube, index: usize) -> Vec<(u64, u64)> {
        if index as u64 >= self.aggregators {
            return Vec::new();
        }
        let begin = index as u64 * self.domain;
        let end = (begin + self.domain).min(cube.bytes());
        let begins = (begin..end).step_by(self.buffer.len().max(1));
        begins.map(|begin| (begin, (begin + self.buffer.len() as u64).min(end))).collect()
    }
}

fn put(file: &File, bytes: &[u8], at: u64, observer: &mut dyn Observer) -> io::Result<()> {
    observer.bytes(bytes.len() as u64);
    observer.operation(&mut || file.write_all_at(bytes, at))
}

fn get(file: &File, bytes: &mut [u8], at: u64, observer: &mut dyn Observer) -> io::Result<()> {
    observer.bytes(bytes.len() as u64);
    observer.operation(&mut || file.read_exact_at(bytes, at))
}

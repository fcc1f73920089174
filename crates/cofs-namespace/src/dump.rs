//! The whole metadata as text, and back: one JSON object a line.
//!
//! The first line says the format's version and what the volume was formatted with, then comes a line for each
//! record, and the last line counts them and carries a checksum of everything before it. Both directions
//! stream. `docs/design/dump.md` describes the lines.
//!
//! Invariants: a dump is of one state of the engine. Any bytes load or give an error that names the line; the
//! header is written last, so that an engine which was loaded in part holds no volume.

mod line;

use std::{
    hash::Hasher,
    io::{self, BufRead, Read, Write},
    ops::ControlFlow,
    sync::Arc,
};

use cofs_engine::{Batch, Change, Durability, Engine, Outcome};
use cofs_types::{FsError, FsResult, PoolEnd, limits};
use siphasher::sip::SipHasher13;

use self::line::{End, Header, Line, newer_version};
use crate::{
    schema::{Counts, HeaderPart, Key, Volume, Writing, decode_number, encode_number, key, ranges},
    tables::{labels, pool_ends},
    tx::engine_failed,
};

/// The version that is written, and the newest that is read.
pub const DUMP_VERSION: u32 = 1;

/// What went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub inodes: u64,
    /// All records but the header's.
    pub records: u64,
}

/// Writes the whole metadata to `out`.
///
/// Errors: those of the engine and of `out`; `Corrupt` names a record that cannot be read, which `fsck`
/// puts right.
pub fn dump(engine: &dyn Engine, out: &mut dyn Write) -> FsResult<Totals> {
    let mut writer = Writer { out, checksum: SipHasher13::new(), totals: Totals::default() };
    writer.line(&Line::Header(read_header(engine)?))?;
    let mut failed = None;
    let everything = ranges::everything();
    let mut step = |key: &[u8], value: &[u8]| match writer.record(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    engine.scan(&everything.start, &everything.end, &mut step).map_err(engine_failed)?;
    failed.map_or(Ok(()), Err)?;
    let end = End { records: writer.totals.records, checksum: writer.checksum.finish() };
    writer.line(&Line::End(end))?;
    writer.out.flush().map_err(|error| FsError::from_io("writing the dump", error))?;
    Ok(writer.totals)
}

fn read_header(engine: &dyn Engine) -> FsResult<Header> {
    let part = |part: HeaderPart| {
        let value = engine.get(&key::header(part)).map_err(engine_failed)?;
        value.ok_or_else(|| FsError::corrupt(format!("header: no part {part:?}; is this a cofs volume?")))
    };
    let volume = Volume::decode(&part(HeaderPart::Volume)?)?;
    let inodes_next = decode_number(&part(HeaderPart::Inodes)?)?;
    Ok(Header::new(volume.options, inodes_next))
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    checksum: SipHasher13,
    totals: Totals,
}

impl Writer<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> FsResult<()> {
        let key = Key::parse(key)?;
        if matches!(key, Key::Header(_)) {
            return Ok(());
        }
        if matches!((&key, Writing::decode(value)), (Key::Writing(_), Ok(Writing::Closed(_)))) {
            // It tells of a run of this machine, and nothing of the file.
            return Ok(());
        }
        self.totals.records += 1;
        self.totals.inodes += u64::from(matches!(key, Key::Inode(_)));
        self.line(&Line::of_record(key, value)?)
    }

    fn line(&mut self, line: &Line) -> FsResult<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| FsError::corrupt(error.to_string()))?;
        text.push(b'\n');
        self.checksum.write(&text);
        self.out.write_all(&text).map_err(|error| FsError::from_io("writing the dump", error))
    }
}

/// Fills an empty engine with what [`dump`] wrote, and syncs it.
///
/// Errors: `Exists` unless the engine is empty; `Corrupt`, naming the line, for anything that is not a whole
/// dump; `Backing` for one of a newer version; those of the engine and of `input`. After an error the engine holds no volume, but may hold records:
/// it is for the caller to remove it.
pub fn load(engine: &dyn Engine, input: &mut dyn BufRead) -> FsResult<Totals> {
    must_be_empty(engine)?;
    let mut loader = Loader {
        engine,
        batch: Vec::new(),
        totals: Totals::default(),
        sequence_max: 0,
        labelled: false,
        pool_ends: Vec::new(),
    };
    let mut lines = Lines { input, number: 0, checksum: SipHasher13::new(), text: Vec::new() };
    let header = match lines.next()? {
        Some((Line::Header(header), _)) => header,
        _ => return Err(lines.wrong("the first line of a dump is its header")),
    };
    header.check().map_err(|why| lines.wrong(&why))?;
    loop {
        let Some((line, checksum)) = lines.next()? else {
            return Err(lines.wrong("the dump ends before its last line: it is not whole"));
        };
        match line {
            Line::Header(_) => return Err(lines.wrong("a second header")),
            Line::End(end) => {
                loader.check_end(&end, checksum).map_err(|why| lines.wrong(&why))?;
                break;
            }
            record => loader.record(&record, &lines)?,
        }
    }
    if lines.next()?.is_some() {
        return Err(lines.wrong("something stands behind the last line"));
    }
    loader.finish(&header)
}

fn must_be_empty(engine: &dyn Engine) -> FsResult<()> {
    let everything = ranges::everything();
    let mut empty = true;
    let mut stop = |_: &[u8], _: &[u8]| {
        empty = false;
        ControlFlow::Break(())
    };
    engine.scan(&everything.start, &everything.end, &mut stop).map_err(engine_failed)?;
    if empty { Ok(()) } else { Err(FsError::Exists) }
}

/// The lines of a dump, each parsed, and the checksum of those before it.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
    checksum: SipHasher13,
    text: Vec<u8>,
}

impl Lines<'_> {
    fn next(&mut self) -> FsResult<Option<(Line, u64)>> {
        self.text.clear();
        self.number += 1;
        let bytes_max = limits::DUMP_LINE_BYTES_MAX as u64 + 1;
        let mut bounded = Read::take(&mut *self.input, bytes_max);
        let read = bounded.read_until(b'\n', &mut self.text);
        read.map_err(|error: io::Error| FsError::from_io("reading the dump", error))?;
        if self.text.is_empty() {
            return Ok(None);
        }
        if self.text.last() != Some(&b'\n') {
            return Err(self.wrong("the line has no end, or is too long"));
        }
        let before = self.checksum.finish();
        self.checksum.write(&self.text);
        if let Some(version) = newer_version(&self.text).filter(|_| self.number == 1) {
            let why =
                format!("it has version {version}, this cofs reads up to {DUMP_VERSION}; use a newer cofs");
            return Err(FsError::Backing {
                context: "reading the dump".into(),
                source: Arc::new(io::Error::other(why)),
            });
        }
        let line = serde_json::from_slice(&self.text).map_err(|error| self.wrong(&error.to_string()))?;
        Ok(Some((line, before)))
    }

    fn wrong(&self, why: &str) -> FsError {
        FsError::corrupt(format!("dump, line {}: {why}", self.number))
    }
}

struct Loader<'a> {
    engine: &'a dyn Engine,
    batch: Vec<Change>,
    totals: Totals,
    sequence_max: u64,
    labelled: bool,
    /// Behind the objects that are named.
    pool_ends: Vec<PoolEnd>,
}

impl Loader<'_> {
    fn record(&mut self, line: &Line, lines: &Lines<'_>) -> FsResult<()> {
        if let Line::Inode(inode) = line {
            self.totals.inodes += 1;
            self.sequence_max = self.sequence_max.max(inode.sequence());
        }
        self.totals.records += 1;
        if let Some(object) = line.names_object() {
            let end = PoolEnd { pool: object.pool(), end: object.sequence() + 1, generation: 0 };
            pool_ends::merge(&mut self.pool_ends, end);
        }
        self.labelled |= line.brings_label();
        let (key, value) = line.to_record().map_err(|error| lines.wrong(&error.to_string()))?;
        self.batch.push(Change::put(key, value));
        if self.batch.len() >= limits::LOAD_BATCH {
            self.commit(Durability::Buffered)?;
        }
        Ok(())
    }

    fn check_end(&self, end: &End, checksum: u64) -> Result<(), String> {
        if end.records != self.totals.records {
            return Err(format!(
                "the dump had {} records, and {} are here",
                end.records, self.totals.records
            ));
        }
        if end.checksum != checksum {
            return Err("the checksum does not agree: the dump was changed or damaged".to_owned());
        }
        Ok(())
    }

    fn commit(&mut self, durability: Durability) -> FsResult<()> {
        let batch = Batch { changes: std::mem::take(&mut self.batch), durability, ..Batch::default() };
        match self.engine.commit(&batch).map_err(engine_failed)? {
            Outcome::Committed => Ok(()),
            _ => Err(FsError::Unknown("a commit while loading".into())),
        }
    }

    /// The header, and with it the volume.
    fn finish(mut self, header: &Header) -> FsResult<Totals> {
        self.commit(Durability::Synced)?;
        let inodes_next = header.inodes_next().max(self.sequence_max + 1);
        let counts = Counts { files: self.totals.inodes, clean: true, exact: true };
        let parts = [
            (HeaderPart::Epoch, encode_number(0)),
            (HeaderPart::Inodes, encode_number(inodes_next)),
            (HeaderPart::Counts, counts.encode()),
            (HeaderPart::Volume, Volume { options: header.options() }.encode()),
        ];
        let put = |(part, value): (_, Vec<u8>)| Change::put(key::header(part), value);
        self.batch = parts.into_iter().map(put).collect();
        self.batch.extend((!self.labelled).then(|| labels::unlabelled(0)));
        self.batch.push(pool_ends::record(&self.pool_ends));
        self.commit(Durability::Synced)?;
        Ok(self.totals)
    }
}

#[cfg(test)]
mod tests;

//! The consistency of a volume's metadata: what is wrong, and how it is put right.
//!
//! [`Checker::check`] reads every record once, in a few ordered scans, and tells each contradiction as a
//! [`Problem`]. It holds 16 bytes per inode and 16 more per directory, and no more problems than
//! `limits::CHECK_PROBLEMS_MAX`. [`repair`] puts problems right, one transaction each; since one repair can
//! uncover the next problem (an inode without names comes up when its broken entry is gone), a caller checks
//! and repairs in turns until nothing is found. Where inodes are lost (`check/lost.rs`) their records and the
//! entries are read twice.
//!
//! Objects are another driver's: for the two directions of the comparison with a pool there are
//! [`Checker::objects`] (every inode with an object: is it there?) and [`Checker::ownership`] (every object
//! in a pool: is it anybody's?). Nobody may change the volume meanwhile.

mod entries;
mod inodes;
mod lost;
mod marks;
mod newer;
mod problem;
mod repair;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, ops::ControlFlow};

use cofs_engine::Engine;
use cofs_types::{FsError, FsResult, InodeId, Layout, ObjectId, limits};

use self::{lost::Traces, newer::Newer, table::Table};
pub use self::{
    lost::{FindObjects, Salvage, Was},
    problem::Problem,
    repair::repair,
};
use crate::schema::{
    Counts, HeaderPart, Inode, Key, NameHasher, Range, Volume, decode_number, decode_pool_ends, key, ranges,
};
use crate::{VolumeOptions, tables::labels::is_unlabelled, tx::engine_failed};

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    pub inodes: u64,
    pub directories: u64,
    pub entries: u64,
    pub inline_chunks: u64,
    pub large_xattrs: u64,
    /// Files open for writing when the volume was last in use.
    pub writing: u64,
    /// Files unlinked while open, which the next mount removes.
    pub unlinked: u64,
    /// Objects on the reclaim list.
    pub reclaim: u64,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    pub summary: Summary,
    pub problems: Vec<Problem>,
    /// There were more problems than are told.
    pub more: bool,
}

impl Found {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < limits::CHECK_PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.more = true;
        }
    }
}

/// Whose an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The inode that the object names as its owner has it.
    Owned,
    /// It stands on the reclaim list.
    Reclaim,
    /// Nobody's, and the inode that it names as its owner is not there or cannot be read.
    Lost,
    /// Nobody's: a crash left it, or it was made ahead of need.
    Orphan,
}

/// Reads a volume that nobody changes.
pub struct Checker<'a> {
    engine: &'a dyn Engine,
    /// A number of files that a crash left near the truth is a problem too.
    counts_exactly: bool,
    find_objects: Option<FindObjects<'a>>,
}

impl<'a> Checker<'a> {
    pub fn new(engine: &'a dyn Engine) -> Self {
        Self { engine, counts_exactly: false, find_objects: None }
    }

    /// For a repair: also finds a number of files that is only near the truth, as it may be after a crash.
    pub fn for_repair(engine: &'a dyn Engine) -> Self {
        Self { engine, counts_exactly: true, find_objects: None }
    }

    /// Has the pools looked through for the bytes of files whose inodes are lost. Without it these have none.
    #[must_use]
    pub fn finding_objects(self, find: FindObjects<'a>) -> Self {
        Self { find_objects: Some(find), ..self }
    }

    /// What was chosen at format. Errors: as of [`check`](Self::check).
    pub fn options(&self) -> FsResult<VolumeOptions> {
        Ok(Volume::decode(&self.header(HeaderPart::Volume)?)?.options)
    }

    /// Errors: those of the engine, and `Corrupt` where the header is unreadable, so that nothing else can be
    /// understood; `Engine` where a newer cofs has written any record.
    pub fn check(&self) -> FsResult<Found> {
        let volume = Volume::decode(&self.header(HeaderPart::Volume)?)?;
        let mut pass = self.begin(&volume, Vec::new())?;
        let root = pass.table.find(InodeId::ROOT);
        if !root.is_some_and(|root| pass.table.is_directory(root)) {
            self.newer()?.refuse()?;
            pass.found = Found { problems: vec![Problem::NoRoot], more: true, ..pass.found };
            pass.header()?;
            return Ok(pass.found);
        }
        pass.entries()?;
        pass.newer.refuse()?;
        let rebuilt = pass.rebuilt()?;
        if !rebuilt.is_empty() {
            pass = self.begin(&volume, rebuilt)?;
            pass.entries()?;
        }
        if pass.lost.more {
            // What stands in the others would seem to have no name.
            self.newer()?.refuse()?;
            pass.found.more = true;
            return Ok(pass.found);
        }
        pass.reachability();
        pass.marks()?;
        pass.inlines()?;
        pass.xattrs()?;
        pass.shards()?;
        pass.counts()?;
        pass.newer.refuse()?;
        pass.header()?;
        Ok(pass.found)
    }

    /// A pass up to the inodes, as if those in `rebuilt` were there.
    fn begin(&self, volume: &Volume, rebuilt: Vec<(InodeId, Was)>) -> FsResult<Pass<'_>> {
        let mut pass = Pass {
            checker: self,
            hasher: NameHasher::new(volume.options.hash_key),
            table: Table::default(),
            found: Found::default(),
            reclaim: HashSet::new(),
            newer: Newer::default(),
            lost: Traces::default(),
            rebuilt,
            taken: 0,
            labelled: None,
        };
        pass.unknown_records()?;
        pass.reclaim_list()?;
        pass.inodes()?;
        Ok(pass)
    }

    /// Visits every inode whose bytes are in an object, ascending.
    pub fn objects(&self, visit: &mut dyn FnMut(InodeId, ObjectId, &Inode) -> FsResult<()>) -> FsResult<()> {
        self.scan(&ranges::inodes(), &mut |key, value| {
            if let (Ok(Key::Inode(ino)), Ok(inode)) = (Key::parse(key), decode_inode(value))
                && let Layout::Object(object) = inode.layout
            {
                visit(ino, object, &inode)?;
            }
            Ok(())
        })
    }

    /// Whether `object`, found in a pool and saying that it belongs to `owner`, is anybody's.
    pub fn ownership(&self, object: ObjectId, owner: Option<InodeId>) -> FsResult<Ownership> {
        let inode = match owner {
            Some(owner) => self.get(&key::inode(owner))?.and_then(|value| Inode::decode(&value).ok()),
            None => None,
        };
        if inode.as_ref().is_some_and(|inode| inode.layout == Layout::Object(object)) {
            return Ok(Ownership::Owned);
        }
        let listed = self.get(&key::reclaim(object))?.is_some();
        Ok(match owner {
            _ if listed => Ownership::Reclaim,
            Some(owner) if inode.is_none() && may_be_lost(owner) => Ownership::Lost,
            _ => Ownership::Orphan,
        })
    }

    fn get(&self, key: &[u8]) -> FsResult<Option<bytes::Bytes>> {
        self.engine.get(key).map_err(engine_failed)
    }

    fn header(&self, part: HeaderPart) -> FsResult<bytes::Bytes> {
        let value = self.get(&key::header(part))?;
        value.ok_or_else(|| FsError::corrupt(format!("header: no part {part:?}; is this a cofs volume?")))
    }

    fn scan(&self, range: &Range, visit: &mut dyn FnMut(&[u8], &[u8]) -> FsResult<()>) -> FsResult<()> {
        let mut failed = None;
        let mut step = |key: &[u8], value: &[u8]| match visit(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        self.engine.scan(&range.start, &range.end, &mut step).map_err(engine_failed)?;
        failed.map_or(Ok(()), Err)
    }
}

/// Whether a number was ever given out, as far as it tells: a wrong tag must not use up all numbers below it.
fn may_be_lost(ino: InodeId) -> bool {
    ino.partition() == InodeId::ROOT.partition() && ino.sequence() < 1 << 47
}

fn decode_inode(value: &[u8]) -> FsResult<Inode> {
    Inode::decode(value)
}

/// One check under way.
struct Pass<'a> {
    checker: &'a Checker<'a>,
    hasher: NameHasher,
    table: Table,
    found: Found,
    reclaim: HashSet<ObjectId>,
    newer: Newer,
    lost: Traces,
    /// Lost inodes that are taken as made anew, ascending, and how many of them stand in the table.
    rebuilt: Vec<(InodeId, Was)>,
    taken: usize,
    /// The first inode found with a security label.
    labelled: Option<InodeId>,
}

impl Pass<'_> {
    /// What stands between the known ranges must be the header.
    fn unknown_records(&mut self) -> FsResult<()> {
        let mut known = [
            ranges::all_entries(),
            ranges::inodes(),
            ranges::inlines(),
            ranges::all_xattrs(),
            ranges::shards(),
            ranges::writing(None),
            ranges::unlinked(None),
            ranges::reclaim(),
        ];
        known.sort_by(|a, b| a.start.cmp(&b.start));
        let mut from = ranges::everything().start;
        for range in known {
            self.gap(&Range { start: from, end: range.start })?;
            from = range.end;
        }
        self.gap(&Range { start: from, end: ranges::everything().end })
    }

    fn gap(&mut self, range: &Range) -> FsResult<()> {
        let Self { checker, found, newer, .. } = self;
        checker.scan(range, &mut |key, value| {
            if !newer.note(key, value) && !matches!(Key::parse(key), Ok(Key::Header(_))) {
                found.add(Problem::UnknownRecord { key: key.to_vec() });
            }
            Ok(())
        })
    }

    fn header(&mut self) -> FsResult<()> {
        let last = self.table.last().map_or(0, InodeId::sequence);
        match self.checker.header(HeaderPart::Inodes).and_then(|value| decode_number(&value)) {
            Ok(next) if next > last => {}
            Ok(next) => self.found.add(Problem::Reservation { stored: Some(next), needed: last + 1 }),
            Err(FsError::Corrupt(_)) => {
                self.found.add(Problem::Reservation { stored: None, needed: last + 1 });
            }
            Err(error) => return Err(error),
        }
        let found = self.found.summary.inodes;
        match self.checker.header(HeaderPart::Counts).and_then(|value| Counts::decode(&value)) {
            Ok(counts) if counts.files == found => {}
            // A crash takes what was counted in its last second, and nobody counts anew but a repair.
            Ok(counts) if !(self.checker.counts_exactly || counts.clean && counts.exact) => {}
            Ok(counts) => self.found.add(Problem::FileCount { stored: Some(counts.files), found }),
            Err(FsError::Corrupt(_)) => self.found.add(Problem::FileCount { stored: None, found }),
            Err(error) => return Err(error),
        }
        self.pool_ends()?;
        self.labels()
    }

    fn pool_ends(&mut self) -> FsResult<()> {
        let key = key::header(HeaderPart::PoolEnds);
        if let Some(record) = self.checker.get(&key)?
            && let Err(error) = decode_pool_ends(&record)
        {
            self.found.add(Problem::Undecodable { key: key.to_vec(), what: error.to_string() });
        }
        Ok(())
    }

    fn labels(&mut self) -> FsResult<()> {
        let Some(ino) = self.labelled else { return Ok(()) };
        let epoch = decode_number(&self.checker.header(HeaderPart::Epoch)?)?;
        let record = self.checker.get(&key::header(HeaderPart::Unlabelled))?;
        if is_unlabelled(record.as_deref(), epoch) {
            self.found.add(Problem::Labelled { ino });
        }
        Ok(())
    }
}

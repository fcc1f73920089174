//! The engine as the name space sees it: commits are fenced by the epoch, errors are semantic.

use std::{
    io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cofs_engine::{Batch, Change, Engine, EngineError, EngineStats, Guard, Outcome, Show};
use cofs_types::{FsError, FsResult, Timestamp, failpoint, limits};

use super::{Verb, lately::StoreId, stripes::Stripes};
use crate::{
    OpenInodes,
    schema::{Range, Times},
    tables::{Gathered, Young},
};

pub struct Store {
    /// Its name in what threads have read lately.
    pub id: StoreId,
    engine: Arc<dyn Engine>,
    /// The header's epoch, as this open wrote it.
    epoch: Guard,
    closed: AtomicBool,
    pub stripes: Stripes,
    /// Directories' own times.
    pub gathered: Gathered<Times>,
    /// Access times of any inode.
    pub accesses: Gathered<Timestamp>,
    /// Slots that are free without a look.
    pub young: Young,
    pub opens: Arc<dyn OpenInodes>,
    files: AtomicU64,
}

pub fn engine_failed(error: EngineError) -> FsError {
    match error.errno {
        Some(errno) => match FsError::from_io("metadata engine", io::Error::from_raw_os_error(errno)) {
            // What is damaged, and where, the errno does not say.
            FsError::Backing { source, .. } if error.is_damage() => {
                FsError::Backing { context: error.what.to_string().into(), source }
            }
            told => told,
        },
        None => FsError::Engine(error.what),
    }
}

impl Store {
    pub fn new(engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>, epoch: Guard, files: u64) -> Self {
        Self {
            id: StoreId::new(),
            engine,
            epoch,
            closed: AtomicBool::new(false),
            stripes: Stripes::new(),
            gathered: Gathered::new(limits::DIRTY_DIRECTORIES_MAX),
            accesses: Gathered::new(limits::ACCESS_TIMES_MAX),
            young: Young::new(),
            opens,
            files: AtomicU64::new(files),
        }
    }

    pub fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.engine.get(key).map_err(engine_failed)
    }

    /// As [`get`](Self::get), for who has a place for the value: whether there is one.
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> FsResult<bool> {
        self.engine.get_into(key, value).map_err(engine_failed)
    }

    /// Calls `see` once with each value, where it stands, and its key's place.
    pub fn show(&self, keys: &[&[u8]], see: Show<'_>) -> FsResult<()> {
        self.engine.show(keys, see).map_err(engine_failed)
    }

    pub fn multi_get(&self, keys: &[&[u8]]) -> FsResult<Vec<Option<Bytes>>> {
        self.engine.multi_get(keys).map_err(engine_failed)
    }

    /// Visits until `visit` breaks or fails.
    pub fn scan(
        &self,
        range: &Range,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> FsResult<ControlFlow<()>>,
    ) -> FsResult<()> {
        let mut failed = None;
        let mut step = |key: &[u8], value: &[u8]| {
            visit(key, value).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        self.engine.scan(&range.start, &range.end, &mut step).map_err(engine_failed)?;
        failed.map_or(Ok(()), Err)
    }

    /// Commits what no transaction reads: parts of the header, the reclaim list.
    pub fn commit_alone(&self, verb: &Verb, changes: Vec<Change>) -> FsResult<()> {
        failpoint(verb.before_commit);
        self.commit(verb, changes)?;
        failpoint(verb.after_commit);
        Ok(())
    }

    /// Errors: `Engine` once the volume has been closed.
    pub fn check_open(&self) -> FsResult<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(FsError::Engine("the volume is closed".into()));
        }
        Ok(())
    }

    /// Commits `changes`, unless another process has taken over the volume or this one has closed it. Errors besides: EAGAIN for who was
    /// refused something before ([`cofs_wait`]), as he begins again.
    pub fn commit(&self, verb: &Verb, changes: Vec<Change>) -> FsResult<()> {
        self.check_open()?;
        if !cofs_wait::no_way_back() {
            return Err(FsError::from_io("metadata engine", io::ErrorKind::WouldBlock.into()));
        }
        let guards = std::slice::from_ref(&self.epoch);
        let batch = Batch { guards, changes, upkeep: !verb.grows, ..Batch::default() };
        match self.engine.commit(&batch).map_err(engine_failed)? {
            Outcome::Committed => Ok(()),
            Outcome::GuardFailed => {
                Err(FsError::Engine("the volume has been opened by someone else meanwhile".into()))
            }
            Outcome::Unknown => Err(FsError::Unknown("a commit of metadata".into())),
        }
    }

    pub fn pause(&self) -> Option<Duration> {
        self.engine.pause()
    }

    pub fn tick(&self) {
        self.engine.tick();
    }

    pub fn sync(&self) -> FsResult<()> {
        self.engine.sync().map_err(engine_failed)
    }

    /// No commit succeeds from here on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn takes_more(&self) -> bool {
        self.engine.takes_more()
    }

    pub fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    pub fn files(&self) -> u64 {
        // A crash loses up to a second's count, so that more may be removed than were counted.
        self.files.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
    }

    pub fn count_files(&self, delta: i64) {
        if delta != 0 {
            self.files.fetch_add(delta as u64, Ordering::Relaxed); // two's complement: subtracts as well
        }
    }
}

//! Files with objects that were closed, and whose bytes no sync of their pool has covered yet.
//!
//! A last close waits for no sync, and the metadata are synced every few seconds, bytes when the kernel comes to it: a power cut in between would leave sizes
//! without bytes. So these files are marked in the open-for-writing set. The start after a power cut looks at them, and only at
//! them (`recovery.rs`); and where there are any, their pools are synced each [`limits::CLOSED_UNSYNCED`], which takes the marks away.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::Arc,
    thread::{self, JoinHandle},
};

use cofs_metadata::{Leave, MetadataDriver, Unsynced};
use cofs_placement::Placement;
use cofs_types::{FsError, FsResult, InodeId, PoolId, failpoint, limits};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use crate::{Cofs, run};

pub(crate) const THREAD: &str = "cofs-closed";

/// What waits for a sync.
#[derive(Default)]
pub(crate) struct Closed {
    /// Runs of file systems below in which something was closed since their pools were last synced.
    waiting: Mutex<BTreeSet<u64>>,
    /// When a sync failed in a run: what was closed before may be lost whatever a later one says, so that its marks stay for the next start.
    failed: Mutex<BTreeMap<u64, u32>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// The same, with the thread that syncs now and then.
pub(crate) struct ClosedFiles {
    closed: Arc<Closed>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Deref for ClosedFiles {
    type Target = Closed;
    fn deref(&self) -> &Closed {
        &self.closed
    }
}

impl Closed {
    /// How a file whose object is in `pool` leaves the open-for-writing set, now that all it was given is there.
    pub(crate) fn leave(&self, placement: &Placement, pool: PoolId) -> Leave {
        let run = placement.run_of(pool);
        let second = second();
        self.waiting.lock().insert(run);
        Leave::Closed(Unsynced { second, run })
    }

    /// Whether a file, marked in an earlier life, with its object in `pool`, has lost nothing: then it goes on waiting.
    pub(crate) fn goes_on(&self, placement: &Placement, pool: PoolId, unsynced: Unsynced) -> bool {
        let same = unsynced.run != 0 && unsynced.run == placement.run_of(pool);
        if same {
            self.waiting.lock().insert(unsynced.run);
        }
        same
    }

    /// Has the pools synced from now on. Errors: no thread can be had.
    pub(crate) fn serve<M: MetadataDriver>(
        self,
        metadata: &Arc<M>,
        placement: &Arc<Placement>,
        read_only: bool,
    ) -> FsResult<ClosedFiles> {
        let closed = Arc::new(self);
        let thread = match read_only {
            true => None,
            false => {
                let (theirs, metadata, placement) =
                    (Arc::clone(&closed), Arc::clone(metadata), Arc::clone(placement));
                let thread = thread::Builder::new().name(THREAD.into());
                let thread = thread.spawn(move || theirs.sync_at_times(metadata.as_ref(), &placement));
                Some(thread.map_err(|error| FsError::from_io("start a thread that syncs", error))?)
            }
        };
        Ok(ClosedFiles { closed, thread: Mutex::new(thread) })
    }

    fn sync_at_times<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) {
        let mut failing = false;
        while self.wait() {
            let synced = self.sync_waiting(metadata, placement);
            if let Err(error) = &synced
                && !failing
            {
                tracing::warn!(%error, "the bytes of closed files wait to be synced");
            }
            failing = synced.is_err();
        }
    }

    /// `false` when it is time to end.
    fn wait(&self) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.stopped.wait_for(&mut stop, limits::CLOSED_UNSYNCED);
        }
        !*stop
    }

    /// Syncs the pools in which something was closed.
    fn sync_waiting<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) -> FsResult<()> {
        let runs = std::mem::take(&mut *self.waiting.lock());
        if runs.is_empty() { Ok(()) } else { self.sync(metadata, placement, runs, second()) }
    }

    /// Syncs the pools that are open in these runs, and takes the marks of what was closed there before the second `before`, which is not later than this call
    /// unless nothing is written any more. All are tried; the first error is returned.
    fn sync<M: MetadataDriver>(
        &self,
        metadata: &M,
        placement: &Placement,
        runs: BTreeSet<u64>,
        before: u32,
    ) -> FsResult<()> {
        let (mut synced, mut first) = (BTreeSet::new(), Ok(()));
        for run in runs {
            // None where a file system was mounted anew: the next start looks at what is marked.
            let pools: Vec<_> = placement.pool_ids().filter(|pool| placement.run_of(*pool) == run).collect();
            match pools.iter().map(|pool| placement.sync_pool(*pool)).fold(Ok(()), Result::and) {
                Ok(()) if pools.is_empty() => {}
                Ok(()) => _ = synced.insert(run),
                Err(error) => {
                    self.failed.lock().insert(run, second());
                    self.waiting.lock().insert(run);
                    first = first.and(Err(error));
                }
            }
        }
        // What stays marked is looked at by the next start, which costs a moment.
        if let Err(error) = self.take_marks(metadata, &synced, before) {
            tracing::debug!(%error, "closed files stay marked");
        }
        first
    }

    /// Takes the marks of what was closed before the second `before` in these runs, whose pools have been synced since.
    fn take_marks<M: MetadataDriver>(
        &self,
        metadata: &M,
        synced: &BTreeSet<u64>,
        before: u32,
    ) -> FsResult<()> {
        failpoint("fs.closed.synced");
        let mut after = None;
        loop {
            let batch = run(metadata.unsynced_set(after, limits::RECOVERY_BATCH))?.value;
            let Some(&(last, _)) = batch.last() else { return Ok(()) };
            after = Some(last);
            let mut safe: Vec<(InodeId, Unsynced)> = Vec::new();
            for &(ino, unsynced) in batch.iter().filter(|(_, unsynced)| synced.contains(&unsynced.run)) {
                let failed = self.failed.lock().get(&unsynced.run).copied();
                if failed.is_some_and(|failed| unsynced.second <= failed) {
                    continue;
                }
                if unsynced.second < before {
                    safe.push((ino, unsynced));
                } else {
                    self.waiting.lock().insert(unsynced.run);
                }
            }
            run(metadata.synced(&safe))?;
        }
    }
}

impl ClosedFiles {
    pub(crate) fn stop(&self) {
        *self.closed.stop.lock() = true;
        self.closed.stopped.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that syncs closed files panicked");
        }
    }
}

impl Drop for ClosedFiles {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<M: MetadataDriver> Cofs<M> {
    /// Syncs all pools; `ended`: nothing is written any more. All are tried; the first error is returned.
    pub(crate) fn sync_pools(&self, ended: bool) -> FsResult<()> {
        let runs = self.placement.pool_ids().map(|pool| self.placement.run_of(pool)).collect();
        let before = if ended { u32::MAX } else { second() };
        self.closed.sync(self.metadata.as_ref(), &self.placement, runs, before)
    }
}

/// Since the machine started; of all processes in one boot.
fn second() -> u32 {
    // More than 136 years do not matter.
    clock_gettime(ClockId::Boottime).tv_sec.try_into().unwrap_or(u32::MAX - 1)
}

//! The collector: removes the objects on the reclaim list, and those that a crash left without an inode, behind
//! everybody's back.
//!
//! Invariants:
//! - an object is removed only after the commit that let go of it is on stable storage: else a power cut could
//!   bring the name back without its data;
//! - a record leaves the list only after its object is gone: else a crash could leave an object that nobody
//!   knows of. Removing is idempotent, so doing it twice is harmless;
//! - a failing pool keeps its records and is tried again, ever more slowly, without holding up the others;
//! - of what a crash left, an object goes only if the inode that it was handed out to is there and has another
//!   layout. An object of an inode that is not there is not touched: the metadata may be older than the pool
//!   (restored from a copy), and then it is all that is left of a file;
//! - so an inode that a crash left unlinked while open is released only when nothing in the pools waits to be judged,
//!   however many starts that takes: nobody could tell afterwards whose its objects were.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use cofs_metadata::MetadataDriver;
use cofs_placement::{LeftBehind, Placement};
use cofs_types::{FsError, FsResult, InodeId, Layout, ObjectId, PoolId, failpoint, limits};
use parking_lot::{Condvar, Mutex};

use crate::{open_object::OpenObject, run};

pub(crate) const THREAD: &str = "cofs-collector";

#[derive(Default)]
struct Signals {
    work: bool,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    signals: Mutex<Signals>,
    changed: Condvar,
    /// One pass at a time, whoever starts it.
    pass: Mutex<()>,
    removed: AtomicU64,
    /// Inodes that a crash left unlinked while open, and that are not released yet.
    unlinked: Mutex<Vec<InodeId>>,
    /// Objects of removed files, to be closed before they are removed.
    closing: Mutex<Vec<Arc<OpenObject>>>,
}

pub(crate) struct Collector {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Collector {
    /// Starts with a pass over what an earlier run left: `unlinked` are the inodes that nobody holds any more.
    pub(crate) fn start<M: MetadataDriver>(
        metadata: Arc<M>,
        placement: Arc<Placement>,
        unlinked: Vec<InodeId>,
    ) -> FsResult<Self> {
        let shared = Arc::new(Shared { unlinked: Mutex::new(unlinked), ..Shared::default() });
        shared.signals.lock().work = true;
        let told = Arc::clone(&shared);
        placement.when_looked_through(move || told.wake());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || theirs.serve(metadata.as_ref(), &placement))
            .map_err(|error| FsError::from_io("start the collector", error))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// One that removes nothing, of a volume that is only read.
    pub(crate) fn at_rest() -> Self {
        Self { shared: Arc::default(), thread: Mutex::new(None) }
    }

    /// There may be something on the list.
    pub(crate) fn wake(&self) {
        self.shared.wake();
    }

    /// An inode without a name, of which a crash may have left objects, is nobody's any more.
    pub(crate) fn release_later(&self, ino: InodeId) {
        self.shared.unlinked.lock().push(ino);
        self.wake();
    }

    /// Closes an object whose file is gone. A close waits for what was written, so that whoever removes a file must not: he holds the
    /// directory's lock in the kernel, and with it everybody who looks something up there.
    pub(crate) fn close_later(&self, object: Arc<OpenObject>) {
        let mut closing = self.shared.closing.lock();
        if closing.len() < limits::IDLE_OBJECTS_MAX {
            closing.push(object);
            drop(closing);
            self.wake();
        }
    }

    /// One pass now, on this thread; the objects removed.
    pub(crate) fn collect<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) -> FsResult<u64> {
        self.shared.pass(metadata, placement)
    }

    /// Objects removed since the start.
    pub(crate) fn removed(&self) -> u64 {
        self.shared.removed.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.shared.signals.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the collector panicked");
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn wake(&self) {
        let mut signals = self.signals.lock();
        if !signals.work {
            signals.work = true;
            self.changed.notify_all();
        }
    }

    fn serve<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) {
        let mut backoff = None;
        while self.wait_for_work(backoff) {
            match self.pass(metadata, placement) {
                Ok(_) => backoff = None,
                Err(error) => {
                    if backoff.is_none() {
                        tracing::warn!(%error, "objects wait to be removed");
                    }
                    backoff = Some(next_backoff(backoff));
                }
            }
        }
        // The pools' windows move on at each start: what a few starts left unjudged, one after the other, no later one would see.
        let _alone = self.pass.lock();
        match self.judge_all(metadata, placement) {
            Ok(removed) => drop(self.removed.fetch_add(removed, Ordering::Relaxed)),
            Err(error) => {
                tracing::warn!(%error, "what a crash left in the pools is looked for again at the next start")
            }
        }
    }

    /// Returns when there is work and some has gathered, or `backoff` is over; `false` to stop.
    fn wait_for_work(&self, backoff: Option<Duration>) -> bool {
        let mut signals = self.signals.lock();
        if let Some(pause) = backoff {
            self.pause(&mut signals, pause);
            return !signals.stop;
        }
        while !signals.work && !signals.stop {
            self.changed.wait(&mut signals);
        }
        self.pause(&mut signals, limits::RECLAIM_GATHER);
        signals.work = false;
        !signals.stop
    }

    fn pause(&self, signals: &mut parking_lot::MutexGuard<'_, Signals>, pause: Duration) {
        let until = std::time::Instant::now() + pause;
        while !signals.stop && !self.changed.wait_until(signals, until).timed_out() {}
    }

    fn stopping(&self) -> bool {
        self.signals.lock().stop
    }

    /// Removes batch after batch until the list is empty, or holds only what fails.
    fn pass<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) -> FsResult<u64> {
        let _alone = self.pass.lock();
        // Not under the lock of the list.
        let closing = std::mem::take(&mut *self.closing.lock());
        drop(closing);
        let mut failed = Failed::default();
        let mut removed = 0;
        while failed.objects.len() < limits::RECLAIM_PASS_MAX - limits::RECLAIM_BATCH && !self.stopping() {
            let wanted = failed.objects.len() + limits::RECLAIM_BATCH;
            let listed = run(metadata.reclaim_list(wanted))?.value;
            let batch: Vec<_> = listed.into_iter().filter(|id| !failed.objects.contains(id)).collect();
            if batch.is_empty() {
                break;
            }
            removed += remove_batch(metadata, placement, &batch, &mut failed)?;
        }
        let judged = self.judge_all(metadata, placement);
        removed += judged.as_ref().map_or(0, |count| *count);
        self.removed.fetch_add(removed, Ordering::Relaxed);
        judged?;
        self.release_unlinked(metadata, placement)?;
        failed.first.map_or(Ok(removed), Err)
    }

    /// Lets go of what a crash left unlinked, if nothing is to be judged any more: its objects are on the list then, for a
    /// further pass.
    fn release_unlinked<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) -> FsResult<()> {
        if self.unlinked.lock().is_empty() || !placement.is_in_order() {
            return Ok(());
        }
        while !self.stopping() {
            // Not under the lock: who adds one must not wait for commits. It stays in the list until it is released, whatever comes
            // between; nobody else takes any (`pass` has one at a time).
            let Some(ino) = self.unlinked.lock().last().copied() else { break };
            run(metadata.release_unlinked(ino))?;
            let mut unlinked = self.unlinked.lock();
            if let Some(at) = unlinked.iter().rposition(|other| *other == ino) {
                unlinked.swap_remove(at);
            }
            drop(unlinked);
            failpoint("fs.recover.released");
        }
        self.unlinked.lock().shrink_to_fit();
        self.wake();
        Ok(())
    }

    /// Judges what a crash left in the pools; every pool is tried. The first error is returned. So much there can't be that an
    /// end would have to wait for long: see `placement::LeftBehind`.
    fn judge_all<M: MetadataDriver>(&self, metadata: &M, placement: &Placement) -> FsResult<u64> {
        let left = placement.left_behind();
        let pools: BTreeSet<PoolId> = left.iter().map(|left| left.object.pool()).collect();
        let mut removed = Ok(0);
        for pool in pools {
            let here = left.iter().filter(|left| left.object.pool() == pool);
            match judge(metadata, placement, here) {
                Ok(count) => {
                    placement.judged(pool);
                    removed = removed.map(|sum| sum + count);
                }
                Err(error) => removed = removed.and(Err(error)),
            }
        }
        removed
    }
}

/// Removes those that are nobody's.
fn judge<'a, M: MetadataDriver>(
    metadata: &M,
    placement: &Placement,
    left: impl Iterator<Item = &'a LeftBehind>,
) -> FsResult<u64> {
    let mut nobodys = Vec::new();
    for left in left {
        if is_nobodys(metadata, left)? {
            nobodys.push(left.object);
        }
    }
    if nobodys.is_empty() {
        return Ok(0);
    }
    // The inode may have let go of it only just now.
    run(metadata.sync())?;
    failpoint("fs.judge.synced");
    for &object in &nobodys {
        placement.remove(object)?;
        failpoint("fs.judge.removed");
    }
    tracing::info!(objects = nobodys.len(), "objects that a crash left without an inode are removed");
    Ok(nobodys.len() as u64)
}

/// What an inode has not got now it will never have: no object is handed out twice.
fn is_nobodys<M: MetadataDriver>(metadata: &M, left: &LeftBehind) -> FsResult<bool> {
    match run(metadata.node(left.owner)) {
        Ok(answer) => Ok(answer.value.layout != Layout::Object(left.object)),
        Err(FsError::Stale | FsError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What could not be removed in this pass, and why the first one could not.
#[derive(Default)]
struct Failed {
    objects: HashSet<ObjectId>,
    first: Option<FsError>,
}

fn remove_batch<M: MetadataDriver>(
    metadata: &M,
    placement: &Placement,
    batch: &[ObjectId],
    failed: &mut Failed,
) -> FsResult<u64> {
    run(metadata.sync())?;
    failpoint("fs.reclaim.synced");
    let mut gone = Vec::with_capacity(batch.len());
    for &id in batch {
        match placement.remove(id) {
            Ok(()) => gone.push(id),
            Err(error) => {
                failed.objects.insert(id);
                failed.first.get_or_insert(error);
            }
        }
        failpoint("fs.reclaim.removed");
    }
    if !gone.is_empty() {
        run(metadata.reclaimed(&gone))?;
        failpoint("fs.reclaim.committed");
    }
    Ok(gone.len() as u64)
}

fn next_backoff(before: Option<Duration>) -> Duration {
    before.map_or(limits::RECLAIM_BACKOFF_MIN, |pause| (pause * 2).min(limits::RECLAIM_BACKOFF_MAX))
}

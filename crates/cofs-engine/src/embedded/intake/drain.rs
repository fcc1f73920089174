//! The thread that moves ended layers into RocksDB and makes the journal's next segment ready.

use std::{
    sync::Arc,
    thread::{Builder, JoinHandle},
};

use rocksdb::{DB, WriteBatch};

use super::{Free, Header, Intake, Layer, SLOTS, SLOTS_MIN, Segment, segment};
use crate::{
    EngineError,
    embedded::{
        error::{engine_error, from_io},
        log::InheritedLogs,
    },
};

/// What goes to RocksDB at once: large enough that its log is written in few calls.
const BATCH_BYTES: usize = 256 << 10;

/// The drain of one intake; ended by dropping it.
pub(in crate::embedded) struct Drain {
    intake: Arc<Intake>,
    thread: Option<JoinHandle<()>>,
}

/// A file for the next segment.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// It is not there yet, so that nothing stands in it.
    pub(super) new: bool,
}

pub(super) enum Job {
    Prepare(Slot, Header),
    Drain(Arc<Layer>),
}

impl Drain {
    pub(in crate::embedded) fn start(
        intake: Arc<Intake>,
        db: Arc<DB>,
        mut inherited: InheritedLogs,
    ) -> Result<Self, EngineError> {
        let working = Arc::clone(&intake);
        let work = move || {
            while let Some(job) = working.next_job() {
                let done = match job {
                    Job::Prepare(slot, header) => working.prepare(slot, header),
                    Job::Drain(layer) => {
                        drain(&layer, &db, &mut inherited).inspect(|()| working.drained(&layer))
                    }
                };
                if let Err(error) = done {
                    working.poison(error);
                    return;
                }
            }
        };
        let thread = Builder::new().name("cofs-drain".into()).spawn(work);
        let thread = thread.map_err(|error| from_io("starting a thread of the metadata engine", &error))?;
        Ok(Self { intake, thread: Some(thread) })
    }
}

impl Drop for Drain {
    /// What is not drained stands in the journal.
    fn drop(&mut self) {
        self.intake.work.lock().stopping = true;
        self.intake.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Intake {
    /// Waits for something to do; `None` at the end.
    pub(super) fn next_job(&self) -> Option<Job> {
        let mut work = self.work.lock();
        loop {
            if work.stopping {
                return None;
            }
            let layers = self.layers.read().clone();
            // First the segment that a commit may wait for.
            if work.spare.is_none()
                && let Some(slot) = work.free_slot()
            {
                let previous = work.newest;
                let oldest = layers.last().map_or(previous, |layer| layer.segment.header.generation);
                return Some(Job::Prepare(slot, Header { generation: previous + 1, previous, oldest }));
            }
            if let [_, .., oldest] = &layers[..] {
                return Some(Job::Drain(Arc::clone(oldest)));
            }
            self.changed.wait(&mut work);
        }
    }

    pub(super) fn prepare(&self, slot: Slot, header: Header) -> Result<(), EngineError> {
        let prepared = Segment::prepare(&self.directory, slot.number, header, self.segment_bytes);
        let mut work = self.work.lock();
        match prepared {
            Ok(segment) => {
                work.newest = header.generation;
                work.spare = Some(segment);
                self.remove_surplus(&mut work, header.oldest);
            }
            // A file system without space for more files: the first two do. (One that was there stays: the newest
            // header may still count what stands in it.)
            Err(_) if slot.new && slot.number >= SLOTS_MIN => {
                work.slots = SLOTS;
                let _ = std::fs::remove_file(segment::path(&self.directory, slot.number));
            }
            Err(error) => return Err(self.failed("preparing", &error)),
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Processes that ended again and again before they had drained anything have made more files than are needed.
    /// They go when the newest header no longer counts what stands in them.
    fn remove_surplus(&self, work: &mut super::Work, oldest: u64) {
        work.free.retain(|free| {
            let surplus = free.slot >= SLOTS && free.generation < oldest;
            // One that cannot be removed is found again at the next start.
            !surplus || std::fs::remove_file(segment::path(&self.directory, free.slot)).is_err()
        });
    }

    /// RocksDB has all of the oldest layer.
    pub(super) fn drained(&self, layer: &Arc<Layer>) {
        let slot = layer.segment.slot;
        let mut work = self.work.lock();
        self.layers.write().pop();
        work.free.push(Free { slot, generation: layer.segment.header.generation });
        self.changed.notify_all();
    }
}

impl super::Work {
    /// A file for the next segment; none while all are in use.
    fn free_slot(&mut self) -> Option<Slot> {
        // The lowest, so that surplus ones fall into disuse.
        if let Some(at) = (0..self.free.len()).min_by_key(|&at| self.free[at].slot) {
            return Some(Slot { number: self.free.swap_remove(at).slot, new: false });
        }
        let number = self.slots;
        (number < SLOTS).then(|| self.slots += 1).map(|()| Slot { number, new: true })
    }
}

fn drain(layer: &Layer, db: &DB, inherited: &mut InheritedLogs) -> Result<(), EngineError> {
    layer.segment.sync_ended().map_err(|error| from_io("syncing the metadata's journal", &error))?;
    let write = |batch| db.write(batch).map_err(|error| engine_error("writing the metadata's log", &error));
    let mut batch = WriteBatch::default();
    layer.memtable.visit(|key, value| {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        if batch.size_in_bytes() < BATCH_BYTES { Ok(()) } else { write(std::mem::take(&mut batch)) }
    })?;
    write(batch)?;
    inherited.sync()?;
    db.flush_wal(true).map_err(|error| engine_error("syncing the metadata's log", &error))
}

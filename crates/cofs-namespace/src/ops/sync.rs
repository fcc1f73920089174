//! flush, sync, close: what waits in memory becomes durable.

use std::{sync::atomic::Ordering, time::Duration};

use cofs_types::{FsResult, Timestamp};

use crate::{Namespace, schema::Counts, tables::volume, tx::verb};

impl Namespace {
    /// Commits the times and figures that wait in memory. To be called each second
    /// (`limits::GATHERED_TIMES_LAG`).
    pub fn flush(&self, _now: Timestamp) -> FsResult<()> {
        self.store.flush_directories()?;
        self.store.flush_accesses()?;
        let files = self.store.files();
        if self.files_counted.swap(files, Ordering::AcqRel) != files {
            self.store.commit_alone(
                &verb!("count"),
                vec![volume::counts(Counts { files, clean: false, exact: self.counts_exactly })],
            )?;
        }
        Ok(())
    }

    /// Whether to go where one may wait before something is changed, with nothing held that others want, and how long to wait there (changes come
    /// faster than they can be worked off).
    pub fn pause(&self) -> Option<Duration> {
        self.store.pause()
    }

    /// A second has passed.
    pub fn tick(&self) {
        self.store.tick();
    }

    /// Everything acknowledged before survives a power cut when this returns.
    pub fn sync(&self, now: Timestamp) -> FsResult<()> {
        self.flush(now)?;
        self.store.sync()
    }

    /// The last call: flushes, marks the volume closed in order, syncs. Every later change fails.
    pub fn close(&self, now: Timestamp) -> FsResult<()> {
        self.flush(now)?;
        let counts = Counts { files: self.store.files(), clean: true, exact: self.counts_exactly };
        let last = vec![volume::counts(counts), self.allocator.give_back()];
        self.store.commit_alone(&verb!("close"), last)?;
        self.store.close();
        self.store.sync()
    }
}

//! flush, sync, close: what waits in memory becomes durable.

use std::sync::atomic::Ordering;

use cofs_types::{FsResult, Timestamp};

use crate::{Namespace, tables::volume, tx::verb};

impl Namespace {
    /// Commits the directory times and figures that wait in memory. To be called each second
    /// (`limits::DIRECTORY_TIMES_LAG`).
    pub fn flush(&self, _now: Timestamp) -> FsResult<()> {
        self.store.flush_directories()?;
        let files = self.store.files();
        if self.files_counted.swap(files, Ordering::AcqRel) != files {
            self.store.commit_alone(&verb!("count"), vec![volume::counts(files, false)])?;
        }
        Ok(())
    }

    /// Everything acknowledged before survives a power cut when this returns.
    pub fn sync(&self, now: Timestamp) -> FsResult<()> {
        self.flush(now)?;
        self.store.sync()
    }

    /// The last call: flushes, marks the volume closed in order, syncs. Every later change fails.
    pub fn close(&self, now: Timestamp) -> FsResult<()> {
        self.flush(now)?;
        let last = vec![volume::counts(self.store.files(), true), self.allocator.give_back()];
        self.store.commit_alone(&verb!("close"), last)?;
        self.store.close();
        self.store.sync()
    }
}

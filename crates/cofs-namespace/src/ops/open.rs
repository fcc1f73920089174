//! The life of a volume: format, open, and what is told about it.

use std::sync::{Arc, atomic::AtomicU64};

use cofs_engine::{Engine, EngineStats};
use cofs_types::{FsResult, Timestamp};
use parking_lot::Mutex;

use crate::{
    Namespace, OpenInodes, VolumeOptions,
    schema::NameHasher,
    tables::{allocator::Allocator, labels::Labels, pool_ends::PoolEnds, volume},
};

impl Namespace {
    /// Writes an empty volume whose root has this owner, group and permissions. Synced when it returns.
    /// Errors: `Exists` if the engine is not empty, `InvalidArgument` for options out of range.
    pub fn format(
        engine: &dyn Engine,
        options: &VolumeOptions,
        root: (u32, u32, u16),
        now: Timestamp,
    ) -> FsResult<()> {
        volume::format(engine, options, root, now)
    }

    /// Opens the volume, and fences off whoever had it open before. Errors: `Corrupt` if this is no volume,
    /// `Engine` with what to do if its format is newer than this code.
    pub fn open(engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>) -> FsResult<Self> {
        let opened = volume::open(engine, opens)?;
        Ok(Self {
            pool_ends: PoolEnds::open(&opened.store)?,
            store: opened.store,
            allocator: Allocator::new(opened.inodes_next),
            hasher: NameHasher::new(opened.options.hash_key),
            labels: Labels::new(!opened.unlabelled),
            options: opened.options,
            was_clean: opened.was_clean,
            counts_exactly: opened.exact,
            files_counted: AtomicU64::new(opened.files),
            tree: Mutex::new(()),
        })
    }

    pub fn options(&self) -> VolumeOptions {
        self.options
    }

    /// Whether the volume had been closed in order before this open.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Inodes in the volume, the root and the unlinked but open ones included. After a crash it may be off by
    /// what the last second brought.
    pub fn files(&self) -> u64 {
        self.store.files()
    }

    /// Whether the engine has space for what adds something.
    pub fn takes_more(&self) -> bool {
        self.store.takes_more()
    }

    pub fn engine_stats(&self) -> EngineStats {
        self.store.stats()
    }
}

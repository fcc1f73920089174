//! What the engine's integration tests share: short words for batches, and the engines under test.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::{ops::ControlFlow, path::Path, sync::Arc};

use cofs_engine::{
    Batch, Change, Durability, EmbeddedEngine, EmbeddedOptions, Engine, FaultEngine, FaultPlan, Guard,
    KeyShape, MemoryEngine, Outcome, OverlayEngine,
};
use rustix::io::Errno;

pub const MEMORY_BYTES: usize = 16 << 20;

/// An engine, and the directory that must outlive it.
pub struct Subject {
    pub engine: Arc<dyn Engine>,
    _directory: Option<tempfile::TempDir>,
}

/// Makes an empty engine.
pub type Factory = fn() -> Subject;

pub fn memory() -> Subject {
    Subject { engine: Arc::new(MemoryEngine::new()), _directory: None }
}

pub fn faultless() -> Subject {
    let engine = FaultEngine::new(Arc::new(MemoryEngine::new()), FaultPlan::new());
    Subject { engine: Arc::new(engine), _directory: None }
}

pub fn overlay() -> Subject {
    Subject { engine: Arc::new(OverlayEngine::new(Arc::new(MemoryEngine::new()), 1 << 30)), _directory: None }
}

pub fn embedded() -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    Subject { engine: Arc::new(engine), _directory: Some(directory) }
}

pub fn embedded_by_calls() -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let engine = open_journal(directory.path(), true);
    Subject { engine: Arc::new(engine), _directory: Some(directory) }
}

/// Opens the embedded engine, making it if need be.
pub fn open(directory: &Path) -> EmbeddedEngine {
    open_journal(directory, false)
}

/// The same, with its journal written `by_calls` or as the file system allows.
pub fn open_journal(directory: &Path, by_calls: bool) -> EmbeddedEngine {
    let options = EmbeddedOptions {
        create: true,
        journal_by_calls: by_calls,
        keys: KeyShape { scanned: |key| usize::from(key.first() == Some(&b'a')) + 1, ..KeyShape::default() },
        ..EmbeddedOptions::new(directory, MEMORY_BYTES)
    };
    EmbeddedEngine::open(&options).unwrap()
}

pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Change {
    Change::put(key.into(), value.into())
}

pub fn delete(key: impl Into<Vec<u8>>) -> Change {
    Change::delete(key.into())
}

pub fn guard(key: impl Into<Vec<u8>>, value: Option<&[u8]>) -> Guard {
    Guard { key: key.into(), value: value.map(<[u8]>::to_vec) }
}

pub fn changes(changes: Vec<Change>) -> Batch<'static> {
    Batch { changes, ..Batch::default() }
}

pub fn synced(changes: Vec<Change>) -> Batch<'static> {
    Batch { changes, durability: Durability::Synced, ..Batch::default() }
}

pub fn commit(engine: &dyn Engine, batch: &Batch<'_>) {
    assert_eq!(engine.commit(batch).unwrap(), Outcome::Committed);
}

/// The pairs of a range, at most `limit` of them.
pub fn scan(engine: &dyn Engine, start: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        pairs.push((key.to_vec(), value.to_vec()));
        if pairs.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    engine.scan(start, end, visit).unwrap();
    pairs
}

/// What an engine puts into a place that held something else.
pub fn got_into(engine: &dyn Engine, key: &[u8]) -> Option<cofs_engine::Bytes> {
    let mut value = b"before".to_vec();
    let there = engine.get_into(key, &mut value).unwrap();
    assert!(there || value.is_empty(), "of a key that is not there, {} bytes", value.len());
    there.then(|| value.into())
}

/// What an engine shows as the values of `keys`: each once.
pub fn shown(engine: &dyn Engine, keys: &[&[u8]]) -> Vec<Option<cofs_engine::Bytes>> {
    let mut seen = vec![None; keys.len()];
    let see = &mut |at: usize, value: Option<&[u8]>| {
        assert!(seen[at].replace(value.map(cofs_engine::Bytes::copy_from_slice)).is_none(), "shown once");
    };
    engine.show(keys, see).unwrap();
    seen.into_iter().map(|value| value.expect("all are shown")).collect()
}

/// A small file system of its own; `None` where one can't be mounted.
pub struct Small(tempfile::TempDir);

impl Small {
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = c"size=64m";
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("cofs-engine-test", directory.path(), "tmpfs", flags, options) {
            Ok(()) => Some(Self(directory)),
            Err(Errno::PERM | Errno::ACCESS) => None,
            Err(errno) => panic!("mount: {errno}"),
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Returns when what waited for a lull is below, which shows in the memory that it had.
pub fn come_to_rest(engine: &EmbeddedEngine) {
    let mut before = 0;
    while std::mem::replace(&mut before, engine.stats().memory_bytes) != before {
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

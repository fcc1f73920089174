//! The seam: what every engine does, and what it promises (the invariants stand in the crate's page).

use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

pub use bytes::Bytes;
use rustix::io::Errno;
use smallvec::SmallVec;

/// A key as it is kept: one of the usual length needs no memory of its own.
pub type Key = SmallVec<[u8; 24]>;

/// What must hold for a commit to happen: `key` has exactly `value` (`None`: is absent).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// One change of a batch. Later changes of one key win over earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put {
        key: Key,
        /// Shared by all that keep it.
        value: Bytes,
        /// The caller knows that the key had no value before the batch. Where that is wrong, what it had may come back when it is removed again; not every
        /// engine looks.
        new: bool,
    },
    Delete {
        key: Key,
    },
}

impl Change {
    /// `key` has `value` from then on.
    pub fn put(key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: Key::from_slice(key.as_ref()), value: value.into(), new: false }
    }

    /// The same for a `key` that has none, as the caller knows for sure.
    pub fn insert(key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: Key::from_slice(key.as_ref()), value: value.into(), new: true }
    }

    /// `key` has no value from then on.
    pub fn delete(key: impl AsRef<[u8]>) -> Self {
        Self::Delete { key: Key::from_slice(key.as_ref()) }
    }

    /// The key that is changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// Whether its key is said to have had no value before the batch.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Put { new: true, .. })
    }
}

/// When a commit must be on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// It survives the process; a later [`Engine::sync`] makes it survive the machine.
    #[default]
    Buffered,
    /// It survives a power cut before `commit` returns.
    Synced,
}

/// A set of changes that happen together, or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch<'g> {
    pub guards: &'g [Guard],
    pub changes: Vec<Change>,
    pub durability: Durability,
    /// It changes, moves or removes what is there, or keeps the books, and adds next to nothing: where space is short and what grows
    /// is refused, it is taken as long as there is some left.
    pub upkeep: bool,
}

/// How a commit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Committed,
    /// A guard did not hold; nothing was changed.
    GuardFailed,
    /// It may or may not have happened (a lost connection, a failed log write); the caller must find out
    /// before it promises anything.
    Unknown,
}

/// The engine cannot serve. Not an outcome of a commit: those are [`Outcome`]s.
#[derive(Clone, Debug)]
pub struct EngineError {
    pub what: Arc<str>,
    /// The errno below, where there is one (ENOSPC, EIO, ...).
    pub errno: Option<i32>,
    /// What to do about it, where the engine knows.
    pub advice: Option<&'static str>,
}

impl EngineError {
    pub fn advise(self, advice: &'static str) -> Self {
        Self { advice: Some(advice), ..self }
    }

    /// Whether what is stored is not what was; `what` says where.
    pub fn is_damage(&self) -> bool {
        self.errno == Some(Errno::UCLEAN.raw_os_error())
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for EngineError {}

/// How an engine is.
#[derive(Clone, Debug, Default)]
pub enum EngineHealth {
    #[default]
    Healthy,
    /// There is no space: what grows is refused with this error until there is.
    Full(EngineError),
    /// The last commit could not be written, or what was committed cannot be put where it belongs at present: both are tried again.
    Stuck(EngineError),
    /// Nothing is taken any more until the store is opened anew.
    Failed(EngineError),
}

/// Figures for `cofs status`.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    /// The implementation's name (`rocksdb`, `memory`).
    pub name: &'static str,
    pub health: EngineHealth,
    pub disk_bytes: u64,
    pub memory_bytes: u64,
    pub keys_estimate: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
}

/// What a scan calls with each key and value, until it breaks.
pub type Visit<'a> = &'a mut (dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a);

/// What is called with each value that is shown, and its key's place among those asked for; `None`: there is none. It must not ask the engine
/// for anything: that may be held meanwhile.
pub type Show<'a> = &'a mut dyn FnMut(usize, Option<&[u8]>);

/// A transactional, ordered key-value store. See the crate's invariants.
pub trait Engine: Send + Sync + 'static {
    /// The value of `key` as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// The same for who has a place for the value, so that it needs none of its own: whether there is one. What `value` held is gone.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, EngineError> {
        let found = self.get(key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    /// Shows the values of `keys` where they stand, each once, in any order. For large values, which the caller copies to where it
    /// wants them, and which others cache in its stead: this engine keeps nothing of them that it has to read for that.
    fn show(&self, keys: &[&[u8]], see: Show<'_>) -> Result<(), EngineError> {
        keys.iter().enumerate().try_for_each(|(at, key)| {
            see(at, self.get(key)?.as_deref());
            Ok(())
        })
    }

    /// The values of `keys`, in their order; cheaper than as many `get`s where keys are neighbours.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError>;

    /// Visits the pairs with `start <= key < end` in ascending order of keys, until `visit` breaks.
    /// The scan sees one state of the store.
    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError>;

    /// Checks the guards and applies the changes, as one.
    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError>;

    /// Whether who is about to change something should first go where he may wait, with nothing held that others want, and how long he should
    /// wait there, because commits come faster than they can be worked off. Who does not may have to wait in a commit, and long.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// To be called about once a second, while the engine is open: it tells from that how long nothing has been committed.
    fn tick(&self) {}

    /// Puts everything committed so far on stable storage.
    fn sync(&self) -> Result<(), EngineError>;

    /// Whether there is space for what adds something, as far as is known; waits for nobody.
    fn takes_more(&self) -> bool {
        true
    }

    fn stats(&self) -> EngineStats;
}

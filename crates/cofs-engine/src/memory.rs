//! The memory engine: an ordered map behind a lock, for tests and simulation.
//!
//! Invariants: reads and commits are exact and linear (one lock orders them); a scan sees one state, also
//! when its visitor commits (the map is copied on write while a scan holds it).
//!
//! It also models a power cut. `durable` is what the disk holds; the commits made since are kept in
//! order, and [`MemoryEngine::after_power_cut`] gives the store that some prefix of them leaves. Beyond
//! [`UNSYNCED_COMMITS_MAX`] the oldest goes to `durable` by itself, as a kernel's write-back would do it:
//! what survives is still a prefix, and memory stays bounded.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use parking_lot::RwLock;

use crate::{Batch, Bytes, Change, Durability, Engine, EngineError, EngineStats, Guard, Outcome, Visit};

/// Commits kept for the model of a power cut.
pub const UNSYNCED_COMMITS_MAX: usize = 16_384;

type Map = BTreeMap<Bytes, Bytes>;
/// A change with its bytes shared between the current state and the log.
type Logged = (Bytes, Option<Bytes>);

#[derive(Default)]
struct State {
    current: Arc<Map>,
    durable: Map,
    unsynced: VecDeque<Vec<Logged>>,
}

/// See the module's page.
#[derive(Default)]
pub struct MemoryEngine {
    state: RwLock<State>,
}

impl MemoryEngine {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many commits a power cut could take now.
    pub fn unsynced_commits(&self) -> usize {
        self.state.read().unsynced.len()
    }

    /// The store as a power cut leaves it when the first `keep` of the unsynced commits had reached the
    /// disk (all of them, if there are fewer). This engine is not changed.
    pub fn after_power_cut(&self, keep: usize) -> Self {
        let state = self.state.read();
        let mut durable = state.durable.clone();
        for commit in state.unsynced.iter().take(keep) {
            apply(&mut durable, commit);
        }
        let current = Arc::new(durable.clone());
        Self { state: RwLock::new(State { current, durable, unsynced: VecDeque::new() }) }
    }
}

fn apply(map: &mut Map, commit: &[Logged]) {
    for (key, value) in commit {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn logged(change: &Change) -> Logged {
    match change {
        Change::Put { key, value, .. } => (Bytes::copy_from_slice(key), Some(value.clone())),
        Change::Delete { key } => (Bytes::copy_from_slice(key), None),
    }
}

impl State {
    fn holds(&self, guard: &Guard) -> bool {
        self.current.get(guard.key.as_slice()).map(|v| v.as_ref()) == guard.value.as_deref()
    }

    /// Where that is wrong another engine brings back what was removed.
    fn are_new(&self, changes: &[Change]) -> bool {
        changes.iter().filter(|change| change.is_new()).all(|change| !self.current.contains_key(change.key()))
    }

    fn write_back_oldest(&mut self) {
        if let Some(oldest) = self.unsynced.pop_front() {
            apply(&mut self.durable, &oldest);
        }
    }

    fn sync(&mut self) {
        while !self.unsynced.is_empty() {
            self.write_back_oldest();
        }
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Outcome {
        if !batch.guards.iter().all(|guard| self.holds(guard)) {
            return Outcome::GuardFailed;
        }
        assert!(self.are_new(&batch.changes), "a key that is said to be new has a value");
        let commit: Vec<Logged> = batch.changes.iter().map(logged).collect();
        apply(Arc::make_mut(&mut self.current), &commit);
        self.unsynced.push_back(commit);
        if self.unsynced.len() > UNSYNCED_COMMITS_MAX {
            self.write_back_oldest();
        }
        if batch.durability == Durability::Synced {
            self.sync();
        }
        Outcome::Committed
    }
}

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.state.read().current.get(key).cloned())
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let state = self.state.read();
        Ok(keys.iter().map(|key| state.current.get(*key).cloned()).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        if start >= end {
            return Ok(());
        }
        let state = Arc::clone(&self.state.read().current);
        for (key, value) in state.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        Ok(self.state.write().commit(batch))
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.state.write().sync();
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        let keys_estimate = self.state.read().current.len() as u64;
        EngineStats { name: "memory", keys_estimate, ..EngineStats::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn put(engine: &MemoryEngine, key: &str, durability: Durability) {
        let change = Change::put(key, &b"v"[..]);
        let batch = Batch { changes: vec![change], durability, ..Batch::default() };
        assert_eq!(engine.commit(&batch).unwrap(), Outcome::Committed);
    }

    fn keys(engine: &MemoryEngine) -> String {
        engine.state.read().current.keys().map(|k| String::from_utf8_lossy(k).into_owned()).collect()
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let engine = MemoryEngine::new();
        put(&engine, "a", Durability::Buffered);
        engine.sync().unwrap();
        for key in ["b", "c", "d"] {
            put(&engine, key, Durability::Buffered);
        }
        let left: Vec<String> = (0..=4).map(|keep| keys(&engine.after_power_cut(keep))).collect();
        assert_eq!(left, ["a", "ab", "abc", "abcd", "abcd"]);
        assert_eq!(keys(&engine), "abcd");
    }

    #[test]
    fn a_synced_commit_takes_those_before_it_along() {
        let engine = MemoryEngine::new();
        put(&engine, "a", Durability::Buffered);
        put(&engine, "b", Durability::Synced);
        assert_eq!(engine.unsynced_commits(), 0);
        assert_eq!(keys(&engine.after_power_cut(0)), "ab");
    }

    #[test]
    fn the_log_of_unsynced_commits_is_bounded() {
        let engine = MemoryEngine::new();
        for i in 0..UNSYNCED_COMMITS_MAX + 10 {
            put(&engine, &format!("{i:08}"), Durability::Buffered);
        }
        assert_eq!(engine.unsynced_commits(), UNSYNCED_COMMITS_MAX);
        assert_eq!(engine.after_power_cut(0).stats().keys_estimate, 10);
    }

    #[test]
    fn a_visitor_may_commit_and_still_sees_one_state() {
        let engine = MemoryEngine::new();
        for key in ["a", "b", "c"] {
            put(&engine, key, Durability::Buffered);
        }
        let mut seen = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            put(&engine, &format!("b{seen}"), Durability::Buffered);
            ControlFlow::Continue(())
        };
        engine.scan(b"a", b"z", visit).unwrap();
        assert_eq!((seen, engine.stats().keys_estimate), (3, 6));
    }
}

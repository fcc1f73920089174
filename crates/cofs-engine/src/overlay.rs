//! The overlay engine: commits stay in memory, over an engine that is only read.
//!
//! With it a store that may not, or cannot, be written is opened like any other, and what a crash left to be put right
//! is put right for those who look. Nothing of it outlives the engine.
//!
//! Invariants: the engine below is never asked to commit or sync; a scan sees one state, also when its visitor commits (the map
//! is copied on write while a scan holds it); the changes are bounded, and a commit beyond that changes nothing.
//!
//! It keeps no promise of durability, which is why a sync succeeds: there is nothing that it could bring to a disk.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use parking_lot::RwLock;
use rustix::io::Errno;

use crate::{Batch, Bytes, Change, Engine, EngineError, EngineStats, Guard, Outcome, Show, Visit};

/// What a change takes beside its bytes: a node of the map, and two counted pointers.
const CHANGE_BYTES: usize = 128;

/// What is changed; `None`: deleted.
type Changes = BTreeMap<Bytes, Option<Bytes>>;

#[derive(Default)]
struct Above {
    changes: Arc<Changes>,
    bytes: usize,
}

/// See the module's page.
pub struct OverlayEngine {
    below: Arc<dyn Engine>,
    above: RwLock<Above>,
    bytes_max: usize,
}

impl OverlayEngine {
    /// Over `below`, with changes of at most `bytes_max` bytes; a commit beyond it fails with ENOSPC.
    pub fn new(below: Arc<dyn Engine>, bytes_max: usize) -> Self {
        Self { below, above: RwLock::default(), bytes_max }
    }

    fn holds(&self, above: &Above, guard: &Guard) -> Result<bool, EngineError> {
        let value = match above.changes.get(guard.key.as_slice()) {
            Some(changed) => changed.clone(),
            None => self.below.get(&guard.key)?,
        };
        Ok(value.as_deref() == guard.value.as_deref())
    }

    fn full(&self) -> EngineError {
        let text = format!(
            "the metadata are opened for reading only, and there is more to put right than may be kept in memory ({} bytes)",
            self.bytes_max
        );
        let errno = Some(Errno::NOSPC.raw_os_error());
        EngineError { what: text.into(), errno, advice: Some("open them for writing once") }
    }
}

fn weight(key: &[u8], value: Option<&Bytes>) -> usize {
    CHANGE_BYTES + key.len() + value.map_or(0, Bytes::len)
}

impl Above {
    fn take(&mut self, change: &Change) {
        let (key, value) = match change {
            Change::Put { key, value, .. } => (key, Some(value.clone())),
            Change::Delete { key } => (key, None),
        };
        self.bytes += weight(key, value.as_ref());
        if let Some(before) = Arc::make_mut(&mut self.changes).insert(Bytes::copy_from_slice(key), value) {
            self.bytes -= weight(key, before.as_ref());
        }
    }
}

impl Engine for OverlayEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let changed = self.above.read().changes.get(key).cloned();
        changed.map_or_else(|| self.below.get(key), Ok)
    }

    fn show(&self, keys: &[&[u8]], see: Show<'_>) -> Result<(), EngineError> {
        let changes = Arc::clone(&self.above.read().changes);
        let (mut places, mut others) = (Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            match changes.get(*key) {
                Some(value) => see(at, value.as_deref()),
                None => {
                    places.push(at);
                    others.push(*key);
                }
            }
        }
        self.below.show(&others, &mut |at, value| see(places[at], value))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let changes = Arc::clone(&self.above.read().changes);
        let mut values = self.below.multi_get(keys)?;
        for (key, value) in keys.iter().zip(&mut values) {
            if let Some(changed) = changes.get(*key) {
                value.clone_from(changed);
            }
        }
        Ok(values)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        if start >= end {
            return Ok(());
        }
        let changes = Arc::clone(&self.above.read().changes);
        let mut changed = changes.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))).peekable();
        let mut flow = ControlFlow::Continue(());
        self.below.scan(start, end, &mut |key, value| {
            while let Some((above, changed)) = changed.next_if(|(above, _)| above.as_ref() <= key) {
                if let Some(changed) = changed {
                    flow = visit(above, changed);
                }
                if flow.is_break() || above.as_ref() == key {
                    return flow;
                }
            }
            flow = visit(key, value);
            flow
        })?;
        let rest = changed.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (key, value) in rest {
            if flow.is_break() {
                break;
            }
            flow = visit(key, value);
        }
        Ok(())
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let mut above = self.above.write();
        for guard in batch.guards {
            if !self.holds(&above, guard)? {
                return Ok(Outcome::GuardFailed);
            }
        }
        let weight_of = |change: &Change| match change {
            Change::Put { key, value, .. } => weight(key, Some(value)),
            Change::Delete { key } => weight(key, None),
        };
        let added: usize = batch.changes.iter().map(weight_of).sum();
        if above.bytes.saturating_add(added) > self.bytes_max {
            return Err(self.full());
        }
        batch.changes.iter().for_each(|change| above.take(change));
        Ok(Outcome::Committed)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn takes_more(&self) -> bool {
        self.below.takes_more()
    }

    fn stats(&self) -> EngineStats {
        let below = self.below.stats();
        EngineStats { memory_bytes: below.memory_bytes + self.above.read().bytes as u64, ..below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, FaultEngine, FaultPlan, MemoryEngine};

    fn commit(engine: &dyn Engine, changes: Vec<Change>) -> Result<Outcome, EngineError> {
        engine.commit(&Batch { changes, ..Batch::default() })
    }

    fn pairs(engine: &dyn Engine) -> String {
        let mut all = String::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            all += &format!("{}{} ", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            ControlFlow::Continue(())
        };
        engine.scan(b"a", b"z", visit).unwrap();
        all
    }

    #[test]
    fn changes_are_seen_above_and_never_below() {
        let below = Arc::new(MemoryEngine::new());
        let put = |key: &str, value: &str| Change::put(key, value.as_bytes().to_vec());
        commit(&*below, vec![put("b", "1"), put("d", "1"), put("f", "1")]).unwrap();
        let watched = Arc::new(FaultEngine::new(below.clone(), FaultPlan::new()));
        let engine = OverlayEngine::new(watched.clone(), 1 << 20);
        let changes =
            vec![put("a", "2"), put("b", "2"), Change::delete("d"), Change::delete("e"), put("g", "2")];
        assert_eq!(commit(&engine, changes).unwrap(), Outcome::Committed);
        engine.sync().unwrap();
        assert_eq!(pairs(&engine), "a2 b2 f1 g2 ");
        let values = engine.multi_get(&[b"a", b"b", b"d", b"f"]).unwrap();
        let values: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
        assert_eq!(values, [Some(&b"2"[..]), Some(b"2"), None, Some(b"1")]);
        assert_eq!(pairs(&*below), "b1 d1 f1 ");
        assert_eq!((watched.calls(Call::Commit), watched.calls(Call::Sync)), (0, 0));
    }

    #[test]
    fn what_it_keeps_is_bounded_and_a_commit_beyond_changes_nothing() {
        let engine = OverlayEngine::new(Arc::new(MemoryEngine::new()), 4 * (CHANGE_BYTES + 2));
        for _ in 0..100 {
            commit(&engine, vec![Change::put("a", &b"1"[..]), Change::put("b", &b"1"[..])]).unwrap();
        }
        let refused = commit(&engine, (b'c'..b'h').map(|key| Change::put([key], &b"1"[..])).collect());
        assert_eq!(refused.unwrap_err().errno, Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(pairs(&engine), "a1 b1 ");
    }
}

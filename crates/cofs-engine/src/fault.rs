//! The fault-injecting engine: any other engine, failing to order.
//!
//! A [`FaultPlan`] says which calls fail and how, either by position ("the third commit") or by chance
//! from a seed; the same plan over the same calls fails the same way.
//!
//! Invariants: a fault of a read changes nothing and the next read may work; a failed commit or sync, and
//! an unknown outcome, poison the engine, the harshest that one may do: no later commit or sync reports
//! success, while reads go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{Batch, Bytes, Engine, EngineError, EngineHealth, EngineStats, Outcome, Show, Visit};

/// A kind of call that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `get` and `multi_get`.
    Get,
    Scan,
    Commit,
    Sync,
}

const CALLS: usize = 4;

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It returns an [`EngineError`] with this errno; nothing has happened below.
    Errno(i32),
    /// The commit returns [`Outcome::Unknown`], having happened or not. For other calls, an error
    /// without errno.
    Unknown { committed: bool },
}

/// Which calls fail, and how. Plans are built up: `FaultPlan::new().nth(Call::Commit, 3, fault)`.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    explicit: Vec<(Call, u64, Fault)>,
    by_chance: Vec<(Call, u32, Fault)>,
    seed: u64,
}

impl FaultPlan {
    /// Nothing fails.
    pub fn new() -> Self {
        Self::default()
    }

    /// The `nth` call of this kind (from 1) fails.
    #[must_use]
    pub fn nth(mut self, call: Call, nth: u64, fault: Fault) -> Self {
        self.explicit.push((call, nth, fault));
        self
    }

    /// Each call of this kind fails with a chance of `per_million`, drawn from the plan's seed.
    #[must_use]
    pub fn chance(mut self, call: Call, per_million: u32, fault: Fault) -> Self {
        self.by_chance.push((call, per_million, fault));
        self
    }

    /// What chance draws from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    fn fault(&self, call: Call, count: u64) -> Option<Fault> {
        let ordered = self.explicit.iter().find(|(c, nth, _)| *c == call && *nth == count);
        if let Some((_, _, fault)) = ordered {
            return Some(*fault);
        }
        let drawn =
            |index: usize| mix(self.seed ^ mix(count) ^ mix((call as u64) << 32 | index as u64)) % 1_000_000;
        let mut chances = self.by_chance.iter().enumerate();
        let hit = chances.find(|(i, (c, per_million, _))| *c == call && drawn(*i) < u64::from(*per_million));
        hit.map(|(_, (_, _, fault))| *fault)
    }
}

/// A bijection that scatters its input (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// See the module's page.
pub struct FaultEngine {
    inner: Arc<dyn Engine>,
    plan: Mutex<FaultPlan>,
    counts: [AtomicU64; CALLS],
    poison: Mutex<Option<EngineError>>,
    full: AtomicBool,
    pause: Mutex<Option<Duration>>,
}

impl FaultEngine {
    pub fn new(inner: Arc<dyn Engine>, plan: FaultPlan) -> Self {
        Self {
            inner,
            plan: Mutex::new(plan),
            counts: Default::default(),
            poison: Mutex::new(None),
            full: AtomicBool::new(false),
            pause: Mutex::default(),
        }
    }

    /// Makes the next call of this kind fail, whatever the plan says.
    pub fn fail_next(&self, call: Call, fault: Fault) {
        // The lock is held so that no call of this kind comes between the count and the order.
        let mut plan = self.plan.lock();
        let next = self.counts[call as usize].load(Ordering::Relaxed) + 1;
        plan.explicit.push((call, next, fault));
    }

    /// Whether it is, from here on, as a store whose file system is full: what grows is refused with ENOSPC, upkeep is not.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// From here on it says that who changes something should wait so long first.
    pub fn set_pause(&self, pause: Option<Duration>) {
        *self.pause.lock() = pause;
    }

    /// How many calls of this kind were made.
    pub fn calls(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    /// Whether a failed commit or sync has ended all writing.
    pub fn is_poisoned(&self) -> bool {
        self.poison.lock().is_some()
    }

    fn next_fault(&self, call: Call) -> Option<Fault> {
        let plan = self.plan.lock();
        let count = self.counts[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        plan.fault(call, count)
    }

    fn check_read(&self, call: Call) -> Result<(), EngineError> {
        self.next_fault(call).map_or(Ok(()), |fault| Err(error(call, fault)))
    }

    fn check_poison(&self) -> Result<(), EngineError> {
        self.poison.lock().as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn poisoned_by(&self, call: Call, fault: Fault) -> EngineError {
        let error = error(call, fault);
        self.poison.lock().get_or_insert_with(|| error.clone());
        error
    }
}

fn error(call: Call, fault: Fault) -> EngineError {
    let errno = match fault {
        Fault::Errno(errno) => Some(errno),
        Fault::Unknown { .. } => None,
    };
    EngineError {
        what: format!("injected fault: {call:?} failed with {fault:?}").into(),
        errno,
        advice: None,
    }
}

impl Engine for FaultEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.check_read(Call::Get)?;
        self.inner.get(key)
    }

    fn show(&self, keys: &[&[u8]], see: Show<'_>) -> Result<(), EngineError> {
        self.check_read(Call::Get)?;
        self.inner.show(keys, see)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        self.check_read(Call::Get)?;
        self.inner.multi_get(keys)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        self.check_read(Call::Scan)?;
        self.inner.scan(start, end, visit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        self.check_poison()?;
        match self.next_fault(Call::Commit) {
            None if self.full.load(Ordering::Relaxed) && !batch.upkeep => {
                Err(error(Call::Commit, Fault::Errno(Errno::NOSPC.raw_os_error())))
            }
            None => self.inner.commit(batch),
            Some(fault @ Fault::Errno(_)) => Err(self.poisoned_by(Call::Commit, fault)),
            Some(fault @ Fault::Unknown { committed }) => {
                if committed && self.inner.commit(batch)? == Outcome::GuardFailed {
                    return Ok(Outcome::GuardFailed);
                }
                self.poisoned_by(Call::Commit, fault);
                Ok(Outcome::Unknown)
            }
        }
    }

    fn pause(&self) -> Option<Duration> {
        (*self.pause.lock()).max(self.inner.pause())
    }

    fn tick(&self) {
        self.inner.tick();
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.check_poison()?;
        match self.next_fault(Call::Sync) {
            None => self.inner.sync(),
            Some(fault) => Err(self.poisoned_by(Call::Sync, fault)),
        }
    }

    fn takes_more(&self) -> bool {
        self.poison.lock().is_none() && self.inner.takes_more()
    }

    fn stats(&self) -> EngineStats {
        let health = self.poison.lock().clone().map(EngineHealth::Failed);
        let stats = self.inner.stats();
        EngineStats { health: health.unwrap_or_else(|| stats.health.clone()), ..stats }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Change, MemoryEngine};

    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;

    fn put(key: &str) -> Batch<'static> {
        let change = Change::put(key, &b"v"[..]);
        Batch { changes: vec![change], ..Batch::default() }
    }

    fn over_memory(plan: FaultPlan) -> FaultEngine {
        FaultEngine::new(Arc::new(MemoryEngine::new()), plan)
    }

    #[test]
    fn the_ordered_commit_fails_and_nothing_succeeds_after_it() {
        let engine = over_memory(FaultPlan::new().nth(Call::Commit, 2, Fault::Errno(ENOSPC)));
        assert_eq!(engine.commit(&put("a")).unwrap(), Outcome::Committed);
        assert_eq!(engine.commit(&put("b")).unwrap_err().errno, Some(ENOSPC));
        assert_eq!(engine.commit(&put("c")).unwrap_err().errno, Some(ENOSPC));
        assert_eq!(engine.sync().unwrap_err().errno, Some(ENOSPC));
        assert!(engine.get(b"a").unwrap().is_some() && engine.get(b"b").unwrap().is_none());
    }

    #[test]
    fn a_failed_sync_poisons_too() {
        let engine = over_memory(FaultPlan::new());
        engine.fail_next(Call::Sync, Fault::Errno(EIO));
        assert!(engine.sync().is_err() && engine.sync().is_err() && engine.is_poisoned());
        assert_eq!(engine.commit(&put("a")).unwrap_err().errno, Some(EIO));
        assert!(matches!(engine.stats().health, EngineHealth::Failed(_)));
    }

    #[test]
    fn an_unknown_commit_has_happened_or_not_as_ordered() {
        for committed in [false, true] {
            let engine = over_memory(FaultPlan::new().nth(Call::Commit, 1, Fault::Unknown { committed }));
            assert_eq!(engine.commit(&put("a")).unwrap(), Outcome::Unknown);
            assert_eq!(engine.get(b"a").unwrap().is_some(), committed);
            assert!(engine.sync().is_err());
        }
    }

    #[test]
    fn a_failed_read_is_over_at_the_next() {
        let plan =
            FaultPlan::new().nth(Call::Get, 1, Fault::Errno(EIO)).nth(Call::Scan, 1, Fault::Errno(EIO));
        let engine = over_memory(plan);
        assert!(engine.get(b"a").is_err() && engine.get(b"a").is_ok());
        let mut visit = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        assert!(engine.scan(b"a", b"b", &mut visit).is_err());
        assert!(engine.scan(b"a", b"b", &mut visit).is_ok() && !engine.is_poisoned());
    }

    #[test]
    fn chance_follows_its_seed() {
        let faults = |seed| {
            let plan = FaultPlan::new().chance(Call::Get, 100_000, Fault::Errno(EIO)).seed(seed);
            let engine = over_memory(plan);
            (0..1000).map(|_| engine.get(b"a").is_err()).collect::<Vec<_>>()
        };
        let hits = faults(1).iter().filter(|hit| **hit).count();
        assert!((50..200).contains(&hits), "{hits} of 1000");
        assert_eq!(faults(1), faults(1));
        assert_ne!(faults(1), faults(2));
    }
}

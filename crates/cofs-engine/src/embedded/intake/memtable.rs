//! A memtable: the commits of one journal segment, in the order of their keys.
//!
//! Invariants:
//! - a commit is applied under the write lock, whole: no reader sees a part of it;
//! - a key is in the order, or noted as one that is not; who takes it from there puts it into the order before he lets go of that;
//! - while a scan of a state is registered, the versions that it sees are kept; else a key has one version;
//! - once nobody commits to it any more (it is drained), the table is only ever locked shared: a scan waits for no drain.

use std::{
    collections::VecDeque,
    ops::{Bound, Range},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock, RwLockUpgradableReadGuard};
use smallvec::SmallVec;

use super::{
    super::KeyShape,
    entries::{At, Entries, Entry},
    filter::{Filter, KeyHash},
    order::{Order, Unordered},
    pool::Pieces,
    rank::Rank,
    record::Logged,
    values::{Kept, Values},
};
use crate::{Bytes, Change, Key};

pub(super) struct Version {
    /// The commit that made it.
    commit: u64,
    value: Option<Kept>,
    older: Option<Box<Version>>,
}

/// The memory of memtables that are gone, for those to come.
#[derive(Clone, Default)]
pub(super) struct Pool {
    entries: Arc<Pieces<Entry<Version>>>,
    values: Arc<Pieces<u8>>,
}

struct Table {
    versions: Entries<Version>,
    /// After `versions`, which refer to it.
    values: Values,
    /// Of each entry whether its key had no value anywhere before.
    born: Vec<bool>,
    commits: u64,
    /// Estimated; without what stands in `values`.
    entries_bytes: usize,
    /// Changes that removed a key, whether or not it had a value.
    removals: usize,
    replayed: bool,
}

/// What commits and scans tell each other.
struct Aside {
    /// The states (numbers of commits) that scans under way look at. Entered, and counted, with the table held, so that no commit comes
    /// in between.
    scans: Vec<u64>,
    unordered: Unordered,
}

pub(in crate::embedded) struct Memtable {
    /// Asked before the table, without its lock.
    filter: Filter,
    /// Locked before all others.
    order: RwLock<Order>,
    table: RwLock<Table>,
    aside: Mutex<Aside>,
    /// The scans under way, at least: mostly there is none, and then a commit has nobody to ask.
    scanning: AtomicUsize,
    /// All keys in their order, for who walks all when nobody commits any more.
    sorted: OnceLock<Vec<At>>,
}

/// What an entry costs beside its value's bytes: itself, its share of a B-tree node and of a hash table. Estimated.
const ENTRY_OVERHEAD_BYTES: usize = 128;
/// So many keys are put in order with the table held: a commit waits no longer for them.
const KEYS_AT_ONCE: usize = 1 << 10;
/// Entries that are fetched from memory at a time.
const FETCHED_TOGETHER: usize = 16;
/// Of the journal, for each key; small records take as much.
const JOURNAL_BYTES_PER_KEY: u64 = 64;
/// A filter is at least for so small a part of the keys that a segment can hold.
const KEYS_EXPECTED_PART: usize = 8;

/// That a segment of so many bytes can hold.
fn keys_max(segment_bytes: u64) -> usize {
    usize::try_from(segment_bytes / JOURNAL_BYTES_PER_KEY).unwrap_or(usize::MAX)
}

/// That such a segment will hold, it being filled by who has filled another with `before`: one with small files' bytes has few. If there are more, more absent keys pass
/// the filter, and those are looked for.
fn keys_expected(segment_bytes: u64, before: usize) -> usize {
    let most = keys_max(segment_bytes);
    before.saturating_add(before / 4).clamp(most / KEYS_EXPECTED_PART, most)
}

impl Pool {
    /// Gives the memory back.
    pub(super) fn clear(&self) {
        self.entries.clear();
        self.values.clear();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.places().is_empty() && self.values.places().is_empty()
    }
}

impl Table {
    fn new(pool: &Pool) -> Self {
        let versions = Entries::new(Arc::clone(&pool.entries));
        let values = Values::new(Arc::clone(&pool.values));
        let born = Vec::new();
        Self { versions, values, born, commits: 0, entries_bytes: 0, removals: 0, replayed: false }
    }

    /// Of a new key, the number of its entry. `scans`: what those under way look at.
    fn put(&mut self, hash: KeyHash, key: &[u8], value: Option<&Bytes>, scans: &[u64]) -> Option<At> {
        let (rank, commit) = (Rank::of(key), self.commits);
        self.removals += usize::from(value.is_none());
        let value = value.map(|value| self.values.keep(value));
        self.entries_bytes += entry_bytes(value.as_ref());
        let version = Version { commit, value, older: None };
        let Some(newest) = self.versions.get_mut(hash, &rank) else {
            return Some(self.versions.insert(hash, rank, version));
        };
        let seen = newest.commit < commit && scans.iter().any(|&state| state >= newest.commit);
        let mut replaced = std::mem::replace(newest, version);
        if seen {
            newest.older = Some(Box::new(replaced));
        } else if replaced.commit == commit {
            // A later change of the same commit: what it replaces nobody sees, what that kept stays.
            newest.older = replaced.older.take();
        } else {
            let bytes = entry_bytes(replaced.value.as_ref());
            self.entries_bytes = self.entries_bytes.saturating_sub(bytes);
            newest.older = replaced.older.take().filter(|_| !scans.is_empty());
        }
        None
    }

    /// Whether an entry is anything to whoever has what was before. (A removal is not, where there was nothing.)
    fn counts(&self, at: At, newest: &Version) -> bool {
        newest.value.is_some() || !self.born.get(at as usize).is_some_and(|born| *born)
    }
}

fn entry_bytes(value: Option<&Kept>) -> usize {
    ENTRY_OVERHEAD_BYTES + value.map_or(0, Kept::own_bytes)
}

/// One after the other: a key that is changed all the time while others list may have more of them than a stack has room for.
impl Drop for Version {
    fn drop(&mut self) {
        let mut older = self.older.take();
        while let Some(mut version) = older {
            older = version.older.take();
        }
    }
}

impl Version {
    /// The version that a scan of `state` sees.
    fn at(&self, state: u64) -> Option<&Self> {
        let mut version = Some(self);
        while let Some(found) = version.filter(|version| version.commit > state) {
            version = found.older.as_deref();
        }
        version
    }
}

impl Memtable {
    /// An empty one, for what a segment of so many bytes can hold.
    pub(in crate::embedded) fn of_segment(segment_bytes: u64, keys: KeyShape) -> Self {
        Self::with_pool(segment_bytes, keys, &Pool::default())
    }

    /// The same, in memory of the pool.
    pub(super) fn with_pool(segment_bytes: u64, keys: KeyShape, pool: &Pool) -> Self {
        Self::for_keys(keys_max(segment_bytes), keys, pool)
    }

    /// An empty one, for what the segment behind this one's will hold.
    pub(super) fn next(&self, segment_bytes: u64, keys: KeyShape, pool: &Pool) -> Self {
        Self::for_keys(keys_expected(segment_bytes, self.keys()), keys, pool)
    }

    fn for_keys(keys_expected: usize, keys: KeyShape, pool: &Pool) -> Self {
        Self {
            filter: Filter::for_keys(keys_expected),
            order: RwLock::default(),
            table: RwLock::new(Table::new(pool)),
            aside: Mutex::new(Aside { scans: Vec::new(), unordered: Unordered::new(keys) }),
            scanning: AtomicUsize::new(0),
            sorted: OnceLock::new(),
        }
    }

    pub(in crate::embedded) fn apply(&self, changes: &[Change]) {
        let mut table = self.table.write();
        table.commits += 1;
        let scans = self.scans();
        for change in changes {
            match change {
                Change::Put { key, value, new } => self.put(&mut table, key, Some(value), *new, &scans),
                Change::Delete { key } => self.put(&mut table, key, None, false, &scans),
            }
        }
    }

    /// With the table held.
    fn scans(&self) -> SmallVec<[u64; 4]> {
        match self.scanning.load(Ordering::Acquire) {
            0 => SmallVec::new(),
            _ => SmallVec::from_slice(&self.aside.lock().scans),
        }
    }

    /// `new`: whoever commits knows that the key has no value.
    fn put(&self, table: &mut Table, key: &[u8], value: Option<&Bytes>, new: bool, scans: &[u64]) {
        let hash = KeyHash::of(key);
        if let Some(at) = table.put(hash, key, value, scans) {
            table.born.push(new);
            // Nobody can look for it in the table yet, which is held.
            self.filter.add(hash);
            self.aside.lock().unordered.note(key, at);
        }
    }

    /// A commit that the journal told of.
    pub(in crate::embedded) fn replay(&self, changes: Vec<Logged>) {
        let mut table = self.table.write();
        table.commits += 1;
        table.replayed = true;
        for (key, value) in changes {
            self.put(&mut table, &key, value.as_ref(), false, &[]);
        }
    }

    /// Keys that a scan of the range would have to put in order first.
    pub(super) fn unordered(&self, range: &Range<&[u8]>) -> usize {
        self.aside.lock().unordered.len(range)
    }

    /// All that was committed before, and stands in the range, is in the order from here on.
    fn put_in_order(&self, range: &Range<&[u8]>) {
        // Whoever does the same meanwhile is waited for; who only looks is not.
        let order = self.order.upgradable_read();
        let new = self.aside.lock().unordered.take(range);
        if new.is_empty() {
            return;
        }
        let mut pairs = Vec::with_capacity(new.len());
        for some in new.chunks(KEYS_AT_ONCE) {
            let table = self.table.read();
            pairs.extend(some.iter().map(|at| (table.versions.at(*at).0.clone(), *at)));
        }
        pairs.sort_unstable();
        let mut order = RwLockUpgradableReadGuard::upgrade(order);
        if order.is_empty() {
            *order = pairs.into_iter().collect();
        } else {
            order.extend(pairs);
        }
    }

    /// `Some(None)`: deleted here. `hash` is the key's.
    pub(super) fn get(&self, hash: KeyHash, key: &Rank) -> Option<Option<Bytes>> {
        self.see(hash, key, |values, kept| kept.map(|kept| values.lend(kept)))
    }

    /// As [`get`](Self::get), for who has a place for the value: whether there is one, and it has taken that place.
    pub(super) fn get_into(&self, hash: KeyHash, key: &Rank, value: &mut Vec<u8>) -> Option<bool> {
        self.see(hash, key, |values, kept| {
            value.clear();
            value.extend_from_slice(kept.map_or(&[], |kept| values.bytes_of(kept)));
            kept.is_some()
        })
    }

    /// Shows the value where it stands, while the table is held; one that stands apart is returned to be shown afterwards. `None`: nothing is
    /// known here.
    pub(super) fn show(
        &self,
        hash: KeyHash,
        key: &Rank,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Option<Option<Bytes>> {
        self.see(hash, key, |values, kept| match kept {
            Some(Kept::Apart(value)) => Some(Bytes::clone(value)),
            kept => {
                see(kept.map(|kept| values.bytes_of(kept)));
                None
            }
        })
    }

    fn see<T>(&self, hash: KeyHash, key: &Rank, see: impl FnOnce(&Values, Option<&Kept>) -> T) -> Option<T> {
        if !self.filter.may_have(hash) {
            return None;
        }
        let table = self.table.read();
        table.versions.get(hash, key).map(|version| see(&table.values, version.value.as_ref()))
    }

    /// Bytes in memory, estimated.
    pub(in crate::embedded) fn bytes(&self) -> usize {
        let table = self.table.read();
        table.entries_bytes + table.values.bytes()
    }

    /// Keys that it gives a value.
    pub(in crate::embedded) fn keys(&self) -> usize {
        self.table.read().versions.len()
    }

    /// Changes that removed a key.
    pub(in crate::embedded) fn removals(&self) -> usize {
        self.table.read().removals
    }

    /// Whether the journal told of a commit.
    pub(in crate::embedded) fn is_replayed(&self) -> bool {
        self.table.read().replayed
    }

    /// Visits the newest versions in the order of their keys, without those that came and went here, of which nobody else knows. The table is locked
    /// meanwhile: for one that nobody changes any more.
    pub(in crate::embedded) fn visit<E>(
        &self,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = self.table.read();
        let sorted =
            self.sorted.get_or_init(|| table.versions.sorted(|at, version| table.counts(at, version)));
        for together in sorted.chunks(FETCHED_TOGETHER) {
            table.versions.fetch(together);
            for at in together {
                let (key, version) = table.versions.at(*at);
                visit(&key.key(), version.value.as_ref().map(|kept| table.values.bytes_of(kept)))?;
            }
        }
        Ok(())
    }
}

/// Walks a range of one memtable as of the moment when the cursor was made.
pub(super) struct Cursor {
    memtable: Arc<Memtable>,
    state: u64,
    /// Pairs read ahead; so no lock is held while their visitor works.
    ahead: VecDeque<Logged>,
    /// Where reading goes on; `None` at the end.
    from: Option<Bound<Key>>,
    end: Key,
    chunk: usize,
}

impl Cursor {
    const CHUNK_MIN: usize = 8;
    const CHUNK_MAX: usize = 512;
    /// What is read ahead is copied, with the table held: of small files' bytes a few at a time.
    const CHUNK_BYTES: usize = 64 << 10;

    pub(super) fn new(memtable: Arc<Memtable>, start: &[u8], end: &[u8]) -> Self {
        let state = {
            let table = memtable.table.read();
            memtable.scanning.fetch_add(1, Ordering::AcqRel);
            memtable.aside.lock().scans.push(table.commits);
            table.commits
        };
        let from = Some(Bound::Included(Key::from_slice(start)));
        let end = Key::from_slice(end);
        Self { memtable, state, ahead: VecDeque::new(), from, end, chunk: Self::CHUNK_MIN }
    }

    /// Keys that must be put in order before the first pair is there.
    pub(super) fn unordered(&self) -> usize {
        match &self.from {
            Some(Bound::Included(start)) => self.memtable.unordered(&(start.as_slice()..self.end.as_slice())),
            _ => 0,
        }
    }

    /// The next pair, until it is taken with [`Cursor::advance`].
    pub(super) fn peek(&mut self) -> Option<&Logged> {
        if self.ahead.is_empty() {
            self.read_ahead();
        }
        self.ahead.front()
    }

    pub(super) fn advance(&mut self) {
        self.ahead.pop_front();
    }

    fn read_ahead(&mut self) {
        let Some(from) = self.from.take() else { return };
        if let Bound::Included(start) = &from {
            // At the beginning. What is committed later is not this cursor's.
            self.memtable.put_in_order(&(start.as_slice()..self.end.as_slice()));
        }
        let order = self.memtable.order.read();
        let table = self.memtable.table.read();
        let range = (from.map(|key| Rank::of(&key)), Bound::Excluded(Rank::of(&self.end)));
        let mut bytes = 0;
        for (key, at) in order.range(range) {
            let Some(version) = table.versions.at(*at).1.at(self.state) else { continue };
            let value = version.value.as_ref().map(|kept| table.values.lend(kept));
            bytes += value.as_ref().map_or(0, Bytes::len);
            self.ahead.push_back((key.key(), value));
            if self.ahead.len() == self.chunk || bytes >= Self::CHUNK_BYTES {
                self.from = Some(Bound::Excluded(key.key()));
                self.chunk = (self.chunk * 4).min(Self::CHUNK_MAX);
                return;
            }
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let scans = &mut self.memtable.aside.lock().scans;
        if let Some(at) = scans.iter().position(|&state| state == self.state) {
            scans.swap_remove(at);
        }
        self.memtable.scanning.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;

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
    entries::{At, Entries},
    filter::{Filter, KeyHash},
    order::{Order, Unordered},
    rank::Rank,
    record::Logged,
    values::{Kept, Pool, Values},
};
use crate::{Bytes, Change, Key};

struct Version {
    /// The commit that made it.
    commit: u64,
    value: Option<Kept>,
    older: Option<Box<Version>>,
}

struct Table {
    versions: Entries<Version>,
    /// After `versions`, which refer to it.
    values: Values,
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

impl Table {
    fn new(values: Values) -> Self {
        Self { versions: Entries::new(), values, commits: 0, entries_bytes: 0, removals: 0, replayed: false }
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
        Self::with_pool(segment_bytes, keys, Arc::default())
    }

    /// The same; its values stand in memory of the pool.
    pub(super) fn with_pool(segment_bytes: u64, keys: KeyShape, pool: Arc<Pool>) -> Self {
        Self::for_keys(keys_max(segment_bytes), keys, pool)
    }

    /// An empty one, for what the segment behind this one's will hold.
    pub(super) fn next(&self, segment_bytes: u64, keys: KeyShape, pool: Arc<Pool>) -> Self {
        Self::for_keys(keys_expected(segment_bytes, self.keys()), keys, pool)
    }

    fn for_keys(keys_expected: usize, keys: KeyShape, pool: Arc<Pool>) -> Self {
        Self {
            filter: Filter::for_keys(keys_expected),
            order: RwLock::default(),
            table: RwLock::new(Table::new(Values::new(pool))),
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
                Change::Put { key, value } => self.put(&mut table, key, Some(value), &scans),
                Change::Delete { key } => self.put(&mut table, key, None, &scans),
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

    fn put(&self, table: &mut Table, key: &[u8], value: Option<&Bytes>, scans: &[u64]) {
        let hash = KeyHash::of(key);
        if let Some(at) = table.put(hash, key, value, scans) {
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
            self.put(&mut table, &key, value.as_ref(), &[]);
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

    /// Visits the newest versions in the order of their keys. The table is locked meanwhile: for one that
    /// nobody changes any more.
    pub(in crate::embedded) fn visit<E>(
        &self,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = self.table.read();
        let sorted = self.sorted.get_or_init(|| table.versions.sorted());
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
mod tests {
    use super::*;

    #[test]
    fn any_number_of_versions_of_a_key_is_let_go_of() {
        let older = |older, commit| Some(Box::new(Version { commit, value: None, older }));
        drop((0..300_000).fold(None, older));
    }

    #[test]
    fn an_entry_is_as_large_as_a_cache_line() {
        assert_eq!(size_of::<Rank>() + size_of::<Version>(), 64);
    }

    #[test]
    fn as_many_keys_are_expected_as_there_were_and_some_more() {
        let most = keys_max(16 << 20);
        let expected = |before| keys_expected(16 << 20, before);
        assert_eq!(most, 262_144);
        assert_eq!([0, 12_000, 26_000].map(expected), [most / 8; 3]);
        assert_eq!([40_000, 80_000].map(expected), [50_000, 100_000]);
        assert_eq!([most - 1, most, usize::MAX].map(expected), [most; 3]);
        assert_eq!(keys_expected(0, 5), 0);
    }

    fn put(memtable: &Memtable, key: &str, value: &str) {
        memtable.apply(&[Change::put(key, Bytes::copy_from_slice(value.as_bytes()))]);
    }

    fn all(mut cursor: Cursor) -> Vec<(String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut pairs = Vec::new();
        while let Some((key, value)) = cursor.peek() {
            pairs.push((text(key), value.as_ref().map(|value| text(value))));
            cursor.advance();
        }
        pairs
    }

    fn cursor(memtable: &Arc<Memtable>) -> Cursor {
        Cursor::new(Arc::clone(memtable), b"", b"~")
    }

    #[test]
    fn a_cursor_sees_the_state_in_which_it_was_made() {
        let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
        put(&memtable, "a", "1");
        put(&memtable, "b", "1");
        let first = cursor(&memtable);
        put(&memtable, "a", "2");
        memtable.apply(&[Change::delete(b"b"), Change::put(b"b", &b"2"[..])]);
        put(&memtable, "c", "2");
        let second = cursor(&memtable);
        memtable.apply(&[Change::delete(b"a")]);
        put(&memtable, "b", "3");
        let pairs = |of: &[(&str, &str)]| {
            of.iter().map(|(key, value)| (key.to_string(), Some(value.to_string()))).collect::<Vec<_>>()
        };
        assert_eq!(all(first), pairs(&[("a", "1"), ("b", "1")]));
        assert_eq!(all(second), pairs(&[("a", "2"), ("b", "2"), ("c", "2")]));
        put(&memtable, "b", "4");
        let table = memtable.table.read();
        let newest = table.versions.get(KeyHash::of(b"b"), &Rank::of(b"b")).unwrap();
        assert!(newest.older.is_none(), "nobody looks any more");
        let get = |key: &[u8]| memtable.get(KeyHash::of(key), &Rank::of(key));
        assert_eq!((get(b"a"), get(b"z")), (Some(None), None));
    }

    #[test]
    fn a_cursor_waits_for_nobody_who_only_reads() {
        let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
        put(&memtable, "a", "1");
        // As the drain holds it.
        let drained = memtable.table.read();
        let other = Arc::clone(&memtable);
        let pairs = std::thread::spawn(move || all(cursor(&other)));
        let from = std::time::Instant::now();
        while !pairs.is_finished() && from.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        assert!(pairs.is_finished(), "a cursor waits for the drain");
        drop(drained);
        assert_eq!(pairs.join().unwrap().len(), 1);
    }

    /// Several put the same keys in order, while new ones come.
    #[test]
    fn a_scan_misses_nothing_that_was_there_when_it_began() {
        const KEYS: usize = 20_000;
        // In no order, and each once.
        let key = |number: usize| format!("{:05}", number * 7919 % KEYS);
        for _ in 0..20 {
            let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
            let there = AtomicUsize::new(0);
            let scan = || {
                while there.load(Ordering::Acquire) < KEYS {
                    let at_least = there.load(Ordering::Acquire);
                    let found = all(cursor(&memtable));
                    assert!(found.is_sorted_by(|(a, _), (b, _)| a < b));
                    assert!(found.len() >= at_least, "{} of {at_least}", found.len());
                }
            };
            std::thread::scope(|scope| {
                (0..3).for_each(|_| drop(scope.spawn(scan)));
                for number in 0..KEYS {
                    put(&memtable, &key(number), "v");
                    there.store(number + 1, Ordering::Release);
                }
            });
            assert_eq!((all(cursor(&memtable)).len(), memtable.keys()), (KEYS, KEYS));
        }
    }

    #[test]
    fn a_long_range_comes_in_parts() {
        let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
        for number in 0..5000 {
            put(&memtable, &format!("{number:05}"), "v");
        }
        let mut cursor = cursor(&memtable);
        for number in 0..5000 {
            assert_eq!(cursor.peek().unwrap().0.as_slice(), format!("{number:05}").as_bytes());
            cursor.advance();
            memtable.apply(&[Change::delete(format!("{:05}", number + 1))]);
        }
        assert!(cursor.peek().is_none());
    }

    #[test]
    fn large_values_come_a_few_at_a_time() {
        const VALUES: usize = 400;
        let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
        let value = |number: usize| vec![number as u8; 4096];
        for number in 0..VALUES {
            memtable.apply(&[Change::put(format!("{number:05}").as_bytes(), value(number))]);
        }
        let mut cursor = cursor(&memtable);
        for number in 0..VALUES {
            let (key, bytes) = cursor.peek().cloned().unwrap();
            assert_eq!(
                (key.as_slice(), bytes.as_deref()),
                (format!("{number:05}").as_bytes(), Some(&value(number)[..]))
            );
            let ahead: usize =
                cursor.ahead.iter().map(|(_, value)| value.as_ref().map_or(0, Bytes::len)).sum();
            assert!(ahead <= Cursor::CHUNK_BYTES, "{ahead} bytes");
            cursor.advance();
        }
        assert_eq!(cursor.peek(), None);
    }
}

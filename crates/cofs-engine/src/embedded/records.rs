//! The record cache: the values (and the absence) of recently used keys, so that hot point reads cost a
//! hash look-up; and the stripe locks that keep it exact.
//!
//! A key's hash picks its stripe. A commit holds the stripes of the keys that it changes exclusively and
//! of those that it only guards shared, from before its guards are checked until after its records are
//! published. Invariants:
//! - an entry of the cache is the value of its key as of the last commit: a commit removes the entries of
//!   its keys before it writes and puts the new values of those after, under its locks. Values of keys that were not
//!   cached are not put there: most are new, the intake has them at hand, and each would drive out another;
//! - a reader that fetched a value from below inserts it only if its stripe's version is still the one it
//!   noted before it read, and no commit holds the stripe: else a commit may have come in between;
//! - no two gets of one thread see a commit's records new, then old: while it writes none of them is
//!   cached, and below the write is atomic.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use quick_cache::{DefaultHashBuilder, Weighter, sync::Cache};
use smallvec::SmallVec;

use crate::{Batch, Bytes, Change};

/// Enough that two commits at a time seldom meet; a power of two.
const STRIPES: usize = 1024;
/// Larger values (a file's inline data, a long attribute) are left to the block cache, and to the
/// kernel's page cache above.
const RECORD_BYTES_MAX: usize = 1024;
/// What an entry costs beside its bytes: cache slot, hash table, reference count, allocator. Estimated.
const ENTRY_OVERHEAD_BYTES: usize = 160;
/// Commits of more changes than this put nothing into the cache.
const PUBLISHED_MAX: usize = 16;
/// One in so many reads that the intake answers is remembered: what is read often will be, what is read once will not drive
/// out another.
const FILL_ONE_IN: u32 = 8;
/// A typical entry, to size the cache's tables.
const ENTRY_BYTES_TYPICAL: usize = 256;

#[derive(Clone)]
struct EntryWeight;

impl Weighter<Box<[u8]>, Option<Bytes>> for EntryWeight {
    fn weight(&self, key: &Box<[u8]>, value: &Option<Bytes>) -> u64 {
        (key.len() + value.as_ref().map_or(0, Bytes::len) + ENTRY_OVERHEAD_BYTES) as u64
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    lock: RwLock<()>,
    /// Commits published on this stripe.
    version: AtomicU64,
}

/// What a reader noted before it read.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    stripe: usize,
    version: u64,
}

enum Hold<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Exclusive { stripe: &'a Stripe, _guard: RwLockWriteGuard<'a, ()> },
}

/// The stripes of one commit, held until dropped.
pub(super) struct Locked<'a>(SmallVec<[Hold<'a>; 8]>);

/// Keys of a batch that were cached.
pub(super) struct Forgotten<'c>(SmallVec<[&'c [u8]; 4]>);

pub(super) struct Records {
    cache: Cache<Box<[u8]>, Option<Bytes>, EntryWeight>,
    stripes: Box<[Stripe]>,
    hasher: DefaultHashBuilder,
}

impl Records {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        let items = (capacity_bytes / ENTRY_BYTES_TYPICAL).max(STRIPES);
        Self {
            cache: Cache::with_weighter(items, capacity_bytes as u64, EntryWeight),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// `Some(None)`: the key is known to be absent.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.cache.get(key)
    }

    /// To be taken before reading `key` from below.
    pub(super) fn ticket(&self, key: &[u8]) -> Ticket {
        let stripe = self.stripe_index(key);
        Ticket { stripe, version: self.stripes[stripe].version.load(Ordering::Acquire) }
    }

    /// Remembers what was read from below, unless a commit may have come in between.
    pub(super) fn fill(&self, ticket: Ticket, key: &[u8], value: &Option<Bytes>) {
        if value.as_ref().is_some_and(|v| v.len() > RECORD_BYTES_MAX) {
            return;
        }
        let stripe = &self.stripes[ticket.stripe];
        let Some(_shared) = stripe.lock.try_read() else { return };
        if stripe.version.load(Ordering::Acquire) == ticket.version {
            self.cache.insert(key.into(), value.clone());
        }
    }

    /// Holds the stripes of the batch, in ascending order so that commits can't wait for each other in a
    /// circle.
    pub(super) fn lock(&self, batch: &Batch<'_>) -> Locked<'_> {
        let guarded = batch.guards.iter().map(|guard| (self.stripe_index(&guard.key), true));
        let changed = batch.changes.iter().map(|change| (self.stripe_index(change.key()), false));
        let mut wanted: SmallVec<[(usize, bool); 8]> = guarded.chain(changed).collect();
        // Exclusive (false) sorts before shared, so that it is the one that stays.
        wanted.sort_unstable();
        wanted.dedup_by_key(|(index, _)| *index);
        let hold = |(index, shared): &(usize, bool)| {
            let stripe = &self.stripes[*index];
            if *shared {
                Hold::Shared { _guard: stripe.lock.read() }
            } else {
                Hold::Exclusive { stripe, _guard: stripe.lock.write() }
            }
        };
        Locked(wanted.iter().map(hold).collect())
    }

    /// Like [`fill`](Self::fill), for what can be had from the intake again: now and then.
    pub(super) fn fill_if_hot(&self, ticket: Ticket, key: &[u8], value: &Option<Bytes>) {
        thread_local!(static READS: Cell<u32> = const { Cell::new(0) });
        let reads = READS.get().wrapping_add(1);
        READS.set(reads);
        if reads.is_multiple_of(FILL_ONE_IN) {
            self.fill(ticket, key, value);
        }
    }

    /// Before the write: none of the batch's records is cached while it happens. Which had a value there, to be published.
    pub(super) fn forget<'c>(&self, changes: &'c [Change]) -> Forgotten<'c> {
        let had_value = |change: &&Change| {
            let removed = self.cache.remove(change.key());
            removed.is_some_and(|(_, value)| value.is_some())
        };
        let mut forgotten: SmallVec<_> = changes.iter().filter(had_value).map(Change::key).collect();
        if changes.len() > PUBLISHED_MAX {
            forgotten.clear();
        }
        Forgotten(forgotten)
    }

    /// After the write: those of the batch's records that were cached are again, and the readers that read before it are told.
    pub(super) fn publish(&self, locked: Locked<'_>, forgotten: &Forgotten<'_>, changes: &[Change]) {
        for change in changes.iter().filter(|change| forgotten.0.contains(&change.key())) {
            match change {
                Change::Put { key, value } if value.len() > RECORD_BYTES_MAX => {
                    // An earlier change of this batch may have published a small value.
                    self.cache.remove(key.as_slice());
                }
                Change::Put { key, value } => {
                    self.cache.insert(key.as_slice().into(), Some(value.clone()));
                }
                Change::Delete { key } => self.cache.insert(key.as_slice().into(), None),
            }
        }
        for hold in &locked.0 {
            if let Hold::Exclusive { stripe, .. } = hold {
                stripe.version.fetch_add(1, Ordering::Release);
            }
        }
    }

    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        (self.cache.hits(), self.cache.misses())
    }

    pub(super) fn weight_bytes(&self) -> u64 {
        self.cache.weight()
    }

    fn stripe_index(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize & (STRIPES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &[u8]) -> Change {
        Change::put(key, Bytes::copy_from_slice(value))
    }

    fn batch(changes: Vec<Change>) -> Batch<'static> {
        Batch { changes, ..Batch::default() }
    }

    #[test]
    fn a_reader_that_read_before_a_commit_cannot_cache_what_it_read() {
        let records = Records::new(1 << 20);
        let ticket = records.ticket(b"k");
        let commit = batch(vec![put("k", b"new")]);
        records.fill(ticket, b"k", &Some(Bytes::from_static(b"older")));
        let locked = records.lock(&commit);
        let forgotten = records.forget(&commit.changes);
        records.fill(ticket, b"k", &Some(Bytes::from_static(b"old")));
        assert_eq!(records.get(b"k"), None, "not while the commit holds the stripe");
        let during = records.ticket(b"k");
        records.publish(locked, &forgotten, &commit.changes);
        for stale in [ticket, during] {
            records.fill(stale, b"k", &Some(Bytes::from_static(b"old")));
            assert_eq!(records.get(b"k"), Some(Some(Bytes::from_static(b"new"))));
        }
    }

    #[test]
    fn the_last_change_of_a_key_is_the_one_that_is_published() {
        let records = Records::new(1 << 20);
        let big = vec![0; RECORD_BYTES_MAX + 1];
        let commit = batch(vec![put("a", b"1"), put("a", &big), put("b", b"1"), Change::delete("b")]);
        let cached = |key: &[u8]| records.fill(records.ticket(key), key, &Some(Bytes::from_static(b"0")));
        cached(b"a");
        cached(b"b");
        let forgotten = records.forget(&commit.changes);
        records.publish(records.lock(&commit), &forgotten, &commit.changes);
        assert_eq!(records.get(b"a"), None);
        assert_eq!(records.get(b"b"), Some(None));
    }

    #[test]
    fn what_was_not_cached_is_not_after_a_commit_either() {
        let records = Records::new(1 << 20);
        records.fill(records.ticket(b"absent"), b"absent", &None);
        let commit = batch(vec![put("absent", b"1"), put("new", b"1"), put("new", b"2")]);
        let forgotten = records.forget(&commit.changes);
        records.publish(records.lock(&commit), &forgotten, &commit.changes);
        assert_eq!((records.get(b"absent"), records.get(b"new")), (None, None));
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let records = Records::new(1 << 20);
        for i in 0..50_000_u32 {
            let key = i.to_be_bytes();
            records.fill(records.ticket(&key), &key, &Some(Bytes::from_static(&[0; 80])));
        }
        assert!(records.weight_bytes() <= 1 << 20, "{}", records.weight_bytes());
        assert!(records.weight_bytes() > 1 << 19, "{}", records.weight_bytes());
    }
}

//! The record cache: small values, and the absence of values, of keys that were used lately, as they stand below the intake. A hit
//! is a look at three or four cache lines, where RocksDB takes some microseconds.
//!
//! It is a fixed table of buckets, each with places for seven records and a sequence number that is odd while the bucket is
//! changed. Readers take no lock and wait for nobody: what they read while a bucket changes they take for a miss, and below the
//! answer is the same. So a thread of the background may fill the table, wherever the scheduler stops it.
//!
//! Who changes it:
//! - the drain *publishes* what it has moved into RocksDB, before the intake lets go of it: what was made lately is what is
//!   opened, changed and removed next;
//! - readers *fill* in what they had to ask from below.
//!
//! Invariants:
//! - a key has at most one place, of its own bucket, and a bucket has one changer at a time;
//! - a record that is here, and whose key the intake does not have, is the newest. When a layer is published each of its
//!   keys is put or removed here. A reader's fill counts only if no layer has been published since before it asked the intake, which it
//!   is told by the *epoch*: odd while a layer is published. A fill that comes with it for the same bucket either sees the
//!   new epoch, or is before the layer's record there and is overwritten.

use std::{
    cell::Cell,
    hash::Hasher as _,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use rustc_hash::FxHasher;
use zerocopy::FromZeros as _;

use super::{KeyShape, recent::Recent};
use crate::{Bytes, Key};

/// Places of a bucket: with its sequence number their tags are a cache line.
const PLACES: usize = 7;
/// Words of a place: two cache lines.
const PLACE_WORDS: usize = 16;
/// Of a key and its value together: all but the first word of a place.
pub(super) const RECORD_BYTES_MAX: usize = (PLACE_WORDS - 1) * 8;
/// One in so many absent keys is remembered.
const FILL_ONE_IN: u32 = 8;
const TALLIES: usize = 16;
/// Records whose buckets are fetched from memory at a time: the table is larger than the processor's caches, and to wait for each bucket by
/// itself would be a third of the drain's time.
const TOGETHER: usize = 16;

/// Of a tag: somebody has it.
const USED: u64 = 1 << 32;
/// Of a tag: it has been read since it was passed over.
const READ: u64 = 1 << 33;

/// In a place's first word instead of a value's length: there is no value.
const ABSENT: u64 = 0xff;
const LENGTH_BITS: u32 = 8;

#[derive(zerocopy::FromZeros)]
#[repr(align(64))]
struct Bucket {
    /// Odd while the bucket is changed.
    sequence: AtomicU64,
    /// The upper half of the key's hash, and the flags.
    tags: [AtomicU64; PLACES],
    places: [[AtomicU64; PLACE_WORDS]; PLACES],
}

/// Counted apart by bucket, so that threads seldom share a line.
#[derive(Default)]
#[repr(align(64))]
struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a reader notes before it asks the intake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    epoch: u64,
}

pub(super) struct Records {
    buckets: Box<[Bucket]>,
    epoch: AtomicU64,
    tallies: [Tally; TALLIES],
    /// Of what is too large for a place, what was published last.
    recent: Recent,
}

/// A record as a place has it.
struct Packed {
    words: [u64; PLACE_WORDS],
    len: usize,
}

impl Packed {
    /// `None`: too large for a place.
    fn of(key: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        if bytes > RECORD_BYTES_MAX {
            return None;
        }
        let value_len = value.map_or(ABSENT, |value| value.len() as u64);
        let mut words = [0; PLACE_WORDS];
        words[0] = key.len() as u64 | value_len << LENGTH_BITS;
        let mut payload = [0; RECORD_BYTES_MAX];
        payload[..key.len()].copy_from_slice(key);
        payload[key.len()..bytes].copy_from_slice(value.unwrap_or_default());
        for (word, eight) in words[1..].iter_mut().zip(payload.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Some(Self { words, len: 1 + bytes.div_ceil(8) })
    }
}

/// Where a key's record is, if it is here.
#[derive(Clone, Copy)]
struct Spot {
    bucket: usize,
    tag: u64,
}

impl Bucket {
    /// What `see` makes of the value of `key` in a place: `None` if another key has it, or if it is being changed.
    fn read<T>(&self, place: usize, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Option<T> {
        let words = &self.places[place];
        let head = words[0].load(Ordering::Relaxed);
        let (key_len, value_len) = (head & 0xff, head >> LENGTH_BITS);
        let present = value_len != ABSENT;
        let bytes = usize::try_from(key_len + if present { value_len } else { 0 }).ok()?;
        if key_len != key.len() as u64 || bytes > RECORD_BYTES_MAX {
            return None;
        }
        let mut payload = [0; RECORD_BYTES_MAX];
        let eights = payload.as_chunks_mut::<8>().0.iter_mut();
        for (eight, word) in eights.zip(&words[1..]).take(bytes.div_ceil(8)) {
            *eight = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let (found, value) = payload[..bytes].split_at(key.len());
        (found == key).then(|| see(present.then_some(value)))
    }

    fn write(&self, place: usize, packed: &Packed) {
        for (word, value) in self.places[place].iter().zip(&packed.words[..packed.len]) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// The places whose tag is this one.
    fn candidates(&self, tag: u64) -> impl Iterator<Item = usize> {
        (0..PLACES).filter(move |&place| self.tags[place].load(Ordering::Relaxed) & !READ == tag)
    }

    fn try_change(&self) -> Option<Changing<'_>> {
        let before = self.sequence.load(Ordering::Relaxed);
        let even = before & 1 == 0;
        let taken = even
            && self
                .sequence
                .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // What follows must not be seen by a reader who sees the number as it was.
        fence(Ordering::Release);
        taken.then(|| Changing { bucket: self, sequence: before + 1 })
    }

    /// Waits for whoever changes the bucket: for a thread that may.
    fn change(&self) -> Changing<'_> {
        loop {
            match self.try_change() {
                Some(changing) => return changing,
                None => std::thread::yield_now(),
            }
        }
    }
}

/// A bucket that one thread changes, until it is dropped.
struct Changing<'a> {
    bucket: &'a Bucket,
    sequence: u64,
}

impl Changing<'_> {
    fn find(&self, tag: u64, key: &[u8]) -> Option<usize> {
        self.bucket.candidates(tag).find(|&place| self.bucket.read(place, key, |_| ()).is_some())
    }

    /// At `place`, where the key has one.
    fn put(&self, tag: u64, place: Option<usize>, packed: &Packed) {
        let place = place.unwrap_or_else(|| self.victim());
        self.bucket.write(place, packed);
        self.bucket.tags[place].store(tag, Ordering::Relaxed);
    }

    fn remove(&self, place: usize) {
        self.bucket.tags[place].store(0, Ordering::Relaxed);
    }

    /// A place that is free; or the first, from where the last one was taken, that has not been read since it was passed.
    fn victim(&self) -> usize {
        let tags = &self.bucket.tags;
        if let Some(free) = tags.iter().position(|tag| tag.load(Ordering::Relaxed) & USED == 0) {
            return free;
        }
        let from = (self.sequence / 2) as usize;
        let round = (from..from + PLACES).map(|place| place % PLACES);
        for place in round {
            if tags[place].fetch_and(!READ, Ordering::Relaxed) & READ == 0 {
                return place;
            }
        }
        from % PLACES
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.bucket.sequence.store(self.sequence + 1, Ordering::Release);
    }
}

/// A layer's records on their way into the table, until it is dropped.
pub(super) struct Publishing<'a> {
    records: &'a Records,
    /// Up to [`TOGETHER`], in the order in which they came.
    waiting: Vec<Published>,
}

struct Published {
    spot: Spot,
    key: Key,
    there: bool,
    packed: Option<Packed>,
}

impl Publishing<'_> {
    /// RocksDB has this value of `key` now, or none.
    pub(super) fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        if key.len() > RECORD_BYTES_MAX {
            return;
        }
        let (key, there, packed) = (Key::from_slice(key), value.is_some(), Packed::of(key, value));
        let spot = self.records.spot(&key);
        self.waiting.push(Published { spot, key, there, packed });
        if self.waiting.len() == TOGETHER {
            self.put_waiting();
        }
    }

    fn put_waiting(&mut self) {
        let buckets = &self.records.buckets;
        // With nothing between these the processor has them all under way at once.
        let sequence =
            |published: &Published| buckets[published.spot.bucket].sequence.load(Ordering::Relaxed);
        black_box(self.waiting.iter().fold(0, |sum, published| sum ^ sequence(published)));
        for Published { spot: Spot { bucket, tag }, key, there, packed } in self.waiting.drain(..) {
            let bucket = buckets[bucket].change();
            match (packed, bucket.find(tag, &key)) {
                // Whoever removes much is not after what is gone: only what was here stays known.
                (Some(packed), place) if there || place.is_some() => bucket.put(tag, place, &packed),
                (None, Some(place)) => bucket.remove(place),
                _ => {}
            }
        }
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.put_waiting();
        self.records.epoch.fetch_add(1, Ordering::Release);
    }
}

impl Records {
    /// A table of at most so many bytes, and so many for recent values that are too large for it. They take memory when they are used.
    pub(super) fn new(capacity_bytes: usize, recent_bytes: usize, keys: KeyShape) -> Self {
        let buckets = (capacity_bytes / size_of::<Bucket>()).max(1);
        // Where there is no memory for a cache, a small one will do.
        let buckets = <[Bucket]>::new_box_zeroed_with_elems(buckets);
        let buckets = buckets.unwrap_or_else(|_| Box::new([Bucket::new_zeroed()]));
        let recent = Recent::new(recent_bytes, keys);
        Self { buckets, epoch: AtomicU64::new(0), tallies: Default::default(), recent }
    }

    fn spot(&self, key: &[u8]) -> Spot {
        let (hash, bucket) = hashed(key, self.buckets.len());
        Spot { bucket, tag: hash >> 32 | USED }
    }

    /// A layer that is being moved into RocksDB has this value of `key`, or none: what is too large for a place is kept aside. Each key of a
    /// layer is to be told of before the intake lets go of it, in whatever order with [`publish`](Self::publish).
    pub(super) fn remember(&self, key: &[u8], value: Option<&[u8]>) {
        self.recent.put(key, value);
    }

    /// `Some(None)`: the key is known to be absent. To be asked when the intake does not have the key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.see(key, |value| value.map(Bytes::copy_from_slice))
    }

    /// As [`get`](Self::get), for who has a place for the value: whether there is one.
    pub(super) fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Option<bool> {
        self.see(key, |value| {
            into.clear();
            into.extend_from_slice(value.unwrap_or_default());
            value.is_some()
        })
    }

    /// Shows `see` the value of `key`, if it is a [recent one](Recent); `false` if it is not. To be asked when the intake does not have the key.
    pub(super) fn show_recent(&self, key: &[u8], see: impl FnOnce(&[u8])) -> bool {
        let shown = self.recent.show(key, see);
        let tally = &self.tallies[usize::from(key.last().copied().unwrap_or_default()) % TALLIES];
        let count = if shown { &tally.hits } else { &tally.misses };
        count.fetch_add(1, Ordering::Relaxed);
        shown
    }

    /// What `see` made last is true; what before, it may have been shown while it was changed.
    fn see<T>(&self, key: &[u8], mut see: impl FnMut(Option<&[u8]>) -> T) -> Option<T> {
        let Spot { bucket: index, tag } = self.spot(key);
        let bucket = &self.buckets[index];
        let before = bucket.sequence.load(Ordering::Acquire);
        let found =
            bucket.candidates(tag).find_map(|place| Some((place, bucket.read(place, key, &mut see)?)));
        fence(Ordering::Acquire);
        let stood = before & 1 == 0 && bucket.sequence.load(Ordering::Relaxed) == before;
        let tally = &self.tallies[index % TALLIES];
        let Some((place, value)) = found.filter(|_| stood) else {
            tally.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        tally.hits.fetch_add(1, Ordering::Relaxed);
        if bucket.tags[place].load(Ordering::Relaxed) & READ == 0 {
            bucket.tags[place].fetch_or(READ, Ordering::Relaxed);
        }
        Some(value)
    }

    /// To be taken before the intake is asked. None while a layer is published.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let epoch = self.epoch.load(Ordering::Acquire);
        (epoch & 1 == 0).then_some(Ticket { epoch })
    }

    /// Remembers what a reader who had this ticket has found below, unless that may have changed.
    pub(super) fn fill(&self, ticket: Option<Ticket>, key: &[u8], value: Option<&[u8]>) {
        let Some(ticket) = ticket else { return };
        if value.is_none() && !one_in(FILL_ONE_IN) {
            return; // mostly the name of a file that is created next
        }
        let Some(packed) = Packed::of(key, value) else { return };
        let Spot { bucket, tag } = self.spot(key);
        let Some(bucket) = self.buckets[bucket].try_change() else { return };
        if self.epoch.load(Ordering::Acquire) == ticket.epoch {
            bucket.put(tag, bucket.find(tag, key), &packed);
        }
    }

    /// For the one thread that moves layers below, when RocksDB has one of them and the intake too.
    pub(super) fn publish(&self) -> Publishing<'_> {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        Publishing { records: self, waiting: Vec::with_capacity(TOGETHER) }
    }

    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        self.tallies.iter().fold((0, 0), |(hits, misses), tally| {
            (hits + tally.hits.load(Ordering::Relaxed), misses + tally.misses.load(Ordering::Relaxed))
        })
    }

    /// The bytes that it takes at most.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.buckets) + self.recent.bytes()
    }
}

/// A key's hash, and which of so many buckets it is for by the hash's lower half.
pub(super) fn hashed(key: &[u8], buckets: usize) -> (u64, usize) {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    let hash = hasher.finish();
    let bucket = ((hash & u64::from(u32::MAX)) * buckets as u64) >> 32;
    (hash, bucket as usize)
}

/// True for one call of a thread in so many.
fn one_in(many: u32) -> bool {
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls.is_multiple_of(many)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn value(bytes: &'static [u8]) -> Option<Option<Bytes>> {
        Some(Some(Bytes::from_static(bytes)))
    }

    fn with_bytes(capacity_bytes: usize) -> Records {
        Records::new(capacity_bytes, 0, KeyShape::default())
    }

    #[test]
    fn what_was_published_and_what_was_filled_in_is_found() {
        let records = with_bytes(1 << 20);
        assert_eq!(records.get(b"a"), None);
        let mut publishing = records.publish();
        publishing.put(b"a", Some(b"1"));
        publishing.put(b"a", Some(b"2"));
        publishing.put(b"", Some(b""));
        drop(publishing);
        records.fill(records.ticket(), b"b", Some(&[7; RECORD_BYTES_MAX - 1]));
        assert_eq!((records.get(b"a"), records.get(b"")), (value(b"2"), value(b"")));
        assert_eq!(records.get(b"b"), value(&[7; RECORD_BYTES_MAX - 1]));
        assert_eq!(records.hits_and_misses(), (3, 1));
    }

    #[test]
    fn what_is_too_large_is_not_kept_nor_what_it_replaces() {
        let records = with_bytes(1 << 20);
        let large = [7; RECORD_BYTES_MAX];
        records.fill(records.ticket(), b"a", Some(&large));
        assert_eq!(records.get(b"a"), None);
        records.fill(records.ticket(), b"a", Some(b"1"));
        records.publish().put(b"a", Some(&large));
        assert_eq!(records.get(b"a"), None);
        records.fill(records.ticket(), &large, Some(b"1"));
        records.fill(records.ticket(), &[large; 3].concat(), Some(b""));
        assert_eq!((records.get(&large), records.get(&[large; 3].concat())), (None, None));
    }

    #[test]
    fn of_removed_keys_those_are_known_that_were_here() {
        let records = with_bytes(1 << 20);
        records.fill(records.ticket(), b"a", Some(b"1"));
        let mut publishing = records.publish();
        publishing.put(b"a", None);
        publishing.put(b"b", None);
        drop(publishing);
        assert_eq!((records.get(b"a"), records.get(b"b")), (Some(None), None));
    }

    #[test]
    fn absent_keys_are_remembered_now_and_then() {
        let records = with_bytes(1 << 20);
        (0..FILL_ONE_IN).for_each(|_| records.fill(records.ticket(), b"a", None));
        assert_eq!(records.get(b"a"), Some(None));
    }

    #[test]
    fn a_fill_from_before_a_layer_was_published_counts_for_nothing() {
        let records = with_bytes(1 << 20);
        let before = records.ticket();
        let mut publishing = records.publish();
        assert!(records.ticket().is_none(), "not while it is published");
        records.fill(before, b"unrelated", Some(b"old"));
        publishing.put(b"a", Some(b"new"));
        publishing.put_waiting();
        records.fill(before, b"a", Some(b"old"));
        drop(publishing);
        records.fill(before, b"a", Some(b"old"));
        assert_eq!((records.get(b"a"), records.get(b"unrelated")), (value(b"new"), None));
    }

    #[test]
    fn a_bucket_that_is_changed_is_a_miss() {
        let records = with_bytes(0);
        records.fill(records.ticket(), b"a", Some(b"1"));
        let changing = records.buckets[0].try_change().unwrap();
        assert!(records.buckets[0].try_change().is_none(), "one at a time");
        assert_eq!(records.get(b"a"), None);
        records.fill(records.ticket(), b"a", Some(b"2"));
        drop(changing);
        assert_eq!(records.get(b"a"), value(b"1"));
    }

    #[test]
    fn what_is_read_stays_and_what_is_not_makes_room() {
        let records = with_bytes(0);
        let fill = |number: u8| records.fill(records.ticket(), &[number], Some(&[number]));
        for number in 0..100 {
            fill(number);
            assert!(records.get(&[0]).is_some(), "{number}");
        }
        let there = (0..100_u8).filter(|number| records.get(&[*number]).is_some()).count();
        assert_eq!(there, PLACES);
        // All have been read now: one of them goes, not the newcomer.
        fill(200);
        assert!(records.get(&[200]).is_some());
    }

    #[test]
    fn it_stays_within_its_bytes() {
        for capacity_bytes in [size_of::<Bucket>(), 1 << 20, 72 << 20] {
            assert!(with_bytes(capacity_bytes).bytes() <= capacity_bytes);
        }
        assert_eq!(size_of::<Bucket>() % 64, 0);
    }

    /// One publishes ever newer values, as the drain does, whose readers find the newer ones in the intake; others read and fill
    /// in what "RocksDB" had when they looked.
    #[test]
    fn nobody_reads_something_older_whatever_is_filled_in() {
        const KEYS: u64 = 24;
        // Few buckets, so that records drive out each other.
        let records = with_bytes(3 * size_of::<Bucket>());
        let below: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let bytes = |key: u64, number: u64| {
            // Of several words, so that one that is torn is seen.
            let mut bytes = number.to_le_bytes().repeat(4);
            bytes.extend([key as u8; 5]);
            bytes
        };
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (records, below, done) = (&records, &below, &done);
                scope.spawn(move || {
                    let mut key = thread;
                    while !done.load(Ordering::Relaxed) {
                        key = (key + 1) % KEYS;
                        let name = key.to_be_bytes();
                        let ticket = records.ticket();
                        // RocksDB has it before it is published.
                        let at_least = below[key as usize].load(Ordering::Acquire);
                        let published = at_least - at_least % 2;
                        match records.get(&name) {
                            Some(found) => {
                                let found = found.unwrap();
                                let number = u64::from_le_bytes(found[..8].try_into().unwrap());
                                assert_eq!(found[..], bytes(key, number), "torn");
                                assert!(number >= published, "{number} before {published} of {key}");
                            }
                            None if at_least > 0 => {
                                records.fill(ticket, &name, Some(&bytes(key, published)));
                            }
                            None => {}
                        }
                    }
                });
            }
            // Even: published. Odd: on its way, and readers who come now find it in the intake.
            for number in (2..40_000).step_by(2) {
                let keys = [number % KEYS, number * 7 % KEYS];
                let mut publishing = records.publish();
                for key in keys {
                    publishing.put(&key.to_be_bytes(), Some(&bytes(key, number)));
                }
                drop(publishing);
                keys.iter().for_each(|key| below[*key as usize].store(number, Ordering::Release));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

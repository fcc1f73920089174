//! Recent values: those that are too large for the [record cache](super::records) and were moved into RocksDB last, the bytes of small files
//! above all. What was written lately is what is read next, and RocksDB takes some four microseconds to find it, most of it to learn where it is.
//!
//! A ring of memory, and an index of it: buckets of a cache line each. The drain puts values one behind the other, over the oldest ones,
//! and nobody else changes anything. Readers take no lock and wait for nobody: what they read while it is written over they take for a miss, and
//! below the answer is the same.
//!
//! Invariants:
//! - a value that is here, and whose key the intake does not have, is the newest: when a layer is moved into RocksDB, before the intake lets go
//!   of it, each of its keys is put here or removed;
//! - a key has at most one place in the index, of its own bucket; and so has all that cannot be told from it there: whoever comes later has it;
//! - a place of the index leads to the beginning of a value, as long as nothing was written over that.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use zerocopy::FromZeros;

use super::{
    KeyShape,
    records::{RECORD_BYTES_MAX, hashed},
};

/// Places of a bucket: a cache line.
const PLACES: usize = 8;
/// For each place of the index so many words of the ring: if values are smaller, the older ones of them are not found.
const WORDS_PER_PLACE: usize = 64;
/// Of the ring, that a value may have.
const PART_MAX: usize = 64;

/// Of a place: the number of the word with which the value begins, counted since the start, and one more; 0 if it is free. The rest is the key's tag.
const POSITION_BITS: u32 = 48;
const POSITION: u64 = (1 << POSITION_BITS) - 1;
/// Of a value's first word: the length of its key. The rest is its own.
const KEY_LEN_BITS: u32 = 16;

#[derive(zerocopy::FromZeros)]
#[repr(align(64))]
struct Bucket([AtomicU64; PLACES]);

/// Where a key's value may be noted.
#[derive(Clone, Copy)]
struct Spot {
    bucket: usize,
    tag: u64,
}

pub(super) struct Recent {
    ring: Box<[AtomicU64]>,
    index: Box<[Bucket]>,
    /// So many words have been written since the start, or are being written.
    reserved: AtomicU64,
    keys: KeyShape,
    /// The last bytes of families that have had a value here: keys of others, which are most, need not be looked for.
    families: [AtomicU64; 4],
}

/// They take memory when they are used.
fn zeroed<T: FromZeros>(count: usize) -> Box<[T]> {
    // Where there is no memory, there will be none of these.
    <[T]>::new_box_zeroed_with_elems(count).unwrap_or_default()
}

impl Recent {
    /// At most so many bytes.
    pub(super) fn new(capacity_bytes: usize, keys: KeyShape) -> Self {
        let buckets = capacity_bytes / (size_of::<Bucket>() + WORDS_PER_PLACE * PLACES * size_of::<u64>());
        let (ring, index) = (zeroed(buckets * WORDS_PER_PLACE * PLACES), zeroed::<Bucket>(buckets));
        let ring = if index.is_empty() { Box::default() } else { ring };
        Self { ring, index, reserved: AtomicU64::new(0), keys, families: Default::default() }
    }

    /// RocksDB has this value of `key`, or none, or will when the intake lets go of its layer. For the one thread that moves layers below.
    pub(super) fn put(&self, key: &[u8], value: Option<&[u8]>) {
        match value.filter(|value| key.len() + value.len() > RECORD_BYTES_MAX) {
            Some(value) if words_of(key.len(), value.len()) <= self.words_max() => {
                let position = self.write(key, value);
                self.mark(key);
                self.note(self.spot(key), position);
            }
            _ if self.is_marked(key) => self.remove(self.spot(key)),
            _ => {}
        }
    }

    /// Shows `see` the value of `key`; `false` if it is not here. To be asked when the intake does not have the key.
    pub(super) fn show(&self, key: &[u8], see: impl FnOnce(&[u8])) -> bool {
        thread_local!(static COPY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
        let mut copy = COPY.take();
        let len = self.copy(key, &mut copy);
        if let Some(len) = len {
            see(&copy[..len]);
        }
        COPY.set(copy);
        len.is_some()
    }

    /// The bytes that it takes at most.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.index)
    }

    /// Of a value with its key and its first word.
    fn words_max(&self) -> usize {
        self.ring.len() / PART_MAX
    }

    fn spot(&self, key: &[u8]) -> Spot {
        let (hash, bucket) = hashed(key, self.index.len());
        Spot { bucket, tag: hash & !POSITION }
    }

    /// The word and the bit of its family.
    fn family(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let last = self.keys.family(key).last().copied().unwrap_or_default();
        (&self.families[usize::from(last / 64)], 1 << (last % 64))
    }

    fn mark(&self, key: &[u8]) {
        let (word, bit) = self.family(key);
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    fn is_marked(&self, key: &[u8]) -> bool {
        let (word, bit) = self.family(key);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Where it begins.
    fn write(&self, key: &[u8], value: &[u8]) -> u64 {
        let all = self.ring.len() as u64;
        let count = words_of(key.len(), value.len()) as u64;
        let mut begin = self.reserved.load(Ordering::Relaxed);
        if begin % all + count > all {
            // It would not end where the ring does.
            begin += all - begin % all;
        }
        self.reserved.store(begin + count, Ordering::Relaxed);
        // Who sees any of what follows sees that it was going to be written.
        fence(Ordering::Release);
        let from = (begin % all) as usize;
        let (head, words) = (&self.ring[from], &self.ring[from + 1..from + count as usize]);
        head.store(key.len() as u64 | (value.len() as u64) << KEY_LEN_BITS, Ordering::Relaxed);
        let (key_words, words) = words.split_at(key.len().div_ceil(8));
        store(key_words, key);
        store(words, value);
        begin
    }

    fn note(&self, Spot { bucket, tag }: Spot, position: u64) {
        let places = &self.index[bucket].0;
        let known = |place: &&AtomicU64| position_of(place.load(Ordering::Relaxed), tag).is_some();
        // Else the oldest one, or a free one.
        let oldest = || places.iter().min_by_key(|place| place.load(Ordering::Relaxed) & POSITION);
        if let Some(place) = places.iter().find(known).or_else(oldest) {
            place.store(tag | (position + 1), Ordering::Release);
        }
    }

    fn remove(&self, Spot { bucket, tag }: Spot) {
        for place in &self.index[bucket].0 {
            if position_of(place.load(Ordering::Relaxed), tag).is_some() {
                place.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Copies the value of `key`, if it is here; its length.
    fn copy(&self, key: &[u8], copy: &mut Vec<u8>) -> Option<usize> {
        if !self.is_marked(key) {
            return None;
        }
        let Spot { bucket, tag } = self.spot(key);
        let position =
            self.index[bucket].0.iter().find_map(|place| position_of(place.load(Ordering::Acquire), tag))?;
        let from = (position % self.ring.len() as u64) as usize;
        let (head, words) = self.ring[from..].split_first()?;
        let head = head.load(Ordering::Relaxed);
        let (key_len, len) = (head & ((1 << KEY_LEN_BITS) - 1), (head >> KEY_LEN_BITS) as usize);
        // What is being written over may tell any length.
        let count = words_of(key.len(), len);
        if key_len != key.len() as u64 || count > self.words_max() || count > 1 + words.len() {
            return None;
        }
        let (key_words, words) = words.split_at(key.len().div_ceil(8));
        let is_same = |(bytes, word): (&[u8], &AtomicU64)| word.load(Ordering::Relaxed) == word_of(bytes);
        if !key.chunks(8).zip(key_words).all(is_same) {
            return None;
        }
        copy.resize(len.next_multiple_of(8), 0);
        for (eight, word) in copy.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *eight = word.load(Ordering::Relaxed).to_le_bytes();
        }
        // What was read is what was written there, if nothing has been written over it until here.
        fence(Ordering::Acquire);
        let written = self.reserved.load(Ordering::Relaxed) - position;
        (written <= self.ring.len() as u64).then_some(len)
    }
}

/// Where the value begins that a place has `noted`, if it is of this tag.
fn position_of(noted: u64, tag: u64) -> Option<u64> {
    (noted & !POSITION == tag).then_some(noted & POSITION)?.checked_sub(1)
}

/// Of a value with its key and its first word.
fn words_of(key_len: usize, len: usize) -> usize {
    1 + key_len.div_ceil(8) + len.div_ceil(8)
}

/// Up to eight bytes, with zeros behind them.
fn word_of(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(eight)
}

fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (eights, rest) = bytes.as_chunks::<8>();
    for (eight, word) in eights.iter().zip(words) {
        word.store(u64::from_le_bytes(*eight), Ordering::Relaxed);
    }
    if let Some(word) = words.get(eights.len()) {
        word.store(word_of(rest), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// What one value and one bucket for it take, so many times.
    fn recent(buckets: usize) -> Recent {
        Recent::new(buckets * (size_of::<Bucket>() + WORDS_PER_PLACE * PLACES * 8), KeyShape::default())
    }

    fn shown(recent: &Recent, key: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        let there = recent.show(key, |value| found = Some(value.to_vec()));
        assert_eq!(there, found.is_some());
        found
    }

    #[test]
    fn what_was_put_is_shown_whatever_its_length() {
        let recent = recent(64);
        for len in RECORD_BYTES_MAX..RECORD_BYTES_MAX + 40 {
            for key in [&b""[..], b"k", b"12345678", b"123456789abcdef"] {
                let value: Vec<u8> = (0..len).map(|at| (at + key.len()) as u8 + 1).collect();
                recent.put(key, Some(&value));
                let expected = (key.len() + len > RECORD_BYTES_MAX).then_some(value);
                assert_eq!(shown(&recent, key), expected, "{key:?} {len}");
                let other = [key, b"\0"].concat();
                assert_eq!(shown(&recent, &other), None, "{key:?} {len}");
            }
        }
    }

    #[test]
    fn a_later_value_replaces_it_and_one_that_is_not_kept_removes_it() {
        let recent = recent(64);
        let (one, two) = (vec![1; 200], vec![2; 300]);
        let too_large = vec![3; recent.ring.len() * 8 / PART_MAX];
        for gone in [None, Some(&b"small"[..]), Some(&too_large)] {
            recent.put(b"a", Some(&one));
            recent.put(b"a", Some(&two));
            assert_eq!(shown(&recent, b"a"), Some(two.clone()));
            recent.put(b"a", gone);
            assert_eq!(shown(&recent, b"a"), None);
        }
    }

    #[test]
    fn only_keys_of_families_that_have_had_a_value_are_looked_for() {
        let keys = KeyShape { family_bytes: 3, ..KeyShape::default() };
        let recent = Recent::new(1 << 20, keys);
        let of = |family: u8| [0, 0, family, 7];
        assert!(!recent.is_marked(&of(b'B')));
        recent.put(&of(b'B'), Some(&[1; 200]));
        recent.put(&of(b'I'), Some(&[1; 20]));
        recent.put(&of(b'E'), None);
        assert_eq!([b'B', b'I', b'E'].map(|family| recent.is_marked(&of(family))), [true, false, false]);
    }

    #[test]
    fn the_oldest_go_first() {
        let recent = recent(16);
        let value = |number: u32| number.to_le_bytes().repeat(130);
        for number in 0..10_000_u32 {
            recent.put(&number.to_be_bytes(), Some(&value(number)));
            assert_eq!(shown(&recent, &number.to_be_bytes()), Some(value(number)));
        }
        let there = |number: &u32| shown(&recent, &number.to_be_bytes()).is_some_and(|v| v == value(*number));
        let kept: Vec<u32> = (0..10_000).filter(there).collect();
        let room = recent.ring.len() / words_of(4, 520);
        assert!(kept.len() <= room && kept.len() > room / 2, "{} of {room}", kept.len());
        assert!(kept[0] as usize >= 10_000 - room, "{} of {room}", kept[0]);
    }

    #[test]
    fn one_without_room_has_nothing() {
        let recent = Recent::new(1000, KeyShape::default());
        recent.put(b"a", Some(&[1; 200]));
        recent.put(b"a", None);
        assert_eq!((shown(&recent, b"a"), recent.bytes()), (None, 0));
        assert!(Recent::new(1 << 20, KeyShape::default()).bytes() <= 1 << 20);
    }

    /// One publishes ever newer values of a few keys in a ring that few of them fill.
    #[test]
    fn nobody_is_shown_what_is_torn_or_older_than_what_was_published() {
        const KEYS: u64 = 5;
        let recent = recent(10);
        let published: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let (done, seen) = (AtomicBool::new(false), [0, 0, 0].map(AtomicU64::new));
        let value =
            |key: u64, number: u64| (number * KEYS + key).to_le_bytes().repeat(16 + number as usize % 90);
        std::thread::scope(|scope| {
            for (thread, seen) in (0..).zip(&seen) {
                let (recent, published, done) = (&recent, &published, &done);
                scope.spawn(move || {
                    let mut key = thread;
                    while !done.load(Ordering::Relaxed) {
                        key = (key + 1) % KEYS;
                        let at_least = published[key as usize].load(Ordering::Acquire);
                        if let Some(found) = shown(recent, &key.to_be_bytes()) {
                            let number = u64::from_le_bytes(found[..8].try_into().unwrap()) / KEYS;
                            assert_eq!(found, value(key, number), "torn");
                            assert!(number >= at_least, "{number} before {at_least} of {key}");
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let few = || seen.iter().any(|seen| seen.load(Ordering::Relaxed) < 1000);
            for number in (1..).take_while(|&number| number < 60_000 || few()) {
                let key = number * 7 % KEYS;
                recent.put(&key.to_be_bytes(), (number % 11 > 0).then_some(&value(key, number)));
                published[key as usize].store(number, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

//! A memtable's keys and what is known of each, found by the key's hash: a look at two or three cache lines, whatever their number.
//!
//! Entries are never removed, nor moved: one is known by its number. Their order is another matter (`order.rs`).

use std::{hint::black_box, sync::Arc};

use hashbrown::HashTable;

use super::{
    filter::{KeyHash, NEIGHBOURS},
    pool::Pieces,
    rank::Rank,
};

/// So that none is copied when there are more, which a commit would wait for.
const CHUNK_ENTRIES: usize = 256;

/// The number of an entry.
pub(super) type At = u32;

struct Place {
    /// Enough of it to tell most others apart, and to find a new place in a larger table.
    hash: u32,
    at: At,
}

/// A cache line, with what a memtable keeps of a key.
#[repr(align(64))]
pub(super) struct Entry<T> {
    key: Rank,
    value: T,
}

pub(super) struct Entries<T> {
    pool: Arc<Pieces<Entry<T>>>,
    /// In the order in which they came.
    chunks: Vec<Vec<Entry<T>>>,
    len: usize,
    places: HashTable<Place>,
}

/// What the table looks at: the lowest bits say where it begins to search, the seven highest what it searches for.
fn spread(hash: u32) -> u64 {
    let neighbour = u64::from(hash) % u64::from(NEIGHBOURS);
    let neighbourhood = u64::from(hash / u32::from(NEIGHBOURS)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let from = (neighbourhood >> 28) * u64::from(NEIGHBOURS) + neighbour;
    let tag = (neighbourhood >> 57) ^ (neighbour << 3);
    from ^ (tag << 57)
}

impl<T> Entries<T> {
    /// Without room: a table that is as large as its keys need stays in the processor's caches longer than one that may hold all that are to
    /// come, which more than outweighs what growing takes.
    pub(super) fn new(pool: Arc<Pieces<Entry<T>>>) -> Self {
        Self { pool, chunks: Vec::new(), len: 0, places: HashTable::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The key and the value of an entry.
    pub(super) fn at(&self, at: At) -> (&Rank, &T) {
        let Entry { key, value } = entry(&self.chunks, at);
        (key, value)
    }

    /// Has some in the processor's cache. In the order of their keys each stands elsewhere in memory, and whoever does something with one after
    /// the other waits for each; with nothing between them they are under way together.
    pub(super) fn fetch(&self, some: &[At]) {
        black_box(some.iter().fold(0, |sum, at| sum ^ self.at(*at).0.first_word()));
    }

    fn find(&self, hash: u32, key: &Rank) -> Option<At> {
        let is = |place: &Place| place.hash == hash && entry(&self.chunks, place.at).key == *key;
        self.places.find(spread(hash), is).map(|place| place.at)
    }

    /// `hash` is the key's, here and below.
    pub(super) fn get(&self, hash: KeyHash, key: &Rank) -> Option<&T> {
        self.find(hash.short(), key).map(|at| self.at(at).1)
    }

    pub(super) fn get_mut(&mut self, hash: KeyHash, key: &Rank) -> Option<&mut T> {
        let at = self.find(hash.short(), key)? as usize;
        Some(&mut self.chunks[at / CHUNK_ENTRIES][at % CHUNK_ENTRIES].value)
    }

    /// `key` is not there yet.
    pub(super) fn insert(&mut self, hash: KeyHash, key: Rank, value: T) -> At {
        let at = self.len as At; // a journal's segment holds far less than 4 Gi of them
        self.len += 1;
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ENTRIES) {
            self.chunks.push(self.pool.take(CHUNK_ENTRIES));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Entry { key, value });
        }
        let hash = hash.short();
        self.places.insert_unique(spread(hash), Place { hash, at }, |place| spread(place.hash));
        at
    }

    /// The numbers of those that are `wanted`, in the order of their keys.
    pub(super) fn sorted(&self, wanted: impl Fn(At, &T) -> bool) -> Vec<At> {
        let entries = self.chunks.iter().flatten().zip(0..);
        // Beside each other, so that a comparison does not wait for memory.
        let mut all = Vec::with_capacity(self.len);
        all.extend(
            entries
                .filter(|(entry, at)| wanted(*at, &entry.value))
                .map(|(entry, at)| (entry.key.clone(), at)),
        );
        all.sort_unstable();
        all.into_iter().map(|(_, at)| at).collect()
    }
}

impl<T> Drop for Entries<T> {
    fn drop(&mut self) {
        self.pool.give(self.chunks.drain(..));
    }
}

fn entry<T>(chunks: &[Vec<Entry<T>>], at: At) -> &Entry<T> {
    let at = at as usize;
    &chunks[at / CHUNK_ENTRIES][at % CHUNK_ENTRIES] // every number is of an entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_a_map(
            keys in prop::collection::vec(prop::collection::vec(0..3_u8, 0..28), 0..1500),
        ) {
            let mut entries = Entries::new(Arc::default());
            let mut map = BTreeMap::new();
            for (number, key) in keys.iter().enumerate() {
                let (hash, rank) = (KeyHash::of(key), Rank::of(key));
                prop_assert_eq!(entries.get(hash, &rank).copied(), map.get(key).copied());
                match entries.get_mut(hash, &rank) {
                    Some(value) => *value = number,
                    None => {
                        let at = entries.insert(hash, rank.clone(), number);
                        prop_assert_eq!(entries.at(at), (&rank, &number));
                    }
                }
                map.insert(key.clone(), number);
            }
            prop_assert_eq!(entries.len(), map.len());
            let sorted = entries.sorted(|_, _| true).into_iter().map(|at| entries.at(at));
            let sorted: Vec<_> = sorted.map(|(key, value)| (key.key().to_vec(), *value)).collect();
            prop_assert_eq!(sorted, map.into_iter().collect::<Vec<_>>());
        }
    }
}

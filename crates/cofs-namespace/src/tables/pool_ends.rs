//! How far each pool's object numbers were given out: the header's record `o`.
//!
//! A pool knows that by itself, but it may be put back from an older copy, and then it would give numbers out again that the
//! metadata name.
//!
//! Invariants:
//! - no commit names an object from a pool's noted end on: before it comes, a commit of its own notes how far the pool has
//!   reserved numbers. What survives a crash is a prefix of the commits, so whoever is named is below the end that survives;
//! - what a pool has reserved later replaces what it had reserved before. So an end falls only when the pool is closed in order, to the first
//!   number that was not given out.
//!
//! Volumes of older cofs have no such record: nothing is known of their pools.

use std::cmp::Ordering;

use cofs_engine::Change;
use cofs_types::{FsResult, PoolEnd};
use parking_lot::Mutex;

use crate::{
    schema::{HeaderPart, decode_pool_ends, encode_pool_ends, key},
    tx::{Store, verb},
};

pub struct PoolEnds {
    /// As the record has it. Held over the commit.
    noted: Mutex<Vec<PoolEnd>>,
}

impl PoolEnds {
    /// Errors: those of the engine, `Corrupt` for a record that is illegible.
    pub fn open(store: &Store) -> FsResult<Self> {
        let record = store.get(&key::header(HeaderPart::PoolEnds))?;
        let noted = record.map_or(Ok(Vec::new()), |value| decode_pool_ends(&value))?;
        Ok(Self { noted: Mutex::new(noted) })
    }

    pub fn noted(&self) -> Vec<PoolEnd> {
        self.noted.lock().clone()
    }

    /// Commits what is new in `ends`, if anything is.
    pub fn note(&self, store: &Store, ends: &[PoolEnd]) -> FsResult<()> {
        let mut noted = self.noted.lock();
        let mut next = noted.clone();
        ends.iter().for_each(|end| merge(&mut next, *end));
        if next != *noted {
            store.commit_alone(&verb!("note_pool_ends"), vec![record(&next)])?;
            *noted = next;
        }
        Ok(())
    }
}

pub fn record(ends: &[PoolEnd]) -> Change {
    Change::put(key::header(HeaderPart::PoolEnds), encode_pool_ends(ends))
}

/// Takes `end` into `ends`, which ascend by pool.
pub fn merge(ends: &mut Vec<PoolEnd>, end: PoolEnd) {
    match ends.binary_search_by_key(&end.pool, |known| known.pool) {
        Err(at) => ends.insert(at, end),
        Ok(at) => {
            let Some(known) = ends.get_mut(at) else { return };
            match known.generation.cmp(&end.generation) {
                Ordering::Less => *known = end,
                Ordering::Equal => known.end = known.end.max(end.end),
                Ordering::Greater => {}
            }
        }
    }
}

//! Which inodes are open, and what all opens of one share.
//!
//! Invariants:
//! - an inode is in the table from before its open is answered until after its last close is settled. An open
//!   enters it *before* it looks whether the inode still exists, and backs out if not; the last unlink asks
//!   [`OpenInodes::is_open`] inside its commit. So an inode that is open is never deleted under its user;
//! - whoever is later, the unlink that found the inode open or the close that takes it from the table, sees
//!   the other's mark and releases the inode;
//! - there is no global lock and no global counter: everything is sharded by inode number.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use cofs_metadata::OpenInodes;
use cofs_types::{FsError, FsResult, InodeId, limits};
use parking_lot::Mutex;

use crate::open_inode::OpenInode;

const SHARDS: usize = 64;

/// Inode numbers are dense: spreading their bits is hash enough.
#[derive(Default)]
struct InodeHasher(u64);

impl Hasher for InodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing: 2^64 over the golden ratio (Knuth, TAOCP vol. 3, 6.4).
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

struct Slot {
    inode: Arc<OpenInode>,
    /// Opens and operations that hold the inode.
    claims: u32,
    /// It has lost its last name and stands in `U`.
    unlinked: bool,
}

type Shard = HashMap<InodeId, Slot, BuildHasherDefault<InodeHasher>>;

/// What is to be done after a claim was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unclaimed {
    Held,
    Last,
    /// The last one, of an inode without a name: it is to be released.
    LastOfUnlinked,
}

/// The inodes that are open. Made before the metadata driver, which asks it.
pub struct OpenTable {
    shards: Vec<Mutex<Shard>>,
}

impl Default for OpenTable {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl OpenTable {
    fn shard(&self, ino: InodeId) -> &Mutex<Shard> {
        let mut hasher = InodeHasher::default();
        // Neighbours share one, and its cache line: they are often looked for one after the other.
        hasher.write_u64(ino.get() / 16);
        // The top bits choose the shard.
        let index = (hasher.finish() >> (u64::BITS - SHARDS.trailing_zeros())) as usize;
        &self.shards[index % SHARDS]
    }

    /// Enters `ino`, or joins those who have it. To be given back with [`unclaim`](Self::unclaim).
    pub(crate) fn claim(&self, ino: InodeId) -> FsResult<Arc<OpenInode>> {
        let mut shard = self.shard(ino).lock();
        if let Some(slot) = shard.get_mut(&ino) {
            slot.claims = slot.claims.checked_add(1).ok_or(FsError::TooManyOpenFiles)?;
            return Ok(Arc::clone(&slot.inode));
        }
        if shard.len() >= limits::OPEN_FILES_MAX / SHARDS {
            return Err(FsError::TooManyOpenFiles);
        }
        let inode = Arc::new(OpenInode::new(ino));
        shard.insert(ino, Slot { inode: Arc::clone(&inode), claims: 1, unlinked: false });
        Ok(inode)
    }

    pub(crate) fn get(&self, ino: InodeId) -> Option<Arc<OpenInode>> {
        self.shard(ino).lock().get(&ino).map(|slot| Arc::clone(&slot.inode))
    }

    pub(crate) fn unclaim(&self, ino: InodeId) -> Unclaimed {
        let mut shard = self.shard(ino).lock();
        let Some(slot) = shard.get_mut(&ino) else { return Unclaimed::Held };
        slot.claims -= 1;
        if slot.claims > 0 {
            return Unclaimed::Held;
        }
        let unlinked = slot.unlinked;
        shard.remove(&ino);
        if unlinked { Unclaimed::LastOfUnlinked } else { Unclaimed::Last }
    }

    /// Notes that `ino` has no name any more; `false` if it has been closed meanwhile.
    pub(crate) fn mark_unlinked(&self, ino: InodeId) -> bool {
        self.set_unlinked(ino, true)
    }

    /// Notes that `ino` has a name again (linkat(2) of an `O_TMPFILE`).
    pub(crate) fn mark_linked(&self, ino: InodeId) {
        self.set_unlinked(ino, false);
    }

    fn set_unlinked(&self, ino: InodeId, unlinked: bool) -> bool {
        let mut shard = self.shard(ino).lock();
        shard.get_mut(&ino).map(|slot| slot.unlinked = unlinked).is_some()
    }

    pub(crate) fn is_unlinked(&self, ino: InodeId) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|slot| slot.unlinked)
    }

    /// Takes an inode out, whoever claims it: nobody can use it any more.
    pub(crate) fn evict(&self, ino: InodeId) {
        self.shard(ino).lock().remove(&ino);
    }

    /// The inodes in the table now.
    pub(crate) fn all(&self) -> Vec<Arc<OpenInode>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().values().map(|slot| Arc::clone(&slot.inode)).collect::<Vec<_>>())
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl OpenInodes for OpenTable {
    fn is_open(&self, ino: InodeId) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_stays_until_the_last_claim_goes() {
        let table = OpenTable::default();
        let ino = InodeId::new(7).unwrap();
        table.claim(ino).unwrap();
        table.claim(ino).unwrap();
        assert_eq!(table.unclaim(ino), Unclaimed::Held);
        assert!(table.is_open(ino));
        assert!(table.mark_unlinked(ino));
        assert_eq!(table.unclaim(ino), Unclaimed::LastOfUnlinked);
        assert!(!table.is_open(ino));
        assert!(!table.mark_unlinked(ino), "the unlink that comes later must release it itself");
    }

    #[test]
    fn numbers_spread_over_all_shards() {
        let table = OpenTable::default();
        for number in 1..=4096 {
            table.claim(InodeId::new(number).unwrap()).unwrap();
        }
        assert!(table.shards.iter().all(|shard| (16..256).contains(&shard.lock().len())));
    }
}

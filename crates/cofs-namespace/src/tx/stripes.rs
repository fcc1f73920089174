//! The table that isolates transactions: every key belongs to one of a fixed number of stripes.
//!
//! A stripe has a lock and a version. A writer holds the lock exclusively and makes the version odd while it
//! changes what the stripe covers, and the next even number behind. A reader notes the version before it
//! reads and compares it afterwards: equal and even means that nothing it saw was changed in between.

use std::{
    hash::Hasher,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use cofs_types::limits;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHasher;

#[derive(Default)]
struct Stripe {
    lock: RwLock<()>,
    version: AtomicU64,
}

/// Keys that differ in less than this, in their last byte, are neighbours.
const NEIGHBOURS: u8 = 16;

/// The stripe of a key.
pub type StripeIndex = u32;

/// What a reader saw of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    pub stripe: StripeIndex,
    pub version: u64,
}

pub struct Stripes {
    table: Box<[Stripe]>,
}

/// A stripe held by a commit until it is dropped.
pub enum Held<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Exclusive(Changing<'a>),
}

/// A stripe whose records change; at the end its version is the next even one.
pub struct Changing<'a> {
    version: &'a AtomicU64,
    _guard: RwLockWriteGuard<'a, ()>,
}

impl Changing<'_> {
    /// From here on readers wait. Sequentially consistent, so that whoever announces itself (an open file)
    /// and then reads either waits here or has been seen by the commit.
    pub fn begin(&self) {
        self.version.fetch_or(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let version = self.version.load(Ordering::Relaxed);
        if version & 1 == 1 {
            self.version.store(version + 1, Ordering::Release);
        }
    }
}

impl Stripes {
    pub fn new() -> Self {
        Self { table: std::iter::repeat_with(Stripe::default).take(limits::STRIPES).collect() }
    }

    /// Inodes whose numbers are neighbours have neighbouring stripes: they are looked for one after the other, and four stand on a cache line.
    pub fn of(&self, key: &[u8]) -> StripeIndex {
        // Whoever makes keys collide gets fewer stripes for himself, and no wrong answer: so a quick hash will do.
        let (last, rest) = key.split_last().map_or((0, key), |(last, rest)| (*last, rest));
        let mut hasher = FxHasher::default();
        hasher.write(rest);
        hasher.write_u8(last / NEIGHBOURS);
        let first = hasher.finish().wrapping_mul(u64::from(NEIGHBOURS));
        (first.wrapping_add(u64::from(last % NEIGHBOURS)) % self.table.len() as u64) as StripeIndex
    }

    fn at(&self, stripe: StripeIndex) -> &Stripe {
        &self.table[stripe as usize] // every index comes from `of` or from the table's length
    }

    /// The stripe's version, to be noted before a read; waits for a writer to end.
    pub fn note(&self, stripe: StripeIndex) -> Noted {
        let at = self.at(stripe);
        loop {
            let version = at.version.load(Ordering::SeqCst);
            if version & 1 == 0 {
                return Noted { stripe, version };
            }
            drop(at.lock.read());
        }
    }

    /// Whether nothing of what was read since the notes has changed.
    pub fn unchanged(&self, notes: &[Noted]) -> bool {
        fence(Ordering::SeqCst);
        notes.iter().all(|noted| self.at(noted.stripe).version.load(Ordering::SeqCst) == noted.version)
    }

    pub fn share(&self, stripe: StripeIndex) -> Held<'_> {
        Held::Shared { _guard: self.at(stripe).lock.read() }
    }

    pub fn exclude(&self, stripe: StripeIndex) -> Held<'_> {
        let at = self.at(stripe);
        Held::Exclusive(Changing { _guard: at.lock.write(), version: &at.version })
    }

    /// Everything, for a transaction that has lost too often.
    pub fn exclude_all(&self) -> Vec<Held<'_>> {
        (0..self.table.len() as StripeIndex).map(|stripe| self.exclude(stripe)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbours_stand_beside_each_other_and_others_anywhere() {
        let stripes = Stripes::new();
        let of = |number: u64| stripes.of(&[b"\0\0I", &number.to_be_bytes()[..]].concat());
        for number in (0..1 << 20).step_by(16) {
            assert!((1..16).all(|next| of(number + next) == of(number) + next as StripeIndex), "{number}");
        }
        let taken: HashSet<_> = (0..limits::STRIPES as u64).map(of).collect();
        assert!(taken.len() > limits::STRIPES / 2, "{} stripes for as many keys as there are", taken.len());
    }

    #[test]
    fn a_change_shows_in_the_version_and_a_look_does_not() {
        let stripes = Stripes::new();
        let stripe = stripes.of(b"key");
        let noted = stripes.note(stripe);
        drop(stripes.share(stripe));
        drop(stripes.exclude(stripe));
        assert!(stripes.unchanged(&[noted]));
        let held = stripes.exclude(stripe);
        let Held::Exclusive(changing) = &held else { panic!() };
        changing.begin();
        assert!(!stripes.unchanged(&[noted]), "a change under way is a change");
        drop(held);
        assert!(!stripes.unchanged(&[noted]));
        assert_eq!(stripes.note(stripe).version, noted.version + 2);
    }
}

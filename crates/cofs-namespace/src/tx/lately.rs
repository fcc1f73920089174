//! What this thread has read lately.
//!
//! One system call comes as several requests that ask for the same records: `open(O_CREAT)` as LOOKUP, GETATTR of the
//! directory and CREATE, each of which reads the directory's inode, and two of them the entry that is not there. The
//! version of a key's stripe, which a transaction notes before it reads, tells whether the value that an earlier
//! one has read still stands. So the second one costs a comparison, and no look into the engine, whose tables are
//! larger than a CPU's caches.
//!
//! Invariant: whoever changes the value of a key that is read with [`Tx::see`](super::Tx::see) holds its stripe, or removes
//! the inode that the key belongs to, whose number comes never again.

use std::{
    cell::{Cell, RefCell},
    sync::atomic::{AtomicU64, Ordering},
};

use cofs_engine::Key;
use cofs_types::FsResult;

use super::stripes::Noted;

/// Records that a thread remembers; a power of two.
const SLOTS: usize = 256;
/// Larger values are read again, so that a thread keeps at most 256 KiB of them.
const VALUE_BYTES_MAX: usize = 1024;

/// One of the volumes of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreId(u64);

impl StoreId {
    /// One that there has never been.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A record. Its memory is used again for the next one.
#[derive(Default)]
struct Read {
    /// What it is of, and the version of the stripe that it was read at; none where it counts for nothing.
    of: Option<(StoreId, Noted)>,
    key: Key,
    there: bool,
    value: Vec<u8>,
}

impl Read {
    fn stands(&self, of: (StoreId, Noted), key: &[u8]) -> bool {
        self.of == Some(of) && self.key.as_slice() == key
    }

    /// The value; forgotten after that, if it is too large to be kept.
    fn see<T>(&mut self, see: impl FnOnce(Option<&[u8]>) -> T) -> T {
        let seen = see(self.there.then_some(self.value.as_slice()));
        if self.value.len() > VALUE_BYTES_MAX {
            *self = Self::default();
        }
        seen
    }
}

thread_local! {
    static READS: RefCell<Box<[Read]>> = RefCell::new(std::iter::repeat_with(Read::default).take(SLOTS).collect());
    static ONCE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn slot(reads: &mut [Read], noted: Noted) -> &mut Read {
    &mut reads[noted.stripe as usize % SLOTS]
}

/// What `see` makes of the value of `key`: the one that this thread has read, if its stripe's version is still the one that is `noted`
/// now; else what `read`, which tells whether there is one, leaves in the place that it is given. For who is `to_change` the value nothing is kept:
/// it will not stand.
pub fn see<T>(
    store: StoreId,
    noted: Noted,
    key: &[u8],
    to_change: bool,
    read: impl FnOnce(&mut Vec<u8>) -> FsResult<bool>,
    see: impl FnOnce(Option<&[u8]>) -> FsResult<T>,
) -> FsResult<T> {
    let of = (store, noted);
    let found = READS.with_borrow_mut(|reads| {
        let slot = slot(reads, noted);
        if slot.stands(of, key) {
            return Ok(slot.see(see));
        }
        if to_change {
            return Err((see, ONCE.take()));
        }
        slot.of = None;
        Err((see, std::mem::take(&mut slot.value)))
    });
    // Who reads may come here himself: so the place is not held meanwhile.
    let (see, mut value) = match found {
        Ok(seen) => return seen,
        Err(missing) => missing,
    };
    let there = read(&mut value)?;
    if to_change {
        let seen = see(there.then_some(value.as_slice()));
        if value.capacity() <= VALUE_BYTES_MAX {
            ONCE.set(value);
        }
        return seen;
    }
    READS.with_borrow_mut(|reads| {
        let slot = slot(reads, noted);
        slot.key.clear();
        slot.key.extend_from_slice(key);
        (slot.of, slot.there, slot.value) = (Some(of), there, value);
        slot.see(see)
    })
}

#[cfg(test)]
mod tests {
    use cofs_types::FsError;

    use super::*;

    /// What is there now, if `value` is what would be read.
    fn now(store: StoreId, noted: Noted, key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
        read_as(store, noted, key, false, value)
    }

    fn read_as(
        store: StoreId,
        noted: Noted,
        key: &[u8],
        to_change: bool,
        value: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let read = |into: &mut Vec<u8>| {
            into.clear();
            into.extend_from_slice(value.unwrap_or_default());
            Ok(value.is_some())
        };
        see(store, noted, key, to_change, read, |value| Ok(value.map(<[u8]>::to_vec))).unwrap()
    }

    const OLD: Option<&[u8]> = Some(b"old");
    const NEW: Option<&[u8]> = Some(b"new");

    #[test]
    fn a_value_stands_for_its_key_its_volume_and_the_version_that_was_noted() {
        let store = StoreId::new();
        let noted = Noted { stripe: 7, version: 2 };
        let read = |store, noted, key, value| now(store, noted, key, value).map(String::from_utf8);
        let [old, new] = ["old", "new"].map(|text| Some(Ok(text.to_string())));
        assert_eq!(read(store, noted, b"key", OLD), old);
        assert_eq!(read(store, noted, b"key", NEW), old, "not read again");
        for (store, noted, key) in [
            (store, noted, &b"other"[..]),
            (StoreId::new(), noted, b"key"),
            (store, Noted { version: 4, ..noted }, b"key"),
            (store, Noted { stripe: 7 + SLOTS as u32, ..noted }, b"key"),
        ] {
            assert_eq!(read(store, noted, key, NEW), new);
        }
        assert_eq!(read(store, noted, b"key", OLD), old, "the others have taken its place");
        assert_eq!(read(store, noted, b"absent", None), None);
        assert_eq!(read(store, noted, b"absent", NEW), None, "so has the absence of one");
    }

    #[test]
    fn other_threads_have_their_own() {
        let (store, noted) = (StoreId::new(), Noted { stripe: 1, version: 0 });
        assert_eq!(now(store, noted, b"key", None), None);
        let other = std::thread::spawn(move || now(store, noted, b"key", NEW)).join().unwrap();
        assert_eq!(other.as_deref(), NEW);
    }

    #[test]
    fn what_is_large_is_shown_and_not_kept() {
        let (store, noted) = (StoreId::new(), Noted { stripe: 3, version: 0 });
        let large = [0; VALUE_BYTES_MAX + 1];
        assert_eq!(now(store, noted, b"key", Some(&large)).as_deref(), Some(&large[..]));
        assert_eq!(now(store, noted, b"key", NEW).as_deref(), NEW);
    }

    #[test]
    fn what_is_read_to_be_changed_takes_no_place() {
        let store = StoreId::new();
        let noted = Noted { stripe: 9, version: 0 };
        let once = |key: &[u8], value| read_as(store, noted, key, true, value);
        assert_eq!(now(store, noted, b"key", OLD).as_deref(), OLD);
        assert_eq!(once(b"key", NEW).as_deref(), OLD, "what was read before stands");
        assert_eq!(once(b"other", NEW).as_deref(), NEW);
        assert_eq!(once(b"other", None), None, "and is not kept");
        assert_eq!(now(store, noted, b"key", NEW).as_deref(), OLD);
    }

    #[test]
    fn who_reads_may_read_something_else_meanwhile_and_may_fail() {
        let (store, noted) = (StoreId::new(), Noted { stripe: 5, version: 0 });
        let nothing = |_: Option<&[u8]>| Ok(());
        let fails = see(store, noted, b"key", false, |_| Err(FsError::Stale), nothing);
        assert!(fails.is_err());
        let meanwhile = |value: &mut Vec<u8>| {
            assert_eq!(now(store, noted, b"other", OLD).as_deref(), OLD);
            value.extend_from_slice(b"new");
            Ok(true)
        };
        let shown =
            see(store, noted, b"key", false, meanwhile, |value| Ok(value.map(<[u8]>::to_vec))).unwrap();
        assert_eq!(shown.as_deref(), NEW);
        assert_eq!(now(store, noted, b"key", OLD).as_deref(), NEW);
    }
}

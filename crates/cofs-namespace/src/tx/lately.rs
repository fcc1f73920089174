//! What this thread has read lately.
//!
//! One system call comes as several requests that ask for the same records: `open(O_CREAT)` as LOOKUP, GETATTR of the
//! directory and CREATE, each of which reads the directory's inode, and two of them the entry that is not there. The
//! version of a key's stripe, which a transaction notes before it reads, tells whether the value that an earlier
//! one has read still stands. So the second one costs a comparison, and no look into the engine, whose tables are
//! larger than a CPU's caches.
//!
//! Invariant: whoever changes the value of a key that is read with [`Tx::get`](super::Tx::get) holds its stripe, or removes
//! the inode that the key belongs to, whose number comes never again.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use cofs_engine::Key;

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

struct Read {
    store: StoreId,
    noted: Noted,
    key: Key,
    value: Option<Bytes>,
}

thread_local! {
    static READS: RefCell<Box<[Option<Read>]>> = RefCell::new(std::iter::repeat_with(|| None).take(SLOTS).collect());
}

fn slot(noted: Noted) -> usize {
    noted.stripe as usize % SLOTS
}

/// The value of `key`, if this thread has read it and its stripe's version is still the one that is `noted` now.
pub fn get(store: StoreId, noted: Noted, key: &[u8]) -> Option<Option<Bytes>> {
    READS.with_borrow(|reads| {
        let read = reads[slot(noted)].as_ref()?;
        let stands = read.noted == noted && read.store == store && read.key.as_slice() == key;
        stands.then(|| read.value.clone())
    })
}

/// Remembers what was read after `noted` was.
pub fn keep(store: StoreId, noted: Noted, key: &[u8], value: &Option<Bytes>) {
    if value.as_ref().is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
        return;
    }
    let read = Read { store, noted, key: Key::from_slice(key), value: value.clone() };
    READS.with_borrow_mut(|reads| reads[slot(noted)] = Some(read));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_for_its_key_its_volume_and_the_version_that_was_noted() {
        let store = StoreId::new();
        let noted = Noted { stripe: 7, version: 2 };
        let value = Some(Bytes::from_static(b"value"));
        keep(store, noted, b"key", &value);
        assert_eq!(get(store, noted, b"key"), Some(value));
        assert_eq!(get(store, noted, b"other"), None);
        assert_eq!(get(StoreId::new(), noted, b"key"), None);
        assert_eq!(get(store, Noted { version: 4, ..noted }, b"key"), None);
        assert_eq!(get(store, Noted { stripe: 7 + SLOTS as u32, ..noted }, b"key"), None);
        keep(store, Noted { version: 4, ..noted }, b"key", &None);
        assert_eq!(get(store, Noted { version: 4, ..noted }, b"key"), Some(None));
        assert_eq!(get(store, noted, b"key"), None, "the newer one has taken its place");
    }

    #[test]
    fn other_threads_have_their_own() {
        let (store, noted) = (StoreId::new(), Noted { stripe: 1, version: 0 });
        keep(store, noted, b"key", &None);
        assert_eq!(std::thread::spawn(move || get(store, noted, b"key")).join().unwrap(), None);
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let (store, noted) = (StoreId::new(), Noted { stripe: 3, version: 0 });
        keep(store, noted, b"key", &Some(vec![0; VALUE_BYTES_MAX + 1].into()));
        assert_eq!(get(store, noted, b"key"), None);
    }
}

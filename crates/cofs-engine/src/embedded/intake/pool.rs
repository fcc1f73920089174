//! Memory that memtables use one after the other.
//!
//! What a memtable holds goes all at once, when its segment is drained; where small files are written that is 100 MB a second and more. From the
//! allocator it would be memory that no cache of the processor has, and some that the kernel has taken back and clears anew (figures in ADR-0006).

use parking_lot::Mutex;

/// Emptied pieces that wait to be used again.
pub(super) struct Pieces<T>(Mutex<Vec<Vec<T>>>);

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pieces<T> {
    /// An empty one. All are asked for with the same `capacity`.
    pub(super) fn take(&self, capacity: usize) -> Vec<T> {
        let waiting = self.0.lock().pop();
        waiting.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    pub(super) fn give(&self, pieces: impl IntoIterator<Item = Vec<T>>) {
        let mut emptied: Vec<_> = pieces.into_iter().collect();
        // Before it is locked: what stands in them may take a while.
        emptied.iter_mut().for_each(Vec::clear);
        self.0.lock().append(&mut emptied);
    }

    /// Gives the memory back.
    pub(super) fn clear(&self) {
        // Not while it is locked.
        drop(std::mem::take(&mut *self.0.lock()));
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<*const T> {
        self.0.lock().iter().map(|piece| piece.as_ptr()).collect()
    }
}

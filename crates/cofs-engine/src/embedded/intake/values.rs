//! The memory that a memtable's values stand in: one behind the other, in pieces that the memtables after it use again.
//!
//! All of a memtable's values go at once, when its segment is drained; where small files are written that is 100 MB a second and more. From the
//! allocator it would be memory that no cache of the processor has, and some that the kernel has taken back and clears anew (figures in ADR-0006).
//! Values that were replaced stay until then: all of them together are no more than the segment.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;

use crate::Bytes;

const PIECE_BYTES: usize = 1 << 18;
/// Larger values have memory of their own: they would leave too much of a piece unused.
const SHARED_BYTES_MAX: usize = PIECE_BYTES / 8;
/// What is smaller is copied for who asks for it, as cheaply as shared, so that nobody keeps a piece for a few bytes of it.
const LENT_BYTES_MIN: usize = 1 << 10;

/// Pieces that wait to be used again.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<BytesMut>>);

impl Pool {
    /// An empty piece.
    fn take(&self) -> BytesMut {
        let waiting = self.0.lock().pop();
        waiting.unwrap_or_else(|| BytesMut::with_capacity(PIECE_BYTES))
    }

    /// Those in which nobody has a value any more; the others go when the last one does.
    fn give(&self, pieces: impl IntoIterator<Item = BytesMut>) {
        let reusable = pieces.into_iter().filter_map(|mut piece| {
            piece.clear();
            piece.try_reclaim(PIECE_BYTES).then_some(piece)
        });
        self.0.lock().extend(reusable);
    }

    /// Gives the memory back: nothing is written for now.
    pub(super) fn clear(&self) {
        // Not while it is locked.
        drop(std::mem::take(&mut *self.0.lock()));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The values of one memtable; dropped after all that refers to them, it gives its pieces to the pool.
pub(super) struct Values {
    pool: Arc<Pool>,
    /// What is left of each; the last one is being filled.
    pieces: Vec<BytesMut>,
}

impl Values {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, pieces: Vec::new() }
    }

    /// A copy that stands here.
    pub(super) fn keep(&mut self, value: &Bytes) -> Bytes {
        if value.len() > SHARED_BYTES_MAX {
            return value.clone();
        }
        if self.pieces.last().is_none_or(|piece| piece.capacity() < value.len()) {
            self.pieces.push(self.pool.take());
        }
        let last = self.pieces.len() - 1;
        let piece = &mut self.pieces[last];
        piece.extend_from_slice(value);
        piece.split().freeze()
    }

    /// Of all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.len() * PIECE_BYTES
    }

    /// What a value that was kept takes beside the pieces.
    pub(super) fn own_bytes(kept: &Bytes) -> usize {
        if kept.len() > SHARED_BYTES_MAX { kept.len() } else { 0 }
    }

    /// For a reader, who may keep it.
    pub(super) fn lend(value: &Bytes) -> Bytes {
        if value.len() < LENT_BYTES_MIN { Bytes::copy_from_slice(value) } else { value.clone() }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.pool.give(self.pieces.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(len: usize, byte: u8) -> Bytes {
        vec![byte; len].into()
    }

    #[test]
    fn values_stay_as_they_were_kept() {
        let pool = Arc::new(Pool::default());
        for round in 0..3 {
            let mut values = Values::new(Arc::clone(&pool));
            let lens = [0, 1, 100, 4096, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1, 60_000];
            let lens: Vec<_> = lens.iter().cycle().take(100).copied().collect();
            let kept: Vec<_> =
                (0..).zip(&lens).map(|(n, &len)| values.keep(&value(len, n ^ round))).collect();
            for ((n, &len), kept) in (0..).zip(&lens).zip(kept) {
                assert_eq!(kept, value(len, n ^ round));
            }
        }
    }

    #[test]
    fn a_piece_is_used_again_when_nobody_has_a_value_in_it() {
        let pool = Arc::new(Pool::default());
        let fill = || {
            let mut values = Values::new(Arc::clone(&pool));
            let kept: Vec<_> = (0..150).map(|_| values.keep(&value(4096, 7))).collect();
            assert_eq!(values.bytes(), 3 * PIECE_BYTES);
            (kept, values)
        };
        let (kept, mut values) = fill();
        let lent = Values::lend(&kept[0]);
        let copied = Values::lend(&values.keep(&value(10, 9)));
        drop((kept, values));
        let places = || pool.0.lock().iter().map(|piece| piece.as_ptr()).collect::<Vec<_>>();
        let before = places();
        assert_eq!(before.len(), 2, "who has a large value has its piece, who has a small one has a copy");
        drop(fill());
        assert!(before.iter().all(|place| places().contains(place)));
        assert_eq!((lent, copied), (value(4096, 7), value(10, 9)));
        pool.clear();
        assert!(pool.is_empty());
    }
}

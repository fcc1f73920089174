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
const PIECE_SHARE_MAX: usize = PIECE_BYTES / 8;
/// What is smaller is copied for who asks for it, as cheaply as shared, so that nobody keeps a piece for a few bytes of it.
const SHARED_BYTES_MIN: usize = 1 << 10;

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
    /// Full of small ones; the last one is being filled.
    small: Vec<BytesMut>,
    /// What is left of each behind those that are shared; the last one is being filled.
    shared: Vec<BytesMut>,
}

/// Where a value stands.
#[derive(Debug)]
pub(super) enum Kept {
    Small {
        piece: u32,
        at: u32,
        len: u32,
    },
    /// Boxed, as most are small.
    Shared(Box<Bytes>),
}

impl Kept {
    /// What it takes beside the pieces.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            Self::Shared(value) if value.len() > PIECE_SHARE_MAX => value.len(),
            _ => 0,
        }
    }
}

impl Values {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, small: Vec::new(), shared: Vec::new() }
    }

    /// A copy that stands here.
    pub(super) fn keep(&mut self, value: &Bytes) -> Kept {
        if value.len() > PIECE_SHARE_MAX {
            return Kept::Shared(Box::new(value.clone()));
        }
        let small = value.len() < SHARED_BYTES_MIN;
        let pieces = if small { &mut self.small } else { &mut self.shared };
        if pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < value.len()) {
            pieces.push(self.pool.take());
        }
        let last = pieces.len() - 1;
        let piece = &mut pieces[last];
        let at = piece.len();
        piece.extend_from_slice(value);
        if small {
            // All of these are far below 4 Gi.
            Kept::Small { piece: last as u32, at: at as u32, len: value.len() as u32 }
        } else {
            Kept::Shared(Box::new(piece.split().freeze()))
        }
    }

    /// The bytes of one that was kept here.
    pub(super) fn bytes_of<'a>(&'a self, kept: &'a Kept) -> &'a [u8] {
        match kept {
            Kept::Small { piece, at, len } => &self.small[*piece as usize][*at as usize..][..*len as usize],
            Kept::Shared(value) => value,
        }
    }

    /// For a reader, who may keep it.
    pub(super) fn lend(&self, kept: &Kept) -> Bytes {
        match kept {
            Kept::Small { .. } => Bytes::copy_from_slice(self.bytes_of(kept)),
            Kept::Shared(value) => Bytes::clone(value),
        }
    }

    /// Of all pieces.
    pub(super) fn bytes(&self) -> usize {
        (self.small.len() + self.shared.len()) * PIECE_BYTES
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.pool.give(self.small.drain(..).chain(self.shared.drain(..)));
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
            let lens = [0, 1, 100, 4096, PIECE_SHARE_MAX, PIECE_SHARE_MAX + 1, 60_000];
            let lens: Vec<_> = lens.iter().cycle().take(100).copied().collect();
            let kept: Vec<_> =
                (0..).zip(&lens).map(|(n, &len)| values.keep(&value(len, n ^ round))).collect();
            for ((n, &len), kept) in (0..).zip(&lens).zip(kept) {
                assert_eq!(values.bytes_of(&kept), value(len, n ^ round));
                assert_eq!(values.lend(&kept), value(len, n ^ round));
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
        let lent = values.lend(&kept[0]);
        let small = values.keep(&value(10, 9));
        let copied = values.lend(&small);
        drop((kept, values));
        let places = || pool.0.lock().iter().map(|piece| piece.as_ptr()).collect::<Vec<_>>();
        let before = places();
        assert_eq!(before.len(), 3, "who has a large value has its piece, who has a small one has a copy");
        drop(fill());
        assert!(before.iter().all(|place| places().contains(place)));
        assert_eq!((lent, copied), (value(4096, 7), value(10, 9)));
        pool.clear();
        assert!(pool.is_empty());
    }
}

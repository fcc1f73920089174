//! The memory that a memtable's values stand in: one behind the other, in pieces that the memtables after it use again.
//!
//! Values that were replaced stay until then: all of them together are no more than the segment.

use std::sync::Arc;

use super::pool::Pieces;
use crate::Bytes;

const PIECE_BYTES: usize = 1 << 18;
/// Larger values stay in memory of their own, which readers share: they would leave too much of a piece unused.
const PIECE_SHARE_MAX: usize = PIECE_BYTES / 8;

/// The values of one memtable, which gives its pieces to the pool when it goes.
pub(super) struct Values {
    pool: Arc<Pieces<u8>>,
    /// The last one is being filled; none grows.
    pieces: Vec<Vec<u8>>,
}

/// Where a value stands.
#[derive(Debug)]
pub(super) enum Kept {
    Here {
        piece: u32,
        at: u32,
        len: u32,
    },
    /// Boxed, as most are small.
    Apart(Box<Bytes>),
}

impl Kept {
    /// What it takes beside the pieces.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            Self::Here { .. } => 0,
            Self::Apart(value) => value.len(),
        }
    }
}

impl Values {
    pub(super) fn new(pool: Arc<Pieces<u8>>) -> Self {
        Self { pool, pieces: Vec::new() }
    }

    /// A copy that stands here, or a large value itself.
    pub(super) fn keep(&mut self, value: &Bytes) -> Kept {
        if value.len() > PIECE_SHARE_MAX {
            return Kept::Apart(Box::new(value.clone()));
        }
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < value.len()) {
            self.pieces.push(self.pool.take(PIECE_BYTES));
        }
        let last = self.pieces.len() - 1;
        let piece = &mut self.pieces[last];
        let at = piece.len();
        piece.extend_from_slice(value);
        // All of these are far below 4 Gi.
        Kept::Here { piece: last as u32, at: at as u32, len: value.len() as u32 }
    }

    /// The bytes of one that was kept here.
    pub(super) fn bytes_of<'a>(&'a self, kept: &'a Kept) -> &'a [u8] {
        match kept {
            Kept::Here { piece, at, len } => &self.pieces[*piece as usize][*at as usize..][..*len as usize],
            Kept::Apart(value) => value,
        }
    }

    /// For a reader, who may keep it.
    pub(super) fn lend(&self, kept: &Kept) -> Bytes {
        match kept {
            Kept::Here { .. } => Bytes::copy_from_slice(self.bytes_of(kept)),
            Kept::Apart(value) => Bytes::clone(value),
        }
    }

    /// Of all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.len() * PIECE_BYTES
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
        let pool = Arc::new(Pieces::default());
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
    fn pieces_are_used_again_and_what_was_lent_stays() {
        let pool = Arc::new(Pieces::default());
        let fill = |byte| {
            let mut values = Values::new(Arc::clone(&pool));
            let kept: Vec<_> = (0..150).map(|_| values.keep(&value(4096, byte))).collect();
            assert_eq!(values.bytes(), 3 * PIECE_BYTES);
            (kept, values)
        };
        let (kept, mut values) = fill(7);
        let apart = values.keep(&value(PIECE_SHARE_MAX + 1, 9));
        let lent = [values.lend(&kept[0]), values.lend(&apart)];
        drop((kept, values));
        let before = pool.places();
        assert_eq!(before.len(), 3);
        drop(fill(8));
        let after = pool.places();
        assert_eq!(after.len(), 3);
        assert!(before.iter().all(|place| after.contains(place)));
        assert_eq!(lent, [value(4096, 7), value(PIECE_SHARE_MAX + 1, 9)]);
        pool.clear();
        assert!(pool.places().is_empty());
    }
}

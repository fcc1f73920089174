//! What stands in the layers, in the order of keys.

use smallvec::SmallVec;

use super::{SLOTS, memtable::Cursor, record};

/// Cursors over the layers, newest first, as one.
pub(in crate::embedded) struct Overlay {
    pub(super) cursors: SmallVec<[Cursor; SLOTS as usize]>,
}

impl Overlay {
    /// Keys that must be put in order first, and how long that takes nobody has asked for yet.
    pub(in crate::embedded) fn unordered(&self) -> usize {
        self.cursors.iter().map(Cursor::unordered).sum()
    }

    /// The next pair, in the order of keys; `None` for a value that is deleted.
    pub(in crate::embedded) fn peek(&mut self) -> Option<record::Logged> {
        let mut next: Option<&record::Logged> = None;
        for cursor in &mut self.cursors {
            let Some(pair) = cursor.peek() else { continue };
            // Of equal keys the newer layer's, which came first.
            if next.is_none_or(|(key, _)| pair.0 < *key) {
                next = Some(pair);
            }
        }
        next.cloned()
    }

    /// Leaves `key` behind in every layer.
    pub(in crate::embedded) fn advance(&mut self, key: &[u8]) {
        for cursor in &mut self.cursors {
            if cursor.peek().is_some_and(|(at, _)| at.as_slice() == key) {
                cursor.advance();
            }
        }
    }
}

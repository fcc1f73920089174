//! Memory for chunks of inline data on their way into a commit, which copies them: the same is used again and again, so that the processor's
//! cache has it. (An allocator gives what was freed longest ago, one value after the other: by then it is in no cache. Figures in ADR-0006.)

use std::cell::RefCell;

use bytes::Bytes;
use cofs_types::limits::INLINE_CHUNK_BYTES;

use crate::schema::encode_chunk_into;

/// That a thread keeps: as many as a usual inline file has chunks.
const KEPT: usize = 4;
/// Of the value of a full chunk.
const VALUE_BYTES_MAX: usize = INLINE_CHUNK_BYTES + 1;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        // A thread that ends has none any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(memory);
            }
        });
    }
}

/// The value of a chunk of at most `INLINE_CHUNK_BYTES`. Whoever drops it last gets its memory for his next one.
pub fn chunk_value(bytes: &[u8]) -> Bytes {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    let mut value = spare.unwrap_or_else(|| Vec::with_capacity(VALUE_BYTES_MAX));
    value.clear();
    encode_chunk_into(&mut value, bytes);
    Bytes::from_owner(Lent(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::decode_chunk;

    fn is_of(value: &Bytes, bytes: &[u8]) -> bool {
        decode_chunk(value, INLINE_CHUNK_BYTES).unwrap() == bytes
    }

    #[test]
    fn what_a_value_stood_in_is_used_for_the_next_one_and_not_before() {
        let long = vec![7; INLINE_CHUNK_BYTES];
        let one = chunk_value(&long);
        let (place, other) = (one.as_ptr(), chunk_value(b"other"));
        let held = one.clone();
        drop(one);
        assert!(is_of(&chunk_value(b"third"), b"third"));
        assert!(is_of(&held, &long) && is_of(&other, b"other"));
        drop(held);
        let next = chunk_value(b"short");
        assert!(is_of(&next, b"short"));
        assert_eq!(next.as_ptr(), place);
    }

    #[test]
    fn a_thread_keeps_few() {
        let many: Vec<_> = (0..3 * KEPT).map(|n| chunk_value(&[n as u8])).collect();
        assert!((0..).zip(&many).all(|(n, value)| is_of(value, &[n])));
        drop(many);
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
    }
}

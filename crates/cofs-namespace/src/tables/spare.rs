//! Memory for chunks of inline data on their way into a commit, which copies them: the same is used again and again, so that the processor's
//! cache has it. (An allocator gives what was freed longest ago, one value after the other: by then it is in no cache. Figures in ADR-0006.)
//!
//! A chunk's bytes stand at the beginning of a cache line there, as they do in a request. One byte behind that, as their value's format has them, some
//! processors take four times as long and more to copy them: AMD's, where both begin at about the same place of a page.

use std::cell::RefCell;

use bytes::Bytes;
use cofs_types::limits::INLINE_CHUNK_BYTES;

use crate::schema::{CHUNK_HEADER_BYTES, encode_chunk_into};

/// That a thread keeps: as many as a usual inline file has chunks.
const KEPT: usize = 4;
const LINE_BYTES: usize = 64;
/// Of the value of a full chunk, wherever it begins in a line.
const VALUE_BYTES_MAX: usize = LINE_BYTES + CHUNK_HEADER_BYTES + INLINE_CHUNK_BYTES;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

struct Lent {
    memory: Vec<u8>,
    /// Where the value begins.
    start: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
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
    let mut memory = spare.unwrap_or_else(|| Vec::with_capacity(VALUE_BYTES_MAX));
    // So far behind the beginning of a line would a value at the beginning have its bytes.
    let beyond = (memory.as_ptr() as usize + CHUNK_HEADER_BYTES) % LINE_BYTES;
    let start = (LINE_BYTES - beyond) % LINE_BYTES;
    memory.clear();
    memory.resize(start, 0);
    encode_chunk_into(&mut memory, bytes);
    Bytes::from_owner(Lent { memory, start })
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
    fn bytes_begin_with_a_cache_line() {
        let values: Vec<_> = [0, 1, 63, 64, INLINE_CHUNK_BYTES].map(|len| chunk_value(&vec![3; len])).into();
        let begins = |value: &Bytes| value.as_ptr() as usize + CHUNK_HEADER_BYTES;
        assert!(values.iter().all(|value| begins(value) % LINE_BYTES == 0));
        drop(values);
        let last = chunk_value(&[3; INLINE_CHUNK_BYTES]);
        assert!(is_of(&last, &[3; INLINE_CHUNK_BYTES]) && begins(&last) % LINE_BYTES == 0);
    }

    #[test]
    fn a_thread_keeps_few() {
        let many: Vec<_> = (0..3 * KEPT).map(|n| chunk_value(&[n as u8])).collect();
        assert!((0..).zip(&many).all(|(n, value)| is_of(value, &[n])));
        drop(many);
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
    }
}

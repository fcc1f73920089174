//! A key in the form in which a memtable compares it: as numbers, three words at once, where bytes would be a call for each comparison, and
//! there are twenty on the way down a tree.

use crate::Key;

const HEAD_BYTES: usize = 24;

/// Orders as the keys' bytes do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    head: Head,
    tail: Tail,
}

/// The first bytes, behind a short key zeros, big-endian.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Head(u64, u64, u64);

/// Where the heads are equal, a short key is the beginning of the other, and so less.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tail {
    /// There is none: the key's length.
    None(u8),
    /// What is behind the head. Boxed twice, so that the others, nearly all, are small.
    #[allow(clippy::box_collection)]
    Rest(Box<Vec<u8>>),
}

impl Rank {
    pub(super) fn of(key: &[u8]) -> Self {
        let (head, tail) = match key.split_first_chunk::<HEAD_BYTES>() {
            Some((head, rest)) if !rest.is_empty() => (*head, Tail::Rest(Box::new(rest.to_vec()))),
            _ => {
                let mut head = [0; HEAD_BYTES];
                head[..key.len()].copy_from_slice(key);
                (head, Tail::None(key.len() as u8)) // at most HEAD_BYTES
            }
        };
        Self { head: Head::of(head), tail }
    }

    pub(super) fn key(&self) -> Key {
        let head = self.head.bytes();
        match &self.tail {
            Tail::None(len) => Key::from_slice(&head[..usize::from(*len)]),
            Tail::Rest(rest) => {
                let mut key = Key::with_capacity(HEAD_BYTES + rest.len());
                key.extend_from_slice(&head);
                key.extend_from_slice(rest);
                key
            }
        }
    }
}

impl Head {
    fn of(bytes: [u8; HEAD_BYTES]) -> Self {
        let word = |at| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        Self(word(0), word(8), word(16))
    }

    fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip([self.0, self.1, self.2]) {
            *to = word.to_be_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Often equal up to some place, zeros and the head's end among them.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop_oneof![Just(0), Just(1), Just(0xff)];
        prop_oneof![
            prop::collection::vec(bytes, 0..4),
            (0..=HEAD_BYTES + 8, prop::collection::vec(0..2_u8, 0..4)).prop_map(|(len, behind)| {
                let mut key = vec![0; len];
                key.extend(behind);
                key
            }),
            prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #[test]
        fn ranks_are_keys_in_the_order_of_their_bytes(a in key(), b in key()) {
            let (rank_a, rank_b) = (Rank::of(&a), Rank::of(&b));
            prop_assert_eq!(rank_a.key().to_vec(), &a[..]);
            prop_assert_eq!(rank_a.cmp(&rank_b), a.cmp(&b));
            prop_assert_eq!(rank_a == rank_b, a == b);
        }
    }
}

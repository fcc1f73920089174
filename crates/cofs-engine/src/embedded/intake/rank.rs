//! A key in the form in which a memtable compares it: as numbers, three words at once, where bytes would be a call for each comparison, and
//! there are twenty on the way down a tree.

use crate::Key;

/// Keys of the usual length stand whole in three words, and their length with them.
const HEAD_BYTES: usize = 23;
/// In place of a length: more follows.
const LONGER: u8 = u8::MAX;

/// Orders as the keys' bytes do. Half a cache line, as it stands in each entry of a memtable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    head: Head,
    /// What is behind the head. Boxed twice, so that the others, nearly all, are small.
    #[allow(clippy::box_collection)]
    rest: Option<Box<Vec<u8>>>,
}

/// The first bytes, behind a short key zeros, and the length, big-endian: where the bytes are equal, the shorter key is the beginning of the
/// other, and less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Head(u64, u64, u64);

impl Rank {
    pub(super) fn of(key: &[u8]) -> Self {
        let (first, rest) = key.split_at_checked(HEAD_BYTES).unwrap_or((key, &[]));
        // At most HEAD_BYTES, if it is a length.
        let last = if rest.is_empty() { first.len() as u8 } else { LONGER };
        let rest = (!rest.is_empty()).then(|| Box::new(rest.to_vec()));
        Self { head: Head::of(first, last), rest }
    }

    pub(super) fn first_word(&self) -> u64 {
        self.head.0
    }

    pub(super) fn key(&self) -> Key {
        let bytes = self.head.bytes();
        let (first, len) = bytes.split_at(HEAD_BYTES);
        match (&self.rest, len) {
            (Some(rest), _) => {
                let mut key = Key::with_capacity(HEAD_BYTES + rest.len());
                key.extend_from_slice(first);
                key.extend_from_slice(rest);
                key
            }
            (None, len) => Key::from_slice(&first[..len.first().map_or(0, |len| usize::from(*len))]),
        }
    }
}

/// Byte by byte: a call for a copy of so few takes longer.
fn padded(bytes: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    word
}

impl Head {
    /// Of at most HEAD_BYTES.
    fn of(bytes: &[u8], last: u8) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let word = |at: usize| {
            words.get(at).copied().unwrap_or_else(|| if at == words.len() { padded(rest) } else { [0; 8] })
        };
        let [first, second, third] = [0, 1, 2].map(|at| u64::from_be_bytes(word(at)));
        Self(first, second, third | u64::from(last))
    }

    fn bytes(self) -> [u8; HEAD_BYTES + 1] {
        let mut bytes = [0; HEAD_BYTES + 1];
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

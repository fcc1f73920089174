//! Numbers in seven bits to a byte (LEB128), eight bytes at a time: a record has a dozen of them, and byte by byte they were what took
//! longest in reading and writing an inode.

/// In a byte: more follow.
pub const CONTINUES: u8 = 0x80;

const WORD_BYTES: usize = 8;
/// What eight bytes can hold.
const WORD_BITS: u32 = 56;
const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The number at the front of `bytes`, and how many bytes it takes. `None`: none is there, or not in its shortest form.
pub fn first(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = match bytes.first_chunk::<WORD_BYTES>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            // Behind the end stand zeros, which end a number and are never in its shortest form.
            let mut padded = [0; WORD_BYTES];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(padded)
        }
    };
    let ends = !word & !LOW;
    if ends == 0 {
        return first_of_many(bytes);
    }
    let len = ends.trailing_zeros() as usize / 8 + 1;
    let upto_end = ends ^ (ends - 1);
    let number = squeezed(word & upto_end & LOW);
    let shortest = len == 1 || number >> (7 * (len - 1)) != 0;
    (shortest && len <= bytes.len()).then_some((number, len))
}

/// One of nine bytes or ten.
#[cold]
fn first_of_many(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (shift, (at, byte)) in (0..u64::BITS).step_by(7).zip(bytes.iter().enumerate()) {
        let bits = u64::from(byte & !CONTINUES);
        if bits << shift >> shift != bits || (*byte == 0 && shift > 0) {
            return None;
        }
        number |= bits << shift;
        if byte & CONTINUES == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

/// The bytes of `number`, which has at most 56 bits, and how many they are; the others are zero.
fn word(number: u64) -> ([u8; WORD_BYTES], usize) {
    let bits = u64::BITS - (number | 1).leading_zeros();
    let len = bits.div_ceil(7) as usize;
    let all_but_last = (1u64 << (8 * (len - 1))) - 1;
    ((stretched(number) | !LOW & all_but_last).to_le_bytes(), len)
}

/// Appends `number`.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >> WORD_BITS != 0 {
        out.push(number as u8 | CONTINUES);
        number >>= 7;
    }
    let (bytes, len) = word(number);
    let end = out.len() + len;
    // As a whole: eight bytes are one store.
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// The beginning of a record, put together on the stack. `N`: all its bytes at most, and eight.
pub struct Front<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Front<N> {
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    pub fn number(&mut self, number: u64) {
        if number < u64::from(CONTINUES) {
            self.byte(number as u8);
        } else {
            self.long(number);
        }
    }

    fn long(&mut self, mut number: u64) {
        while number >> WORD_BITS != 0 {
            self.byte(number as u8 | CONTINUES);
            number >>= 7;
        }
        let (bytes, len) = word(number);
        self.bytes[self.len..self.len + WORD_BYTES].copy_from_slice(&bytes);
        self.len += len;
    }

    /// Once more what stands from `at` on.
    pub fn again(&mut self, at: usize) {
        self.bytes.copy_within(at..self.len, self.len);
        self.len += self.len - at;
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Seven bits of each byte, next to each other.
const fn squeezed(word: u64) -> u64 {
    let pairs = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// The inverse, of 56 bits.
const fn stretched(number: u64) -> u64 {
    let fours = number & 0x0fff_ffff | (number & 0x00ff_ffff_f000_0000) << 4;
    let pairs = fours & 0x0000_3fff_0000_3fff | (fours & 0x0fff_c000_0fff_c000) << 2;
    pairs & 0x007f_007f_007f_007f | (pairs & 0x3f80_3f80_3f80_3f80) << 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the definition says it, byte by byte.
    fn by_definition(mut number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
        out
    }

    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64u32).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #[test]
        fn a_number_is_written_as_defined_and_read_again(number in number(), behind in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut bytes = vec![7];
            put(&mut bytes, number);
            prop_assert_eq!(&bytes[1..], by_definition(number));
            let mut front = Front::<32>::new();
            front.byte(7);
            front.number(number);
            prop_assert_eq!(front.bytes(), &bytes);
            let len = bytes.len() - 1;
            bytes.extend(behind);
            prop_assert_eq!(first(&bytes[1..]), Some((number, len)));
            prop_assert_eq!(first(&bytes[1..len]), None, "cut off");
        }

        #[test]
        fn of_any_bytes_only_the_shortest_form_is_read(bytes in prop::collection::vec(prop_oneof![Just(0x80), Just(0), Just(1), any::<u8>()], 0..14)) {
            match first(&bytes) {
                Some((number, len)) => prop_assert_eq!(by_definition(number), &bytes[..len]),
                None => {
                    // Then there is no number whose bytes these begin with.
                    let len = bytes.iter().position(|byte| byte & CONTINUES == 0).map(|last| last + 1);
                    if let Some(len) = len.filter(|len| *len <= 9) {
                        prop_assert!(len > 1 && bytes[len - 1] == 0, "{:?} is not in its shortest form", bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn the_edges_of_each_length_are_what_they_are() {
        for bits in 0..64 {
            for number in [1 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                assert_eq!((&bytes, first(&bytes)), (&by_definition(number), Some((number, bytes.len()))));
            }
        }
        for wrong in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(first(wrong), None, "{wrong:?}");
        }
    }
}

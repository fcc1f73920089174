//! Where an object stands in its pool, and back from names to numbers.
//!
//! `objects/<sequence >> 18>/<bits 9..18>/<bits 0..9>`, all in hexadecimal: the first without leading
//! zeros, the others with three digits. So at most 512 objects share a directory and at most 512 of those
//! a parent, and consecutive objects are neighbours. Only canonical names are read back: what the driver
//! would not write is foreign.

use cofs_types::limits::OBJECTS_PER_DIRECTORY;

/// The directory of everything that the driver creates ahead of need and hands out.
pub const OBJECTS: &str = "objects";
/// The sidecar log of owners in an object directory, where there are no extended attributes.
pub const OWNERS: &str = "owners";

const BITS: u32 = OBJECTS_PER_DIRECTORY.trailing_zeros();
const MASK: u64 = OBJECTS_PER_DIRECTORY - 1;
/// What is left of a 48-bit sequence above its lower two parts.
const TOP_MAX: u64 = (1 << (48 - 2 * BITS)) - 1;

/// The number of an object directory: the object's sequence without its lowest nine bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DirectoryNumber(u64);

impl DirectoryNumber {
    pub const fn of(sequence: u64) -> Self {
        Self(sequence >> BITS)
    }

    pub const fn from_parts(top: u64, middle: u64) -> Self {
        Self(top << BITS | middle)
    }

    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The sequence of its object `index`.
    pub const fn sequence(self, index: u64) -> u64 {
        self.0 << BITS | index
    }

    pub const fn top(self) -> u64 {
        self.0 >> BITS
    }

    pub fn parent_path(self) -> String {
        top_path(self.top())
    }

    pub fn path(self) -> String {
        format!("{OBJECTS}/{:x}/{:03x}", self.top(), self.0 & MASK)
    }

    pub fn owners_path(self) -> String {
        format!("{}/{OWNERS}", self.path())
    }
}

/// The place of an object among those of its directory.
pub const fn index(sequence: u64) -> u64 {
    sequence & MASK
}

/// An object's name in its directory.
pub fn name_of(sequence: u64) -> String {
    format!("{:03x}", index(sequence))
}

/// An object's path below the pool's directory.
pub fn of_object(sequence: u64) -> String {
    format!("{}/{:03x}", DirectoryNumber::of(sequence).path(), index(sequence))
}

pub fn top_path(top: u64) -> String {
    format!("{OBJECTS}/{top:x}")
}

/// Reads the name of a directory in `objects`.
pub fn parse_top(name: &[u8]) -> Option<u64> {
    let canonical = matches!(name, [b'0']) || name.first().is_some_and(|&first| first != b'0');
    parse_hex(name).filter(|&top| canonical && top <= TOP_MAX)
}

/// Reads the name of an object, or of an object directory in its parent.
pub fn parse_index(name: &[u8]) -> Option<u64> {
    parse_hex(name).filter(|&index| name.len() == 3 && index <= MASK)
}

fn parse_hex(name: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if name.is_empty() || !name.iter().all(digit) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(name).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_three_parts() {
        assert_eq!(of_object(1), "objects/0/000/001");
        assert_eq!(of_object(0x12_3456_789a), "objects/48d15/13c/09a");
        assert_eq!(DirectoryNumber::of(512).path(), "objects/0/001");
    }

    #[test]
    fn only_canonical_names_are_read() {
        for name in ["", "00", "01", "A", "g", "4000000000", "+1"] {
            assert_eq!(parse_top(name.as_bytes()), None, "{name}");
        }
        for name in ["", "0", "0000", "200", "fff", "owners", "1FF", ".00"] {
            assert_eq!(parse_index(name.as_bytes()), None, "{name}");
        }
        assert_eq!(parse_top(b"0"), Some(0));
        assert_eq!(parse_index(b"1ff"), Some(511));
    }

    proptest! {
        #[test]
        fn a_path_leads_back_to_its_object(sequence in 0u64..1 << 48) {
            let path = of_object(sequence);
            let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            let directory =
                DirectoryNumber::from_parts(parse_top(parts[1]).unwrap(), parse_index(parts[2]).unwrap());
            prop_assert_eq!(directory.sequence(parse_index(parts[3]).unwrap()), sequence);
        }
    }
}

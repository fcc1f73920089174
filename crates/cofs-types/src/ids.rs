//! Numbers that name things, for ever: none of them is used twice in the life of a volume.

use std::fmt;

/// Bits of an id below the partition (inodes) or pool (objects) that it was born in.
const SEQUENCE_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// A range of the name space with one owner at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PartitionId(pub u16);

/// A pool of a volume: its position in the volume's configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PoolId(pub u16);

/// How far the numbers of a pool's objects may have been given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolEnd {
    pub pool: PoolId,
    /// No object from this sequence number on was ever handed out.
    pub end: u64,
    /// Of the pool's reservations that say so: it rises with each that is written. 0 if it is not known.
    pub generation: u64,
}

/// An inode's number: `partition << 48 | sequence`. It is the FUSE node id, `st_ino` and the body of
/// file handles; never 0, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId(u64);

impl InodeId {
    /// The root directory (the number that FUSE prescribes).
    pub const ROOT: InodeId = InodeId(1);

    /// `None` for 0, which names nothing.
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// The number of `sequence` in `partition`; `None` when the sequence is 0 or does not fit 48 bits.
    pub const fn from_parts(partition: PartitionId, sequence: u64) -> Option<Self> {
        if sequence == 0 || sequence > SEQUENCE_MASK {
            return None;
        }
        Some(Self((partition.0 as u64) << SEQUENCE_BITS | sequence))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The partition in which the inode was born.
    pub const fn partition(self) -> PartitionId {
        PartitionId((self.0 >> SEQUENCE_BITS) as u16)
    }

    pub const fn sequence(self) -> u64 {
        self.0 & SEQUENCE_MASK
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object's number: `pool << 48 | sequence`. Consecutive sequences share a directory below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(u64);

impl ObjectId {
    /// `None` when the sequence does not fit 48 bits.
    pub const fn from_parts(pool: PoolId, sequence: u64) -> Option<Self> {
        if sequence > SEQUENCE_MASK {
            return None;
        }
        Some(Self((pool.0 as u64) << SEQUENCE_BITS | sequence))
    }

    /// Every 64-bit value is a possible object number; whether its pool exists is the driver's to say.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub const fn pool(self) -> PoolId {
        PoolId((self.0 >> SEQUENCE_BITS) as u16)
    }

    pub const fn sequence(self) -> u64 {
        self.0 & SEQUENCE_MASK
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}", self.pool().0, self.sequence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_names_its_partition() {
        let ino = InodeId::from_parts(PartitionId(7), 42).unwrap();
        assert_eq!((ino.partition(), ino.sequence()), (PartitionId(7), 42));
        assert_eq!(InodeId::ROOT.partition(), PartitionId(0));
    }

    #[test]
    fn numbers_that_name_nothing_are_refused() {
        assert_eq!(InodeId::new(0), None);
        assert_eq!(InodeId::from_parts(PartitionId(0), 0), None);
        assert_eq!(InodeId::from_parts(PartitionId(0), 1 << 48), None);
        assert_eq!(ObjectId::from_parts(PoolId(0), 1 << 48), None);
    }
}

//! Which object numbers a pool may have used: the file `reservations`.
//!
//! Numbers are reserved in blocks, durably, *before* the first of a block is used; so no number is used
//! twice whatever happens, and after a crash only the last window has to be looked at. The file has two
//! slots, written in turn: a write that is torn leaves the other slot as it was.
//!
//! A slot's 64 bytes, little-endian: magic `cofsrsv\x01`, generation, first number to look at after a
//! crash, end (the first number that was never reserved), id of the writing run (16 bytes), 1 if
//! the pool was closed cleanly, SipHash-1-3 (key 0) of the 56 bytes before.

use std::{fs::File, hash::Hasher, io, os::unix::fs::FileExt};

use cofs_types::{PoolEnd, failpoint};
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use crate::store::{At, BackingStore, OpenMode, Operation, open_regular};

pub const FILE: &str = "reservations";

const MAGIC: [u8; 8] = *b"cofsrsv\x01";
const SLOT_BYTES: usize = 64;
/// Slots lie in blocks of their own, so that a torn write touches one of them.
const SLOT_STRIDE_BYTES: u64 = 4096;
/// Object numbers begin here: 0 is left for those who need a number that names nothing.
const FIRST: u64 = 1;

/// One slot's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// Objects from here to `end` may have been created and not handed out.
    pub look_from: u64,
    /// The first number that was never reserved.
    pub end: u64,
    /// The [run](crate::boot::run_id) in which it was written: what ends that, unlike a crash of the process, may lose tags.
    pub run: Uuid,
    pub clean: bool,
}

impl Reservation {
    /// What is to stand in the place of a pool's reservations that are older than the metadata. Nothing in their window can be told from
    /// what the metadata name, so there is none, and numbers go on above both ends.
    fn raised(self, noted: PoolEnd) -> Self {
        let end = self.end.max(noted.end);
        Self { look_from: end, end, clean: true, ..self }
    }
}

/// The file, open, and the newest slot in it.
pub struct ReservationFile {
    file: File,
    generation: u64,
    current: Reservation,
}

impl ReservationFile {
    /// Makes the file of a new pool, durable but for its name.
    pub fn create(store: &dyn BackingStore, run: Uuid) -> io::Result<()> {
        let file = store.open(At::root(FILE), OpenMode::CreateNew)?;
        let current = Reservation { look_from: FIRST, end: FIRST, run, clean: true };
        Self { file, generation: 0, current }.write(store, current)
    }

    /// Reads the newest slot; `InvalidData` if neither is legible.
    pub fn open(store: &dyn BackingStore) -> io::Result<Self> {
        Self::open_as(store, OpenMode::ReadWrite)
    }

    /// What the newest slot says, of a pool that may not be writable. Errors: as of [`open`](Self::open).
    pub fn look(store: &dyn BackingStore) -> io::Result<Reservation> {
        Self::open_as(store, OpenMode::Look).map(|found| found.current)
    }

    fn open_as(store: &dyn BackingStore, mode: OpenMode) -> io::Result<Self> {
        let file = open_regular(store, At::root(FILE), mode)?;
        let mut newest: Option<(u64, Reservation)> = None;
        for slot in 0..2 {
            let mut bytes = [0; SLOT_BYTES];
            store.admit(Operation::Read)?;
            match file.read_exact_at(&mut bytes, slot * SLOT_STRIDE_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                other => other?,
            }
            newest = newest.max_by_generation(decode(&bytes));
        }
        let (generation, current) = newest.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the pool's reservations are illegible")
        })?;
        Ok(Self { file, generation, current })
    }

    pub fn current(&self) -> Reservation {
        self.current
    }

    /// Rises with each that is written.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the pool is older than the metadata, which have noted this: it was put back from an older copy, or one without objects
    /// stands in its place.
    pub fn is_older(&self, noted: PoolEnd) -> bool {
        match noted.generation {
            0 => self.current.end < noted.end,
            generation => self.generation < generation,
        }
    }

    /// Brings them up to that.
    pub fn raise(&mut self, store: &dyn BackingStore, noted: PoolEnd) -> io::Result<()> {
        self.go_on_after(noted.generation);
        self.write(store, self.current.raised(noted))
    }

    /// What is written next will be younger than `generation`.
    pub fn go_on_after(&mut self, generation: u64) {
        // The slot that counts is left alone.
        self.generation += generation.saturating_sub(self.generation).next_multiple_of(2);
    }

    /// Makes `next` durable. When this returns, its numbers may be used.
    pub fn write(&mut self, store: &dyn BackingStore, next: Reservation) -> io::Result<()> {
        let generation = self.generation + 1;
        failpoint("placement.reserve.before");
        store.admit(Operation::Write)?;
        self.file.write_all_at(&encode(generation, &next), generation % 2 * SLOT_STRIDE_BYTES)?;
        failpoint("placement.reserve.written");
        store.admit(Operation::Sync)?;
        self.file.sync_data()?;
        failpoint("placement.reserve.synced");
        self.generation = generation;
        self.current = next;
        Ok(())
    }
}

trait Newest {
    fn max_by_generation(self, other: Self) -> Self;
}

impl Newest for Option<(u64, Reservation)> {
    fn max_by_generation(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(two)) => Some(if one.0 > two.0 { one } else { two }),
            (one, two) => one.or(two),
        }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

fn encode(generation: u64, reservation: &Reservation) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    bytes[16..24].copy_from_slice(&reservation.look_from.to_le_bytes());
    bytes[24..32].copy_from_slice(&reservation.end.to_le_bytes());
    bytes[32..48].copy_from_slice(reservation.run.as_bytes());
    bytes[48..56].copy_from_slice(&u64::from(reservation.clean).to_le_bytes());
    let sum = checksum(&bytes[..56]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<(u64, Reservation)> {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    if bytes[..8] != MAGIC || word(56)? != checksum(&bytes[..56]) {
        return None;
    }
    let (look_from, end) = (word(16)?, word(24)?);
    let run = Uuid::from_slice(bytes.get(32..48)?).ok()?;
    let clean = match word(48)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    (look_from <= end && end < 1 << 48).then_some((word(8)?, Reservation { look_from, end, run, clean }))
}

#[cfg(test)]
mod tests {
    use cofs_types::PoolId;
    use proptest::prelude::*;

    use super::*;
    use crate::DirectoryStore;

    fn store(directory: &std::path::Path) -> DirectoryStore {
        let store = DirectoryStore::new(directory);
        store.attach(&mut |_| Ok(())).unwrap();
        store
    }

    fn reservation(end: u64) -> Reservation {
        Reservation { look_from: end / 2, end, run: Uuid::from_u128(9), clean: false }
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        ReservationFile::create(&store, Uuid::nil()).unwrap();
        let mut file = ReservationFile::open(&store).unwrap();
        for end in [4097, 8193] {
            file.write(&store, reservation(end)).unwrap();
        }
        // Generation 3, the newest, lies in slot 1.
        assert_eq!(ReservationFile::open(&store).unwrap().current(), reservation(8193));
        let raw = std::fs::OpenOptions::new().write(true).open(directory.path().join(FILE)).unwrap();
        raw.write_all_at(&[0xff; 20], 4096 + 20).unwrap();
        assert_eq!(ReservationFile::open(&store).unwrap().current(), reservation(4097));
        raw.write_all_at(&[0xff; 20], 20).unwrap();
        assert_eq!(ReservationFile::open(&store).err().unwrap().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn numbers_go_on_above_those_that_the_metadata_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let noted = |end, generation| PoolEnd { pool: PoolId(0), end, generation };
        ReservationFile::create(&store, Uuid::nil()).unwrap();
        for generation in 0..5 {
            let again = || ReservationFile::open(&store).unwrap();
            let (found, end) = (again().generation(), again().current().end);
            // As new, or newer, whatever the ends: it may have been closed since.
            assert!((1..=found).all(|noted_at| !again().is_older(noted(end + 50, noted_at))));
            // A dump tells nothing else.
            assert!(again().is_older(noted(end + 1, 0)) && !again().is_older(noted(end, 0)));
            let newer = noted(end + 100, found + generation);
            assert_eq!(again().is_older(newer), generation > 0);
            let mut file = again();
            file.raise(&store, newer).unwrap();
            assert_eq!(
                again().current(),
                Reservation { look_from: end + 100, clean: true, ..file.current() }
            );
            assert_eq!(again().current().end, end + 100);
            assert!(!again().is_older(newer));
            // Had the write been torn, the slot before would count.
            let slot = again().generation() % 2 * SLOT_STRIDE_BYTES;
            let torn = std::fs::File::options().write(true).open(directory.path().join(FILE)).unwrap();
            torn.write_all_at(&[0; 8], slot).unwrap();
            assert_eq!(again().current().end, end);
            again().raise(&store, newer).unwrap();
        }
        let mut file = ReservationFile::open(&store).unwrap();
        let high = Reservation { end: 1 << 40, ..file.current() };
        file.write(&store, high).unwrap();
        file.raise(&store, noted(5, file.generation() + 1)).unwrap();
        assert_eq!(file.current().end, 1 << 40);
    }

    proptest! {
        #[test]
        fn a_slot_reads_back(generation: u64, end in 0u64..1 << 48, clean: bool, run: u128) {
            let written = Reservation { look_from: end / 3, end, run: Uuid::from_u128(run), clean };
            prop_assert_eq!(decode(&encode(generation, &written)), Some((generation, written)));
        }

        #[test]
        fn a_flipped_bit_is_noticed(bit in 0usize..SLOT_BYTES * 8) {
            let mut bytes = encode(7, &reservation(4097));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: [u8; 32]) {
            let mut slot = [0; SLOT_BYTES];
            slot[..32].copy_from_slice(&bytes);
            prop_assert_eq!(decode(&slot), None);
        }
    }
}

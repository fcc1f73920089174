//! Where in a file a process reads and writes, and in which order.

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::Ior;

/// Offsets of the transfers of `process`, one of `processes`. A shared file's random order differs from `round`
/// to `round`, and is the same for all processes in one.
pub fn of(ior: &Ior, process: usize, processes: usize, round: u64) -> Vec<u64> {
    match ior.random {
        false => in_order(ior, process as u64, processes as u64),
        true => at_random(ior, process, processes, round),
    }
}

/// Bytes of all files together, if they can be counted.
pub fn bytes(ior: &Ior, processes: usize) -> Option<u64> {
    let one = ior.block.checked_mul(ior.segments)?;
    one.checked_mul(processes as u64).filter(|bytes| i64::try_from(*bytes).is_ok())
}

fn in_order(ior: &Ior, process: u64, processes: u64) -> Vec<u64> {
    // In a shared file the blocks of all processes lie side by side in each segment.
    let (segment, first) = match ior.file_per_process {
        true => (ior.block, 0),
        false => (ior.block * processes, ior.block * process),
    };
    let block = |segment_at: u64| {
        (0..ior.block / ior.transfer).map(move |transfer| segment_at + first + transfer * ior.transfer)
    };
    (0..ior.segments).flat_map(|number| block(number * segment)).collect()
}

fn at_random(ior: &Ior, process: usize, processes: usize, round: u64) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(round);
    let one_file = if ior.file_per_process { 1 } else { processes as u64 };
    let transfers = ior.block * ior.segments * one_file / ior.transfer;
    let mut falls_to_it = |_: &u64| ior.file_per_process || random.random_range(0..processes) == process;
    let mut places: Vec<u64> =
        (0..transfers).map(|number| number * ior.transfer).filter(|at| falls_to_it(at)).collect();
    places.shuffle(&mut random);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Ior {
        Ior { block: 4096, transfer: 1024, segments: 2, ..Ior::default() }
    }

    #[test]
    fn blocks_of_the_processes_lie_side_by_side_in_each_segment() {
        let second = of(&two(), 1, 3, 0);
        assert_eq!(second, [4096, 5120, 6144, 7168, 16384, 17408, 18432, 19456]);
        let own = of(&Ior { file_per_process: true, ..two() }, 1, 3, 0);
        assert_eq!(own, (0..8).map(|n| n * 1024).collect::<Vec<_>>());
    }

    #[test]
    fn every_order_covers_the_file_once() {
        for random in [false, true] {
            let ior = Ior { random, ..two() };
            let mut all: Vec<u64> = (0..3).flat_map(|process| of(&ior, process, 3, 1)).collect();
            assert!(!all.is_sorted());
            all.sort();
            assert_eq!(all, (0..24).map(|n| n * 1024).collect::<Vec<_>>());
        }
        let own = Ior { random: true, file_per_process: true, ..two() };
        assert_eq!(of(&own, 0, 3, 1), of(&own, 2, 3, 1));
        assert_eq!(of(&own, 0, 3, 1).len(), 8);
    }

    #[test]
    fn what_no_file_holds_is_not_counted() {
        assert_eq!(bytes(&two(), 3), Some(24 * 1024));
        assert_eq!(bytes(&Ior { segments: u64::MAX, ..two() }, 3), None);
        assert_eq!(bytes(&Ior { block: 1 << 61, ..two() }, 2), None);
    }
}

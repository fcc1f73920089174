//! Which bytes of which file a thread works on.

use super::{Files, Mptio};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The name of the file.
    pub file: String,
    pub begin: u64,
}

/// The region of thread `thread` of process `process`.
pub fn of(mptio: &Mptio, process: u64, thread: u64) -> Region {
    let threads = u64::from(mptio.threads);
    let (file, number) = match mptio.files {
        Files::Global => ("global".to_owned(), process * threads + thread),
        Files::Process => (format!("process-{process}"), thread),
        Files::Thread => (format!("thread-{process}-{thread}"), 0),
    };
    Region { file, begin: if mptio.overlap { 0 } else { number * mptio.region } }
}

/// Bytes of all files together, if they can be counted.
pub fn bytes(mptio: &Mptio, processes: u64) -> Option<u64> {
    let threads = u64::from(mptio.threads);
    let regions = match (mptio.files, mptio.overlap) {
        (Files::Global, true) => 1,
        (Files::Process, true) => processes,
        _ => processes * threads,
    };
    mptio.region.checked_mul(regions).filter(|bytes| i64::try_from(*bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_distinct_or_the_same_and_fill_the_files() {
        let plain = Mptio {
            threads: 3,
            files: Files::Global,
            region: 100,
            block: 10,
            operations: None,
            overlap: false,
            direct: false,
            no_fsync: false,
            tests: Vec::new(),
            overwrite: false,
        };
        for (files, overlap, count, places) in [
            (Files::Global, false, 6, 6),
            (Files::Global, true, 1, 1),
            (Files::Process, false, 6, 6),
            (Files::Process, true, 2, 2),
            (Files::Thread, false, 6, 6),
            (Files::Thread, true, 6, 6),
        ] {
            let mptio = Mptio { files, overlap, ..plain.clone() };
            let all = (0..2).flat_map(|process| (0..3).map(move |thread| (process, thread)));
            let mut regions: Vec<(String, u64)> =
                all.map(|(process, thread)| of(&mptio, process, thread)).map(|r| (r.file, r.begin)).collect();
            regions.sort();
            regions.dedup();
            assert_eq!((regions.len(), bytes(&mptio, 2)), (places, Some(count * 100)), "{files:?} {overlap}");
        }
        assert_eq!(bytes(&Mptio { region: 1 << 62, ..plain }, 2), None);
    }
}

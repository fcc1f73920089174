//! BTIO does what it says: what stands in the files is the cube, whatever the form, and strace saw no other calls.

mod common;

use std::fs;

use cofs_bench::Btio;
use common::{Witness, figure, measured, names, options, refused, suite};
use tempfile::TempDir;

/// Bytes of a dump of class S.
const DUMP: u64 = 12 * 12 * 12 * 40;

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(8).map(|number| f64::from_le_bytes(number.try_into().unwrap()))
}

#[test]
fn a_shared_file_is_the_cube_and_each_form_makes_its_own_calls() {
    for (words, processes, calls) in [
        // A call for each row of each cell: 12 rows of 12, of two cells each.
        ("-f simple", 4, 12 * 12 * 2),
        ("-f simple", 1, 12 * 12),
        ("-f full", 4, 4),
        ("-f full", 9, 9),
        ("-f full --aggregators 1", 4, 1),
        // Two aggregators with 34560 bytes each, of which 10000 fit at once.
        ("-f full --aggregators 2 --buffer 10000", 4, 2 * 4),
        // A seventh of the dump is no whole number of points, nor of rows.
        ("-f full --aggregators 7 --buffer 1M", 9, 7),
    ] {
        let dir = TempDir::new().unwrap();
        let words = format!("-c S {words} --steps 7 --keep");
        let (report, kernel) = Witness::watch(&options(suite::<Btio>(&words), processes, dir.path()));
        // After step 5, and after the last.
        let dumps = 2;
        for (phase, call) in [("write", "pwrite64"), ("verify", "pread64")] {
            assert_eq!(kernel.count(call, &["btio.out>"]), dumps * calls, "{words} {phase}");
            assert_eq!(kernel.sum(call, &["btio.out>"]), dumps * DUMP);
            let told = figure(&report, phase);
            assert_eq!(
                (told.work.operations, told.work.bytes),
                (dumps * calls, dumps * DUMP),
                "{words} {phase}"
            );
        }
        assert_eq!(figure(&report, "verify").work.counts["errors"], 0, "{words}");
        let bytes = fs::read(dir.path().join("cofs-bench-btio/btio.out")).unwrap();
        assert_eq!(bytes.len() as u64, dumps * DUMP);
        assert!(numbers(&bytes).enumerate().all(|(place, number)| number == place as f64), "{words}");
    }
}

#[test]
fn the_full_form_over_the_network_writes_what_the_simple_form_writes() {
    let written = |form: &str, processes, apart: bool| {
        let dir = TempDir::new().unwrap();
        let words = format!("-c S --steps 7 --keep {form}");
        let options = options(suite::<Btio>(&words), processes, dir.path());
        let options = if apart { common::apart(&options)? } else { options };
        let (report, kernel) = Witness::watch(&options);
        let connections = kernel.count("accept4", &["sin_addr"]);
        let bytes = fs::read(dir.path().join("cofs-bench-btio/btio.out")).unwrap();
        assert_eq!(figure(&report, "verify").work.counts["errors"], 0, "{form}");
        Some((bytes, connections, kernel.count("pwrite64", &["btio.out>"]), figure(&report, "write").clone()))
    };
    let (simple, connections, ..) = written("-f simple", 4, false).unwrap();
    assert_eq!((simple.len() as u64, connections), (2 * DUMP, 0));
    for (form, processes, calls) in [
        ("-f full", 4, 4),
        ("-f full", 9, 9),
        ("-f full --aggregators 1", 4, 1),
        // Rows that lie in the windows of two.
        ("-f full --aggregators 7 --buffer 4K", 9, 3 * 7),
    ] {
        let (bytes, connections, ..) = written(form, processes, false).unwrap();
        assert!(bytes == simple && connections == 0, "{form}: memory goes over no network");
        let Some((bytes, connections, calls_made, told)) = written(form, processes, true) else { return };
        assert!(bytes == simple, "{form}");
        // Each with each other, to write and to verify.
        assert_eq!(connections, 2 * processes as u64 * (processes as u64 - 1), "{form}");
        assert_eq!((calls_made, told.work.operations), (2 * calls, 2 * calls), "{form}");
        assert_eq!(told.work.bytes, 2 * DUMP);
    }
}

#[test]
fn epio_has_a_file_of_records_for_each_process() {
    let dir = TempDir::new().unwrap();
    let words = "-c S -f epio --interval 1 --steps 3 -k";
    let (report, kernel) = Witness::watch(&options(suite::<Btio>(words), 4, dir.path()));
    // Three dumps of two cells of 6 by 6 by 6 points.
    let (records, cell) = (3 * 2, 6 * 6 * 6 * 40);
    let mut all = Vec::new();
    for process in 0..4 {
        let name = format!("btio.000{process}.out");
        assert_eq!(kernel.count("pwrite64", &[&name]), records);
        assert_eq!(kernel.count("pread64", &[&name]), records);
        let bytes = fs::read(dir.path().join("cofs-bench-btio").join(name)).unwrap();
        assert_eq!(bytes.len() as u64, records * (cell + 8));
        for record in bytes.chunks(cell as usize + 8) {
            let marker = (cell as u32).to_le_bytes();
            assert!(record.starts_with(&marker) && record.ends_with(&marker));
            all.extend(numbers(&record[4..record.len() - 4]).map(|number| number as u64));
        }
    }
    all.sort();
    assert!(all.into_iter().eq(0..3 * DUMP / 8));
    assert_eq!(figure(&report, "verify").work.counts["errors"], 0);
}

#[test]
fn numbers_that_differ_are_found() {
    for form in ["simple", "full"] {
        let dir = TempDir::new().unwrap();
        let words = format!("-c S --steps 5 -f {form}");
        measured(&options(suite::<Btio>(&format!("{words} -k")), 4, dir.path()));
        let path = dir.path().join("cofs-bench-btio/btio.out");
        let mut bytes = fs::read(&path).unwrap();
        for at in [0, 8000, 69119] {
            bytes[at] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
        let report = measured(&options(suite::<Btio>(&format!("{words} -k --verify")), 4, dir.path()));
        assert_eq!(figure(&report, "verify").work.counts["errors"], 3);
        assert!(report.original[0].contains("UNSUCCESSFUL (3 numbers differ)"));
        measured(&options(suite::<Btio>(&format!("{words} --verify")), 4, dir.path()));
        assert_eq!(names(dir.path()).len(), 0);
    }
}

#[test]
fn the_statistics_are_those_of_bt() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Btio>("-c W --steps 10 --interval 5"), 4, dir.path());
    options.repeats = 2;
    let report = measured(&options);
    let text = &report.original[0];
    assert!(text.starts_with(" Size:   24x  24x  24  (class W)\n Iterations:   10\n"));
    assert_eq!(text.matches("Verification            :     SUCCESSFUL").count(), 2);
    // 24³ points of 40 bytes, twice.
    assert_eq!(text.matches("Total data written (MB) :           1.11").count(), 2);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Btio>(&[
        ("", 2, "not a square: take 1 or 4"),
        ("", 15, "not a square: take 9 or 16"),
        ("-c S", 25, "too small for 25 processes"),
        ("--aggregators 5", 4, "fewer processes"),
        ("--buffer 39", 1, "--buffer"),
        ("-c C --steps 1000000 --interval 1", 4, "not enough space"),
        ("--verify", 1, "no earlier run"),
    ]);
}

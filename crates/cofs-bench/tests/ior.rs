//! IOR does what it says: bytes, calls and places. The witnesses are strace and what stands in the files.

mod common;

use std::{collections::BTreeMap, fs, path::Path};

use cofs_bench::Ior;
use common::{Witness, figure, files, measured, names, options, refused, suite};
use tempfile::TempDir;

/// How many bytes of the file each process wrote, and where its first word lies.
fn writers(path: &Path) -> BTreeMap<u32, (u64, u64)> {
    let mut writers = BTreeMap::new();
    for (number, pair) in fs::read(path).unwrap().chunks(16).enumerate() {
        let writer = u32::from_le_bytes(pair[4..8].try_into().unwrap());
        writers.entry(writer).or_insert((0, number as u64 * 16)).0 += pair.len() as u64;
    }
    writers
}

#[test]
fn a_shared_file_is_written_and_read_once() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) =
        Witness::watch(&options(suite::<Ior>("-w -r -b 8K -t 2K -s 3 -e -g -W -C"), 2, dir.path()));
    let (write, read) = (figure(&report, "write"), figure(&report, "read"));
    for (told, figure) in [("write", write), ("read", read)] {
        assert_eq!((figure.work.operations, figure.work.bytes), (24, 48 << 10), "{told}");
        assert_eq!(figure.work.spans.keys().collect::<Vec<_>>(), ["access", "close", "open"]);
    }
    assert_eq!(kernel.count("openat", &["testFile", "O_CREAT"]), 2);
    assert_eq!(kernel.count("pwrite64", &["testFile"]), 24);
    assert_eq!(kernel.sum("pwrite64", &["testFile"]), 48 << 10);
    // Once for the check, once for the measurement.
    assert_eq!(kernel.count("pread64", &["testFile"]), 48);
    assert_eq!(kernel.sum("pread64", &["testFile"]), 96 << 10);
    assert_eq!(kernel.count("fsync", &["testFile"]), 2);
    assert_eq!(kernel.count("unlink", &["testFile"]), 1);
    assert_eq!(figure(&report, "write check").work.counts["errors"], 0);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn blocks_lie_where_ior_puts_them() {
    let dir = TempDir::new().unwrap();
    measured(&options(suite::<Ior>("-w -k -b 4K -t 1K -s 2 -l"), 3, dir.path()));
    let file = dir.path().join("cofs-bench-ior/testFile");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 24 << 10);
    for (number, block) in bytes.chunks(4096).enumerate() {
        assert_eq!(block[4], (number % 3) as u8, "the writer of block {number}");
        let offset = u64::from_le_bytes(block[8..16].try_into().unwrap());
        assert_eq!(offset, number as u64 * 4096 + 8);
    }
}

#[test]
fn a_file_for_each_process() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) = Witness::watch(&options(suite::<Ior>("-F -b 4K -t 1K -k -Y -B"), 2, dir.path()));
    assert_eq!(figure(&report, "write").work.bytes, 8 << 10);
    for process in 0..2 {
        let name = format!("testFile.0000000{process}");
        assert_eq!(kernel.count("openat", &[&name, "O_CREAT", "O_DIRECT"]), 1);
        assert_eq!(kernel.sum("pwrite64", &[&name]), 4096);
        assert_eq!(kernel.sum("pread64", &[&name]), 4096);
        assert_eq!(kernel.count("fsync", &[&name]), 4);
        let found = writers(&dir.path().join("cofs-bench-ior").join(name));
        assert_eq!(found, BTreeMap::from([(process, (4096, 0))]));
    }
    assert!(report.rows.iter().all(|row| row.phase != "remove"));
}

#[test]
fn at_random_every_transfer_is_done_once_by_someone() {
    for words in ["-w -r -z -b 64K -t 1K -s 2 -W -k -l", "-w -r -z -F -b 64K -t 1K -s 2 -W -k -l"] {
        let dir = TempDir::new().unwrap();
        let report = measured(&options(suite::<Ior>(words), 2, dir.path()));
        assert_eq!(figure(&report, "write").work.operations, 256, "{words}");
        assert_eq!(figure(&report, "read").work.operations, 256);
        assert_eq!(figure(&report, "write check").work.counts["errors"], 0);
        let (_, bytes) = files(dir.path());
        assert_eq!(bytes, 256 << 10);
    }
}

#[test]
fn words_that_were_not_written_are_counted() {
    let dir = TempDir::new().unwrap();
    measured(&options(suite::<Ior>("-w -k -G 27 -b 4K -t 1K"), 2, dir.path()));
    let path = dir.path().join("cofs-bench-ior/testFile");
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    bytes[7000] ^= 1;
    fs::write(&path, bytes).unwrap();
    for (words, errors) in [("-R -k -G 27", 2), ("-W -k -G 27", 2), ("-R -k -G 28", 514)] {
        let report = measured(&options(suite::<Ior>(&format!("{words} -b 4K -t 1K")), 2, dir.path()));
        let phase = report.rows[0].phase.clone();
        assert_eq!(figure(&report, &phase).work.counts["errors"], errors, "{words}");
        assert!(report.original[0].contains(&format!("incorrect data ({phase}): {errors} errors")));
    }
    assert!(
        cofs_bench::table(&measured(&options(suite::<Ior>("-R -G 27 -b 4K -t 1K"), 2, dir.path())))
            .contains("2 errors")
    );
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn the_hard_form_is_47008_bytes_of_each_in_turn() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) = Witness::watch(&options(suite::<Ior>("--hard -s 5 -w -R -k"), 3, dir.path()));
    for (call, phase) in [("pwrite64", "write"), ("pread64", "read")] {
        assert_eq!(kernel.count(call, &["testFile", ", 47008, "]), 15);
        assert_eq!(figure(&report, phase).work.bytes, 15 * 47008);
    }
    assert_eq!(figure(&report, "read").work.counts["errors"], 0);
    assert_eq!(report.options["ior"]["transfer"], 47008, "what is recorded is what was done");
    let bytes = fs::read(dir.path().join("cofs-bench-ior/testFile")).unwrap();
    let in_turn = bytes.chunks(47008).map(|block| block[4]);
    assert!(in_turn.eq((0..15).map(|block| block % 3)));
}

#[test]
fn time_ends_writing_and_what_was_not_written_is_not_read() {
    // So small transfers that no machine writes all of them in a second.
    for words in ["-D 1 -b 1G -t 256 -F", "-D 1 -b 1G -t 256 -F --wear-out"] {
        let dir = TempDir::new().unwrap();
        let report = measured(&options(suite::<Ior>(&format!("{words} -k")), 2, dir.path()));
        let write = figure(&report, "write");
        let (_, bytes) = files(dir.path());
        assert_eq!(write.work.bytes, bytes, "{words}");
        assert!(write.work.spans["stonewall"] >= 1.0 && write.work.counts["stonewall bytes"] <= bytes);
        assert!(figure(&report, "read").work.bytes <= bytes);
        let [a, b] = [0, 1].map(|process: usize| write.processes[process].work.bytes);
        assert!(a == b || !words.contains("wear"), "{a} and {b}");
    }
}

#[test]
fn the_table_is_iors() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Ior>("-b 4K -t 4K"), 2, dir.path());
    options.repeats = 2;
    let report = measured(&options);
    let text = &report.original[0];
    let words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let access = ["write", "read", "remove"];
    let mut expected = vec!["access", "------"];
    expected.extend(access.iter().chain(&access));
    expected.extend(["Max", "Max", "Summary", "Operation", "write", "read"]);
    assert_eq!(words, expected);
    let columns = |line: &str| line.split_whitespace().count();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!([columns(lines[0]), columns(lines[2]), columns(lines[4])], [11, 11, 11]);
    let heading = lines.iter().position(|line| line.starts_with("Operation")).unwrap();
    assert_eq!(columns(lines[heading]), columns(lines[heading + 1]));
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Ior>(&[
        ("-b 5K -t 2K", 2, "multiple of the transfer"),
        ("-b 1K -t 2K", 2, "multiple of the transfer"),
        ("-t 0", 2, "above 0"),
        ("-s 0", 2, "above 0"),
        ("-b 12 -t 12", 2, "multiple of 8"),
        ("-b 1000 -t 1000 -B", 2, "multiple of 512"),
        ("-z -C", 2, "-z and -C"),
        ("-z -R -w", 2, "-z and -R"),
        ("-R", 2, "-G"),
        ("-Q 2", 2, "-Q must be less"),
        ("-o a/b", 2, "a name"),
        ("-b 1024G -s 1000", 2, "not enough space"),
        ("-b 1024G -s 100000000", 2, "too large"),
        ("-r", 2, "no earlier run"),
        ("--wear-out", 2, "-D"),
    ]);
}

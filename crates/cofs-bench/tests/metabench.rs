//! METABENCH does what it says, watched by strace.

mod common;

use cofs_bench::Metabench;
use common::{Witness, figure, names, options, refused, suite};
use tempfile::TempDir;

#[test]
fn every_operation_that_is_told_was_done() {
    for (words, place) in [("-n 7 -a 100", "/shared/f"), ("-n 7 -a 100 --own", "/own-")] {
        let dir = TempDir::new().unwrap();
        let (report, kernel) = Witness::watch(&options(suite::<Metabench>(words), 3, dir.path()));
        for (phase, call, more) in [
            ("create", "open", "O_CREAT|O_EXCL"),
            ("stat", "newfstatat", "AT_FDCWD"),
            ("utime", "utimensat", "AT_FDCWD"),
            ("append", "open", "O_WRONLY|O_APPEND"),
        ] {
            assert_eq!(kernel.count(call, &[place, more]), 21, "{phase} in the kernel");
            assert_eq!(figure(&report, phase).work.operations, 21, "{phase} in the report");
        }
        assert_eq!(kernel.count("write", &[place]), 21);
        assert_eq!(kernel.sum("write", &[place]), 2100);
        assert_eq!(figure(&report, "append").work.bytes, 2100);
        assert_eq!(kernel.count("unlink", &[place]) + kernel.count("unlinkat", &[place]), 21);
        assert_eq!(kernel.count("open", &[place]), 42, "nothing else was opened");
        assert_eq!(names(dir.path()).len(), 0);
    }
}

#[test]
fn the_table_tells_rates_of_all_and_of_each() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Metabench>("-n 5"), 2, dir.path());
    options.repeats = 2;
    let report = common::measured(&options);
    let text = &report.original[0];
    assert!(text.starts_with("2 processes, 5 files each, one directory\n"));
    for phase in ["create", "stat", "utime", "append"] {
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.first() == Some(&phase))
            .collect();
        assert_eq!(lines.len(), 2, "{phase}");
        assert!(lines.iter().all(|words| words.len() == 7 && words[1] == "10"));
    }
}

#[test]
fn time_bounds_every_phase_and_the_rest_follows_what_was_made() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Metabench>("-n 1000000 -a 1 --own"), 2, dir.path());
    options.seconds = Some(0.2);
    let report = common::measured(&options);
    let made = figure(&report, "create").work.operations;
    assert!((1..2_000_000).contains(&made), "{made}");
    assert!(figure(&report, "append").work.operations <= made);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Metabench>(&[
        ("-a 0", 2, "above 0"),
        ("-a 2G", 2, "at most 1G"),
        ("-n 1000000000000", 2, "not enough"),
        ("-n 1000000 -a 1G", 2, "not enough space"),
    ]);
}

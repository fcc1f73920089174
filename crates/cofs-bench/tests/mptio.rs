//! MPTIO does what it says, watched by strace; and block devices are safe from it.

mod common;

use std::{fs, process::Command};

use cofs_bench::Mptio;
use common::{Witness, figure, measured, names, options, refused, suite};
use tempfile::TempDir;

const TESTS: [&str; 5] =
    ["sequential write", "sequential read", "random write", "random read", "read-modify-write"];

#[test]
fn every_byte_that_is_told_was_moved() {
    for (files, words) in [("global", ""), ("process", ""), ("thread", "--direct")] {
        let dir = TempDir::new().unwrap();
        let words = format!("-t 3 -f {files} -r 32K -b 4K -n 5 {words}");
        let (report, kernel) = Witness::watch(&options(suite::<Mptio>(&words), 2, dir.path()));
        // Six threads; eight blocks in order, five at random.
        let (order, random) = (6 * 8, 6 * 5);
        let told =
            TESTS.map(|test| (figure(&report, test).work.operations, figure(&report, test).work.bytes >> 12));
        assert_eq!(
            told,
            [(order, order), (order, order), (random, random), (random, random), (random, 2 * random)]
        );
        let file = if files == "global" { "/global>" } else { &format!("/{files}-") };
        assert_eq!(kernel.count("pwrite64", &[file, ", 4096, "]), order + 2 * random, "{files}");
        assert_eq!(kernel.count("pread64", &[file, ", 4096, "]), order + 2 * random);
        assert_eq!(kernel.sum("pwrite64", &[file]), (order + 2 * random) << 12);
        assert_eq!(kernel.count("fsync", &[file]), 3 * 6);
        let opened: u64 = kernel.count("openat", &["/cofs-bench-", "O_CREAT", file]);
        assert_eq!(opened, 5 * 6, "each thread opens its file for each test");
        assert_eq!(kernel.count("openat", &[file, "O_DIRECT"]) > 0, words.contains("direct"));
        let parts = &figure(&report, "random read").processes;
        assert!(parts.iter().all(|part| part.work.operations == 15 && part.work.bytes == 15 << 12));
        assert_eq!(names(dir.path()).len(), 0);
    }
}

#[test]
fn places_are_distinct_or_the_same() {
    for (words, places) in [("", 16), ("--overlap", 4)] {
        let dir = TempDir::new().unwrap();
        let words = format!("-t 2 -r 16K -b 4K --tests sequential-write {words}");
        let (_, kernel) = Witness::watch(&options(suite::<Mptio>(&words), 2, dir.path()));
        let found = (0..64).filter(|block| {
            let last = format!(", {}) = 4096", block * 4096);
            kernel.count("pwrite64", &["/global>", &last]) > 0
        });
        assert_eq!(found.count(), places, "{words}");
        assert_eq!(kernel.count("pwrite64", &["/global>"]), 16);
    }
}

#[test]
fn what_is_read_alone_was_written_before_and_is_not_counted() {
    let dir = TempDir::new().unwrap();
    let words = "-r 16K -b 4K --tests random-read,sequential-read --no-fsync";
    let (report, kernel) = Witness::watch(&options(suite::<Mptio>(words), 2, dir.path()));
    let phases: Vec<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["sequential read", "random read"]);
    assert_eq!(kernel.count("pwrite64", &["/global>"]), 8);
    assert_eq!(kernel.count("pread64", &["/global>"]), 16);
    assert_eq!(kernel.count("fsync", &["/global>"]), 0);
}

#[test]
fn results_are_of_all_and_of_each_process() {
    let dir = TempDir::new().unwrap();
    let report = measured(&options(suite::<Mptio>("-t 2 -r 16K -b 4K"), 3, dir.path()));
    let text = &report.original[0];
    assert_eq!(text.matches("aggregate").count(), 5);
    assert_eq!(text.matches("  process ").count(), 15);
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Mptio>(&[
        ("-r 10K -b 4K", 2, "multiple of --block"),
        ("-b 0", 2, "above 0"),
        ("-b 1000 -r 2000 --direct", 2, "multiple of 512"),
        ("-b 2G -r 2G", 2, "at most 1G"),
        ("-r 1024G -t 1000", 2, "not enough space"),
        ("-r 1048576G -t 1000 -b 1G", 2, "not enough space"),
        ("-r 8388607T -b 1T", 2, "at most 1G"),
        ("-r 8388607G -b 1G -t 1024", 2, "too large"),
    ]);
}

/// A loop device over a file, which goes with it.
struct Loop(String);

impl Loop {
    fn new(file: &std::path::Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| Self(name.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_taken_only_when_that_is_said_and_it_is_free() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let Some(device) = Loop::new(&image) else {
        eprintln!("not run: making loop devices needs root");
        return;
    };
    let run = |words: &str| {
        let options = options(suite::<Mptio>(words), 2, std::path::Path::new(&device.0));
        cofs_bench::run(&options, &mut |_| {}).map_err(|error| error.to_string())
    };
    for (words, why) in [
        ("-r 64K", "--overwrite"),
        ("-r 64K --overwrite -f thread", "one file for all"),
        ("-r 1M --overwrite", "not enough space"),
    ] {
        let error = run(words).map(|_| ()).unwrap_err();
        assert!(error.contains(why), "{words}: {error}");
        assert!(fs::read(&image).unwrap().iter().all(|byte| *byte == 0), "untouched");
    }
    let report = run("-t 2 -r 64K -b 4K --overwrite --direct").unwrap();
    assert_eq!(figure(&report, "sequential write").work.bytes, 256 << 10);
    let of = &report.environments[0];
    assert_eq!((of.file_system.as_str(), of.mount_options.as_str()), ("block device", "1.00 MiB"));
    let written = fs::read(&image).unwrap();
    assert!(written[..256 << 10].iter().any(|byte| *byte != 0));
    assert!(written[256 << 10..].iter().all(|byte| *byte == 0), "nothing beyond the regions");
    let file = dir.path().join("plain");
    fs::write(&file, "x").unwrap();
    let error = cofs_bench::run(&options(suite::<Mptio>("--overwrite"), 1, &file), &mut |_| {})
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("neither a directory nor a block device"));
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

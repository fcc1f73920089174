//! Runs suites, and lets strace(1) watch what their workers ask of the kernel.

#![allow(dead_code)] // each test file takes what it needs

use std::{fs, path::Path};

use cofs_bench::{Figure, Kind, Launcher, Options, Report, run};
use tempfile::TempDir;

pub const WORKER: &str = env!("CARGO_BIN_EXE_cofs-bench-worker");

/// A suite's options as a person writes them.
pub fn suite<S: clap::Args + Into<Kind>>(words: &str) -> Kind {
    let command = S::augment_args(clap::Command::new("suite").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace()).unwrap();
    S::from_arg_matches(&matches).unwrap().into()
}

pub fn options(suite: Kind, processes: usize, directory: &Path) -> Options {
    Options {
        directory: directory.to_owned(),
        processes,
        launcher: Launcher { program: WORKER.into(), arguments: Vec::new() },
        ..Options::new(suite)
    }
}

pub fn measured(options: &Options) -> Report {
    run(options, &mut |_| {}).unwrap()
}

/// The one line that tells why not; nothing may have been written.
pub fn refused(suite: Kind, processes: usize) -> String {
    let dir = TempDir::new().unwrap();
    let error = run(&options(suite, processes, dir.path()), &mut |_| {}).unwrap_err().to_string();
    assert!(!error.contains('\n'), "more than one line");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
    error
}

/// The only measurement of a phase.
pub fn figure<'a>(report: &'a Report, phase: &str) -> &'a Figure {
    report.samples(phase, 0).first().unwrap_or_else(|| panic!("no phase {phase}"))
}

/// Names below `dir`, with their kinds (`d` or `f`), in order.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = if entry.file_type().unwrap().is_dir() { 'd' } else { 'f' };
        names.push(format!("{kind} {}", entry.path().display()));
        if kind == 'd' {
            names.extend(self::names(&entry.path()));
        }
    }
    names.sort();
    names
}

/// What the kernel was asked for, by all workers; only what succeeded.
pub struct Witness(Vec<String>);

impl Witness {
    /// Runs `options` with every worker under strace.
    pub fn watch(options: &Options) -> (Report, Self) {
        let traces = TempDir::new().unwrap();
        let trace = traces.path().join("trace");
        let mut watched = options.clone();
        watched.launcher.program = "strace".into();
        let words = ["-ff", "-y", "-qq", "-s", "0", "-o"];
        watched.launcher.arguments = words.iter().map(Into::into).collect();
        watched.launcher.arguments.extend([trace.into(), WORKER.into()]);
        let report = run(&watched, &mut |_| {}).expect("strace must be installed and allowed");
        let files = fs::read_dir(traces.path()).unwrap().map(|file| file.unwrap().path());
        let lines = files.flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.lines().filter(|line| !line.contains(" = -1 ")).map(str::to_owned).collect::<Vec<_>>()
        });
        (report, Self(lines.collect()))
    }

    /// How often `call` was made with all of `words` in its line.
    pub fn count(&self, call: &str, words: &[&str]) -> u64 {
        let call = format!("{call}(");
        let lines = self.0.iter().filter(|line| line.starts_with(&call));
        lines.filter(|line| words.iter().all(|word| line.contains(word))).count() as u64
    }

    /// The sum of what `call` gave, where all of `words` are in its line: bytes of reads and writes.
    pub fn sum(&self, call: &str, words: &[&str]) -> u64 {
        let call = format!("{call}(");
        let lines = self.0.iter().filter(|line| line.starts_with(&call));
        let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        let given =
            lines.filter_map(|line| line.rsplit_once(" = ")?.1.split(' ').next()?.parse::<u64>().ok());
        given.sum()
    }
}

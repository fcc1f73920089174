//! Runs suites, and lets strace(1) watch what their workers ask of the kernel.

#![allow(dead_code)] // each test file takes what it needs

pub mod rank;

use std::{ffi::OsString, fs, path::Path, process::Command};

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

/// The one line that tells why not.
pub fn why_not(options: &Options) -> String {
    let error = run(options, &mut |_| {}).map(drop).unwrap_err().to_string();
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

/// Each of these words, with so many processes, is refused with a line that says why; nothing is written.
pub fn refused<S: clap::Args + Into<Kind>>(cases: &[(&str, usize, &str)]) {
    for (words, processes, why) in cases {
        let dir = TempDir::new().unwrap();
        let error = why_not(&options(suite::<S>(words), *processes, dir.path()));
        assert!(error.contains(why), "{words}: {error}");
        assert_eq!(entries(dir.path()), 0, "{words}: something was written");
    }
}

pub fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// How many files lie below `dir`, and their bytes.
pub fn files(dir: &Path) -> (u64, u64) {
    let names = names(dir);
    let sizes = names.iter().filter_map(|name| Some(fs::metadata(name.strip_prefix("f ")?).unwrap().len()));
    sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size))
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

/// `options` whose workers are started by `program`, to which these words are said first.
fn around(options: &Options, program: &str, words: impl IntoIterator<Item = OsString>) -> Options {
    let Launcher { program: worker, arguments } = options.launcher.clone();
    let arguments = words.into_iter().chain([worker.into()]).chain(arguments).collect();
    Options { launcher: Launcher { program: program.into(), arguments }, ..options.clone() }
}

/// `options` whose workers each have a namespace of processes of their own, so that none sees the memory of another: they are
/// as on machines of their own. Nothing where this user may not make such.
pub fn apart(options: &Options) -> Option<Options> {
    let words = ["--pid", "--fork", "--kill-child"].map(OsString::from);
    let made = Command::new("unshare").args(&words).arg("true").status();
    if !made.is_ok_and(|status| status.success()) {
        assert!(!rustix::process::geteuid().is_root(), "root cannot make namespaces");
        eprintln!("not root: no namespaces of processes, not tested");
        return None;
    }
    Some(around(options, "unshare", words))
}

/// What the kernel was asked for, by all workers and the programs that they ran; only what succeeded. A list for each
/// of their threads.
pub struct Witness(Vec<Vec<String>>);

impl Witness {
    /// Runs `options` with every worker, and what its launcher puts around it, under strace.
    pub fn watch(options: &Options) -> (Report, Self) {
        let traces = TempDir::new().unwrap();
        let trace = traces.path().join("trace");
        let words = ["-ff", "-y", "-qq", "-s", "0", "-o"].map(OsString::from);
        let watched = around(options, "strace", words.into_iter().chain([trace.into()]));
        let report = run(&watched, &mut |_| {}).expect("strace must be installed and allowed");
        let files = fs::read_dir(traces.path()).unwrap().map(|file| file.unwrap().path());
        let lines = files.map(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.lines().filter(|line| !line.contains(" = -1 ")).map(str::to_owned).collect::<Vec<_>>()
        });
        (report, Self(lines.collect()))
    }

    /// What each thread that made a call with all of `words` asked for.
    pub fn threads(&self, call: &str, words: &[&str]) -> Vec<Self> {
        let each = self.0.iter().map(|lines| Self(vec![lines.clone()]));
        each.filter(|thread| thread.count(call, words) > 0).collect()
    }

    /// The lines of `call` that have all of `words`, of each thread that has some, in their order.
    pub fn order(&self, call: &str, words: &[&str]) -> Vec<Vec<&str>> {
        let call = format!("{call}(");
        let wanted = |line: &&str| line.starts_with(&call) && words.iter().all(|word| line.contains(word));
        let threads = self.0.iter().map(|lines| lines.iter().map(String::as_str).filter(wanted).collect());
        threads.filter(|lines: &Vec<&str>| !lines.is_empty()).collect()
    }

    /// How often `call` was made with all of `words` in its line.
    pub fn count(&self, call: &str, words: &[&str]) -> u64 {
        self.order(call, words).iter().map(|lines| lines.len() as u64).sum()
    }

    /// The sum of what `call` gave, where all of `words` are in its line: bytes of reads and writes.
    pub fn sum(&self, call: &str, words: &[&str]) -> u64 {
        let given = |line: &&str| line.rsplit_once(" = ")?.1.split(' ').next()?.parse::<u64>().ok();
        self.order(call, words).iter().flatten().filter_map(given).sum()
    }
}

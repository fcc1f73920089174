//! Test programs that are run in the machine, and what must come of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Stdio},
};

use cofs_testkit::machine::running;

/// Longer than any of them takes.
const SECONDS_MAX: &str = "900";
/// Where a test program keeps what it must know after a remount.
pub const STATE: &str = "/mnt/disk/state";
/// How the reason begins in the ledger where a case fails on some days only.
const PERHAPS: &str = "perhaps: ";

/// Runs the test program that the variable `told` names, on `dir`.
pub fn test(told: &str, dir: &str, arguments: &[&str]) -> Outcome {
    run(&std::env::var(told).unwrap(), dir, arguments)
}

pub fn run(program: &str, dir: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", SECONDS_MAX, program])
        .args(arguments)
        .env("COFS_TEST_DIR", dir)
        .env("COFS_TEST_STATE", STATE);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Outcome { said: format!("{}{}", text(&output.stdout), text(&output.stderr)) }
}

/// What a test program has said.
pub struct Outcome {
    said: String,
}

impl Outcome {
    /// The names of its cases that ended so.
    fn cases(&self, end: &str) -> BTreeSet<String> {
        let ends = |line: &str| {
            Some(line.strip_prefix("test ")?.strip_suffix(end)?.strip_suffix(" ... ")?.to_owned())
        };
        self.said.lines().filter_map(ends).collect()
    }

    /// All its cases have passed but those that the ledger has for this kernel and file system, which have failed. There were at least so many.
    #[track_caller]
    pub fn is_as_expected(&self, on: &str, at_least: usize) {
        let (passed, failed) = (self.cases("ok"), self.cases("FAILED"));
        println!("{on}: {} passed, {} failed", passed.len(), failed.len());
        let (mut expected, mut allowed) = (BTreeSet::new(), BTreeSet::new());
        for (case, reason) in
            ledger(on).into_iter().filter(|(case, _)| passed.union(&failed).any(|ran| ran == case))
        {
            let into = if reason.starts_with(PERHAPS) { &mut allowed } else { &mut expected };
            into.insert(case);
        }
        let otherwise = failed.symmetric_difference(&expected);
        let wrong: BTreeSet<_> = otherwise.filter(|case| !allowed.contains(*case)).collect();
        let ended = self.said.contains("test result: ");
        assert!(ended && wrong.is_empty(), "otherwise than expected: {wrong:#?}\n{}", self.said);
        assert!(passed.len() >= at_least, "{} cases\n{}", passed.len(), self.said);
    }

    #[track_caller]
    pub fn passes(&self) {
        assert!(self.said.contains("test result: ok. "), "{}", self.said);
        assert!(!self.said.contains("test result: ok. 0 passed"), "{}", self.said);
    }
}

/// The cases that fail on this kernel on `on`, with the reason: lines `"5.10/on/case" = "reason"` of `tests/ledger/kernels.toml`.
fn ledger(on: &str) -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ledger/kernels.toml");
    let text = fs::read_to_string(page).expect("tests/ledger/kernels.toml");
    let (major, minor) = running();
    let prefix = format!("\"{major}.{minor}/{on}/");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once("\" = \""));
    lines.map(|(case, reason)| (case.to_owned(), reason.to_owned())).collect()
}

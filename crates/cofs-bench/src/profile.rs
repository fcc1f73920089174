//! The set that matters, in one go, with one score: easy and hard, metadata and data, and find, after IO500 (io500.org).
//!
//! Sources of the phases and of the score: IO500's program (github.com/IO500/io500, src/phase_*.c). Metadata phases count thousands of operations a
//! second, data phases GiB/s; each half's score is the geometric mean of its phases, and the score of the whole is the
//! geometric mean of the halves. What differs stands in docs/bench.md.

use std::{fmt::Write, io};

use clap::{Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Ior, Kind, Mdtest, Options, Place, Report, Step, Tree, Unit, join,
    report::{Row, columns, number},
    run,
    runner::check,
    scratch,
    settings::processes,
};

/// How much is done.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Some minutes on a disk of this decade.
    Quick,
    /// Long enough that caches do not do all of it.
    Full,
    /// Only to see that all of it works: its figures say nothing.
    #[value(hide = true)]
    Trial,
}

impl Profile {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Trial => "trial",
        }
    }
}

/// The half of the score that a phase belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// Thousands of operations a second.
    Metadata,
    /// GiB/s.
    Data,
}

impl Half {
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Metadata => "kIOPS",
            Self::Data => "GiB/s",
        }
    }
}

/// One suite with its options, and the phases of it that count.
struct Test {
    suite: Kind,
    /// Its phase, and what IO500 calls it.
    phases: &'static [(&'static str, &'static str)],
    half: Half,
    /// Things that a phase measured in seconds went through; 0 where it is measured in operations or bytes.
    things: u64,
    /// One process does it, wherever the others are.
    alone: bool,
}

/// Of each process, but for those of the tree.
struct Size {
    items: &'static str,
    easy_block: &'static str,
    hard_segments: &'static str,
    tree_files: &'static str,
}

const QUICK: Size = Size { items: "2000", easy_block: "256M", hard_segments: "2000", tree_files: "20000" };
const FULL: Size = Size { items: "50000", easy_block: "4G", hard_segments: "40000", tree_files: "500000" };
const TRIAL: Size = Size { items: "20", easy_block: "4M", hard_segments: "20", tree_files: "30" };
const TREE_PER_DIRECTORY: &str = "1000";

const EASY_DATA: &[(&str, &str)] = &[("write", "ior-easy-write"), ("read", "ior-easy-read")];
const HARD_DATA: &[(&str, &str)] = &[("write", "ior-hard-write"), ("read", "ior-hard-read")];
const EASY_METADATA: &[(&str, &str)] = &[
    ("file creation", "mdtest-easy-write"),
    ("file stat", "mdtest-easy-stat"),
    ("file removal", "mdtest-easy-delete"),
];
const HARD_METADATA: &[(&str, &str)] = &[
    ("file creation", "mdtest-hard-write"),
    ("file stat", "mdtest-hard-stat"),
    ("file read", "mdtest-hard-read"),
    ("file removal", "mdtest-hard-delete"),
];
/// With cold caches where they can be had, as after IO500's other phases.
const FIND: &[(&str, &str)] = &[("find cold", "find"), ("find", "find (warm)")];

/// What a suite makes of its letters.
fn told<S: Args + FromArgMatches>(letters: &[&str]) -> io::Result<S> {
    let command = S::augment_args(Command::new("suite").no_binary_name(true));
    let matches = command.try_get_matches_from(letters).map_err(io::Error::other)?;
    S::from_arg_matches(&matches).map_err(io::Error::other)
}

impl Profile {
    fn tests(self, processes: usize) -> io::Result<Vec<Test>> {
        let size = match self {
            Self::Quick => QUICK,
            Self::Full => FULL,
            Self::Trial => TRIAL,
        };
        // What one process wrote is read by the next, so that it does not come from its own cache.
        let next = if processes > 1 { "1" } else { "0" };
        let test = |suite: Kind, phases, half| Test { suite, phases, half, things: 0, alone: false };
        let easy: Ior = told(&["-F", "-C", "-g", "-e", "-t", "2M", "-b", size.easy_block])?;
        let hard: Ior = told(&["--hard", "-s", size.hard_segments])?;
        let own: Mdtest = told(&["-F", "-u", "-L", "-Y", "-n", size.items, "-N", next])?;
        let shared: Mdtest = told(&["--hard", "-Y", "-n", size.items, "-N", next])?;
        let tree: Tree =
            told(&["--tools", "find", "--files", size.tree_files, "--per-directory", TREE_PER_DIRECTORY])?;
        let things = tree.things();
        let find = Test { suite: tree.into(), phases: FIND, half: Half::Metadata, things, alone: true };
        Ok(vec![
            test(easy.into(), EASY_DATA, Half::Data),
            test(own.into(), EASY_METADATA, Half::Metadata),
            test(hard.into(), HARD_DATA, Half::Data),
            test(shared.into(), HARD_METADATA, Half::Metadata),
            find,
        ])
    }
}

/// What one phase scores.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Score {
    pub name: String,
    pub half: Half,
    /// In the half's unit.
    pub value: f64,
    /// Of the other directory, and how often as fast the first one is, with the least and the greatest ratio.
    pub other: Option<f64>,
    pub ratio: Option<[f64; 3]>,
}

/// The geometric means.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Total {
    /// kIOPS
    pub metadata: f64,
    /// GiB/s
    pub data: f64,
    /// Their geometric mean.
    pub score: f64,
}

/// What a run of a profile found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub profile: Profile,
    pub scores: Vec<Score>,
    pub total: Total,
    pub other: Option<Total>,
    pub reports: Vec<Report>,
}

impl Outcome {
    /// The phases that count as those of one suite, so that they can be plotted and compared like any other.
    ///
    /// Errors: a profile that this version does not know so.
    pub fn report(&self) -> io::Result<Report> {
        let first = self.reports.first().ok_or_else(|| io::Error::other("a profile without results"))?;
        let tests = self.profile.tests(first.processes)?;
        let counts = |row: &Row| self.scores.iter().any(|score| score.name == row.phase);
        let rows = tests.iter().zip(&self.reports).flat_map(|(test, report)| test.rows(report));
        Ok(Report {
            suite: "suite".to_owned(),
            options: json!({ "suite": { "profile": self.profile.name() } }),
            rows: rows.filter(counts).collect(),
            original: vec![score_table(self)],
            ..first.clone()
        })
    }
}

/// Runs all of a profile. What `options` say besides the suite holds for each test of it.
///
/// Errors: those of [`run`]; those of options and directories, for all tests, before the first one writes anything.
pub fn run_profile(
    profile: Profile,
    options: &Options,
    progress: &mut dyn FnMut(&Step),
) -> io::Result<Outcome> {
    let tests = tests(profile, options)?;
    let of = tests.len();
    // What is wrong with a directory is wrong for all tests: it is told without naming one of them.
    options.targets(0).iter().try_for_each(|target| scratch::ready(target, options.beside))?;
    tests.iter().try_for_each(|test| check(&test.options(options)).map_err(|error| test.named(error)))?;
    let (mut scores, mut reports) = (Vec::new(), Vec::new());
    for (at, test) in tests.iter().enumerate() {
        let name = test.suite.suite().name();
        let mut told = |step: &Step| {
            let what = format!("test {} of {of} ({name}), {}", at + 1, step.what);
            progress(&Step { what: &what, ..*step });
        };
        let report = run(&test.options(options), &mut told).map_err(|error| test.named(error))?;
        scores.extend(test.scores(&report));
        reports.push(report);
    }
    // The warm one counts only where there is no cold one.
    if scores.iter().any(|score: &Score| score.name == "find") {
        scores.retain(|score| score.name != "find (warm)");
    }
    let total = Total::of(&scores, |score| Some(score.value));
    let other =
        scores.iter().any(|score| score.other.is_some()).then(|| Total::of(&scores, |score| score.other));
    Ok(Outcome { profile, scores, total, other, reports })
}

/// Is another rank than 0 through all of a profile.
///
/// Errors: those of [`join`].
pub fn join_profile(profile: Profile, options: &Options, place: &Place) -> io::Result<()> {
    let tests = tests(profile, options)?;
    tests.iter().filter(|test| !test.alone).try_for_each(|test| join(&test.options(options), place))
}

/// Errors: an option that does not go together with a profile.
fn tests(profile: Profile, options: &Options) -> io::Result<Vec<Test>> {
    match options.seconds {
        Some(_) => {
            Err(io::Error::other("--seconds does not bound a profile: --profile says how much is done"))
        }
        None => profile.tests(options.processes),
    }
}

impl Test {
    fn options(&self, all: &Options) -> Options {
        let mut options = Options { suite: self.suite.clone(), ..all.clone() };
        if self.alone {
            (options.place, options.processes) = (None, 1);
        }
        options
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.suite.suite().name()))
    }

    /// The rows of the phases that count, as IO500 calls them.
    fn rows(&self, report: &Report) -> Vec<Row> {
        let row = |phase: &str| report.rows.iter().find(|row| row.phase == phase);
        let named =
            |(phase, name): &(&str, &str)| Some(Row { phase: (*name).to_owned(), ..row(phase)?.clone() });
        self.phases.iter().filter_map(named).collect()
    }

    fn scores(&self, report: &Report) -> Vec<Score> {
        self.rows(report).iter().map(|row| self.score(row)).collect()
    }

    fn score(&self, row: &Row) -> Score {
        let scaled = |value: f64| match row.unit {
            Unit::OperationsPerSecond => value / 1e3,
            Unit::MebibytesPerSecond => value / 1024.0,
            Unit::Seconds => self.things as f64 / value / 1e3,
        };
        let versus = row.versus.as_ref();
        let ratio = versus.map(|versus| {
            let [least, most] = versus.ratio_range;
            [versus.ratio, least, most]
        });
        let other = versus.map(|versus| scaled(versus.median.value));
        Score { name: row.phase.clone(), half: self.half, value: scaled(row.median.value), other, ratio }
    }
}

impl Total {
    fn of(scores: &[Score], value: impl Fn(&Score) -> Option<f64>) -> Self {
        let mean = |half| geometric_mean(scores.iter().filter(|score| score.half == half).filter_map(&value));
        let (metadata, data) = (mean(Half::Metadata), mean(Half::Data));
        Self { metadata, data, score: (metadata * data).sqrt() }
    }
}

/// 0 of nothing.
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    if logs.is_empty() { 0.0 } else { (logs.iter().sum::<f64>() / logs.len() as f64).exp() }
}

/// The outcome for people.
pub fn score_table(outcome: &Outcome) -> String {
    let compared = outcome.other.is_some();
    let mut heading = vec!["phase", "A", "unit"];
    if compared {
        heading.extend(["B", "A/B", "least", "most"]);
    }
    let mut rows = vec![heading.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(outcome.scores.iter().map(|score| {
        let mut row = vec![score.name.clone(), number(score.value), score.half.unit().to_owned()];
        row.extend(score.other.map(number));
        row.extend(score.ratio.into_iter().flatten().map(|ratio| format!("{ratio:.2}")));
        row
    }));
    let (total, other) = (outcome.total, outcome.other);
    let mut sum = |name: &str, unit: &str, of: fn(&Total) -> f64| {
        let mut row = vec![name.to_owned(), number(of(&total)), unit.to_owned()];
        if let Some(other) = &other {
            row.extend([number(of(other)), format!("{:.2}", of(&total) / of(other))]);
        }
        rows.push(row);
    };
    sum("metadata", Half::Metadata.unit(), |total| total.metadata);
    sum("data", Half::Data.unit(), |total| total.data);
    sum("score", "", |total| total.score);
    let mut out = String::new();
    if let Some(report) = outcome.reports.first() {
        let (profile, by) = (outcome.profile.name(), processes(report.processes));
        let _ = writeln!(out, "suite {profile}: {by}, median of {}", report.repeats);
    }
    let environments = outcome.reports.first().map_or(&[][..], |report| &report.environments);
    for (letter, environment) in ["A", "B"].iter().zip(environments) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{letter}  {environment}");
    }
    out + &columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_that_counts_is_one_of_its_suite() {
        for profile in [Profile::Quick, Profile::Full, Profile::Trial] {
            for processes in [1, 4] {
                for mut test in profile.tests(processes).unwrap() {
                    test.suite.suite_mut().spell_out();
                    let suite = test.suite.suite();
                    suite.check(processes).unwrap();
                    let phases: Vec<&str> = suite.phases().iter().map(|phase| phase.name).collect();
                    for (phase, name) in test.phases {
                        assert!(phases.contains(phase), "{name}: {phase} of {phases:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_score_is_the_mean_of_both_halves() {
        let score = |half, value| Score { name: String::new(), half, value, other: Some(1.0), ratio: None };
        let scores = [score(Half::Metadata, 2.0), score(Half::Metadata, 8.0), score(Half::Data, 9.0)];
        let total = Total::of(&scores, |score| Some(score.value));
        assert!((total.metadata - 4.0).abs() < 1e-9 && (total.data - 9.0).abs() < 1e-9);
        assert!((total.score - 6.0).abs() < 1e-9);
        assert!((Total::of(&scores, |score| score.other).score - 1.0).abs() < 1e-9);
        assert_eq!(geometric_mean([].into_iter()), 0.0);
    }
}

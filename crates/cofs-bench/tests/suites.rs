//! Every suite runs to its end, alone and compared, and leaves nothing behind.

use cofs_bench::{Launcher, Options, Report, run, suites, table};
use tempfile::TempDir;

fn options(suite: &str, directory: &TempDir, versus: Option<&TempDir>) -> Options {
    let launcher =
        Launcher { program: env!("CARGO_BIN_EXE_cofs-bench-worker").into(), arguments: Vec::new() };
    let mut options = Options {
        suite: suite.to_owned(),
        directory: directory.path().to_owned(),
        versus: versus.map(|dir| dir.path().to_owned()),
        repeats: 2,
        cold: false,
        load: Default::default(),
        launcher,
    };
    options.load.files = 25;
    options.load.processes = 3;
    options.load.per_directory = 10;
    options.load.large_bytes = 2 << 20;
    options.load.random_operations = 20;
    options
}

fn measured(options: &Options) -> Report {
    run(options, &mut |_| {}).unwrap()
}

#[test]
fn every_suite_runs_and_cleans_up() {
    for suite in suites() {
        let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let report = measured(&options(suite.name(), &a, Some(&b)));
        assert!(!report.rows.is_empty());
        for row in &report.rows {
            assert_eq!(row.samples.len(), 2, "{}", row.phase);
            assert!(row.median.value > 0.0 && row.median.value.is_finite(), "{row:?}");
            assert!(row.versus.as_ref().is_some_and(|v| v.ratio > 0.0 && v.samples.len() == 2), "{row:?}");
        }
        assert!(table(&report).contains(report.rows[0].phase));
        for dir in [a, b] {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{}", suite.name());
        }
    }
}

#[test]
fn own_directories_and_one_share_alike() {
    let dir = TempDir::new().unwrap();
    let mut options = options("metarates", &dir, None);
    options.load.own_directories = true;
    let report = measured(&options);
    assert!(report.rows.iter().all(|row| row.versus.is_none()));
}

#[test]
fn a_failing_phase_is_named() {
    let dir = TempDir::new().unwrap();
    let mut options = options("metarates", &dir, None);
    options.directory = dir.path().join("absent");
    assert!(run(&options, &mut |_| {}).unwrap_err().to_string().contains("absent"));
    options.directory = dir.path().to_owned();
    options.launcher.program = "/bin/false".into();
    assert!(run(&options, &mut |_| {}).is_err());
}

//! Every suite runs to its end, alone and compared, and leaves nothing behind.

use cofs_bench::{Io, Kind, Launcher, Metarates, Options, Report, Tree, run, table};
use tempfile::TempDir;

fn options(suite: Kind, directory: &TempDir, versus: Option<&TempDir>) -> Options {
    let launcher =
        Launcher { program: env!("CARGO_BIN_EXE_cofs-bench-worker").into(), arguments: Vec::new() };
    Options {
        directory: directory.path().to_owned(),
        versus: versus.map(|dir| dir.path().to_owned()),
        processes: 3,
        repeats: 2,
        launcher,
        ..Options::new(suite)
    }
}

const METARATES: Metarates = Metarates { files: 25, own: false, small: 4096, made: 0 };

fn measured(options: &Options) -> Report {
    run(options, &mut |_| {}).unwrap()
}

#[test]
fn every_suite_runs_and_cleans_up() {
    let suites: [Kind; 3] = [
        METARATES.into(),
        Tree { files: 25, per_directory: 10 }.into(),
        Io { large: 2 << 20, random: 20, written: 0 }.into(),
    ];
    for suite in suites {
        let name = suite.suite().name();
        let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let report = measured(&options(suite, &a, Some(&b)));
        assert!(!report.rows.is_empty());
        for row in &report.rows {
            assert_eq!(row.samples.len(), 2, "{}", row.phase);
            assert!(row.median.value > 0.0 && row.median.value.is_finite(), "{row:?}");
            assert!(row.versus.as_ref().is_some_and(|v| v.ratio > 0.0 && v.samples.len() == 2), "{row:?}");
        }
        assert!(table(&report).contains(&report.rows[0].phase));
        for dir in [a, b] {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{name}");
        }
    }
}

#[test]
fn own_directories_and_one_share_alike() {
    let dir = TempDir::new().unwrap();
    let report = measured(&options(Metarates { own: true, ..METARATES }.into(), &dir, None));
    assert!(report.rows.iter().all(|row| row.versus.is_none()));
}

#[test]
fn a_failing_phase_is_named() {
    let dir = TempDir::new().unwrap();
    let mut options = options(METARATES.into(), &dir, None);
    options.directory = dir.path().join("absent");
    assert!(run(&options, &mut |_| {}).unwrap_err().to_string().contains("absent"));
    options.directory = dir.path().to_owned();
    options.launcher.program = "/bin/false".into();
    assert!(run(&options, &mut |_| {}).is_err());
}

fn refused(options: &Options) -> String {
    let error = run(options, &mut |_| {}).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line");
    error
}

#[test]
fn a_directory_that_holds_something_is_refused_and_left_as_it_is() {
    let dir = TempDir::new().unwrap();
    let mut options = options(METARATES.into(), &dir, None);
    options.versus = Some(dir.path().join("other"));
    std::fs::create_dir(dir.path().join("other")).unwrap();
    assert!(refused(&options).contains("not empty"));
    options.beside = true;
    measured(&options);
    options.beside = false;
    options.directory = dir.path().join("other");
    std::fs::create_dir(dir.path().join("other/cofs-bench-1")).unwrap();
    assert!(refused(&options).contains("cofs-bench-1"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn more_bytes_or_files_than_there_is_space_for_are_refused() {
    let dir = TempDir::new().unwrap();
    for suite in [
        Io { large: 1 << 50, random: 1, written: 0 }.into(),
        Metarates { files: 1 << 50, ..METARATES }.into(),
    ] {
        assert!(refused(&options(suite, &dir, None)).contains("not enough"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

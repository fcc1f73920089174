use serde_json::json;

use super::*;
use crate::{
    Environment, Phase,
    report::{Conditions, Figure},
};

/// A result with two directories, the first of which takes `micros` for an operation and the other twice that.
fn report(processes: usize, files: u64, micros: f64) -> Report {
    let environment = |kind: &str| Environment { file_system: kind.to_owned(), ..Environment::default() };
    let figure = |micros: f64| Figure {
        value: 1e6 / micros * processes as f64,
        mean_nanos: micros * 1e3,
        ..Figure::default()
    };
    let phase = Phase::new("create", Unit::OperationsPerSecond);
    let samples = |factor: f64| [0.9, 1.0, 1.1].map(|part| figure(micros * factor * part));
    Report {
        suite: "metarates".to_owned(),
        options: json!({"metarates": {"files": files, "own": true}}),
        processes,
        repeats: 3,
        conditions: Conditions::default(),
        environments: vec![environment("fuse.cofs"), environment("<ext4>")],
        rows: vec![Row::new(&phase, &samples(1.0), &samples(2.0))],
        original: Vec::new(),
    }
}

#[test]
fn what_was_varied_is_plotted_against() {
    let reports = [report(1, 100, 10.0), report(2, 100, 12.0), report(4, 100, 19.0), report(4, 1000, 20.0)];
    let points = points(&reports, &[]);
    let all: Vec<&Point> = points.iter().collect();
    let varied = axes(&all);
    let names: Vec<&str> = varied.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["processes", "files"]);
    assert_eq!(varied[0].labels(), ["1", "2", "4"]);
    // With 1000 files there is one point, which makes no line.
    let series = points::series(&all, &varied[0], &varied);
    assert_eq!(series, ["fuse.cofs, 100 files, own", "<ext4>, 100 files, own"]);
}

#[test]
fn what_changes_together_is_one_axis() {
    let reports = [report(1, 100, 1.0), report(2, 200, 1.0), report(4, 400, 1.0)];
    let points = points(&reports, &[]);
    let all: Vec<&Point> = points.iter().collect();
    assert_eq!(axes(&all).len(), 1);
}

#[test]
fn the_page_stands_alone_and_escapes() {
    let reports = [report(1, 100, 10.0), report(2, 100, 12.0)];
    let heading = Heading { title: "a < b".to_owned(), names: Vec::new() };
    let page = page(&reports, &heading).unwrap();
    assert_eq!(page.matches("<svg").count(), 3, "the ratios, the time per operation, the rate");
    assert!(page.contains("a &lt; b") && page.contains("&lt;ext4&gt;") && !page.contains("<ext4>"));
    for elsewhere in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.contains("is faster than <b>&lt;ext4&gt;</b> in 2 and slower in 0"));
    assert!(page.contains("ratios is 2.00"));
}

#[test]
fn points_of_several_runs_become_one() {
    let merged =
        points::merged([(1, [1.0, 2.0, 3.0]), (0, [5.0, 5.0, 5.0]), (1, [0.5, 4.0, 9.0])].into_iter());
    assert_eq!(merged, [(0, [5.0, 5.0, 5.0]), (1, [0.5, 4.0, 9.0])]);
}

#[test]
fn numbers_are_short() {
    for (value, text) in
        [(0.0, "0"), (1.0, "1"), (9999.0, "9999"), (20_000.0, "20k"), (1_500_000.0, "1.5M"), (0.25, "0.25")]
    {
        assert_eq!(points::short(value), text);
    }
}

#[test]
fn nothing_to_compare_is_a_page_too() {
    let mut one = report(1, 100, 10.0);
    one.environments.pop();
    one.rows[0].versus = None;
    assert!(page(&[one], &Heading::default()).unwrap().contains("nothing is compared"));
    assert!(page(&[], &Heading::default()).is_ok());
}

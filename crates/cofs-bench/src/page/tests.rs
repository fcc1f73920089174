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
        options: json!({"metarates": {"files": files, "own": true, "small": 4096}}),
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
    let heading =
        Heading { title: "a < b".to_owned(), notes: vec!["c < d".to_owned()], ..Heading::default() };
    let page = page(&reports, &heading).unwrap();
    assert_eq!(page.matches("<svg").count(), 3, "the ratios, the time per operation, the rate");
    assert!(page.contains("a &lt; b") && page.contains("<p>c &lt; d</p>"));
    assert!(page.contains("&lt;ext4&gt;") && !page.contains("<ext4>"));
    for elsewhere in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.contains("is faster than <b>&lt;ext4&gt;</b> in 2 and slower in 0"));
    assert!(page.contains("ratios is 2.00"));
}

/// The same, as a result of a group whose other directory was reached through so many mounts.
fn grouped(processes: usize, files: u64, group: &str, mounts: usize) -> Report {
    let mut one = report(processes, files, 10.0 * mounts as f64);
    one.conditions.group = Some(group.to_owned());
    one.conditions.names = vec!["cofs".to_owned(), format!("<{group}> {mounts} mounts")];
    for row in &mut one.rows {
        row.median.work.operations = files;
    }
    one
}

#[test]
fn groups_are_chapters_with_their_verdicts() {
    let reports = [
        grouped(2, 100, "alpha", 1),
        grouped(2, 100, "alpha", 2),
        grouped(4, 100, "alpha", 2),
        grouped(4, 400, "alpha", 2),
        grouped(2, 100, "beta", 1),
    ];
    let page = page(&reports, &Heading::default()).unwrap();
    for expected in [
        "<th colspan=\"2\">over alpha</th><th colspan=\"2\">over beta</th>",
        "<h2>alpha</h2>",
        "Helps: <b>create</b> 2.0× (2.0 to 2.0).",
        "Time per operation against processes, own directories (metarates, 100 files, written files of 4 KiB)",
        "Time per operation against files, own directories (metarates, 4 processes, written files of 4 KiB)",
        "<th colspan=\"2\">against &lt;alpha&gt; 1 mounts</th><th colspan=\"2\">against &lt;alpha&gt; 2 mounts</th>",
        // Half the rate through two mounts: computed from the two results with 2 processes.
        "As multiples of &lt;alpha&gt; 1 mounts",
        "<b>0.50</b>",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    assert!(!page.contains("<alpha>"));
    assert_eq!(page.matches("<svg").count(), 2, "beta has one number of processes, which makes no plot");
}

#[test]
fn far_apart_lines_get_decades() {
    let line = |values: [f64; 2]| {
        let places = values.iter().enumerate().map(|(place, value)| (place, [*value; 3]));
        vec![chart::Line { color: 0, places: places.collect() }]
    };
    assert_eq!(chart::Scale::of(&line([1.0, 20.0])), chart::Scale::Linear);
    assert_eq!(chart::Scale::of(&line([1.0, 50.0])), chart::Scale::Logarithmic);
    assert_eq!(chart::Scale::of(&line([0.0, 50.0])), chart::Scale::Linear, "0 has no logarithm");
    let xs = ["1", "2"].map(str::to_owned);
    let drawn = line([0.004, 30.0]);
    let plot = lines("x", &xs, "ms", "processes", &drawn, chart::Scale::Logarithmic).unwrap();
    for label in ["0.001", "0.01", "0.1", "1", "10", "100"] {
        assert!(plot.contains(&format!("\n{label}\n")), "{label} in {plot}");
    }
}

#[test]
fn points_of_several_runs_become_one() {
    let merged =
        points::merged([(1, [1.0, 2.0, 3.0]), (0, [5.0, 5.0, 5.0]), (1, [0.5, 8.0, 9.0])].into_iter());
    assert_eq!(merged, [(0, [5.0, 5.0, 5.0]), (1, [0.5, 4.0, 9.0])]);
}

#[test]
fn bandwidth_of_clients_is_shown_as_execution_time_too() {
    let one = |processes: usize, transfer: u64, seconds: f64| {
        let mut one = report(processes, 1, 1.0);
        one.suite = "btio".to_owned();
        one.options = json!({"btio": {"class": "A", "buffer": transfer}});
        let phase = Phase::new("write", Unit::MebibytesPerSecond);
        let figure =
            |factor: f64| Figure { value: 100.0 / seconds, seconds: seconds * factor, ..Figure::default() };
        let remove = Phase::new("remove", Unit::Seconds);
        one.rows = [phase, remove].map(|of| Row::new(&of, &[figure(1.0)], &[figure(2.0)])).into();
        one
    };
    let page = page(&[one(1, 1 << 20, 50.0), one(4, 1 << 20, 20.0)], &Heading::default()).unwrap();
    for expected in ["<h3>Execution time against processes</h3>", "<h3>Bandwidth against processes</h3>"] {
        assert!(page.contains(expected), "{expected}");
    }
    // The plot's own axis: up to 100 s, which the other directory took with one process.
    let plot =
        page.split("Execution time against").nth(1).unwrap().split("Bandwidth against").next().unwrap();
    assert!(plot.contains("\n100\n") && !plot.contains("MiB/s"), "{plot}");
    let page = super::page(&[one(4, 64 << 10, 50.0), one(4, 1 << 20, 20.0)], &Heading::default()).unwrap();
    assert!(page.contains("\n64 KiB\n") && page.contains("\n1 MiB\n"));
    assert!(!page.contains("Execution time"), "the buffer is no client");
}

#[test]
fn nothing_to_compare_is_a_page_too() {
    let mut one = report(1, 100, 10.0);
    one.environments.pop();
    one.rows[0].versus = None;
    assert!(page(&[one], &Heading::default()).unwrap().contains("nothing is compared"));
    assert!(page(&[], &Heading::default()).is_ok());
}

//! `cofs bench suite`: all its phases are there, and the score is the one that its figures give by hand.

mod common;

use std::path::Path;

use cofs_bench::{
    Half, Heading, Metarates, Options, Outcome, Profile, page, results, run_profile, score_table,
};
use common::{entries, options, suite};
use tempfile::TempDir;

/// The suite is another one for each test of a profile.
fn given(processes: usize, directory: &Path) -> Options {
    options(suite::<Metarates>(""), processes, directory)
}

fn outcome(options: &Options) -> Outcome {
    run_profile(Profile::Trial, options, &mut |_| {}).unwrap()
}

/// The phases of IO500, in the order in which they are done here.
const PHASES: [&str; 12] = [
    "ior-easy-write",
    "ior-easy-read",
    "mdtest-easy-write",
    "mdtest-easy-stat",
    "mdtest-easy-delete",
    "ior-hard-write",
    "ior-hard-read",
    "mdtest-hard-write",
    "mdtest-hard-stat",
    "mdtest-hard-read",
    "mdtest-hard-delete",
    "find",
];

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

/// kIOPS and GiB/s of each phase, from bytes, operations and seconds of the repeat whose value is the median; by other words than
/// the program's.
fn by_hand(outcome: &Outcome, other: bool) -> Vec<(bool, f64)> {
    let of = |report: usize, phase: &str| {
        let target = usize::from(other);
        let mut samples = outcome.reports[report].samples(phase, target).to_vec();
        samples.sort_by(|a, b| a.value.total_cmp(&b.value));
        samples.swap_remove(samples.len() / 2)
    };
    let data = |report, phase| {
        let figure = of(report, phase);
        (true, figure.work.bytes as f64 / figure.seconds / 1073741824.0)
    };
    let metadata = |report, phase| {
        let figure = of(report, phase);
        (false, figure.work.operations as f64 / figure.seconds / 1000.0)
    };
    let cold = outcome.reports[4].rows.iter().any(|row| row.phase == "find cold");
    // 30 files in a directory in a directory.
    let find = (false, 32.0 / of(4, if cold { "find cold" } else { "find" }).seconds / 1000.0);
    vec![
        data(0, "write"),
        data(0, "read"),
        metadata(1, "file creation"),
        metadata(1, "file stat"),
        metadata(1, "file removal"),
        data(2, "write"),
        data(2, "read"),
        metadata(3, "file creation"),
        metadata(3, "file stat"),
        metadata(3, "file read"),
        metadata(3, "file removal"),
        find,
    ]
}

#[test]
fn the_score_is_the_geometric_mean_of_both_halves() {
    let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let versus = Some(b.path().to_owned());
    let outcome = outcome(&Options { versus, repeats: 3, ..given(2, a.path()) });
    let names: Vec<&str> = outcome.scores.iter().map(|score| score.name.as_str()).collect();
    let warm = PHASES.map(|name| if name == "find" { "find (warm)" } else { name });
    assert!(names == PHASES || names == warm, "{names:?}");
    for (other, total) in [(false, outcome.total), (true, outcome.other.unwrap())] {
        let expected = by_hand(&outcome, other);
        for (score, (is_data, value)) in outcome.scores.iter().zip(&expected) {
            let told = if other { score.other.unwrap() } else { score.value };
            assert!(close(told, *value), "{}: {told}, not {value}", score.name);
            assert_eq!(score.half == Half::Data, *is_data, "{}", score.name);
        }
        let root = |is_data: bool| {
            let of: Vec<f64> =
                expected.iter().filter(|(data, _)| *data == is_data).map(|(_, v)| *v).collect();
            assert_eq!(of.len(), if is_data { 4 } else { 8 });
            of.iter().product::<f64>().powf(1.0 / of.len() as f64)
        };
        assert!(close(total.data, root(true)) && close(total.metadata, root(false)));
        assert!(close(total.score * total.score, root(true) * root(false)));
    }
    for score in &outcome.scores {
        let [middle, least, most] = score.ratio.unwrap();
        assert!(least <= middle && middle <= most && least > 0.0, "{}", score.name);
    }
    for dir in [a, b] {
        assert_eq!(entries(dir.path()), 0);
    }
}

#[test]
fn what_it_found_is_a_table_and_a_page() {
    let dir = TempDir::new().unwrap();
    let outcomes = [1, 2].map(|processes| outcome(&given(processes, dir.path())));
    let table = score_table(&outcomes[0]);
    for word in PHASES.into_iter().chain(["suite trial: 1 process,", "metadata", "data", "score"]) {
        assert!(table.contains(word), "{word} is missing in {table}");
    }
    let text: String = outcomes.iter().map(|outcome| serde_json::to_string(outcome).unwrap()).collect();
    let reports = results(&text).unwrap();
    assert_eq!(reports.len(), 2);
    for (report, outcome) in reports.iter().zip(&outcomes) {
        assert_eq!((report.suite.as_str(), report.rows.len()), ("suite", PHASES.len()));
        // A number may lose its last digit on its way through a document.
        assert!(close(report.rows[0].median.value, outcome.reports[0].rows[0].median.value));
    }
    let page = page(&reports, &Heading::default()).unwrap();
    // Against the number of processes: the time of an operation where a phase counts them (in seven), that of the whole phase
    // where it counts bytes, and the value of all.
    let (rates, bandwidths) = (7, 4);
    assert_eq!(page.matches("<svg").count(), rates + bandwidths + PHASES.len());
    assert!(page.contains("ior-hard-read") && page.contains("score"));
}

#[test]
fn what_cannot_be_is_refused_before_any_test_begins() {
    let dir = TempDir::new().unwrap();
    let refused = |options: &Options| {
        let error = run_profile(Profile::Full, options, &mut |_| panic!("a step")).map(drop).unwrap_err();
        assert_eq!(entries(dir.path()), 0);
        error.to_string()
    };
    let options = given(1, dir.path());
    let bounded = refused(&Options { seconds: Some(1.0), ..options.clone() });
    assert!(bounded.contains("--profile says how much is done"));
    // What is wrong with a directory is no test's fault.
    let away = dir.path().join("away");
    let missing = refused(&Options { versus: Some(away.clone()), ..options.clone() });
    assert_eq!(missing, format!("{} is not there: make it, or mount what is to be measured", away.display()));
    // The full form's files of so many processes: only the first test would not fit.
    let many = refused(&Options { processes: 1000, ..options });
    assert!(many.starts_with("ior: ") && many.contains("not enough space"), "{many}");
}

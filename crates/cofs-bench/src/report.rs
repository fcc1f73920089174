//! What a run says: medians, spreads and, of two directories, their ratio.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Environment, Phase, Unit};

/// One measurement of one phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// In the phase's unit.
    pub value: f64,
    /// Times of single operations.
    pub mean_nanos: f64,
    pub p50_nanos: u64,
    pub p99_nanos: u64,
    pub p999_nanos: u64,
    pub max_nanos: u64,
    /// From the first worker's begin to the last one's begin, and by how much clocks of other machines may be wrong.
    pub skew_nanos: u64,
    pub clock_error_nanos: u64,
    /// From the first worker's begin to the last one's end.
    pub seconds: f64,
    pub operations: u64,
    /// How many of them were timed one by one; of operations that take less than a reading of the clock is worth, some
    /// stand for the others.
    #[serde(default)]
    pub timed: u64,
    pub bytes: u64,
    /// What the suite counted besides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Seconds of the parts that the suite names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spans: BTreeMap<String, f64>,
    /// What each process did.
    pub processes: Vec<Part>,
}

/// What one process did of a phase. Times are seconds since the phase began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    pub begin: f64,
    pub end: f64,
    pub operations: u64,
    pub bytes: u64,
    /// What the suite counted besides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Seconds of the parts that the suite names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spans: BTreeMap<String, f64>,
}

/// One phase over all repeats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub phase: String,
    pub unit: Unit,
    /// The repeat in the middle.
    pub median: Figure,
    /// The least and the greatest value.
    pub range: [f64; 2],
    pub versus: Option<Versus>,
    pub samples: Vec<Figure>,
}

/// The other directory, and how the first compares with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Versus {
    pub median: Figure,
    /// The first as a multiple of the other, as rates: above 1 it is faster, whatever the unit. The median of the
    /// ratios of the repeats.
    pub ratio: f64,
    /// The least and the greatest ratio.
    pub ratio_range: [f64; 2],
    pub samples: Vec<Figure>,
}

/// How a run was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    pub version: String,
    pub begun_unix: u64,
    pub warm_ups: usize,
    /// The most that a phase took to begin operations.
    pub seconds: Option<f64>,
    pub sync: bool,
    pub drop_caches: bool,
    pub nodes: Vec<Node>,
    /// How the directories are called, if that was said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What the run belongs to, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// A machine, and a pair of directories that processes on it worked in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    pub host: String,
    pub directories: Vec<String>,
    pub processes: usize,
}

/// What a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub suite: String,
    /// What the suite was told.
    pub options: Value,
    pub processes: usize,
    pub repeats: usize,
    pub conditions: Conditions,
    /// Of the directory, and of the one it is compared with.
    pub environments: Vec<Environment>,
    pub rows: Vec<Row>,
    /// The result in the form of the program that the suite follows, for each directory; empty where there is none.
    pub original: Vec<String>,
}

impl Report {
    /// The measurements of the phase of this name, in the first directory (0) or the other (1).
    pub fn samples(&self, phase: &str, target: usize) -> &[Figure] {
        let row = self.rows.iter().find(|row| row.phase == phase);
        match (row, target) {
            (Some(row), 0) => &row.samples,
            (Some(row), _) => row.versus.as_ref().map_or(&[], |versus| &versus.samples),
            (None, _) => &[],
        }
    }
}

impl Row {
    /// `other` is empty where nothing is compared.
    pub fn new(phase: &Phase, samples: &[Figure], other: &[Figure]) -> Self {
        let versus = (!other.is_empty()).then(|| Versus::new(phase.unit, samples, other));
        let range = range(samples.iter().map(|f| f.value));
        Self {
            phase: phase.name.to_owned(),
            unit: phase.unit,
            median: middle(samples),
            range,
            versus,
            samples: samples.to_vec(),
        }
    }
}

impl Versus {
    fn new(unit: Unit, samples: &[Figure], other: &[Figure]) -> Self {
        let ratio = |(a, b): (&Figure, &Figure)| match unit.more_is_better() {
            true => a.value / b.value,
            false => b.value / a.value,
        };
        let mut ratios: Vec<f64> = samples.iter().zip(other).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
        let ratio_range = range(ratios.iter().copied());
        Self { median: middle(other), ratio: median, ratio_range, samples: other.to_vec() }
    }
}

/// The sample whose value is the median.
fn middle(samples: &[Figure]) -> Figure {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    sorted.into_iter().nth(samples.len() / 2).unwrap_or_default()
}

pub(crate) fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)])
}

/// What the originals say of repeated measurements.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    pub max: f64,
    pub min: f64,
    pub mean: f64,
    /// Of all values, not of a sample of them: divided by their number.
    pub deviation: f64,
}

impl Spread {
    /// Zeros where there are no values.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return Self::default();
        }
        let number = values.len() as f64;
        let mean = values.iter().sum::<f64>() / number;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / number;
        let [min, max] = range(values.into_iter());
        Self { max, min, mean, deviation: variance.sqrt() }
    }
}

/// The report for people.
pub fn table(report: &Report) -> String {
    let Report { suite, processes, repeats, .. } = report;
    let mut out = format!("{suite}: {} processes {processes}, median of {repeats}\n", said(&report.options));
    for (letter, environment) in ["A", "B"].iter().zip(&report.environments) {
        out.push_str(&format!("{letter}  {environment}\n"));
    }
    let compared = report.rows.iter().any(|row| row.versus.is_some());
    let mut rows = vec![heading(compared)];
    rows.extend(report.rows.iter().map(cells));
    out.push_str(&columns(&rows));
    for (letter, form) in ["A", "B"].iter().zip(&report.original) {
        let sign = if compared { format!("{letter}\n") } else { String::new() };
        out.push_str(&format!("\n{sign}{form}"));
    }
    out
}

/// The options that a suite was given, without those that were not.
pub(crate) fn said(options: &Value) -> String {
    let of_suite = options.as_object().and_then(|kind| kind.values().next()).and_then(Value::as_object);
    let given = of_suite.into_iter().flatten().filter_map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(format!("{name},")),
        Value::String(text) => Some(format!("{name} {text},")),
        value => Some(format!("{name} {value},")),
    });
    given.collect::<Vec<_>>().join(" ")
}

fn heading(compared: bool) -> Vec<String> {
    let mut words = vec!["phase", "A", "spread", "unit", "p50", "p99", "p99.9", "max"];
    if compared {
        words.extend(["B", "A/B", "least", "most"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn cells(row: &Row) -> Vec<String> {
    let Figure { value, p50_nanos, p99_nanos, p999_nanos, max_nanos, .. } = row.median;
    let mut cells = vec![row.phase.clone(), number(value), spread(row), row.unit.name().to_owned()];
    cells.extend([p50_nanos, p99_nanos, p999_nanos, max_nanos].map(duration));
    if let Some(versus) = &row.versus {
        let [least, most] = versus.ratio_range;
        cells.push(number(versus.median.value));
        cells.extend([versus.ratio, least, most].map(|ratio| format!("{ratio:.2}")));
    }
    cells
}

/// From the least to the greatest value, as a part of the median.
fn spread(row: &Row) -> String {
    let [least, most] = row.range;
    match row.samples.len() {
        0 | 1 => String::new(),
        _ => format!("{:.0} %", (most - least) / row.median.value * 100.0),
    }
}

pub(crate) fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

pub(crate) fn duration(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// Columns as wide as they must be; the first reads from the left, the others from the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<0$}", width(column)),
            _ => format!("{cell:>0$}", width(column)),
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[f64]) -> Vec<Figure> {
        values.iter().map(|value| Figure { value: *value, ..Figure::default() }).collect()
    }

    #[test]
    fn a_ratio_above_one_is_faster_in_every_unit() {
        let rate = Phase::new("x", Unit::OperationsPerSecond);
        let time = Phase::new("x", Unit::Seconds);
        let row = Row::new(&rate, &figures(&[10.0, 30.0, 20.0]), &figures(&[10.0, 10.0, 10.0]));
        assert_eq!((row.median.value, row.range), (20.0, [10.0, 30.0]));
        let versus = row.versus.unwrap();
        assert_eq!((versus.ratio, versus.ratio_range), (2.0, [1.0, 3.0]));
        let row = Row::new(&time, &figures(&[1.0]), &figures(&[4.0]));
        assert_eq!(row.versus.unwrap().ratio, 4.0);
    }

    #[test]
    fn a_spread_is_of_all_values() {
        let spread = Spread::of([2.0, 4.0, 6.0, 8.0].into_iter());
        assert_eq!((spread.min, spread.max, spread.mean), (2.0, 8.0, 5.0));
        assert!((spread.deviation - 5f64.sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([].into_iter()), Spread::default());
    }

    #[test]
    fn the_table_lines_up() {
        let rows = [vec!["a".into(), "100".into()], vec!["bcd".into(), "5".into()]];
        assert_eq!(columns(&rows), "a    100\nbcd    5\n");
    }
}

//! What a run says: medians, spreads and, of two directories, their ratio.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Environment, Phase, Unit, environment::unequal, settings};

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
    /// How many operations were timed one by one; of those that take less than a reading of the clock is worth, some
    /// stand for the others.
    #[serde(default)]
    pub timed: u64,
    /// What all processes did.
    #[serde(flatten)]
    pub work: Work,
    /// What each process did.
    pub processes: Vec<Part>,
}

/// What one process did of a phase. Times are seconds since the phase began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    pub begin: f64,
    pub end: f64,
    #[serde(flatten)]
    pub work: Work,
}

/// What was done, by one process or by all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
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
    /// The repeat in the middle; of two in the middle the slower.
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
            median: middle(phase.unit, samples),
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
        let ratios = || samples.iter().zip(other).map(ratio);
        Self {
            median: middle(unit, other),
            ratio: median(ratios()).unwrap_or(f64::NAN),
            ratio_range: range(ratios()),
            samples: other.to_vec(),
        }
    }
}

/// The sample whose value is the median. Where two are in the middle it is the slower, so that no figure is better than what
/// half of the repeats reached.
fn middle(unit: Unit, samples: &[Figure]) -> Figure {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    let above = if unit.more_is_better() { samples.len().saturating_sub(1) / 2 } else { samples.len() / 2 };
    sorted.into_iter().nth(above).unwrap_or_default()
}

/// The median of numbers above 0, none if there are none; between two in the middle, what is as many times the lesser as it
/// is part of the greater, so that the median of ratios is the same whichever way round they are.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let high = *values.get(values.len() / 2)?;
    let low = *values.get((values.len() - 1) / 2)?;
    Some(if values.len().is_multiple_of(2) { (low * high).sqrt() } else { high })
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
    let Report { suite, repeats, .. } = report;
    let (told, by) = (settings::said(&report.options), settings::processes(report.processes));
    let mut out = format!("{suite}: {told}; {by}, median of {repeats}\n");
    for (letter, environment) in ["A", "B"].iter().zip(&report.environments) {
        out.push_str(&format!("{letter}  {environment}\n"));
    }
    if let Some(what) = unequal(&report.environments) {
        out.push_str(&format!("!  {what}\n"));
    }
    let compared = report.rows.iter().any(|row| row.versus.is_some());
    let together = report.processes > 1;
    let mut rows = vec![heading(together, compared)];
    rows.extend(report.rows.iter().map(|row| cells(row, together)));
    out.push_str(&columns(&rows));
    for (letter, form) in ["A", "B"].iter().zip(&report.original) {
        let sign = if compared { format!("{letter}\n") } else { String::new() };
        out.push_str(&format!("\n{sign}{form}"));
    }
    out
}

fn heading(together: bool, compared: bool) -> Vec<String> {
    let mut words = vec!["phase", "A", "spread", "unit", "p50", "p99", "p99.9", "max"];
    if together {
        words.push("skew");
    }
    if compared {
        words.extend(["B", "A/B", "least", "most"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn cells(row: &Row, together: bool) -> Vec<String> {
    let Figure { value, p50_nanos, p99_nanos, p999_nanos, max_nanos, skew_nanos, .. } = row.median;
    let mut cells = vec![row.phase.clone(), number(value), spread(row), row.unit.name().to_owned()];
    cells.extend([p50_nanos, p99_nanos, p999_nanos, max_nanos].map(duration));
    cells.extend(together.then(|| duration(skew_nanos)));
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
    fn of_two_in_the_middle_none_is_made_better() {
        let rate = Phase::new("x", Unit::OperationsPerSecond);
        let time = Phase::new("x", Unit::Seconds);
        let (slow, quick) = (figures(&[10.0, 40.0]), figures(&[40.0, 10.0]));
        let row = Row::new(&rate, &slow, &quick);
        assert_eq!((row.median.value, row.versus.as_ref().unwrap().median.value), (10.0, 10.0));
        // A quarter in one repeat, four times in the other.
        assert_eq!(row.versus.unwrap().ratio, 1.0);
        assert_eq!(Row::new(&time, &slow, &[]).median.value, 40.0);
        for (values, expected) in [(&[3.0][..], 3.0), (&[9.0, 1.0], 3.0), (&[5.0, 1.0, 7.0], 5.0)] {
            assert_eq!(median(values.iter().copied()), Some(expected));
        }
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn a_spread_is_of_all_values() {
        let spread = Spread::of([2.0, 4.0, 6.0, 8.0].into_iter());
        assert_eq!((spread.min, spread.max, spread.mean), (2.0, 8.0, 5.0));
        assert!((spread.deviation - 5f64.sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([].into_iter()), Spread::default());
    }

    #[test]
    fn every_column_has_a_heading() {
        let rate = Phase::new("x", Unit::OperationsPerSecond);
        for (together, other) in [(false, vec![]), (true, vec![]), (false, vec![1.0]), (true, vec![1.0])] {
            let row = Row::new(&rate, &figures(&[1.0]), &figures(&other));
            assert_eq!(heading(together, !other.is_empty()).len(), cells(&row, together).len());
        }
    }

    #[test]
    fn the_table_lines_up() {
        let rows = [vec!["a".into(), "100".into()], vec!["bcd".into(), "5".into()]];
        assert_eq!(columns(&rows), "a    100\nbcd    5\n");
    }
}

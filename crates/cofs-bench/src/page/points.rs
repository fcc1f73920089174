//! Results as points in a space of what was varied.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Report, Unit,
    report::{Figure, Row, median, range},
    settings::{counts_bytes, short, size},
};

/// One phase of one result, in one directory.
#[derive(Clone, Debug)]
pub struct Point {
    pub suite: String,
    pub phase: String,
    pub unit: Unit,
    /// What is compared.
    pub target: String,
    /// 0 or 1.
    pub place: usize,
    /// Numbers that may be varied.
    pub settings: BTreeMap<String, f64>,
    /// Settings that are no numbers, in words.
    pub words: String,
    /// Least, median, most, in the phase's unit.
    pub value: [f64; 3],
    /// Microseconds that a process waited for an operation, on average; least, median, most of the repeats.
    pub mean_micros: [f64; 3],
    /// From the first process's begin to the last one's end.
    pub seconds: [f64; 3],
}

/// Something that was varied.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub name: String,
    /// They are numbers of bytes.
    pub counts_bytes: bool,
    /// In order.
    pub values: Vec<f64>,
}

const PROCESSES: &str = "processes";
const NODES: &str = "nodes";

pub fn points(reports: &[Report], names: &[String]) -> Vec<Point> {
    let mut points = Vec::new();
    for report in reports {
        let (settings, words) = settings(report);
        for (place, row) in
            (0..report.environments.len()).flat_map(|p| report.rows.iter().map(move |r| (p, r)))
        {
            let samples = samples(row, place);
            if samples.is_empty() {
                continue;
            }
            points.push(Point {
                suite: report.suite.clone(),
                phase: row.phase.clone(),
                unit: row.unit,
                target: name(report, place, names),
                place,
                settings: settings.clone(),
                words: words.clone(),
                value: spread(samples.iter().map(|figure| figure.value)),
                mean_micros: spread(samples.iter().map(|figure| figure.mean_nanos / 1e3)),
                seconds: spread(samples.iter().map(|figure| figure.seconds)),
            });
        }
    }
    points
}

fn samples(row: &Row, place: usize) -> &[Figure] {
    match (place, &row.versus) {
        (0, _) => &row.samples,
        (_, Some(versus)) => &versus.samples,
        _ => &[],
    }
}

/// Least, median, most.
fn spread(values: impl Iterator<Item = f64> + Clone) -> [f64; 3] {
    let values = values.filter(|value| value.is_finite());
    let Some(middle) = median(values.clone()) else { return [0.0; 3] };
    let [least, most] = range(values);
    [least, middle, most]
}

/// How one of a result's directories is called.
pub fn name(report: &Report, place: usize, names: &[String]) -> String {
    if let Some(name) = names.get(place).or_else(|| report.conditions.names.get(place)) {
        return name.clone();
    }
    let kind = |place: usize| report.environments.get(place).map(|e| e.file_system.as_str());
    let letter = if place == 0 { "A" } else { "B" };
    match kind(place) {
        Some(own) if kind(0) != kind(1) => own.to_owned(),
        Some(own) => format!("{letter} ({own})"),
        None => letter.to_owned(),
    }
}

/// The names of what is compared, the first directory first.
pub fn names(points: &[Point]) -> Vec<String> {
    let mut names: Vec<(usize, String)> = points.iter().map(|p| (p.place, p.target.clone())).collect();
    names.sort();
    names.dedup();
    let of = |place: usize| {
        let mine: Vec<&str> =
            names.iter().filter(|(p, _)| *p == place).map(|(_, name)| name.as_str()).collect();
        mine.join(" or ")
    };
    [of(0), of(1)].into_iter().filter(|name| !name.is_empty()).collect()
}

/// The numbers and the words that a result was told.
pub fn settings(report: &Report) -> (BTreeMap<String, f64>, String) {
    let mut numbers = BTreeMap::new();
    let mut words = Vec::new();
    numbers.insert(PROCESSES.to_owned(), report.processes as f64);
    numbers.insert(NODES.to_owned(), report.conditions.nodes.len().max(1) as f64);
    let given = report.options.as_object().and_then(|kind| kind.values().next()).and_then(Value::as_object);
    for (name, value) in given.into_iter().flatten() {
        match value {
            Value::Number(number) => {
                numbers.insert(name.clone(), number.as_f64().unwrap_or_default());
            }
            Value::Bool(true) => words.push(name.clone()),
            Value::String(text) => words.push(format!("{name} {text}")),
            _ => {}
        }
    }
    (numbers, words.join(", "))
}

/// What was varied between these points. Two that always change together count as one, by its first name.
pub fn axes(points: &[&Point]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    let mut names: Vec<&String> = points.iter().flat_map(|point| point.settings.keys()).collect();
    // What papers plot against comes first.
    names.sort_by_key(|name| (name.as_str() != PROCESSES, name.as_str() != NODES, *name));
    names.dedup();
    for name in names {
        let axis = Axis::of(points, name);
        if axis.values.len() > 1 && !axes.iter().any(|other| tied(other, &axis, points)) {
            axes.push(axis);
        }
    }
    axes
}

/// Whether two axes have the same place at every point.
fn tied(a: &Axis, b: &Axis, points: &[&Point]) -> bool {
    a.values.len() == b.values.len() && points.iter().all(|point| a.place(point) == b.place(point))
}

impl Axis {
    /// The values that this setting has in these points, which are of one suite.
    pub fn of(points: &[&Point], name: &str) -> Self {
        let mut values: Vec<f64> = points.iter().filter_map(|p| p.settings.get(name)).copied().collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let counts_bytes = points.first().is_some_and(|point| counts_bytes(&point.suite, name));
        Self { name: name.to_owned(), counts_bytes, values }
    }

    /// Where the point lies on this axis, counted from 0.
    pub fn place(&self, point: &Point) -> Option<usize> {
        let value = point.settings.get(&self.name)?;
        self.values.iter().position(|other| other == value)
    }

    pub fn labels(&self) -> Vec<String> {
        self.values.iter().map(|value| self.label(*value)).collect()
    }

    fn label(&self, value: f64) -> String {
        if self.counts_bytes { size(value) } else { short(value) }
    }

    pub fn counts_clients(&self) -> bool {
        self.name == PROCESSES || self.name == NODES
    }
}

/// The line that the point belongs to: what it is of, and the settings that were varied besides the axis.
pub fn series_name(point: &Point, axis: &Axis, varied: &[Axis]) -> String {
    let mut name = point.target.clone();
    for other in varied.iter().filter(|other| *other != axis) {
        if let Some(value) = point.settings.get(&other.name) {
            name.push_str(&format!(", {} {}", other.label(*value), other.name));
        }
    }
    if !point.words.is_empty() {
        name.push_str(&format!(", {}", point.words));
    }
    name
}

/// All lines, the first directory's first; those of one point are none.
pub fn series(points: &[&Point], axis: &Axis, varied: &[Axis]) -> Vec<String> {
    let mut places: BTreeMap<(usize, String), Vec<Option<usize>>> = BTreeMap::new();
    for point in points {
        let name = series_name(point, axis, varied);
        places.entry((point.place, name)).or_default().push(axis.place(point));
    }
    let several =
        |places: &[Option<usize>]| places.iter().any(|place| Some(place) != places.first().as_ref().copied());
    places.into_iter().filter(|(_, places)| several(places)).map(|((_, name), _)| name).collect()
}

/// The phases in the order in which they were done.
pub fn phases(points: &[&Point]) -> Vec<(String, Unit)> {
    let mut phases: Vec<(String, Unit)> = Vec::new();
    for point in points {
        if !phases.iter().any(|(name, _)| *name == point.phase) {
            phases.push((point.phase.clone(), point.unit));
        }
    }
    phases
}

/// Points at the same place (the same thing measured by several runs) become one.
pub fn merged(places: impl Iterator<Item = (usize, [f64; 3])>) -> Vec<(usize, [f64; 3])> {
    let mut all: BTreeMap<usize, Vec<[f64; 3]>> = BTreeMap::new();
    places.for_each(|(place, value)| all.entry(place).or_default().push(value));
    let one = |values: Vec<[f64; 3]>| {
        let [low, ..] = spread(values.iter().map(|[low, ..]| *low));
        let [_, middle, _] = spread(values.iter().map(|[_, middle, _]| *middle));
        let [.., high] = spread(values.iter().map(|[.., high]| *high));
        [low, middle, high]
    };
    all.into_iter().map(|(place, values)| (place, one(values))).collect()
}

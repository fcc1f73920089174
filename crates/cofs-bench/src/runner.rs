//! Runs a suite as often as asked, on one directory or on two in turns.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    Environment, Latencies, Options, Phase, Report, Unit,
    report::{Figure, Part, Row},
    scratch::{self, Scratch},
    worker::{Done, Workers},
};

/// Runs `options.suite`. `progress` is told what comes next.
///
/// Errors: options that do not go together, and directories that cannot be measured, before anything is written;
/// then those of the file systems measured, with the phase they came in.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Report> {
    let suite = options.suite.suite();
    let mut options = options.clone();
    options.processes = options.processes.clamp(1, suite.processes_max());
    let targets: Vec<&Path> = [Some(&options.directory), options.versus.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    suite.check(options.processes).map_err(io::Error::other)?;
    for target in &targets {
        scratch::check(target, suite, options.processes, options.beside)?;
    }
    let cold = options.cold && can_drop_caches();
    let phases: Vec<Phase> = suite.phases().into_iter().filter_map(|phase| phase.warm_unless(cold)).collect();
    let mut samples = vec![vec![Vec::new(); phases.len()]; targets.len()];
    for repeat in 0..options.repeats.max(1) {
        for (target, samples) in targets.iter().zip(&mut samples) {
            let scratch = Scratch::new(target, suite)?;
            let mut workers =
                Workers::start(&options.launcher, &options.suite, options.processes, &scratch.path)?;
            for (phase, samples) in phases.iter().zip(samples.iter_mut()) {
                progress(&format!("{} {}: {}", repeat + 1, target.display(), phase.name));
                samples.push(measure(&mut workers, phase)?);
            }
            scratch.done(suite);
        }
    }
    let environments = targets.iter().map(|target| Environment::of(target)).collect();
    report(&options, &phases, &samples, environments)
}

fn measure(workers: &mut Workers, phase: &Phase) -> io::Result<Figure> {
    if phase.cold {
        drop_caches()?;
    }
    let done = workers.phase(phase.name)?;
    Ok(figure(phase.unit, &done))
}

fn figure(unit: Unit, done: &[Done]) -> Figure {
    let begin = done.iter().map(|d| d.begin).min().unwrap_or_default();
    let end = done.iter().map(|d| d.end).max().unwrap_or_default();
    let seconds = (end.saturating_sub(begin)).max(1) as f64 / 1e9;
    let bytes: u64 = done.iter().map(|d| d.bytes).sum();
    let mut latencies = Latencies::default();
    done.iter().for_each(|d| latencies.add(&d.latencies));
    let value = match unit {
        Unit::OperationsPerSecond => latencies.count() as f64 / seconds,
        Unit::MebibytesPerSecond => bytes as f64 / f64::from(1 << 20) / seconds,
        Unit::Seconds => seconds,
    };
    Figure {
        value,
        p50_nanos: latencies.quantile(0.5),
        p99_nanos: latencies.quantile(0.99),
        max_nanos: latencies.max(),
        seconds,
        operations: latencies.count(),
        bytes,
        counts: counts(done),
        spans: spans(done),
        processes: done.iter().map(|d| part(d, begin)).collect(),
    }
}

fn part(done: &Done, begin: u64) -> Part {
    let seconds = |time: u64| time.saturating_sub(begin) as f64 / 1e9;
    let operations = done.latencies.count();
    Part { begin: seconds(done.begin), end: seconds(done.end), operations, bytes: done.bytes }
}

fn counts(done: &[Done]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in done.iter().flat_map(|d| &d.counts) {
        *sums.entry(name.clone()).or_default() += count;
    }
    sums
}

/// Seconds from the first worker's begin of a part to the last one's end.
fn spans(done: &[Done]) -> BTreeMap<String, f64> {
    let mut spans: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for span in done.iter().flat_map(|d| &d.spans) {
        let (begin, end) = spans.entry(span.name.clone()).or_insert((span.begin, span.end));
        (*begin, *end) = ((*begin).min(span.begin), (*end).max(span.end));
    }
    spans.into_iter().map(|(name, (begin, end))| (name, end.saturating_sub(begin) as f64 / 1e9)).collect()
}

fn report(
    options: &Options,
    phases: &[Phase],
    samples: &[Vec<Vec<Figure>>],
    environments: Vec<Environment>,
) -> io::Result<Report> {
    let of = |target: usize, phase: usize| {
        samples.get(target).and_then(|s| s.get(phase)).map_or(&[][..], Vec::as_slice)
    };
    let rows = phases.iter().enumerate().filter(|(_, phase)| !phase.silent);
    let rows = rows.map(|(at, phase)| Row::new(phase, of(0, at), of(1, at))).collect();
    let mut report = Report {
        suite: options.suite.suite().name(),
        options: serde_json::to_value(&options.suite)?,
        processes: options.processes,
        repeats: options.repeats.max(1),
        environments,
        rows,
        original: Vec::new(),
    };
    let forms = (0..samples.len()).map(|target| options.suite.suite().original(&report, target));
    report.original = forms.filter(|form| !form.is_empty()).collect();
    Ok(report)
}

fn can_drop_caches() -> bool {
    rustix::process::geteuid().is_root() && fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3\n")
}

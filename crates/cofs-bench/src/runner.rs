//! Runs a suite as often as asked, on one directory or on two in turns.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    Environment, Latencies, Options, Report, Suite, Unit,
    report::{Figure, Row},
    suite::{self, Phase},
    worker::{Done, Workers},
};

/// Runs `options.suite`. `progress` is told what comes next.
///
/// Errors: those of the file systems measured, with the phase they came in.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Report> {
    let suite = suite::suite(&options.suite).ok_or_else(|| io::Error::other("no such suite"))?;
    let mut options = options.clone();
    options.load.processes = options.load.processes.clamp(1, suite.processes_max());
    let cold = options.cold && can_drop_caches();
    let phases: Vec<Phase> =
        suite.phases().iter().copied().filter_map(|phase| phase.warm_unless(cold)).collect();
    let targets: Vec<&Path> = [Some(&options.directory), options.versus.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    let mut samples = vec![vec![Vec::new(); phases.len()]; targets.len()];
    for repeat in 0..options.repeats.max(1) {
        for (target, samples) in targets.iter().zip(&mut samples) {
            let scratch = Scratch::new(target)?;
            let mut workers = Workers::start(&options.launcher, suite.name(), &options.load, &scratch.0)?;
            for (phase, samples) in phases.iter().zip(samples.iter_mut()) {
                progress(&format!("{} {}: {}", repeat + 1, target.display(), phase.name));
                samples.push(measure(&mut workers, phase)?);
            }
        }
    }
    let environments = targets.iter().map(|target| Environment::of(target)).collect();
    Ok(report(suite, &options, &phases, &samples, environments))
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
    let secs = (end.saturating_sub(begin)).max(1) as f64 / 1e9;
    let bytes: u64 = done.iter().map(|d| d.bytes).sum();
    let mut latencies = Latencies::default();
    done.iter().for_each(|d| latencies.add(&d.latencies));
    let value = match unit {
        Unit::OperationsPerSecond => latencies.count() as f64 / secs,
        Unit::MebibytesPerSecond => bytes as f64 / f64::from(1 << 20) / secs,
        Unit::Seconds => secs,
    };
    Figure {
        value,
        p50_nanos: latencies.quantile(0.5),
        p99_nanos: latencies.quantile(0.99),
        max_nanos: latencies.max(),
    }
}

fn report(
    suite: &dyn Suite,
    options: &Options,
    phases: &[Phase],
    samples: &[Vec<Vec<Figure>>],
    environments: Vec<Environment>,
) -> Report {
    let of = |target: usize, phase: usize| {
        samples.get(target).and_then(|s| s.get(phase)).map_or(&[][..], Vec::as_slice)
    };
    let rows = phases.iter().enumerate().filter(|(_, phase)| !phase.silent);
    let rows = rows.map(|(at, phase)| Row::new(phase, of(0, at), of(1, at))).collect();
    Report {
        suite: suite.name(),
        repeats: options.repeats.max(1),
        load: options.load.clone(),
        environments,
        rows,
    }
}

/// A directory of this run's own, removed with all that is left in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(target: &Path) -> io::Result<Self> {
        let path = target.join(format!("cofs-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("a directory for the bench, {}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn can_drop_caches() -> bool {
    rustix::process::geteuid().is_root() && fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3\n")
}

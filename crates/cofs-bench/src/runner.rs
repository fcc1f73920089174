//! Runs a suite as often as asked, on one directory or on two in turns.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    Latencies, Options, Phase, Place, Report, Unit,
    crew::{Crew, Gathering, admit},
    meeting::{Door, Ways, connect, listen_at},
    message::{Job, Order, Setup, VERSION},
    report::{Conditions, Figure, Part, Row, Work},
    scratch::{self, Scratch},
    worker::{Done, Loss, serve},
};

/// How long ranks wait for each other before there is a run.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// What is done next.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub what: &'a str,
    /// How many of how many steps are done.
    pub done: usize,
    pub of: usize,
}

/// Runs `options.suite`, with workers on this machine, or as rank 0 of those that a launcher started. `progress` is
/// told what comes next.
///
/// Errors: options that do not go together, directories that cannot be measured, and ranks that do not come or
/// were told something else, before anything is written; then those of the file systems measured, with the phase
/// they came in, and workers that are lost. What a run that failed has written stays, and the error says where.
pub fn run(options: &Options, progress: &mut dyn FnMut(&Step)) -> io::Result<Report> {
    let job = Job::of(options);
    fits(&job)?;
    let mut crew = gather(options, &job)?;
    let result = crew.all(&Order::Check).and_then(|()| rounds(options, &job, &mut crew, progress));
    crew.end(result.as_ref().err());
    result
}

/// Is another rank than 0 of those that a launcher started, to the end of the run. If the run fails elsewhere, the
/// process says so and exits.
///
/// Errors: options that do not go together, no rank 0, or a connection that fails.
pub fn join(options: &Options, place: &Place) -> io::Result<()> {
    let job = Job::of(options);
    fits(&job)?;
    let from = connect(0, &place.meeting, COME_WITHIN)?;
    let mut to = from.try_clone()?;
    let ways = Ways::of(&from)?;
    let setup = Setup { targets: options.targets(place.rank), job, rank: place.rank, ways };
    serve(setup, from, &mut to, Loss::Told)
}

/// Whether the options go together, and the directories, as seen from here, can take what the suite will do. Writes
/// nothing.
pub(crate) fn check(options: &Options) -> io::Result<()> {
    let job = Job::of(options);
    fits(&job)?;
    let suite = job.suite.suite();
    options.targets(0).iter().try_for_each(|target| scratch::check(target, suite, job.processes, job.beside))
}

/// Whether the options go together.
fn fits(job: &Job) -> io::Result<()> {
    let suite = job.suite.suite();
    suite.check(job.processes).map_err(io::Error::other)?;
    match suite.own_time() {
        Some(own) if job.seconds.is_some() => {
            Err(io::Error::other(format!("--seconds does not bound {}: {own}", suite.name())))
        }
        _ => Ok(()),
    }
}

fn gather(options: &Options, job: &Job) -> io::Result<Crew> {
    let mut gathering = Gathering::new(job)?;
    let setup = |rank, ways| Setup { job: job.clone(), rank, targets: options.targets(rank), ways };
    let Some(place) = &options.place else {
        let ways = Ways::default();
        (0..job.processes).try_for_each(|rank| gathering.start(&options.launcher, &setup(rank, ways)))?;
        return gathering.complete(COME_WITHIN);
    };
    if place.size != job.processes {
        let text =
            format!("{} takes {} processes, not {}", options.suite.suite().name(), job.processes, place.size);
        return Err(io::Error::other(text));
    }
    let listener = listen_at(&place.meeting)?;
    let own = listener.local_addr()?.ip();
    let events = gathering.events.clone();
    let _door = Door::open(listener, move |stream| admit(stream, &events))?;
    gathering.start(&options.launcher, &setup(place.rank, Ways { own, first: own }))?;
    gathering.complete(COME_WITHIN)
}

fn rounds(
    options: &Options,
    job: &Job,
    crew: &mut Crew,
    progress: &mut dyn FnMut(&Step),
) -> io::Result<Report> {
    if job.drop_caches && !crew.can_drop_caches() {
        return Err(io::Error::other("only root can drop caches: leave out --drop-caches, or be root"));
    }
    let suite = job.suite.suite();
    let cold = job.cold && crew.can_drop_caches();
    let phases: Vec<Phase> = suite.phases().into_iter().filter_map(|phase| phase.warm_unless(cold)).collect();
    let targets = options.targets(0);
    let mut samples = vec![vec![Vec::new(); phases.len()]; targets.len()];
    let count = job.warm_ups + job.repeats;
    let mut step = 0;
    for round in 0..count {
        for at in turns(targets.len(), round) {
            if targets.len() > 1 {
                crew.each_machine(&Order::Rest)?;
            }
            let (target, samples) = (&targets[at], &mut samples[at]);
            let scratch = Scratch::new(target, suite, round)?;
            let mut told = |phase: &Phase| {
                let what = format!("{} of {count}, {}: {}", round + 1, target.display(), phase.name);
                progress(&Step { what: &what, done: step, of: count * targets.len() * phases.len() });
                step += 1;
            };
            let figures = self::round(crew, job, at, &scratch, &phases, &mut told)
                .map_err(|error| left(&error, &scratch))?;
            scratch.done(suite)?;
            if round >= job.warm_ups {
                samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
            }
        }
    }
    let mut report = report(job, crew, &phases, &samples)?;
    report.conditions.names.clone_from(&options.names);
    report.conditions.group.clone_from(&options.group);
    Ok(report)
}

/// The targets in the order in which `round` takes them: every other one begins with the other. What the first leaves
/// to the machine, such as bytes that are still to be written back, is then not always at the cost of the same one.
fn turns(targets: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..targets).map(move |turn| if round.is_multiple_of(2) { turn } else { targets - 1 - turn })
}

/// What the user must know about a run that failed.
fn left(error: &io::Error, scratch: &Scratch) -> io::Error {
    let stays = match scratch.name() {
        Some(_) => format!(
            "; what it wrote is left in {}, and `cofs bench clean {}` removes it",
            scratch.path.display(),
            scratch.path.parent().unwrap_or(&scratch.path).display()
        ),
        None => String::new(),
    };
    io::Error::new(error.kind(), format!("{error}{stays}"))
}

/// All phases once, in one target.
fn round(
    crew: &mut Crew,
    job: &Job,
    target: usize,
    scratch: &Scratch,
    phases: &[Phase],
    told: &mut dyn FnMut(&Phase),
) -> io::Result<Vec<Figure>> {
    crew.all(&Order::Enter { target, name: scratch.name() })?;
    let mut figures = Vec::new();
    for phase in phases {
        told(phase);
        let drop_caches = phase.cold || job.drop_caches;
        if job.sync || drop_caches {
            crew.each_machine(&Order::Settle { sync: job.sync, drop_caches })?;
        }
        let (done, clock_error) = crew.phase(phase.name)?;
        figures.push(figure(phase.unit, &done, clock_error));
    }
    crew.all(&Order::Leave)?;
    Ok(figures)
}

fn figure(unit: Unit, done: &[Done], clock_error_nanos: u64) -> Figure {
    let begin = done.iter().map(|d| d.begin).min().unwrap_or_default();
    let end = done.iter().map(|d| d.end).max().unwrap_or_default();
    let seconds = (end.saturating_sub(begin)).max(1) as f64 / 1e9;
    let mut latencies = Latencies::default();
    done.iter().for_each(|d| latencies.add(&d.latencies));
    let work = work(done);
    let value = match unit {
        Unit::OperationsPerSecond => work.operations as f64 / seconds,
        Unit::MebibytesPerSecond => work.bytes as f64 / f64::from(1 << 20) / seconds,
        Unit::Seconds => seconds,
    };
    Figure {
        value,
        p50_nanos: latencies.quantile(0.5),
        mean_nanos: latencies.mean(),
        p99_nanos: latencies.quantile(0.99),
        p999_nanos: latencies.quantile(0.999),
        max_nanos: latencies.max(),
        seconds,
        timed: done.iter().map(|d| d.timed + d.singles).sum(),
        skew_nanos: done.iter().map(|d| d.begin).max().unwrap_or_default().saturating_sub(begin),
        clock_error_nanos,
        work,
        processes: done.iter().map(|d| part(d, begin)).collect(),
    }
}

fn part(done: &Done, begin: u64) -> Part {
    let seconds = |time: u64| time.saturating_sub(begin) as f64 / 1e9;
    Part { begin: seconds(done.begin), end: seconds(done.end), work: work(std::slice::from_ref(done)) }
}

/// What these did together.
fn work(done: &[Done]) -> Work {
    let mut counts = BTreeMap::new();
    for (name, count) in done.iter().flat_map(|d| &d.counts) {
        *counts.entry(name.clone()).or_default() += count;
    }
    let operations = done.iter().map(|d| d.latencies.count()).sum();
    Work { operations, bytes: done.iter().map(|d| d.bytes).sum(), counts, spans: spans(done) }
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

fn report(job: &Job, crew: &Crew, phases: &[Phase], samples: &[Vec<Vec<Figure>>]) -> io::Result<Report> {
    let of = |target: usize, phase: usize| {
        samples.get(target).and_then(|s| s.get(phase)).map_or(&[][..], Vec::as_slice)
    };
    let rows = phases.iter().enumerate().filter(|(_, phase)| !phase.silent);
    let rows = rows.map(|(at, phase)| Row::new(phase, of(0, at), of(1, at))).collect();
    let suite = job.suite.suite();
    let mut report = Report {
        suite: suite.name().to_owned(),
        options: serde_json::to_value(&job.suite)?,
        processes: job.processes,
        repeats: job.repeats,
        conditions: Conditions {
            version: VERSION.to_owned(),
            begun_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            warm_ups: job.warm_ups,
            seconds: job.seconds,
            sync: job.sync,
            drop_caches: job.drop_caches,
            nodes: crew.nodes(),
            ..Conditions::default()
        },
        environments: crew.environments(),
        rows,
        original: Vec::new(),
    };
    let forms = (0..samples.len()).map(|target| suite.original(&report, target));
    report.original = forms.filter(|form| !form.is_empty()).collect();
    Ok(report)
}

//! Results as one page: the plots of the field's papers (time per operation against processes or nodes, rate against
//! the size of a directory, bandwidth against the size of a transfer, run time against clients), with and without,
//! and the tables behind them. The page needs nothing but itself: plots are drawn here (`plotters`), as SVG.

mod chapters;
mod chart;
mod html;
mod points;
mod verdict;

use std::{error::Error, fmt::Write};

use self::{
    chart::{Line, Mark, Scale, lines, ratios},
    html::{Table, escape, figure},
    points::{Axis, Point, axes, points},
};
use crate::{
    Report, Unit,
    environment::unequal,
    report::{Row, duration, median, number},
    settings,
};

type Drawn<T = ()> = Result<T, Box<dyn Error>>;

/// What stands on the page besides the results.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    pub title: String,
    /// How the two directories of every run are called; else they have the names of their file systems.
    pub names: Vec<String>,
    /// What readers must know besides, as paragraphs.
    pub notes: Vec<String>,
}

/// The page of these results.
///
/// Errors: a plot cannot be drawn.
pub fn page(reports: &[Report], heading: &Heading) -> Drawn<String> {
    let mut body = format!("<h1>{}</h1>\n", escape(&heading.title));
    for note in &heading.notes {
        writeln!(body, "<p>{}</p>", escape(note))?;
    }
    let (grouped, alone): (Vec<Report>, Vec<Report>) =
        reports.iter().cloned().partition(|report| report.conditions.group.is_some());
    if !grouped.is_empty() {
        chapters::chapters(&mut body, &grouped, &heading.names)?;
    }
    if !alone.is_empty() || grouped.is_empty() {
        ungrouped(&mut body, &alone, heading)?;
    }
    writeln!(body, "<h2>Tables</h2>")?;
    for (at, report) in reports.iter().enumerate() {
        tables(&mut body, at, report, &heading.names)?;
    }
    Ok(html::document(&heading.title, &body))
}

/// Results that belong to no group.
fn ungrouped(body: &mut String, reports: &[Report], heading: &Heading) -> Drawn {
    let points = points(reports, &heading.names);
    summary(body, reports, &points)?;
    let mut suites: Vec<&str> = reports.iter().map(|report| report.suite.as_str()).collect();
    suites.sort_unstable();
    suites.dedup();
    suites.into_iter().try_for_each(|suite| section(body, suite, &points))
}

/// What helps and what does not, over all results that compare two directories.
fn summary(body: &mut String, reports: &[Report], points: &[Point]) -> Drawn {
    let compared: Vec<(&Report, &Row)> = reports
        .iter()
        .flat_map(|report| report.rows.iter().map(move |row| (report, row)))
        .filter(|(_, row)| row.versus.is_some())
        .collect();
    let names = points::names(points);
    if compared.is_empty() {
        writeln!(body, "<p>{} results of one directory each; nothing is compared.</p>", reports.len())?;
        return Ok(());
    }
    let ratio = |row: &Row| row.versus.as_ref().map_or(f64::NAN, |versus| versus.ratio);
    let (mut faster, mut slower, mut alike) = (0, 0, 0);
    for (_, row) in &compared {
        match row.versus.as_ref().map(|versus| versus.ratio_range) {
            Some([least, _]) if least > 1.0 => faster += 1,
            Some([_, most]) if most < 1.0 => slower += 1,
            _ => alike += 1,
        }
    }
    let logs: Vec<f64> =
        compared.iter().map(|(_, row)| ratio(row).ln()).filter(|log| log.is_finite()).collect();
    let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
    let (first, second) = (names.first().map_or("A", |n| n), names.get(1).map_or("B", |n| n));
    writeln!(
        body,
        "<p>Of {} comparisons <b>{}</b> is faster than <b>{}</b> in {faster} and slower in {slower}, in all repeats; in \
         {alike} repeats differ on it. The geometric mean of all ratios is {mean:.2}.</p>",
        compared.len(),
        escape(first),
        escape(second),
    )?;
    let marks: Vec<Mark> = per_phase(&compared);
    writeln!(
        body,
        "{}",
        figure(
            &ratios(&marks)?,
            &format!(
                "{} as a multiple of {}: the median of all results of a phase, and the least and the greatest ratio. Right of the line it is faster.",
                escape(first),
                escape(second)
            )
        )
    )?;
    Ok(())
}

/// One mark for each phase of each suite: the median over the results, and the extremes.
fn per_phase(compared: &[(&Report, &Row)]) -> Vec<Mark> {
    let mut marks: Vec<(String, Vec<f64>, f64, f64)> = Vec::new();
    for (report, row) in compared {
        let Some(versus) = &row.versus else { continue };
        let name = format!("{}: {}", report.suite, row.phase);
        let [least, most] = versus.ratio_range;
        match marks.iter_mut().find(|mark| mark.0 == name) {
            Some(mark) => {
                mark.1.push(versus.ratio);
                (mark.2, mark.3) = (mark.2.min(least), mark.3.max(most));
            }
            None => marks.push((name, vec![versus.ratio], least, most)),
        }
    }
    let finite = |(name, all, low, high): (String, Vec<f64>, f64, f64)| {
        let middle = median(all.into_iter())?;
        let drawn = [low, middle, high].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        drawn.then_some(Mark { name, low, middle, high })
    };
    marks.into_iter().filter_map(finite).collect()
}

/// The plots of one suite: for each thing that was varied, one of each phase.
fn section(body: &mut String, suite: &str, points: &[Point]) -> Drawn {
    let points: Vec<&Point> = points.iter().filter(|point| point.suite == suite).collect();
    let varied = axes(&points);
    if varied.is_empty() {
        return Ok(());
    }
    let mut plotted = String::new();
    for axis in &varied {
        let rates = points.iter().any(|point| point.unit == Unit::OperationsPerSecond);
        if axis.counts_clients() && rates {
            plots(&mut plotted, &points, axis, &varied, Measure::TimePerOperation)?;
        }
        let bandwidths = points.iter().any(|point| point.unit == Unit::MebibytesPerSecond);
        if axis.counts_clients() && bandwidths {
            plots(&mut plotted, &points, axis, &varied, Measure::ExecutionTime)?;
        }
        plots(&mut plotted, &points, axis, &varied, Measure::Value)?;
    }
    if !plotted.is_empty() {
        writeln!(body, "<h2>{}</h2>\n{plotted}", escape(suite))?;
    }
    Ok(())
}

/// What the vertical axis shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// In the phase's unit.
    Value,
    /// The mean that a process waited for an operation.
    TimePerOperation,
    /// The whole phase's, where its own unit is a bandwidth.
    ExecutionTime,
}

impl Measure {
    fn title(self, points: &[&Point]) -> &'static str {
        let any = |unit| points.iter().any(|point| point.unit == unit);
        match (self, any(Unit::OperationsPerSecond), any(Unit::MebibytesPerSecond)) {
            (Self::TimePerOperation, ..) => "Time per operation",
            (Self::ExecutionTime, ..) => "Execution time",
            (Self::Value, true, true) => "Results",
            // The time of a phase beside them (IOR's remove) names none of them.
            (Self::Value, true, false) => "Rate",
            (Self::Value, false, true) => "Bandwidth",
            (Self::Value, false, false) => "Time",
        }
    }

    fn label(self, unit: Unit) -> &'static str {
        match (self, unit) {
            (Self::TimePerOperation, _) => "µs per operation",
            (Self::ExecutionTime, _) => "s",
            (_, Unit::OperationsPerSecond) => "operations/s",
            (_, Unit::MebibytesPerSecond) => "MiB/s",
            (_, Unit::Seconds) => "s",
        }
    }

    fn of(self, point: &Point) -> [f64; 3] {
        match self {
            Self::Value => point.value,
            Self::TimePerOperation => point.mean_micros,
            Self::ExecutionTime => point.seconds,
        }
    }

    fn shows(self, unit: Unit) -> bool {
        match self {
            Self::Value => true,
            Self::TimePerOperation => unit == Unit::OperationsPerSecond,
            Self::ExecutionTime => unit == Unit::MebibytesPerSecond,
        }
    }
}

/// With a heading; nothing where nothing makes a line.
fn plots(body: &mut String, points: &[&Point], axis: &Axis, varied: &[Axis], measure: Measure) -> Drawn {
    let what = measure.title(points);
    let points: Vec<&Point> = points.iter().filter(|point| measure.shows(point.unit)).copied().collect();
    let series = points::series(&points, axis, varied);
    let mut grid = String::new();
    for (phase, unit) in points::phases(&points) {
        let drawn: Vec<Line> = series
            .iter()
            .enumerate()
            .map(|(color, name)| {
                let mine = points.iter().filter(|point| {
                    point.phase == phase && points::series_name(point, axis, varied) == *name
                });
                let places = mine.filter_map(|point| Some((axis.place(point)?, measure.of(point))));
                Line { color, places: points::merged(places) }
            })
            .filter(|line| !line.places.is_empty())
            .collect();
        if drawn.iter().any(|line| line.places.len() > 1) {
            let plot = lines(&phase, &axis.labels(), measure.label(unit), &axis.name, &drawn, Scale::Linear)?;
            writeln!(grid, "{}", figure(&plot, ""))?;
        }
    }
    if !grid.is_empty() {
        writeln!(body, "<h3>{what} against {}</h3>", escape(&axis.name))?;
        writeln!(body, "{}\n<div class=\"grid\">\n{grid}</div>", html::legend(&series))?;
    }
    Ok(())
}

fn tables(body: &mut String, at: usize, report: &Report, names: &[String]) -> Drawn {
    let options = settings::said(&report.options);
    // What is drawn already need not be read as numbers, too.
    let open = at == 0 && report.conditions.group.is_none();
    let group = report.conditions.group.iter().chain(&report.conditions.names);
    let group: String = group.map(|word| format!("{word}, ")).collect();
    writeln!(
        body,
        "<details{}><summary>{}{}: {}; {}</summary>",
        if open { " open" } else { "" },
        escape(&group),
        escape(&report.suite),
        escape(&options),
        settings::processes(report.processes)
    )?;
    let compared = report.rows.iter().any(|row| row.versus.is_some());
    let mut heading =
        vec!["phase", "unit", "median", "least", "most", "mean", "p50", "p99", "p99.9", "max", "skew"];
    if compared {
        heading.extend(["other", "least", "most", "ratio", "least", "most"]);
    }
    let mut table = Table::new(&heading);
    for row in &report.rows {
        table.row(&cells(row));
    }
    writeln!(body, "{}", table.end())?;
    let mut facts = Table::new(&[
        "",
        "directory",
        "file system",
        "source",
        "mount options",
        "kernel",
        "processor",
        "CPUs",
        "memory",
    ]);
    for (target, environment) in report.environments.iter().enumerate() {
        let e = environment;
        facts.row(&[
            points::name(report, target, names),
            e.directory.clone(),
            e.file_system.clone(),
            e.source.clone(),
            e.mount_options.clone(),
            e.kernel.clone(),
            e.processor.clone(),
            e.processors.to_string(),
            format!("{} MiB", e.memory_mib),
        ]);
    }
    writeln!(body, "{}", facts.end())?;
    let c = &report.conditions;
    let nodes: Vec<String> = c
        .nodes
        .iter()
        .map(|node| {
            let processes = settings::processes(node.processes);
            format!("{} ({processes} in {})", node.host, node.directories.join(", "))
        })
        .collect();
    let mut notes = vec![
        format!("cofs-bench {}", c.version),
        format!("{} repeats after {} warm-ups", report.repeats, c.warm_ups),
    ];
    notes.extend(c.seconds.map(|seconds| format!("at most {seconds} s a phase")));
    notes.extend(c.sync.then(|| "synced before each phase".to_owned()));
    notes.extend(c.drop_caches.then(|| "caches dropped before each phase".to_owned()));
    notes.push(format!("on {}", nodes.join("; ")));
    notes.extend(unequal(&report.environments));
    writeln!(body, "<p class=\"notes\">{}</p>", escape(&notes.join(" · ")))?;
    for form in &report.original {
        writeln!(body, "<pre>{}</pre>", escape(form))?;
    }
    writeln!(body, "</details>")?;
    Ok(())
}

fn cells(row: &Row) -> Vec<String> {
    let m = &row.median;
    let [least, most] = row.range;
    let mut cells = vec![row.phase.clone(), row.unit.name().to_owned()];
    cells.extend([m.value, least, most].map(number));
    cells.extend(
        [m.mean_nanos as u64, m.p50_nanos, m.p99_nanos, m.p999_nanos, m.max_nanos, m.skew_nanos]
            .map(duration),
    );
    if let Some(versus) = &row.versus {
        let others = crate::report::range(versus.samples.iter().map(|figure| figure.value));
        cells.push(number(versus.median.value));
        cells.extend(others.map(number));
        cells.push(format!("{:.2}", versus.ratio));
        cells.extend(versus.ratio_range.map(|ratio| format!("{ratio:.2}")));
    }
    cells
}

#[cfg(test)]
mod tests;

//! Results of groups, such as of several file systems below, each a chapter, in the figures of the COFS paper (Artiaga and
//! Cortes, "Using Filesystem Virtualization to Avoid Metadata Bottlenecks", 2010): for each operation the time that a process
//! waits for one, in milliseconds, against the number of processes and against the number of files in the directory, in a
//! shared directory and in own ones, with and without. Before them, in words and numbers computed from the same
//! results: what helps and what does not.

use std::{collections::BTreeSet, fmt::Write};

use cofs_types::utc_day;

use super::{
    Drawn,
    chart::{Line, Scale, lines},
    html::{Ratios, escape, figure, legend_of},
    points::{self, Axis, Point, points},
    verdict::{self, Comparison, comparisons, operation, ratio_of, sentences},
};
use crate::{
    Report, Unit,
    settings::{short, size},
};

/// The order of suites; others follow.
const SUITES: &[&str] = &["metarates", "metabench", "mdtest"];

const PROCESSES: &str = "processes";
const FILES: &str = "files";

/// Of each place, the colours of its names: the first directory's cold, the other's warm.
const HUES: [&[usize]; 2] = [&[0, 5, 2], &[4, 1, 3, 6]];

/// All results of one group.
struct Chapter<'a> {
    name: &'a str,
    reports: Vec<&'a Report>,
    points: Vec<Point>,
    comparisons: Vec<Comparison>,
}

/// Writes the chapters of these results, all of which have a group.
pub fn chapters(body: &mut String, reports: &[Report], names: &[String]) -> Drawn {
    let mut groups: Vec<&str> = Vec::new();
    for group in reports.iter().filter_map(|report| report.conditions.group.as_deref()) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let chapters: Vec<Chapter> = groups.into_iter().map(|name| Chapter::new(name, reports, names)).collect();
    facts(body, reports)?;
    overview(body, &chapters)?;
    chapters.iter().try_for_each(|chapter| chapter.write(body))
}

/// On which machine, when, how often.
fn facts(body: &mut String, reports: &[Report]) -> Drawn {
    let distinct =
        |words: Vec<String>| words.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    let environments = || reports.iter().filter_map(|report| report.environments.first());
    let machines = distinct(
        environments()
            .map(|e| {
                format!("{} CPUs ({}), {} MiB, Linux {}", e.processors, e.processor, e.memory_mib, e.kernel)
            })
            .collect(),
    );
    let repeats = distinct(reports.iter().map(|report| report.repeats.to_string()).collect());
    let begun = reports.iter().map(|report| report.conditions.begun_unix).filter(|begun| *begun > 0).min();
    let begun = begun.map(|begun| format!(" · {}", utc_day(begun))).unwrap_or_default();
    writeln!(
        body,
        "<p class=\"notes\">{}{begun} · {} results, {} repeats each, in turns</p>",
        escape(&machines.join("; ")),
        reports.len(),
        escape(&repeats.join(" or ")),
    )?;
    Ok(())
}

/// All groups beside each other.
fn overview(body: &mut String, chapters: &[Chapter]) -> Drawn {
    writeln!(body, "<h2>What helps and what does not</h2>")?;
    writeln!(
        body,
        "<p class=\"notes\">A number is a rate as a multiple of the other's: above 1 it is faster. Large: the median over all numbers of \
         processes and all that it was compared with; small: the least and the greatest of any repeat. Strong colour: every repeat \
         agrees. Surely faster: in every repeat.</p>"
    )?;
    writeln!(body, "<div class=\"beside\">")?;
    let firsts = distinct(
        chapters.iter().flat_map(|chapter| chapter.comparisons.iter().map(|one| one.first.as_str())),
    );
    for first in &firsts {
        let within: Vec<&Chapter> =
            chapters.iter().filter(|chapter| chapter.of(first).next().is_some()).collect();
        // What only one group has stands in its chapter.
        if within.len() < 2 && *firsts.first().unwrap_or(first) != *first {
            continue;
        }
        writeln!(body, "<div><h3>{}</h3>", escape(first))?;
        let heads: Vec<(String, usize)> =
            within.iter().map(|chapter| (format!("over {}", chapter.name), 2)).collect();
        let columns = sharings(within.len());
        let mut table = Ratios::new(&heads, &columns);
        for operation in distinct(within.iter().flat_map(|c| c.of(first).map(|one| one.operation.as_str()))) {
            table.row(operation);
            for chapter in &within {
                for own in [false, true] {
                    let of = |one: &&Comparison| one.operation == operation && one.own == own;
                    table.cell(ratio_of(&chapter.of(first).filter(of).collect::<Vec<_>>()));
                }
            }
            table.end_row();
        }
        writeln!(body, "{}</div>", table.end())?;
    }
    writeln!(body, "</div>")?;
    Ok(())
}

/// Operations in rows; what `by` tells apart in columns, shared and own.
fn table(all: &[Comparison], word: &str, by: impl Fn(&Comparison) -> &String) -> String {
    let columns = distinct(all.iter().map(|one| by(one).as_str()));
    let heads: Vec<(String, usize)> = columns.iter().map(|column| (format!("{word} {column}"), 2)).collect();
    let mut table = Ratios::new(&heads, &sharings(heads.len()));
    for operation in distinct(all.iter().map(|one| one.operation.as_str())) {
        table.row(operation);
        for column in &columns {
            for own in [false, true] {
                let of =
                    |one: &&Comparison| one.operation == operation && one.own == own && by(one) == column;
                table.cell(ratio_of(&all.iter().filter(of).collect::<Vec<_>>()));
            }
        }
        table.end_row();
    }
    table.end()
}

fn sharings(heads: usize) -> Vec<String> {
    ["shared", "own"].map(str::to_owned).into_iter().cycle().take(2 * heads).collect()
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    words.for_each(|word| {
        if !seen.contains(&word) {
            seen.push(word);
        }
    });
    seen
}

impl<'a> Chapter<'a> {
    fn new(name: &'a str, all: &'a [Report], names: &[String]) -> Self {
        let mine = |report: &&Report| report.conditions.group.as_deref() == Some(name);
        let mut reports: Vec<&Report> = all.iter().filter(mine).collect();
        let place =
            |report: &Report| SUITES.iter().position(|suite| *suite == report.suite).unwrap_or(SUITES.len());
        reports.sort_by_key(|report| (place(report), report.suite.as_str()));
        let cloned: Vec<Report> = reports.iter().map(|report| (*report).clone()).collect();
        let comparisons = comparisons(&reports, names);
        Self { name, reports, points: points(&cloned, names), comparisons }
    }

    fn of(&self, first: &str) -> impl Iterator<Item = &Comparison> {
        self.comparisons.iter().filter(move |one| one.first == first)
    }

    fn write(&self, body: &mut String) -> Drawn {
        writeln!(body, "<h2>{}</h2>", escape(self.name))?;
        for first in distinct(self.comparisons.iter().map(|one| one.first.as_str())) {
            let mine: Vec<Comparison> = self.of(first).cloned().collect();
            writeln!(
                body,
                "<h3>{}, against {} itself</h3>\n{}{}",
                escape(first),
                escape(self.name),
                sentences(&mine),
                table(&mine, "against", |one| &one.second)
            )?;
        }
        self.mounts(body)?;
        for suite in distinct(self.points.iter().map(|point| point.suite.as_str())) {
            for (axis, fixed) in [(PROCESSES, FILES), (FILES, PROCESSES)] {
                self.against(body, suite, false, axis, fixed)?;
                self.against(body, suite, true, axis, fixed)?;
            }
        }
        Ok(())
    }

    /// What was compared with, among itself: such as more mounts as multiples of one.
    fn mounts(&self, body: &mut String) -> Drawn {
        let seconds = distinct(self.comparisons.iter().map(|one| one.second.as_str()));
        let Some((base, others)) = seconds.split_first().filter(|(_, others)| !others.is_empty()) else {
            return Ok(());
        };
        let among: Vec<Comparison> = others.iter().flat_map(|other| self.among(other, base)).collect();
        let table = table(&among, "", |one| &one.first);
        writeln!(body, "<h3>As multiples of {}</h3>\n{table}", escape(base))?;
        Ok(())
    }

    /// What was measured as `name`, as a multiple of what was measured as `base` with the same options and processes. These
    /// were not measured in turns: the range is that of the quotients of medians.
    fn among(&self, name: &str, base: &str) -> Vec<Comparison> {
        let alike = |a: &Point, b: &Point| {
            a.suite == b.suite
                && a.phase == b.phase
                && a.words == b.words
                && [PROCESSES, FILES].iter().all(|key| a.settings.get(*key) == b.settings.get(*key))
        };
        let mut found = Vec::new();
        for point in self.points.iter().filter(|point| point.target == name && self.tells(point)) {
            let base = self.points.iter().find(|other| other.target == base && alike(point, other));
            let Some(base) = base else { continue };
            let ratio = point.value[1] / base.value[1];
            if ratio.is_finite() && ratio > 0.0 {
                found.push(Comparison {
                    operation: operation(&point.suite, &point.phase),
                    own: verdict::is_own(&point.words),
                    first: name.to_owned(),
                    second: base.target.clone(),
                    processes: point.settings.get(PROCESSES).copied().unwrap_or_default() as usize,
                    ratio,
                    range: [ratio; 2],
                });
            }
        }
        found
    }

    fn tells(&self, point: &Point) -> bool {
        let rows = self.reports.iter().filter(|report| report.suite == point.suite);
        let mut rows = rows.flat_map(|report| &report.rows).filter(|row| row.phase == point.phase);
        rows.any(verdict::tells)
    }

    /// Plots of one suite against `axis`, where the setting `fixed` has the value at which `axis` was varied most.
    fn against(&self, body: &mut String, suite: &str, own: bool, axis: &str, fixed: &str) -> Drawn {
        let mine = |point: &&Point| {
            point.suite == suite && verdict::is_own(&point.words) == own && self.tells(point)
        };
        let points: Vec<&Point> = self.points.iter().filter(mine).collect();
        let Some((points, at)) = most_varied(&points, axis, fixed) else { return Ok(()) };
        let axis = Axis::of(&points, axis);
        if axis.values.len() < 2 {
            return Ok(());
        }
        // The colours are those of the whole chapter; what was measured at one place of this axis only is no line in it.
        let mut names: Vec<(usize, &str)> =
            self.points.iter().map(|p| (p.place, p.target.as_str())).collect();
        names.sort_unstable();
        names.dedup();
        let mut colored = colored(&names);
        colored.retain(|(_, place, name)| {
            let mine = points.iter().filter(|point| point.place == *place && point.target == *name);
            Axis::of(&mine.copied().collect::<Vec<_>>(), &axis.name).values.len() > 1
        });
        let fixed = at.map(|at| format!(", {} {fixed}", short(at))).unwrap_or_default();
        let sizes = points.first().map(|point| sizes(point)).unwrap_or_default();
        let rates = points.iter().any(|point| point.unit == Unit::OperationsPerSecond);
        let what = if rates { "Time per operation" } else { "Bandwidth" };
        writeln!(
            body,
            "<h3>{what} against {}, {} ({suite}{fixed}{sizes})</h3>\n{}\n<div class=\"grid\">",
            escape(&axis.name),
            sharing(suite, own),
            legend_of(&colored.iter().map(|(color, _, name)| (*color, *name)).collect::<Vec<_>>())
        )?;
        for (phase, unit) in points::phases(&points) {
            let of = |place: usize, name: &str| {
                let mine = points.iter().filter(|p| p.phase == phase && p.place == place && p.target == name);
                points::merged(mine.filter_map(|point| Some((axis.place(point)?, measured(point)))))
            };
            let drawn: Vec<Line> = colored
                .iter()
                .map(|(color, place, name)| Line { color: *color, places: of(*place, name) })
                .collect();
            let label = if unit == Unit::OperationsPerSecond { "ms" } else { "MiB/s" };
            let scale = Scale::of(&drawn);
            let plot = lines(&phase, &axis.labels(), label, &axis.name, &drawn, scale)?;
            writeln!(body, "{}", figure(&plot, ""))?;
        }
        writeln!(body, "</div>")?;
        Ok(())
    }
}

/// Milliseconds that a process waits for an operation, or the bandwidth of all.
fn measured(point: &Point) -> [f64; 3] {
    match point.unit {
        Unit::OperationsPerSecond => point.mean_micros.map(|micros| micros / 1e3),
        _ => point.value,
    }
}

/// How large what is written and read is.
fn sizes(point: &Point) -> String {
    let said = |name: &str, words: &str| {
        let bytes = point.settings.get(name).filter(|bytes| **bytes > 0.0)?;
        Some(format!(", {words} {}", size(*bytes)))
    };
    match point.suite.as_str() {
        "metarates" => said("small", "written files of"),
        "mdtest" => said("write_bytes", "files of"),
        "ior" => said("transfer", "transfers of"),
        _ => None,
    }
    .unwrap_or_default()
}

fn sharing(suite: &str, own: bool) -> &'static str {
    match (suite, own) {
        ("ior", true) => "a file for each process",
        ("ior", false) => "one shared file",
        (_, true) => "own directories",
        (_, false) => "one shared directory",
    }
}

/// The points at that value of `fixed` (if they have such a setting) at which `axis` has most values, and the value.
fn most_varied<'p>(points: &[&'p Point], axis: &str, fixed: &str) -> Option<(Vec<&'p Point>, Option<f64>)> {
    let values = Axis::of(points, fixed).values;
    if values.is_empty() {
        return (!points.is_empty()).then(|| (points.to_vec(), None));
    }
    let at = |value: f64| -> Vec<&Point> {
        points.iter().filter(|point| point.settings.get(fixed) == Some(&value)).copied().collect()
    };
    let best = values.into_iter().max_by_key(|value| Axis::of(&at(*value), axis).values.len())?;
    Some((at(best), Some(best)))
}

/// A colour for each name: (colour, place, name).
fn colored<'n>(names: &[(usize, &'n str)]) -> Vec<(usize, usize, &'n str)> {
    let mut counts = [0; 2];
    let one = |(place, name): &(usize, &'n str)| {
        let hues = HUES.get(*place).copied().unwrap_or_default();
        let count = counts.get_mut(*place)?;
        *count += 1;
        Some((*hues.get((*count - 1) % hues.len().max(1))?, *place, *name))
    };
    names.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_place_have_their_own_hues() {
        let names = [(0, "a"), (0, "b"), (1, "x"), (1, "y")];
        let colors: Vec<usize> = colored(&names).iter().map(|(color, ..)| *color).collect();
        assert_eq!(colors, [0, 5, 4, 1]);
    }
}

//! Results as comma-separated values (RFC 4180): one line for each measurement of each phase.

use crate::{
    Report,
    report::{Figure, Row},
    settings,
};

const HEADING: &[&str] = &[
    "suite",
    "options",
    "processes",
    "nodes",
    "phase",
    "unit",
    "directory",
    "file_system",
    "repeat",
    "value",
    "seconds",
    "operations",
    "bytes",
    "mean_ns",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "skew_ns",
    "ratio",
];

/// All of a report, with a heading.
pub fn csv(reports: &[Report]) -> String {
    let mut out = line(HEADING.iter().map(|cell| (*cell).to_owned()));
    for report in reports {
        for row in &report.rows {
            let other = row.versus.as_ref().map_or(&[][..], |versus| &versus.samples);
            for (target, samples) in [row.samples.as_slice(), other].into_iter().enumerate() {
                for (repeat, figure) in samples.iter().enumerate() {
                    out.push_str(&line(cells(report, row, target, repeat, figure)));
                }
            }
        }
    }
    out
}

fn cells(
    report: &Report,
    row: &Row,
    target: usize,
    repeat: usize,
    f: &Figure,
) -> impl Iterator<Item = String> {
    let environment = report.environments.get(target).cloned().unwrap_or_default();
    let ratio = row.versus.as_ref().filter(|_| target == 0).map(|versus| versus.ratio.to_string());
    [
        report.suite.clone(),
        settings::said(&report.options),
        report.processes.to_string(),
        report.conditions.nodes.len().to_string(),
        row.phase.clone(),
        row.unit.name().to_owned(),
        environment.directory,
        environment.file_system,
        (repeat + 1).to_string(),
        f.value.to_string(),
        f.seconds.to_string(),
        f.work.operations.to_string(),
        f.work.bytes.to_string(),
        f.mean_nanos.to_string(),
        f.p50_nanos.to_string(),
        f.p99_nanos.to_string(),
        f.p999_nanos.to_string(),
        f.max_nanos.to_string(),
        f.skew_nanos.to_string(),
        ratio.unwrap_or_default(),
    ]
    .into_iter()
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = cells.map(|cell| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_are_kept() {
        let cells = ["a", "b,c", "d\"e", "f\ng"].map(str::to_owned);
        assert_eq!(line(cells.into_iter()), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }
}

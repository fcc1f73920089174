//! What BT prints of its I/O.

use super::{Btio, Form, IO_NANOS, VERIFY, WRITE, cube::POINT_BYTES};
use crate::{Figure, Report};

pub fn statistics(btio: &Btio, report: &Report, target: usize) -> String {
    let points = btio.class.points();
    let form = match btio.form {
        Form::Epio => "EPIO",
        Form::Simple => "SIMPLE (shared file)",
        Form::Full => "FULL (shared file, collective)",
    };
    let mut out = format!(
        " Size: {points:>4}x{points:>4}x{points:>4}  (class {:?})\n Iterations: {:>4}\n Total number of processes: {:>6}\n\n \
         BTIO -- {form} write interval: {:>3}\n",
        btio.class,
        btio.steps(),
        report.processes,
        btio.interval
    );
    let verified = report.samples(VERIFY, target);
    let written = report.samples(WRITE, target);
    for repeat in 0..verified.len().max(written.len()) {
        out.push_str(&of_round(btio, written.get(repeat), verified.get(repeat)));
    }
    out
}

fn of_round(btio: &Btio, written: Option<&Figure>, verified: Option<&Figure>) -> String {
    let points = btio.class.points() as f64;
    let megabytes = points.powi(3) * POINT_BYTES as f64 * btio.dumps() as f64 / 1e6;
    let write_rate = written.map_or(0.0, rate);
    let write_seconds = seconds(megabytes, write_rate);
    let total = written.map_or(0.0, |figure| figure.seconds);
    let part = if total > 0.0 { write_seconds * 100.0 / total } else { 0.0 };
    let verify_seconds = seconds(megabytes, verified.map_or(0.0, rate));
    let errors = verified.and_then(|figure| figure.work.counts.get("errors")).copied();
    let verdict = match errors {
        Some(0) => "SUCCESSFUL".to_owned(),
        Some(errors) => format!("UNSUCCESSFUL ({errors} numbers differ)"),
        None => "NOT DONE".to_owned(),
    };
    format!(
        "\n BTIO -- statistics:\n   I/O timing in seconds   : {write_seconds:>14.2}\n   I/O timing percentage   : {part:>14.2}\n   \
         I/O timing in verify    : {verify_seconds:>14.2}\n   Total data written (MB) : {megabytes:>14.2}\n   \
         I/O data rate  (MB/sec) : {write_rate:>14.2}\n   Execution time (s)      : {total:>14.2}\n   \
         Verification            : {verdict:>14}\n"
    )
}

/// The sum of the rates of the processes, each by its own I/O time: MB/s.
fn rate(figure: &Figure) -> f64 {
    let all: u64 = figure.processes.len() as u64;
    // Each process has its part of the cube, whoever wrote it.
    let own = figure.work.bytes as f64 / all.max(1) as f64 / 1e6;
    let nanos = figure.processes.iter().filter_map(|part| part.work.counts.get(IO_NANOS));
    nanos.map(|nanos| own / (*nanos as f64 / 1e9).max(1e-9)).sum()
}

fn seconds(megabytes: f64, rate: f64) -> f64 {
    if rate > 0.0 { megabytes / rate } else { 0.0 }
}

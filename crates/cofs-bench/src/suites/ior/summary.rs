//! IOR's table.

use super::{Access, Ior, REMOVE};
use crate::{
    Figure, Report,
    report::{Part, Spread},
};

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;

pub fn table(ior: &Ior, report: &Report, target: usize) -> String {
    let mut out = String::from(
        "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----\n",
    );
    for repeat in 0..report.repeats {
        for access in ior.accesses().into_iter().filter(|access| *access != Access::WriteCheck) {
            if let Some(figure) = report.samples(access.name(), target).get(repeat) {
                out.push_str(&line(ior, access, figure, repeat));
            }
        }
        if let Some(figure) = report.samples(REMOVE, target).get(repeat) {
            let nothing = "-          ".repeat(8);
            out.push_str(&format!("{REMOVE:<10}{nothing}{} {repeat:<4}\n", number(figure.seconds)));
        }
    }
    out + &greatest(ior, report, target) + &all(ior, report, target) + &errors(report, target)
}

fn line(ior: &Ior, access: Access, figure: &Figure, repeat: usize) -> String {
    let span = |name: &str| figure.work.spans.get(name).copied().unwrap_or_default();
    // The time of a transfer, of the process where that was least.
    let of_process = |part: &Part| {
        part.work.spans.get("access").copied().unwrap_or_default() / part.work.operations.max(1) as f64
    };
    let latency = figure.processes.iter().map(of_process).fold(f64::INFINITY, f64::min);
    let numbers = [
        figure.work.bytes as f64 / MIB / figure.seconds,
        figure.work.operations as f64 / span("access"),
        latency,
        ior.block as f64 / KIB,
        ior.transfer as f64 / KIB,
        span("open"),
        span("access"),
        span("close"),
        figure.seconds,
    ];
    let cells: String = numbers.iter().map(|value| number(*value) + " ").collect();
    format!("{:<10}{cells}{repeat:<4}\n", access.name())
}

/// As IOR prints numbers: the smaller, the more digits.
fn number(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:<10.6}"),
        1.0..3600.0 => format!("{value:<10.2}"),
        _ => format!("{value:<10.0}"),
    }
}

fn greatest(ior: &Ior, report: &Report, target: usize) -> String {
    let mut out = String::from("\n");
    for (title, access) in [("Max Write:", Access::Write), ("Max Read: ", Access::Read)] {
        if ior.accesses().contains(&access) {
            let rates = report.samples(access.name(), target).iter().map(|f| f.work.bytes as f64 / f.seconds);
            let most = Spread::of(rates).max;
            out.push_str(&format!("{title} {:.2} MiB/sec ({:.2} MB/sec)\n", most / MIB, most / 1e6));
        }
    }
    out
}

fn all(ior: &Ior, report: &Report, target: usize) -> String {
    let mut out = String::from(
        "\nSummary of all tests:\n\
         Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) \
         Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize \
         aggs(MiB)   API RefNum\n",
    );
    for access in ior.accesses().into_iter().filter(|access| *access != Access::WriteCheck) {
        out.push_str(&of_access(ior, report, access, report.samples(access.name(), target)));
    }
    out
}

fn of_access(ior: &Ior, report: &Report, access: Access, samples: &[Figure]) -> String {
    let rate = Spread::of(samples.iter().map(|f| f.work.bytes as f64 / MIB / f.seconds));
    let operations = Spread::of(samples.iter().map(|f| f.work.operations as f64 / f.seconds));
    let seconds = Spread::of(samples.iter().map(|f| f.seconds)).mean;
    let mut out = format!("{:<9} ", access.name());
    for spread in [rate, operations] {
        for value in [spread.max, spread.min, spread.mean, spread.deviation] {
            out.push_str(&format!("{value:>10.2} "));
        }
    }
    out.push_str(&format!("{seconds:>10.5} "));
    let wall = samples
        .iter()
        .filter_map(|f| Some((f.work.spans.get("stonewall")?, f.work.counts.get("stonewall bytes")?)));
    let wall: Vec<(f64, f64)> = wall.map(|(seconds, bytes)| (*seconds, *bytes as f64 / MIB)).collect();
    out.push_str(&match wall.is_empty() {
        true => format!("{:>12} {:>14} ", "NA", "NA"),
        false => {
            let mean = |values: &mut dyn Iterator<Item = f64>| Spread::of(values).mean;
            let seconds = mean(&mut wall.iter().map(|(seconds, _)| *seconds));
            format!("{seconds:>12.2} {:>14.2} ", mean(&mut wall.iter().map(|(_, mib)| *mib)))
        }
    });
    let (tasks, repeats) = (report.processes, report.repeats);
    let flag = |on: bool| u8::from(on);
    let aggregate = samples.first().map_or(0.0, |f| f.work.bytes as f64 / MIB);
    out + &format!(
        "{:>5} {tasks:>6} {tasks:>3} {repeats:>4} {:>3} {:>5} {:>8} {:>9} {:>4} {:>6} {:>8} {:>8} {aggregate:>9.1} POSIX {:>6}\n",
        0,
        flag(ior.file_per_process),
        flag(ior.reorder),
        ior.offset,
        0,
        0,
        ior.segments,
        ior.block,
        ior.transfer,
        0,
    )
}

/// Words that were not those written.
fn errors(report: &Report, target: usize) -> String {
    let phases = report.rows.iter().map(|row| row.phase.as_str());
    let wrong = phases.map(|phase| {
        let counts = report.samples(phase, target).iter().filter_map(|f| f.work.counts.get("errors"));
        (phase, counts.sum::<u64>())
    });
    let wrong = wrong.filter(|(_, errors)| *errors > 0);
    wrong.map(|(phase, errors)| format!("\nWARNING: incorrect data ({phase}): {errors} errors\n")).collect()
}

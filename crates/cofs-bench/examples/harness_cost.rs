//! What the harness costs: metarates as a worker of `cofs bench` runs it, against a bare loop of the same calls over names
//! that were made before, on the same files in one directory of DIR (on tmpfs, where operations cost least).
//!
//!     cargo run --release -p cofs-bench --features bench --example harness_cost -- DIR [FILES] [ROUNDS]
//!
//! A round takes milliseconds, and its halves take turns in being first, so that both see the same machine. On one that has
//! other work to do, the quickest tenth of the rounds is what nobody disturbed.

use std::{
    env,
    ffi::CString,
    fs,
    hint::black_box,
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use cofs_bench::{Metarates, Seat, Suite, Ways, alone};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, lstat, open, unlink, utimensat};

const PHASES: [&str; 5] = ["create", "open", "stat", "utime", "unlink"];
/// Three digits, up to an hour in nanoseconds.
const HISTOGRAM_BYTES: usize = 256 << 10;
/// Nanoseconds for an operation of each phase.
type Times = [f64; PHASES.len()];

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (files, rounds) = (number(1000), number(2001));
    let root = directory.join(format!("cofs-bench-{}", std::process::id()));
    fs::create_dir(&root)?;
    let measured = measure(&root, files, rounds);
    fs::remove_dir_all(&root)?;
    println!(
        "{files} files, {rounds} rounds: ns for an operation in the quickest tenth of the rounds, and at the median"
    );
    println!(
        "{:8} {:>8} {:>8} {:>7} {:>9} {:>8} {:>7}",
        "", "bare", "harness", "more", "bare", "harness", "more"
    );
    let mut sums = [0.0; 4];
    let measured = measured?;
    for (phase, name) in PHASES.iter().enumerate() {
        let column = |of: fn(&(Times, Times)) -> Times| -> [f64; 2] {
            tenth_and_median(measured.iter().filter_map(|round| of(round).get(phase).copied()).collect())
        };
        let ([a, b], [c, d]) = (column(|round| round.0), column(|round| round.1));
        line(name, [a, c, b, d]);
        sums = [sums[0] + a, sums[1] + c, sums[2] + b, sums[3] + d];
    }
    line("all", sums);
    Ok(())
}

fn line(name: &str, [a, b, c, d]: [f64; 4]) {
    let more = |bare: f64, harness: f64| (harness / bare - 1.0) * 100.0;
    println!("{name:8} {a:>8.0} {b:>8.0} {:>6.1}% {c:>9.0} {d:>8.0} {:>6.1}%", more(a, b), more(c, d));
}

/// Of each round, bare and as the harness does it.
fn measure(root: &Path, files: u64, rounds: u64) -> io::Result<Vec<(Times, Times)>> {
    let mut suite = Metarates::new(files);
    let seat = Seat { root: root.to_owned(), index: 0, size: 1, ways: Ways::default() };
    suite.enter(&seat)?;
    let name = |number| CString::new(format!("{}/f0-{number}", root.join("shared").display()));
    let names: Vec<CString> = (0..files).map(name).collect::<Result<_, _>>()?;
    let mut measured = Vec::new();
    for round in 0..rounds {
        measured.push(match round % 2 {
            0 => (bare(&names)?, harness(&mut suite, &seat)?),
            _ => {
                let harness = harness(&mut suite, &seat)?;
                (bare(&names)?, harness)
            }
        });
    }
    Ok(measured)
}

fn tenth_and_median(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    [10, 2].map(|part| values.get(values.len() / part).copied().unwrap_or(f64::NAN))
}

fn harness(suite: &mut Metarates, seat: &Seat) -> io::Result<Times> {
    let mut times = Times::default();
    for (time, phase) in times.iter_mut().zip(PHASES) {
        let (operations, seconds) = alone(suite, phase, seat)?;
        *time = seconds * 1e9 / operations as f64;
    }
    Ok(times)
}

/// The same with nothing around it.
fn bare(names: &[CString]) -> io::Result<Times> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok([
        each(names, |name| Ok(open(name, flags, Mode::from_raw_mode(0o666)).map(drop)?))?,
        each(names, |name| Ok(open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)?))?,
        each(names, |name| Ok(lstat(name).map(drop)?))?,
        each(names, |name| Ok(utimensat(CWD, name, &times, AtFlags::empty())?))?,
        each(names, |name| Ok(unlink(name)?))?,
    ])
}

fn each(names: &[CString], mut work: impl FnMut(&CString) -> io::Result<()>) -> io::Result<f64> {
    // Before a phase the harness makes its histogram, which takes from the processor's caches what the phase before left there;
    // that is no part of an operation, so here it goes, too.
    black_box(vec![1u64; HISTOGRAM_BYTES / 8]);
    let begin = Instant::now();
    names.iter().try_for_each(&mut work)?;
    Ok(begin.elapsed().as_nanos() as f64 / names.len() as f64)
}

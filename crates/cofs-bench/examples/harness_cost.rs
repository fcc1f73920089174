//! What the harness costs: metarates as `cofs bench` runs it, against a bare loop of the same calls over names that were
//! made before, in turns, in one directory of DIR (on tmpfs, where operations cost least).
//!
//!     cargo run --release -p cofs-bench --example harness_cost -- DIR [FILES] [ROUNDS]

use std::{
    env,
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use cofs_bench::{Launcher, Metarates, Options, run, work};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, open, stat, unlinkat, utimensat};

const PHASES: [&str; 5] = ["create", "open", "stat", "utime", "unlink"];

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == "worker" {
        return work();
    }
    let directory = PathBuf::from(first);
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (files, rounds) = (number(100_000), number(9));
    let mut times = vec![(Vec::new(), Vec::new()); PHASES.len()];
    for _ in 0..rounds {
        for ((bare, harness), (a, b)) in
            times.iter_mut().zip(bare(&directory, files)?.into_iter().zip(suite(&directory, files)?))
        {
            bare.push(a);
            harness.push(b);
        }
    }
    println!("{files} files, medians of {rounds} rounds, ns for an operation");
    println!("{:8} {:>8} {:>8} {:>7}", "", "bare", "harness", "more");
    for (phase, (bare, harness)) in PHASES.iter().zip(times) {
        let (bare, harness) = (median(bare), median(harness));
        println!("{phase:8} {bare:>8.0} {harness:>8.0} {:>6.1}%", (harness / bare - 1.0) * 100.0);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds for an operation of each phase, as the harness does and tells it.
fn suite(directory: &Path, files: u64) -> io::Result<Vec<f64>> {
    let launcher = Launcher { program: env::current_exe()?, arguments: vec!["worker".into()] };
    let suite = Metarates { files, own: false, small: 1, made: 0 };
    let options = Options { directory: directory.to_owned(), launcher, ..Options::new(suite.into()) };
    let report = run(&options, &mut |_| {})?;
    let of = |phase: &&str| {
        report.samples(phase, 0).first().map_or(f64::NAN, |f| f.seconds * 1e9 / f.operations as f64)
    };
    Ok(PHASES.iter().map(of).collect())
}

/// The same with nothing around it.
fn bare(directory: &Path, files: u64) -> io::Result<Vec<f64>> {
    // As deep, and with names as long, as the suite's.
    let above = directory.join(format!("cofs-bench-{}", std::process::id()));
    let shared = above.join("shared");
    fs::create_dir_all(&shared)?;
    let name = |number| CString::new(format!("{}/f0-{number}", shared.display())).unwrap_or_default();
    let names: Vec<CString> = (0..files).map(name).collect();
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let mut took = Vec::new();
    for phase in PHASES {
        let begin = Instant::now();
        for name in &names {
            match phase {
                "create" => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    drop(open(name, flags, Mode::from_raw_mode(0o666))?);
                }
                "open" => drop(open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?),
                "stat" => drop(stat(name)?),
                "utime" => utimensat(CWD, name, &times, AtFlags::empty())?,
                _ => unlinkat(CWD, name, AtFlags::empty())?,
            }
        }
        took.push(begin.elapsed().as_nanos() as f64 / files as f64);
    }
    fs::remove_dir_all(above)?;
    Ok(took)
}

//! Rates of single operations in a directory, by one or more processes: `rates DIR [FILES] [PROCESSES]`.
//!
//! Meant for the null file system beside another one in the same run; each process works in a directory of
//! its own below DIR.

use std::{
    env,
    ffi::CString,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    time::Instant,
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};

type Verb = fn(&CString) -> rustix::io::Result<()>;

const VERBS: [(&str, Verb); 5] = [
    ("create", |name| {
        rustix::fs::open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::from(0o644)).map(drop)
    }),
    ("open", |name| rustix::fs::open(name, OFlags::RDONLY, Mode::empty()).map(drop)),
    ("stat", |name| rustix::fs::stat(name).map(drop)),
    ("utime", |name| {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        rustix::fs::utimensat(CWD, name, &times, AtFlags::empty())
    }),
    ("unlink", |name| rustix::fs::unlink(name)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--verb", verb, dir, files] => work(verb, Path::new(dir), number(files)),
        [dir] => measure(dir, 20_000, 1),
        [dir, files] => measure(dir, number(files), 1),
        [dir, files, processes] => measure(dir, number(files), number(processes)),
        _ => Err(io::Error::other("usage: rates DIR [FILES] [PROCESSES]")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rates: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or(1)
}

fn measure(dir: &str, files: usize, processes: usize) -> io::Result<()> {
    let dirs: Vec<PathBuf> =
        (0..processes).map(|number| Path::new(dir).join(format!("rates-{number}"))).collect();
    dirs.iter().try_for_each(std::fs::create_dir)?;
    for (verb, _) in VERBS {
        let started = Instant::now();
        let children: Vec<Child> = dirs
            .iter()
            .map(|dir| {
                Command::new(env::current_exe()?)
                    .args(["--verb", verb])
                    .arg(dir)
                    .arg(files.to_string())
                    .spawn()
            })
            .collect::<io::Result<_>>()?;
        for mut child in children {
            if !child.wait()?.success() {
                return Err(io::Error::other(format!("{verb} failed")));
            }
        }
        let rate = (files * processes) as f64 / started.elapsed().as_secs_f64();
        println!("{verb:8} {rate:9.0}/s");
    }
    dirs.iter().try_for_each(std::fs::remove_dir)
}

fn work(verb: &str, dir: &Path, files: usize) -> io::Result<()> {
    env::set_current_dir(dir)?;
    let (_, verb) = VERBS.iter().find(|(name, _)| *name == verb).ok_or(io::ErrorKind::InvalidInput)?;
    for number in 0..files {
        verb(&CString::new(format!("f{number}"))?)?;
    }
    Ok(())
}

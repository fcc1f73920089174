//! What a return costs after a system call in which the kernel has changed to another process: `returns [ROUNDS]`.
//!
//! Two threads on one CPU pass a byte to and fro by two pipes, so that each read waits for the other side. The read stands in the loop itself, or in
//! functions that return to it. At each change the kernel's protection against Spectre (v2) overwrites the CPU's memory of return
//! addresses: presumably that is why the first return is dear. Why it matters: the head of `dev_fuse.rs`.

use std::{
    io,
    os::fd::OwnedFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use rustix::thread::CpuSet;

const REPEATS: usize = 9;

#[inline(always)]
fn receive(from: &OwnedFd) -> io::Result<()> {
    rustix::io::read(from, &mut [0; 1])?;
    Ok(())
}

#[inline(never)]
fn one_deep(from: &OwnedFd) -> io::Result<()> {
    std::hint::black_box(receive(from))
}

#[inline(never)]
fn two_deep(from: &OwnedFd) -> io::Result<()> {
    std::hint::black_box(one_deep(from))
}

/// Receives and sends, with as many returns as `RETURNS` behind each read.
fn pass<const RETURNS: usize>(from: &OwnedFd, to: &OwnedFd, rounds: usize) -> io::Result<()> {
    for _ in 0..rounds {
        match RETURNS {
            0 => receive(from)?,
            1 => one_deep(from)?,
            _ => two_deep(from)?,
        }
        rustix::io::write(to, &[0])?;
    }
    Ok(())
}

/// How long a round takes: there and back.
fn round<const RETURNS: usize>(rounds: usize) -> io::Result<Duration> {
    let (there_end, there) = rustix::pipe::pipe()?;
    let (back_end, back) = rustix::pipe::pipe()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || pass::<RETURNS>(&there_end, &back, rounds));
        let start = Instant::now();
        rustix::io::write(&there, &[0])?;
        pass::<RETURNS>(&back_end, &there, rounds - 1)?;
        receive(&back_end)?;
        let took = start.elapsed();
        other.join().map_err(|_| io::Error::other("the other side has panicked"))??;
        Ok(took / rounds as u32)
    })
}

fn measure(rounds: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &only)?;
    let kinds: [(&str, fn(usize) -> io::Result<Duration>); 3] =
        [("none", round::<0>), ("one", round::<1>), ("two", round::<2>)];
    let mut times = kinds.map(|_| Vec::new());
    for _ in 0..REPEATS {
        for ((_, round), times) in kinds.iter().zip(&mut times) {
            times.push(round(rounds)?);
        }
    }
    println!(
        "a round (two changes of the thread) with so many returns behind each of its two reads, median of {REPEATS}:"
    );
    for ((name, _), mut times) in kinds.into_iter().zip(times) {
        times.sort();
        println!("{name:>5}: {:?}, {:?} to {:?}", times[REPEATS / 2], times[0], times[REPEATS - 1]);
    }
    Ok(())
}

fn main() -> ExitCode {
    let rounds = match std::env::args().nth(1).map(|word| word.parse()) {
        None => 100_000,
        Some(Ok(rounds @ 1..=1_000_000_000)) => rounds,
        Some(_) => {
            eprintln!("returns: say a number of rounds");
            return ExitCode::from(2);
        }
    };
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("returns: {error}");
            ExitCode::FAILURE
        }
    }
}

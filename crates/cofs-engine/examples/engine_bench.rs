//! The engine's bench: the metadata's own workload, without a file system around it.
//!
//! `cargo run --release -p cofs-engine --features bench --example engine_bench -- --entries 2000000 --directory DIR`
//!
//! A create is a look-up that misses and one unsynced commit of two records (keys and values of the
//! design's sizes), guarded by one key that all commits share (the fence). The directory must be empty.

use std::{
    collections::HashMap,
    error::Error,
    hash::{BuildHasher, RandomState},
    ops::ControlFlow,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cofs_engine::{Batch, Change, EmbeddedEngine, EmbeddedOptions, Engine, Guard, KeyShape, Outcome};
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng, rngs::SmallRng};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str =
    "engine_bench --directory DIR [--entries N] [--threads N] [--memory-mib N] [--directories N]";
const FENCE: &[u8] = b"\0\0H";
const FENCE_VALUE: &[u8] = b"epoch 1";
/// Creates that share a directory's block of inode numbers.
const INODE_BLOCK: u64 = 1024;

struct Arguments {
    directory: PathBuf,
    entries: u64,
    threads: u64,
    memory_bytes: usize,
    directories: u64,
}

fn arguments() -> Result<Arguments> {
    let mut given: HashMap<String, String> = HashMap::new();
    let mut words = std::env::args().skip(1);
    while let Some(option) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        given.insert(option, value);
    }
    let mut number = |name: &str, default: u64| -> Result<u64> {
        Ok(given.remove(name).map_or(Ok(default), |value| value.parse())?)
    };
    let (entries, threads) = (number("--entries", 2_000_000)?, number("--threads", 2)?.max(1));
    let (memory_mib, directories) = (number("--memory-mib", 384)?, number("--directories", 1)?.max(1));
    let directory = given.remove("--directory").ok_or(USAGE)?.into();
    if let Some(unknown) = given.keys().next() {
        return Err(format!("{unknown} is no option\n{USAGE}").into());
    }
    Ok(Arguments { directory, entries, threads, memory_bytes: (memory_mib as usize) << 20, directories })
}

/// The entry and inode keys of file `number`.
struct Keys<'a> {
    hasher: &'a RandomState,
    directories: u64,
}

impl Keys<'_> {
    /// `E dir hash name`, the name as mdtest gives it.
    fn entry(&self, thread: u64, number: u64) -> Vec<u8> {
        let name = format!("file.mdtest.{thread}.{number}");
        let mut key = vec![0, 0, b'E'];
        key.extend_from_slice(&(1 + number % self.directories).to_be_bytes());
        key.extend_from_slice(&self.hasher.hash_one(&name).to_be_bytes());
        key.extend_from_slice(name.as_bytes());
        key
    }

    /// `I ino`, in blocks that the threads' directories take in turn.
    fn inode(&self, thread: u64, number: u64) -> Vec<u8> {
        let block = number / INODE_BLOCK * 64 + thread;
        let mut key = vec![0, 0, b'I'];
        key.extend_from_slice(&(block * INODE_BLOCK + number % INODE_BLOCK).to_be_bytes());
        key
    }

    fn create(&self, thread: u64, number: u64, rng: &mut SmallRng) -> [Change; 2] {
        let inode = self.inode(thread, number);
        let mut entry_value = inode[3..].to_vec();
        entry_value.push(1);
        let mut attributes = vec![0; 80];
        // Times and sizes differ from file to file, owners and modes do not.
        rng.fill(&mut attributes[..32]);
        [Change::put(self.entry(thread, number), entry_value), Change::put(inode, attributes)]
    }
}

/// As the name space's: see `cofs_namespace::KEY_SHAPE`.
const SHAPE: KeyShape = KeyShape {
    family_bytes: 3,
    number: |key| match key {
        [_, _, b'I', number @ ..] => number.first_chunk().map(|number| u64::from_be_bytes(*number)),
        _ => None,
    },
    whole: |key| key.len() == 11,
    scanned: |_| 3,
};

fn fence() -> Guard {
    Guard { key: FENCE.to_vec(), value: Some(FENCE_VALUE.to_vec()) }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 100_000_000_000, 3)?)
}

fn micros(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1000.0)
}

fn report(what: &str, histogram: &Histogram<u64>, elapsed: Duration, threads: u64) {
    let rate = histogram.len() as f64 / elapsed.as_secs_f64();
    let at = |quantile| micros(histogram.value_at_quantile(quantile));
    println!(
        "{what:<34} {rate:>10.0}/s  {threads} thr  p50 {:>8}  p99 {:>8}  p99.9 {:>8}  worst {:>10} µs",
        at(0.5),
        at(0.99),
        at(0.999),
        micros(histogram.max()),
    );
}

/// Runs `work` on all threads and adds up what they measured.
fn measured(
    threads: u64,
    work: impl Fn(u64, &mut Histogram<u64>) -> Result<()> + Sync,
) -> Result<(Histogram<u64>, Duration)> {
    let start = Instant::now();
    let parts: Vec<Result<Histogram<u64>>> = thread::scope(|scope| {
        let work = &work;
        let one = |thread| {
            scope.spawn(move || {
                let mut histogram = histogram()?;
                work(thread, &mut histogram)?;
                Ok(histogram)
            })
        };
        let handles: Vec<_> = (0..threads).map(one).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let elapsed = start.elapsed();
    let mut total = histogram()?;
    for part in parts {
        total.add(part?)?;
    }
    Ok((total, elapsed))
}

fn timed<T>(histogram: &mut Histogram<u64>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work()?;
    histogram.record(start.elapsed().as_nanos() as u64)?;
    Ok(result)
}

fn commit(engine: &EmbeddedEngine, batch: &Batch<'_>) -> Result<()> {
    if let Some(pause) = engine.pause() {
        thread::sleep(pause);
    }
    match engine.commit(batch)? {
        Outcome::Committed => Ok(()),
        other => Err(format!("commit: {other:?}").into()),
    }
}

fn rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib >> 10)
}

/// Seconds of CPU time so far, of the engine's own threads.
fn background() -> String {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return String::new() };
    let seconds = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        // Behind the name: user and system time are the 12th and 13th field, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        (name.trim() != "engine_bench").then(|| format!("{} {:.1} s", name.trim(), ticks as f64 / 100.0))
    };
    tasks.flatten().filter_map(seconds).collect::<Vec<_>>().join(", ")
}

fn footprint(engine: &EmbeddedEngine) {
    let stats = engine.stats();
    println!(
        "{:<34} disk {} MiB, RSS {} MiB, engine's own count {} MiB, keys about {}",
        "footprint",
        stats.disk_bytes >> 20,
        rss_mib(),
        stats.memory_bytes >> 20,
        stats.keys_estimate
    );
}

fn creates(engine: &EmbeddedEngine, arguments: &Arguments, keys: &Keys<'_>) -> Result<()> {
    let per_thread = arguments.entries / arguments.threads;
    let tenth = (per_thread / 10).max(1);
    for (name, from, to) in [
        ("creates, first tenth", 0, tenth),
        ("creates, middle", tenth, per_thread - tenth),
        ("creates, last tenth", per_thread - tenth, per_thread),
    ] {
        let (histogram, elapsed) = measured(arguments.threads, |thread, histogram| {
            let guards = [fence()];
            let mut rng = SmallRng::seed_from_u64(thread ^ from);
            for number in from..to {
                let changes = keys.create(thread, number, &mut rng).to_vec();
                let batch = Batch { guards: &guards, changes, ..Batch::default() };
                timed(histogram, || {
                    let Change::Put { key, .. } = &batch.changes[0] else { return Err("no entry".into()) };
                    if engine.get(key)?.is_some() {
                        return Err("the entry is there already: use an empty directory".into());
                    }
                    commit(engine, &batch)
                })?;
            }
            Ok(())
        })?;
        report(name, &histogram, elapsed, arguments.threads);
    }
    Ok(())
}

fn reads(engine: &EmbeddedEngine, arguments: &Arguments, keys: &Keys<'_>) -> Result<()> {
    let per_thread = arguments.entries / arguments.threads;
    let hot: Vec<Vec<u8>> = (0..10_000).map(|i| keys.inode(0, i % per_thread)).collect();
    for pass in ["reads of 10,000, cold", "reads of 10,000, hot"] {
        let (histogram, elapsed) = measured(1, |_, histogram| {
            for key in &hot {
                timed(histogram, || Ok(engine.get(key)?.ok_or("a record is missing")?))?;
            }
            Ok(())
        })?;
        report(pass, &histogram, elapsed, 1);
    }
    let random = |name: &str, present: bool| -> Result<()> {
        let (histogram, elapsed) = measured(arguments.threads, |thread, histogram| {
            let mut rng = SmallRng::seed_from_u64(thread + 99);
            for _ in 0..100_000 {
                let number = rng.random_range(0..per_thread) + if present { 0 } else { per_thread };
                let key = keys.entry(thread, number);
                let found = timed(histogram, || Ok(engine.get(&key)?.is_some()))?;
                if found != present {
                    return Err("a look-up found what it should not".into());
                }
            }
            Ok(())
        })?;
        report(name, &histogram, elapsed, arguments.threads);
        Ok(())
    };
    random("reads at random over all", true)?;
    random("look-ups that miss", false)
}

fn scans(engine: &EmbeddedEngine) -> Result<()> {
    let (histogram, elapsed) = measured(1, |_, histogram| {
        let mut rng = SmallRng::seed_from_u64(5);
        for _ in 0..200 {
            let mut start = vec![0, 0, b'E'];
            start.extend_from_slice(&1_u64.to_be_bytes());
            start.extend_from_slice(&rng.random::<u64>().to_be_bytes());
            let mut inodes = Vec::new();
            timed(histogram, || {
                let visit = &mut |_: &[u8], value: &[u8]| {
                    inodes.push([&[0, 0, b'I'], &value[..8]].concat());
                    if inodes.len() < 256 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                engine.scan(&start, b"\0\0F", visit)?;
                let keys: Vec<&[u8]> = inodes.iter().map(Vec::as_slice).collect();
                Ok(engine.multi_get(&keys)?)
            })?;
        }
        Ok(())
    })?;
    report("readdirplus (256 entries + inodes)", &histogram, elapsed, 1);
    Ok(())
}

/// Groups of 64 creates in one commit, each followed by a sync.
fn groups(engine: &EmbeddedEngine, arguments: &Arguments, keys: &Keys<'_>) -> Result<()> {
    const GROUP: u64 = 64;
    let base = arguments.entries;
    let (histogram, elapsed) = measured(arguments.threads, |thread, histogram| {
        let guards = [fence()];
        let mut rng = SmallRng::seed_from_u64(thread);
        for group in 0..500 {
            let numbers = base + group * GROUP..base + (group + 1) * GROUP;
            let changes = numbers.flat_map(|number| keys.create(thread, number, &mut rng)).collect();
            let batch = Batch { guards: &guards, changes, ..Batch::default() };
            timed(histogram, || {
                commit(engine, &batch)?;
                Ok(engine.sync()?)
            })?;
        }
        Ok(())
    })?;
    report("groups of 64 creates with sync", &histogram, elapsed, arguments.threads);
    Ok(())
}

/// Changes of one record and removals of two, of a tenth of all each: first of any, then those that are oldest, then of any of the rest.
fn updates(engine: &EmbeddedEngine, arguments: &Arguments, keys: &Keys<'_>) -> Result<()> {
    let per_thread = arguments.entries / arguments.threads;
    let tenth = per_thread / 10;
    let phase =
        |name: &str, number: &(dyn Fn(u64, &mut SmallRng) -> u64 + Sync), removes: bool| -> Result<()> {
            let (histogram, elapsed) = measured(arguments.threads, |thread, histogram| {
                let guards = [fence()];
                let mut rng = SmallRng::seed_from_u64(thread + 7);
                for at in 0..tenth {
                    let number = number(at, &mut rng);
                    let inode = keys.inode(thread, number);
                    let changes = if removes {
                        vec![Change::delete(keys.entry(thread, number)), Change::delete(&inode)]
                    } else {
                        let [_, change] = keys.create(thread, number, &mut rng);
                        vec![change]
                    };
                    let batch = Batch { guards: &guards, changes, ..Batch::default() };
                    timed(histogram, || {
                        // One that chance has removed already is a change of nothing.
                        engine.get(&inode)?;
                        commit(engine, &batch)
                    })?;
                }
                Ok(())
            })?;
            report(name, &histogram, elapsed, arguments.threads);
            Ok(())
        };
    phase("changes of inodes at random", &|_, rng| rng.random_range(0..per_thread), false)?;
    phase("removals, oldest first", &|at, _| at, true)?;
    phase("removals at random", &|_, rng| rng.random_range(tenth..per_thread), true)
}

fn open(directory: &Path, memory_bytes: usize) -> Result<EmbeddedEngine> {
    let start = Instant::now();
    let options =
        EmbeddedOptions { create: true, keys: SHAPE, ..EmbeddedOptions::new(directory, memory_bytes) };
    let engine = EmbeddedEngine::open(&options)?;
    println!("{:<34} {:.1} ms", "open", start.elapsed().as_secs_f64() * 1000.0);
    Ok(engine)
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    let hasher = RandomState::new();
    let keys = Keys { hasher: &hasher, directories: arguments.directories };
    println!(
        "{} entries, {} directories, {} MiB",
        arguments.entries,
        arguments.directories,
        arguments.memory_bytes >> 20
    );
    let engine = open(&arguments.directory, arguments.memory_bytes)?;
    commit(&engine, &Batch { changes: vec![Change::put(FENCE, FENCE_VALUE)], ..Batch::default() })?;
    creates(&engine, &arguments, &keys)?;
    println!("{:<34} {}", "CPU time in the background", background());
    footprint(&engine);
    drop(engine);
    let engine = open(&arguments.directory, arguments.memory_bytes)?;
    footprint(&engine);
    reads(&engine, &arguments, &keys)?;
    footprint(&engine);
    scans(&engine)?;
    groups(&engine, &arguments, &keys)?;
    updates(&engine, &arguments, &keys)?;
    println!("{:<34} {}", "CPU time in the background", background());
    scans(&engine)?;
    footprint(&engine);
    drop(engine);
    open(&arguments.directory, arguments.memory_bytes)?;
    Ok(())
}

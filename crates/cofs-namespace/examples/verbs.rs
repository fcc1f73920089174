//! What the verbs cost, without a kernel in between:
//! `cargo run --release -p cofs-namespace --features bench --example verbs -- DIRECTORY [FILES] [THREADS]`.
//!
//! Each verb runs over FILES names, in one directory for all threads, on the embedded engine in a new
//! DIRECTORY. A bench, not a test: it asserts nothing about speed.

use std::{env, error::Error, ops::Range, path::Path, sync::Arc, thread, time::Instant};

use cofs_engine::{EmbeddedEngine, EmbeddedOptions, Engine};
use cofs_namespace::{Namespace, OpenInodes, VolumeOptions, WithNodes};
use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Kills, Name, NewInode, SetAttributes, SetTime,
    Timestamp, limits,
};

struct NothingOpen;

impl OpenInodes for NothingOpen {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

const C: &Credentials<'_> = &Credentials::ROOT;
const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

fn volume(directory: &Path) -> Result<Namespace, Box<dyn Error>> {
    let mut options = EmbeddedOptions::new(directory, limits::ENGINE_MEMORY_BYTES);
    options.keys = cofs_namespace::KEY_SHAPE;
    options.create = true;
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(&options)?);
    let volume = VolumeOptions { inline_bytes_max: 16_384, hash_key: [3; 16] };
    Namespace::format(&*engine, &volume, (0, 0, 0o755), NOW)?;
    Ok(Namespace::open(engine, Arc::new(NothingOpen))?)
}

/// The inodes of a directory's files, in the order of their numbers, which is that of their creation.
fn inos(ns: &Namespace, dir: InodeId) -> FsResult<Vec<InodeId>> {
    let mut inos = Vec::new();
    ns.list(dir, 0, WithNodes::None, usize::MAX, &mut |entry| {
        inos.push(entry.ino);
        true
    })?;
    inos.sort_unstable();
    Ok(inos)
}

/// What `measure` has made a name of.
fn number(name: &Name) -> Option<usize> {
    str::from_utf8(name.as_bytes()).ok()?.strip_prefix("file.")?.parse().ok()
}

/// Runs `verb` for each number, spread over the threads, and prints its rate.
fn measure(
    what: &str,
    files: u64,
    threads: u64,
    verb: impl Fn(&Name) -> FsResult<()> + Sync,
) -> FsResult<()> {
    let run = |range: Range<u64>| {
        range.into_iter().try_for_each(|n| verb(Name::new(format!("file.{n}").as_bytes())?))
    };
    let started = Instant::now();
    thread::scope(|scope| {
        let share = files / threads;
        let all: Vec<_> =
            (0..threads).map(|t| scope.spawn(move || run(t * share..(t + 1) * share))).collect();
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let elapsed = started.elapsed().as_secs_f64();
    println!("{what:<14} {:>9.0} /s  {:>7.2} µs", files as f64 / elapsed, elapsed * 1e6 / files as f64);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let directory = args.next().ok_or("usage: verbs DIRECTORY [FILES] [THREADS]")?;
    let files = args.next().map_or(Ok(200_000), |n| n.parse())?;
    let threads = args.next().map_or(Ok(1), |n| n.parse())?;
    let ns = volume(Path::new(&directory))?;
    let new = |kind| NewInode { kind, permissions: 0o644, umask: 0o022, rdev: 0, target: &[] };
    let dir = ns.create(C, NOW, InodeId::ROOT, Name::new(b"d")?, &new(FileKind::Directory))?.attributes.ino;

    measure("lookup, none", files, threads, |name| ns.lookup(C, dir, name).map_or(Ok(()), |_| Ok(())))?;
    measure("create", files, threads, |name| {
        ns.create(C, NOW, dir, name, &new(FileKind::Regular)).map(drop)
    })?;
    measure("lookup", files, threads, |name| ns.lookup(C, dir, name).map(drop))?;
    let inos = inos(&ns, dir)?;
    let touch =
        SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttributes::default() };
    measure("utime", files, threads, |name| {
        let ino = number(name).and_then(|number| inos.get(number)).ok_or(FsError::Stale)?;
        ns.setattr(C, NOW, *ino, &touch).map(drop)
    })?;
    measure("write 4 KiB", files, threads, |name| {
        let ino = ns.lookup(C, dir, name)?.attributes.ino;
        ns.inline_write(NOW, ino, 0, &[7; 4096], Kills::Capabilities).map(drop)
    })?;
    let started = Instant::now();
    let mut listed = 0u64;
    ns.list(dir, 0, WithNodes::All, usize::MAX, &mut |_| {
        listed += 1;
        true
    })?;
    println!("{:<14} {:>9.0} /s", "list + nodes", listed as f64 / started.elapsed().as_secs_f64());
    measure("unlink", files, threads, |name| ns.unlink(C, NOW, dir, name).map(drop))?;
    ns.rmdir(C, NOW, InodeId::ROOT, Name::new(b"d")?)?;
    ns.close(NOW)?;
    Ok(())
}

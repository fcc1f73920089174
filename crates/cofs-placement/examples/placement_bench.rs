//! What the driver costs on a given file system: `placement_bench DIRECTORY [OBJECTS]`.
//!
//! Prints objects per second: created ahead (fill), handed out when ready and still open, when ready and
//! closed, and when nothing is ready, opened, removed; and
//! the same take under a running filler. Each includes the closing of the file.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_placement::{Placement, PoolConfig, Tier};
use cofs_types::{FsError, FsResult, InodeId, ObjectId, PoolId};
use uuid::Uuid;

fn main() -> FsResult<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        eprintln!("usage: placement_bench DIRECTORY [OBJECTS]");
        std::process::exit(2);
    };
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let scratch = tempfile::tempdir_in(&directory).map_err(|error| FsError::from_io("scratch", error))?;
    let placement = Arc::new(open(scratch.path())?);
    println!("{:>28} {:>12} {:>10}", "", "objects/s", "us each");

    // As many as are kept open at most.
    let open_count = count.min(256);
    let mut held = Vec::new();
    fill(&placement, "fill, kept open", open_count)?;
    take(&placement, "take, ready and open", open_count, &mut held)?;
    fill(&placement, "fill", count)?;
    take(&placement, "take, ready", count, &mut held)?;
    take(&placement, "take, nothing ready", count, &mut held)?;
    open_again(&placement, &held)?;
    remove(&placement, held)?;

    placement.start_filler();
    std::thread::sleep(Duration::from_millis(500));
    let mut held = Vec::new();
    take(&placement, "take, filler running", count, &mut held)?;
    for pause in [100, 400] {
        let label = format!("take, 1 in {pause} us, filler");
        paced(&placement, &label, count.min(5000), Duration::from_micros(pause), &mut held)?;
    }
    remove(&placement, held)?;
    placement.close()
}

fn open(directory: &Path) -> FsResult<Placement> {
    let config = PoolConfig {
        id: PoolId(0),
        name: "bench".to_owned(),
        directory: directory.join("pool"),
        tier: Tier::Flash,
    };
    let volume = Uuid::from_u128(1);
    Placement::format_pool(&config, volume)?;
    Placement::open(&[config], volume)
}

fn report(label: &str, count: usize, elapsed: Duration) {
    let each = elapsed.as_secs_f64() / count as f64;
    println!("{label:>28} {:>12.0} {:>10.2}", 1.0 / each, each * 1e6);
}

fn fill(placement: &Placement, label: &str, count: usize) -> FsResult<()> {
    let start = Instant::now();
    placement.fill_now(PoolId(0), count)?;
    report(label, count, start.elapsed());
    Ok(())
}

fn one(placement: &Placement, held: &[ObjectId]) -> FsResult<ObjectId> {
    let ino = InodeId::new(held.len() as u64 + 1).ok_or(FsError::InvalidArgument("inode number"))?;
    Ok(placement.take(ino)?.id)
}

fn take(placement: &Placement, label: &str, count: usize, held: &mut Vec<ObjectId>) -> FsResult<()> {
    let start = Instant::now();
    for _ in 0..count {
        held.push(one(placement, held)?);
    }
    report(label, count, start.elapsed());
    Ok(())
}

/// Takes at a steady rate; what is reported is the time inside the driver.
fn paced(
    placement: &Placement,
    label: &str,
    count: usize,
    pause: Duration,
    held: &mut Vec<ObjectId>,
) -> FsResult<()> {
    let mut inside = Duration::ZERO;
    let mut worst = Duration::ZERO;
    for _ in 0..count {
        let start = Instant::now();
        held.push(one(placement, held)?);
        let took = start.elapsed();
        inside += took;
        worst = worst.max(took);
        std::thread::sleep(pause.saturating_sub(took));
    }
    report(label, count, inside);
    println!("{:>28} {:>12} {:>10.0}", "(the slowest)", "", worst.as_secs_f64() * 1e6);
    Ok(())
}

fn open_again(placement: &Placement, held: &[ObjectId]) -> FsResult<()> {
    let start = Instant::now();
    for &id in held {
        placement.open_object(id, true)?;
    }
    report("open", held.len(), start.elapsed());
    Ok(())
}

fn remove(placement: &Placement, held: Vec<ObjectId>) -> FsResult<()> {
    let count = held.len();
    let start = Instant::now();
    for id in held {
        placement.remove(id)?;
    }
    report("remove", count, start.elapsed());
    Ok(())
}

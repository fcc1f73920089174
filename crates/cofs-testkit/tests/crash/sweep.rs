//! Every failpoint of the table of orders: the daemon ends there, and nothing acknowledged is lost.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use crate::{volume::Volume, work::Worker};

/// More operations than any place needs that is reached by working.
const OPS_MAX: u64 = 1500;
/// More objects than two of a pool's directories hold.
const OBJECTS: usize = 1100;

/// The names in the table, `room.verb.arrow` between back quotes in its rows.
fn failpoints(table: &str) -> BTreeSet<String> {
    let rows = table.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        let plain = |part: &&str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || b"_".contains(&byte))
        };
        parts.len() == 3 && parts.iter().all(plain)
    };
    words.filter(is_name).map(str::to_owned).collect()
}

/// The names in `tests/ledger/failpoints.toml`: a line each, with its reason.
fn ledger() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ledger/failpoints.toml");
    let text = fs::read_to_string(page).expect("tests/ledger/failpoints.toml");
    let lines = text.lines().filter(|line| line.starts_with('"'));
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[test]
fn names_are_read_from_the_table() {
    let table = "text `not.in.table`\n| a | `fs.create.committed` | `one.two` |\n| `x.y.Z` | `fs.a.b_c` |\n";
    assert_eq!(failpoints(table).into_iter().collect::<Vec<_>>(), ["fs.a.b_c", "fs.create.committed"]);
}

#[test]
fn the_daemon_may_end_at_every_arrow_of_the_table() {
    if std::env::var_os("COFS_TEST_CRASH_DIR").is_none() {
        eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test failpoints sets it");
        return;
    }
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/orders.md");
    let names = failpoints(&fs::read_to_string(table).expect("docs/design/orders.md"));
    assert!(names.len() > 10, "the table names its failpoints: {names:?}");
    let only = std::env::var("COFS_TEST_FAILPOINT").ok();
    let ledger = ledger();
    let mut failed = Vec::new();
    for (number, name) in
        names.iter().enumerate().filter(|(_, name)| only.as_ref().is_none_or(|only| only == *name))
    {
        let run = || one(name, number as u64);
        match std::panic::catch_unwind(run) {
            Ok(None) if ledger.contains(name) => println!("ok {name} (not reached, as the ledger says)"),
            Ok(Some(how)) if !ledger.contains(name) => println!("ok {name} ({how})"),
            Ok(Some(how)) => {
                println!("FAILED {name}: stands in the ledger, and is reached {how}");
                failed.push(name.clone());
            }
            Ok(None) => {
                println!("FAILED {name}: never reached");
                failed.push(name.clone());
            }
            Err(_) => {
                println!("FAILED {name}");
                failed.push(name.clone());
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Ends the daemon at one place and checks; `None` if the place was never reached.
fn one(name: &str, seed: u64) -> Option<&'static str> {
    let mut volume = Volume::format(name).unwrap();
    volume.mount(None);
    let mut worker = Worker::new(volume.top().join("worker"), seed);
    worker.run(&AtomicBool::new(false), 100);
    worker.close_all();
    assert!(volume.stop());
    let how = reach(&mut volume, &mut worker, name)?;
    worker.close_all();
    // With an even number the checker goes first, with an odd one the mount does.
    if seed.is_multiple_of(2) {
        volume.assert_only_orphans();
    }
    volume.mount(None);
    worker.check();
    assert!(volume.stop());
    volume.assert_tidies_up();
    volume.discard();
    Some(how)
}

/// Tries the ways in which a place may be reached: by work, by large numbers, at the unmount, after a crash.
fn reach(volume: &mut Volume, worker: &mut Worker, name: &str) -> Option<&'static str> {
    if !volume.mount(Some(name)) {
        return Some("at the mount");
    }
    worker.run(&AtomicBool::new(false), OPS_MAX);
    if ended_soon(volume, worker) {
        return Some("at work");
    }
    // The daemon may end in the middle: then what is left outside the worker's directory is of no interest.
    let _ = rarely_done(&volume.top().join("rare"));
    if ended_soon(volume, worker) {
        return Some("with what is rarely done");
    }
    let _ = many_objects(&volume.top().join("many"));
    if ended_soon(volume, worker) {
        return Some("with many objects");
    }
    worker.close_all();
    if !volume.stop() {
        return Some("at the unmount");
    }
    after_a_crash(volume, worker, name).or_else(|| after_an_outgrow(volume, worker, name))
}

/// The place may be one of the background's: it gets a moment to come to it.
fn ended_soon(volume: &mut Volume, worker: &mut Worker) -> bool {
    for _ in 0..150 {
        if volume.ended() {
            worker.close_all();
            volume.bury();
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Files that are objects, in more directories of the pool than one, and all of them removed again.
fn many_objects(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    for n in 0..OBJECTS {
        fs::File::create(dir.join(n.to_string()))?.set_len(200_000)?;
    }
    fs::remove_dir_all(dir)
}

/// What the worker does seldom, or not at all.
fn rarely_done(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    let open = |name: &str| {
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(name))
    };
    // The second for writing only: nobody has it mapped, and it is copied to below.
    let (large, copy) = (open("large")?, fs::File::create(dir.join("copy"))?);
    for file in [&large, &copy] {
        file.write_all_at(&vec![7; 400_000], 0)?;
    }
    // One that ended small.
    let shrunk = open("shrunk")?;
    shrunk.write_all_at(&vec![7; 400_000], 0)?;
    shrunk.set_len(10)?;
    drop(shrunk);
    let (mut from, mut to) = (0, 100);
    rustix::fs::copy_file_range(&large, Some(&mut from), &copy, Some(&mut to), 300_000)?;
    // Times of a file that is being written.
    large.set_times(fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
    for name in ["user.one", "user.two"] {
        rustix::fs::fsetxattr(&large, name, &[1; 3000], rustix::fs::XattrFlags::empty())?;
        rustix::fs::fremovexattr(&large, name)?;
    }
    rustix::fs::fallocate(open("small")?, rustix::fs::FallocateFlags::empty(), 0, 1000)?;
    rustix::fs::syncfs(&large)?;
    large.sync_all()?;
    // Closed, and not synced: it stays, for the unmount.
    open("../closed")?.write_all_at(&vec![7; 400_000], 0)?;
    change_by_another_user(&open("set-id")?)?;
    // A first read, whose time is committed within a second: of a file that is still there then.
    let read = open("../read")?;
    read.write_all_at(&[7; 5000], 0)?;
    read.sync_all()?;
    rustix::fs::fadvise(&read, 0, None, rustix::fs::Advice::DontNeed)?;
    read.read_exact_at(&mut [0; 100], 0)?;
    fs::remove_dir_all(dir)
}

/// Changes that take the set-id bits away: by one who is not root, through a descriptor that he was given. Before a write
/// the kernel asks for that by itself, with a truncation it comes in one.
fn change_by_another_user(file: &fs::File) -> io::Result<()> {
    file.write_all_at(&vec![7; 400_000], 0)?;
    let changes: [fn(&fs::File) -> io::Result<()>; 2] =
        [|file| file.write_all_at(b"x", 0), |file| file.set_len(350_000)];
    changes.into_iter().try_for_each(|change| {
        file.set_permissions(fs::Permissions::from_mode(0o6777))?;
        std::thread::scope(|scope| {
            let as_nobody = || {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody)?;
                change(file)
            };
            scope.spawn(as_nobody).join().unwrap_or_else(|_| Err(io::Error::other("the other user's thread")))
        })
    })
}

/// A crash between the taking of an object and its commit, then a mount with the place armed.
fn after_an_outgrow(volume: &mut Volume, worker: &mut Worker, name: &str) -> Option<&'static str> {
    volume.mount(Some("fs.outgrow.copied"));
    let file = fs::File::create_new(volume.top().join("outgrows")).unwrap();
    // The daemon ends in it.
    let _ = file.write_all_at(&[1; 300_000], 0);
    drop(file);
    assert!(ended_soon(volume, worker));
    if !volume.mount(Some(name)) || ended_soon(volume, worker) {
        return Some("after an outgrow that was cut off");
    }
    volume.stop();
    None
}

/// A crash with files open for writing, and unlinked ones, then a mount with the place armed.
fn after_a_crash(volume: &mut Volume, worker: &mut Worker, name: &str) -> Option<&'static str> {
    volume.mount(None);
    let held: Vec<fs::File> = (0..4)
        .map(|n| {
            let path = volume.top().join(format!("held-{n}"));
            let file = fs::File::create_new(&path).unwrap();
            file.write_all_at(&vec![1; 300_000 * (n % 2)], 0).unwrap();
            if n > 1 {
                fs::remove_file(path).unwrap();
            }
            file
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(&stop, u64::MAX));
        std::thread::sleep(Duration::from_millis(200));
        volume.kill();
        stop.store(true, Ordering::Relaxed);
    });
    worker.close_all();
    drop(held);
    volume.bury();
    if !volume.mount(Some(name)) {
        return Some("at the mount after a crash");
    }
    if ended_soon(volume, worker) {
        return Some("after a crash");
    }
    volume.stop();
    None
}

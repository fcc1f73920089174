//! The disk below RocksDB fails (EIO), in the background too, where nobody is there to be told: commits go on, then they learn the cause,
//! and when the disk works again so does the engine, without being opened anew. Nothing is lost.
//!
//! Who reads meanwhile is told, and never that something is not there.
//!
//! RocksDB calls libc's `write` and `fdatasync`, and by the engine's `pread` its `pread64`; this process has its own, which fail for the files that a test names. (The journal is
//! synced by `fdatasync` too, but lies in files of other names.)

mod common;

use std::{
    collections::HashSet,
    fs,
    ops::ControlFlow,
    os::{fd::RawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cofs_engine::{EmbeddedEngine, EmbeddedOptions, Engine, EngineError, EngineHealth, KeyShape};
use common::{changes, commit, open, put, scan};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rustix::io::Errno;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Read,
    Write,
    Sync,
}

struct Fault {
    call: Call,
    directory: PathBuf,
    /// Of these files, of that directory.
    of: fn(&Path) -> bool,
    why: Errno,
    failed: AtomicU64,
}

static IS_ARMED: AtomicBool = AtomicBool::new(false);
static FAULTS: RwLock<Vec<Fault>> = RwLock::new(Vec::new());
/// One test at a time has faults.
static TURN: Mutex<()> = Mutex::new(());

/// The disk that fails until it is `mend`ed, or dropped.
struct Failing(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Failing {
    fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn begin(turn: MutexGuard<'static, ()>, call: Call, directory: &Path, of: fn(&Path) -> bool) -> Self {
        Self::with(Errno::IO, turn, call, directory, of)
    }

    fn with(
        why: Errno,
        turn: MutexGuard<'static, ()>,
        call: Call,
        directory: &Path,
        of: fn(&Path) -> bool,
    ) -> Self {
        let directory = directory.canonicalize().unwrap();
        *FAULTS.write().unwrap() = vec![Fault { call, directory, of, why, failed: AtomicU64::new(0) }];
        IS_ARMED.store(true, Ordering::SeqCst);
        Self(turn)
    }

    /// How many calls have failed.
    fn failed(&self) -> u64 {
        FAULTS.read().unwrap().iter().map(|fault| fault.failed.load(Ordering::SeqCst)).sum()
    }

    /// Beside what fails already.
    fn begin_another(&self, call: Call, of: fn(&Path) -> bool) {
        let mut faults = FAULTS.write().unwrap();
        let (directory, why) = (faults[0].directory.clone(), faults[0].why);
        faults.push(Fault { call, directory, of, why, failed: AtomicU64::new(0) });
    }

    fn mend(&self) {
        IS_ARMED.store(false, Ordering::SeqCst);
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        self.mend();
    }
}

/// Whether this call is to fail, with errno set.
fn fails(call: Call, file: RawFd) -> bool {
    if !IS_ARMED.load(Ordering::SeqCst) {
        return false;
    }
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{file}")) else { return false };
    let faults = FAULTS.read().unwrap();
    let is_met =
        |fault: &&Fault| fault.call == call && path.parent() == Some(&fault.directory) && (fault.of)(&path);
    let Some(fault) = faults.iter().find(is_met) else { return false };
    fault.failed.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the place of this thread's errno.
    unsafe { *libc::__errno_location() = fault.why.raw_os_error() };
    true
}

/// `write(2)`.
///
/// # Safety
///
/// As for libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(
    file: libc::c_int,
    bytes: *const libc::c_void,
    count: libc::size_t,
) -> libc::ssize_t {
    if fails(Call::Write, file) {
        return -1;
    }
    // SAFETY: handed on as it came.
    unsafe { libc::syscall(libc::SYS_write, file, bytes, count) as libc::ssize_t }
}

/// `pread64(2)`, in which the engine's `pread` ends.
///
/// # Safety
///
/// As for libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(
    file: libc::c_int,
    bytes: *mut libc::c_void,
    count: libc::size_t,
    offset: libc::off64_t,
) -> libc::ssize_t {
    if fails(Call::Read, file) {
        return -1;
    }
    // SAFETY: handed on as it came.
    unsafe { libc::syscall(libc::SYS_pread64, file, bytes, count, offset) as libc::ssize_t }
}

/// `fdatasync(2)`.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: libc::c_int) -> libc::c_int {
    if fails(Call::Sync, file) {
        return -1;
    }
    // SAFETY: a number only.
    unsafe { libc::syscall(libc::SYS_fdatasync, file) as libc::c_int }
}

/// RocksDB's own name of a table: written under it is what compaction makes.
fn is_table(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "sst")
}

fn is_manifest(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST-"))
}

/// Whether tables have their names in RocksDB, and are not yet taken.
fn is_being_taken(file: &Path) -> bool {
    fs::metadata(file.with_file_name("new-table-0")).is_ok_and(|new| new.nlink() == 2)
}

fn is_manifest_that_takes(file: &Path) -> bool {
    is_manifest(file) && is_being_taken(file)
}

/// Each segment has keys of all the range, so that its tables lie over all others and must be merged.
fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn one(number: u64) -> cofs_engine::Batch<'static> {
    changes(vec![put(key(number), vec![number as u8; 1000])])
}

fn fill(engine: &EmbeddedEngine, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| commit(engine, &one(number)));
}

/// Commits records until one is refused; the number of that, and why.
fn fill_up(engine: &EmbeddedEngine) -> (u64, EngineError) {
    const MANY: u64 = 200_000;
    let refused = (0..MANY).find_map(|number| engine.commit(&one(number)).err().map(|why| (number, why)));
    refused.expect("the journal has no end")
}

/// Commits `number` as soon as that is taken.
fn commit_when_healed(engine: &EmbeddedEngine, number: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    while let Err(error) = engine.commit(&one(number)) {
        assert!(Instant::now() < until, "it does not heal: {error}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn becomes_healthy(engine: &EmbeddedEngine) {
    let until = Instant::now() + Duration::from_secs(120);
    while !matches!(engine.stats().health, EngineHealth::Healthy) {
        assert!(Instant::now() < until, "it does not heal: {:?}", engine.stats().health);
        thread::sleep(Duration::from_millis(20));
    }
}

fn all_there(engine: &EmbeddedEngine, up_to: u64) {
    let found = scan(engine, b"", &[0xff; 9], usize::MAX);
    assert_eq!(found.len() as u64, up_to);
    let found: HashSet<_> = found.into_iter().collect();
    assert!((0..up_to).all(|number| found.contains(&(key(number), vec![number as u8; 1000]))));
    for number in (0..up_to).step_by(97) {
        assert_eq!(engine.get(&key(number)).unwrap().as_deref(), Some(&vec![number as u8; 1000][..]));
    }
}

fn is_stuck(engine: &EmbeddedEngine) -> bool {
    matches!(engine.stats().health, EngineHealth::Stuck(why) if why.errno == Some(Errno::IO.raw_os_error()))
}

/// The disk fails until a commit is refused, then works again.
fn refuses_and_heals(directory: &Path, engine: EmbeddedEngine, failing: &Failing) {
    let (refused, error) = fill_up(&engine);
    assert_eq!(error.errno, Some(Errno::IO.raw_os_error()), "{error}");
    assert!(failing.failed() > 0, "nothing has failed");
    assert!(refused > 500, "the journal takes more than {refused}");
    assert!(is_stuck(&engine), "{:?}", engine.stats().health);
    assert!(engine.get(&key(refused)).unwrap().is_none(), "a failed commit is not seen");
    engine.sync().unwrap();
    all_there(&engine, refused);

    failing.mend();
    commit_when_healed(&engine, refused);
    fill(&engine, refused + 1..refused + 3000);
    becomes_healthy(&engine);
    all_there(&engine, refused + 3000);
    drop(engine);
    let engine = open(directory);
    all_there(&engine, refused + 3000);
    fill(&engine, refused + 3000..refused + 6000);
    all_there(&engine, refused + 6000);
}

#[test]
fn compaction_that_cannot_write_its_tables_goes_on_when_it_can() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Write, directory.path(), is_table);
    refuses_and_heals(directory.path(), engine, &failing);
}

#[test]
fn compaction_that_goes_on_failing_after_reopening_is_told_again() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Write, directory.path(), is_table);
    // So many young tables that RocksDB would have writes wait, and not so many that the drain waits.
    fill(&engine, 0..18_000);
    drop(engine);
    assert!(failing.failed() > 0);
    let engine = Arc::new(open(directory.path()));
    let (tell, told) = mpsc::channel();
    let filling = Arc::clone(&engine);
    thread::spawn(move || tell.send((18_000..).find(|number| filling.commit(&one(*number)).is_err())));
    let refused = told.recv_timeout(Duration::from_secs(120)).expect("it waits for ever").unwrap();
    assert!(is_stuck(&engine), "{:?}", engine.stats().health);
    failing.mend();
    commit_when_healed(&engine, refused);
    all_there(&engine, refused + 1);
}

#[test]
fn tables_that_cannot_be_handed_over_are_when_they_can() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Sync, directory.path(), is_table);
    refuses_and_heals(directory.path(), engine, &failing);
}

#[test]
fn a_manifest_that_cannot_be_written_is_begun_anew() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Write, directory.path(), is_manifest_that_takes);
    refuses_and_heals(directory.path(), engine, &failing);
}

/// A record that could not be synced may be in the file all the same; and it names tables that are gone, as they were not taken.
#[test]
fn a_manifest_that_cannot_be_synced_is_begun_anew() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Sync, directory.path(), is_manifest_that_takes);
    refuses_and_heals(directory.path(), engine, &failing);
}

/// The process ends before the disk works again.
#[test]
fn a_manifest_that_names_tables_that_were_not_taken_is_no_damage() {
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    // Two large families: two tables at a time.
    let keys = KeyShape { family_bytes: 1, ..KeyShape::default() };
    let create = EmbeddedOptions { create: true, keys, ..EmbeddedOptions::new(directory.path(), 96 << 20) };
    let open = || EmbeddedEngine::open(&create).unwrap();
    let two = |number| {
        changes(["a", "b"].map(|family| put([family.as_bytes(), &key(number)].concat(), [7; 1000])).into())
    };
    let engine = open();
    let failing = Failing::begin(turn, Call::Sync, directory.path(), is_manifest_that_takes);
    let refused = (0..100_000).find(|number| engine.commit(&two(*number)).is_err()).unwrap();
    assert!(failing.failed() > 0 && is_stuck(&engine));
    drop(engine);
    failing.mend();
    let engine = open();
    let count =
        |family: &str| scan(&engine, family.as_bytes(), &[family.as_bytes()[0] + 1], usize::MAX).len() as u64;
    assert_eq!(["a", "b"].map(count), [refused; 2]);
    (refused..refused + 3000).for_each(|number| commit(&engine, &two(number)));
    becomes_healthy(&engine);
    assert_eq!(["a", "b"].map(count), [refused + 3000; 2]);
    let is_doubtful = |file: fs::DirEntry| file.file_name().to_string_lossy().starts_with("doubtful-");
    assert!(!fs::read_dir(directory.path()).unwrap().flatten().any(is_doubtful), "nothing is left of it");
}

/// The same, with more tables than RocksDB looks for when it opens: young ones, as compaction fails. Those in doubt lie below them.
#[test]
fn tables_that_were_not_taken_are_missed_among_many() {
    let last = |number: u64| [&[0xff; 9][..], &number.to_be_bytes()].concat();
    let one_more = |number| changes(vec![put(last(number), [7; 1000])]);
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let failing = Failing::begin(Failing::turn(), Call::Write, directory.path(), is_table);
    fill(&engine, 0..15_000);
    // What waits in the journal is drained by these.
    (0..3000).for_each(|number| commit(&engine, &one_more(number)));
    failing.begin_another(Call::Sync, is_manifest_that_takes);
    let refused = (3000..).find(|number| engine.commit(&one_more(*number)).is_err()).unwrap();
    drop(engine);
    failing.mend();
    let engine = open(directory.path());
    all_there(&engine, 15_000);
    assert_eq!(scan(&engine, &last(0), &last(u64::MAX), usize::MAX).len() as u64, refused);
}

/// The disk fails and works again, this way and that, and the engine ends in the midst of it.
#[test]
fn whatever_fails_and_whenever_it_ends_nothing_is_lost() {
    const FILES: [fn(&Path) -> bool; 3] = [is_table, is_manifest, is_manifest_that_takes];
    const WHYS: [Errno; 4] = [Errno::IO, Errno::ROFS, Errno::DQUOT, Errno::NOSPC];
    for seed in 0..2 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut engine = open(directory.path());
        let mut next = 0;
        for round in 0..12 {
            let call = if rng.random() { Call::Write } else { Call::Sync };
            let (why, files) = (WHYS[rng.random_range(0..4)], FILES[rng.random_range(0..3)]);
            let failing = Failing::with(why, Failing::turn(), call, directory.path(), files);
            let ends = next + rng.random_range(0..6000);
            while next < ends && engine.commit(&one(next)).is_ok() {
                next += 1;
            }
            if rng.random_ratio(1, 3) {
                thread::sleep(Duration::from_millis(rng.random_range(0..1500)));
            }
            if rng.random() {
                drop(engine);
                failing.mend();
                engine = open(directory.path());
            }
            failing.mend();
            if round % 4 == 3 {
                all_there(&engine, next);
            }
            let ends = next + rng.random_range(1..6000);
            while next < ends {
                commit_when_healed(&engine, next);
                next += 1;
            }
        }
        all_there(&engine, next);
    }
}

/// Each way to read, of the keys of these numbers: the right values, or an error.
fn ways_to_read(engine: &EmbeddedEngine, numbers: &[u64]) -> [Result<(), EngineError>; 5] {
    let right = |number: u64, value: Option<&[u8]>| {
        assert_eq!(value, Some(&[number as u8; 1000][..]), "{number} is not told as it is");
    };
    let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let show = |keys: &[&[u8]]| {
        let mut seen = 0;
        let shown = engine.show(keys, &mut |at, value| {
            seen += 1;
            right(numbers[at], value);
        });
        assert!(shown.is_err() || seen == keys.len());
        shown
    };
    [
        engine.get(keys[0]).map(|value| right(numbers[0], value.as_deref())),
        engine.multi_get(&keys).map(|values| {
            let values = values.iter().map(Option::as_deref);
            numbers.iter().zip(values).for_each(|(&number, value)| right(number, value));
        }),
        show(&keys[..1]),
        show(&keys),
        numbers.iter().try_for_each(|&number| {
            let (from, mut first) = (key(number), None);
            let end = [&from[..], &[0]].concat();
            engine.scan(&from, &end, &mut |_, value| {
                first = Some(value.to_vec());
                ControlFlow::Continue(())
            })?;
            right(number, first.as_deref());
            Ok(())
        }),
    ]
}

#[test]
fn who_reads_what_cannot_be_read_is_told_so() {
    const RECORDS: u64 = 20_000;
    let turn = Failing::turn();
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    fill(&engine, 0..RECORDS);
    drop(engine);
    drop(open(directory.path())); // what was in the journal goes down
    let engine = open(directory.path());
    let failing = Failing::begin(turn, Call::Read, directory.path(), is_table);
    let mut refused = [0; 5];
    let numbers: Vec<_> = (0..RECORDS / 2).collect();
    for numbers in numbers.chunks(10) {
        for (refused, answer) in refused.iter_mut().zip(ways_to_read(&engine, numbers)) {
            if let Err(error) = answer {
                assert_eq!(error.errno, Some(Errno::IO.raw_os_error()), "{error}");
                *refused += 1;
            }
        }
    }
    assert!(failing.failed() > 0 && refused.iter().all(|&refused| refused > 500), "{refused:?}");
    failing.mend();
    for numbers in numbers.chunks(10) {
        ways_to_read(&engine, numbers).into_iter().for_each(Result::unwrap);
    }
    all_there(&engine, RECORDS);
}

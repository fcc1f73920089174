//! Rounds: a new volume, work, the cut, and the comparison.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cofs_testkit::machine::{Disk, run};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    machine::work_and_die,
    plan::{Node, Op, Plan, byte},
};

/// What was done and could not be said any more before the power went, at most.
const UNSAID_MAX: usize = 1000;

#[derive(Default, Debug)]
struct Score {
    acknowledged: usize,
    synced: usize,
    /// Acknowledged operations that were not synced, and went.
    lost: usize,
    /// Large files that lost bytes which no sync had covered.
    cut_short: usize,
}

/// Not a test: what the machine runs. Says what it has done, until the power goes.
#[test]
#[ignore = "run by the next one, in a machine of its own"]
fn work_until_the_power_goes() {
    let top = PathBuf::from(std::env::var_os("COFS_TEST_DIR").expect("COFS_TEST_DIR"));
    let mut plan = Plan::new(number("COFS_TEST_SEED", 1));
    let mut out = std::io::stdout();
    loop {
        let op = plan.next();
        plan.perform(&top, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        let word = if matches!(op, Op::Sync(_)) { "synced" } else { "done" };
        writeln!(out, "{word} {}", plan.count).unwrap();
    }
}

#[test]
fn what_was_synced_survives_a_power_cut_and_the_rest_is_a_prefix() {
    let Some(dir) = std::env::var_os("COFS_TEST_CRASH_DIR").map(PathBuf::from) else {
        return eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test powercut sets it");
    };
    let (rounds, seed) = (number("COFS_TEST_ROUNDS", 3), number("COFS_TEST_SEED", 1));
    println!("seed {seed}, {rounds} rounds");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut score = Score::default();
    for round in 0..rounds {
        let bench = Bench::new(&dir.join(round.to_string()));
        let seed = seed * 1000 + round;
        let patience = Duration::from_millis(random.random_range(300..6500));
        let said = work_and_die(&bench.dir, &bench.disk.image, &bench.cofs, seed, patience);
        bench.check(&said, seed, &mut score);
        drop(bench);
        println!("after round {round}: {score:?}");
    }
    println!("Score {score:?}");
    assert!(score.acknowledged > 100 && score.synced > 0, "too little was done");
    assert!(score.lost > 0, "nothing was at stake: everything had reached the disk");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The disk of a machine, and where it is looked at.
struct Bench {
    dir: PathBuf,
    disk: Disk,
    mount: PathBuf,
    cofs: PathBuf,
}

impl Bench {
    /// A disk with a new volume.
    fn new(dir: &Path) -> Self {
        let mount = dir.join("mount");
        fs::create_dir_all(&mount).unwrap();
        let cofs = std::env::var_os("COFS_TEST_BINARY").expect("COFS_TEST_BINARY").into();
        let bench = Self { disk: Disk::new(dir), dir: dir.to_owned(), mount, cofs };
        bench.disk.attach();
        run(Command::new(&bench.cofs).arg("format").arg(bench.store()));
        bench.disk.detach();
        bench
    }

    fn store(&self) -> PathBuf {
        self.disk.below.join("store")
    }

    fn check(&self, said: &[String], seed: u64, score: &mut Score) {
        let last = |word: &str| {
            let numbers = said.iter().filter_map(|line| line.strip_prefix(word)?.parse::<usize>().ok());
            numbers.max().unwrap_or(0)
        };
        let (synced, done) = (last("synced "), last("done ").max(last("synced ")));
        assert!(!said.iter().any(|line| line.starts_with("ended")), "the work failed: {said:#?}");
        self.disk.attach();
        run(Command::new(&self.cofs).args(["mount", "-d"]).arg(self.store()).arg(&self.mount));
        let tree = read_tree(&self.mount);
        run(Command::new(&self.cofs).arg("umount").arg(&self.mount));
        let (kept, cut_short) = judge(&tree, seed, synced, done);
        println!("seed {seed}: {done} done, {synced} synced, {kept} kept, {cut_short} large files cut short");
        score.acknowledged += done;
        score.synced += synced;
        score.lost += done.saturating_sub(kept);
        score.cut_short += cut_short;
        let repaired =
            Command::new(&self.cofs).args(["fsck", "--repair"]).arg(self.store()).output().unwrap();
        assert!(matches!(repaired.status.code(), Some(0 | 1)), "{repaired:?}");
        run(Command::new(&self.cofs).arg("fsck").arg(self.store()));
        self.disk.detach();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for mount in [&self.mount, &self.disk.below] {
            let _ = Command::new("umount").arg("-l").arg(mount).stderr(Stdio::null()).status();
        }
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.dir).unwrap();
        }
    }
}

enum Seen {
    Directory,
    Symlink(String),
    File(Vec<u8>),
}

fn read_tree(top: &Path) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let what = if kind.is_dir() {
                pending.push(path);
                Seen::Directory
            } else if kind.is_symlink() {
                Seen::Symlink(fs::read_link(path).unwrap().to_str().unwrap().to_owned())
            } else {
                // Before it is opened: nobody may take a part for the whole.
                let says = entry.metadata().unwrap().len();
                let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
                // (More it may have: of a write whose commit went.)
                assert!(says <= bytes.len() as u64, "{name} says {says} and has {} bytes", bytes.len());
                Seen::File(bytes)
            };
            seen.insert(name, what);
        }
    }
    seen
}

/// After how many operations (the most that fit) the tree stood so, and how many large files lack bytes.
#[track_caller]
fn judge(tree: &BTreeMap<String, Seen>, seed: u64, synced: usize, done: usize) -> (usize, usize) {
    let mut whole = Plan::new(seed);
    while whole.count < done + UNSAID_MAX {
        whole.next();
    }
    let mut plan = Plan::new(seed);
    let mut best = None;
    let mut differences = Vec::new();
    let started = Instant::now();
    let mut half = None;
    while plan.count < done + UNSAID_MAX {
        if plan.count >= synced {
            match compare(tree, &plan, &whole, None) {
                Ok(cut_short) => best = Some((plan.count, cut_short)),
                Err(why) => differences.push(format!("after {}: {why}", plan.count)),
            }
            if half.is_some()
                && let Ok(cut_short) = compare(tree, &plan, &whole, half)
            {
                best = Some((plan.count - 1, cut_short));
            }
        }
        let op = plan.next();
        if plan.count <= synced {
            plan.synced(&op);
        }
        half = if plan.count > synced { plan.half(&op) } else { None };
        assert!(started.elapsed() < Duration::from_secs(300), "too slow");
    }
    differences.truncate(done - synced + 1);
    best.unwrap_or_else(|| panic!("seed {seed}: no prefix from {synced} to {done} and on: {differences:#?}"))
}

/// Compares with the tree after `plan`. Bytes that were added to large files until the end, `whole`, may have reached
/// the disk before the commits that went. `half`: that file has been written up to that length only.
fn compare(
    tree: &BTreeMap<String, Seen>,
    plan: &Plan,
    whole: &Plan,
    half: Option<(usize, usize)>,
) -> Result<usize, String> {
    let here = |name: &String| tree.contains_key(name);
    if let Some(name) = plan.names.keys().find(|name| !here(name)) {
        return Err(format!("{name} is missing"));
    }
    if let Some(name) = tree.keys().find(|name| !plan.names.contains_key(*name)) {
        return Err(format!("{name} should not be there"));
    }
    let mut cut_short = std::collections::BTreeSet::new();
    for (name, node) in &plan.names {
        match (node, &tree[name]) {
            (Node::Directory, Seen::Directory) => {}
            (Node::Symlink(expected), Seen::Symlink(target)) if expected == target => {}
            (Node::File(id), Seen::File(bytes)) => {
                let file = &plan.files[*id];
                let (exact, most) = match half {
                    Some((half, len)) if half == *id => (len, len),
                    _ if file.large => (file.synced, whole.files[*id].len),
                    _ => (file.len, file.len),
                };
                if bytes.len() < exact || bytes.len() > most {
                    return Err(format!("{name} has {} bytes, {exact} of {most} are safe", bytes.len()));
                }
                let wrong =
                    |(at, found): (usize, &u8)| *found != byte(*id, at) && (at < exact || *found != 0);
                if let Some(at) = bytes.iter().enumerate().position(wrong) {
                    return Err(format!("{name}: byte {at} is wrong, {exact} of {} are safe", file.len));
                }
                if file.large && (bytes.len() < file.len || bytes.contains(&0)) {
                    cut_short.insert(*id);
                }
            }
            _ => return Err(format!("{name} is of another kind")),
        }
    }
    Ok(cut_short.len())
}

/// The tree as it stands after `plan`, but for one file, which has its first `len` bytes.
fn tree_with(plan: &Plan, cut: usize, len: usize) -> BTreeMap<String, Seen> {
    let seen = |node: &Node| match node {
        Node::Directory => Seen::Directory,
        Node::Symlink(target) => Seen::Symlink(target.clone()),
        Node::File(id) => {
            let len = if *id == cut { len } else { plan.files[*id].len };
            Seen::File((0..len).map(|at| byte(*id, at)).collect())
        }
    };
    plan.names.iter().map(|(name, node)| (name.clone(), seen(node))).collect()
}

#[test]
fn a_write_may_be_cut_at_the_end_of_its_first_page_and_nowhere_else() {
    let (seed, mut plan) = (1, Plan::new(1));
    let (id, page_end) = loop {
        let op = plan.next();
        if let Some(half) = plan.half(&op).filter(|(id, _)| !plan.files[*id].large) {
            break half;
        }
    };
    let done = plan.count;
    let kept = |len: usize, synced: usize| {
        let tree = tree_with(&plan, id, len);
        std::panic::catch_unwind(|| judge(&tree, seed, synced, done).0).ok()
    };
    assert_eq!(kept(plan.files[id].len, 0), Some(done));
    assert_eq!(kept(page_end, done - 1), Some(done - 1));
    assert_eq!(kept(page_end - 1, done - 1), None);
    assert_eq!(kept(page_end + 1, done - 1), None);
    assert_eq!(kept(page_end, done), None, "what was synced is whole");
}

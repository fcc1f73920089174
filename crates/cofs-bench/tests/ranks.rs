//! Many workers: on one machine, over TCP, in network namespaces that stand for nodes; and what becomes of a run
//! when they disagree or are lost.

mod common;

use std::{
    env, fs,
    io::Read,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use cofs_bench::{Io, Metarates, Options, Place, Told, join, run};
use common::{
    entries,
    rank::{Rank, free_place, kind},
    suite,
};
use tempfile::TempDir;

/// A run that takes longer than any test, if nothing ends it.
const ENDLESS: u64 = 100_000_000;
/// Longer than any of these tests may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn options(files: u64, directory: &Path) -> Options {
    common::options(kind(&metarates(files)), 1, directory)
}

fn rank(node: Option<&str>, rank: usize, size: usize, suite: &str, meeting: &str, directory: &Path) -> Rank {
    Rank::start(node, &Place { rank, size, meeting: meeting.to_owned() }, suite, directory)
}

/// What a rank is told to do.
fn metarates(files: u64) -> String {
    format!("metarates --files {files} --small 100")
}

#[test]
fn sixty_four_workers_run_on_this_machine() {
    let dir = TempDir::new().unwrap();
    let report = run(&Options { processes: 64, ..options(640, dir.path()) }, &mut |_| {}).unwrap();
    for row in &report.rows {
        assert_eq!((row.median.work.operations, row.median.processes.len()), (640, 64), "{}", row.phase);
        assert!(row.median.processes.iter().all(|part| part.work.operations == 10), "{}", row.phase);
    }
    assert_eq!(report.conditions.nodes.len(), 1);
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn workers_take_other_mounts_of_the_file_system_in_turn() {
    let dir = TempDir::new().unwrap();
    let others = TempDir::new().unwrap();
    let mount = others.path().join("mount");
    std::os::unix::fs::symlink(dir.path(), &mount).unwrap();
    let options = Options { processes: 4, mounts: vec![mount.clone()], ..options(40, dir.path()) };
    let report = run(&options, &mut |_| {}).unwrap();
    assert_eq!(report.rows.first().unwrap().median.work.operations, 40);
    // A directory that is not the same one is noticed.
    let options = Options { mounts: vec![others.path().to_owned()], beside: true, ..options };
    let error = run(&options, &mut |_| {}).unwrap_err().to_string();
    let one_of_them = error.contains("rank 1") || error.contains("rank 3");
    assert!(one_of_them && error.contains("not the file system that rank 0 sees"), "{error}");
}

#[test]
fn warm_ups_do_not_count_and_time_ends_a_phase() {
    let dir = TempDir::new().unwrap();
    let mut rounds = Vec::new();
    let options = Options {
        warm_ups: 2,
        repeats: 1,
        seconds: Some(1e-9),
        processes: 3,
        ..options(ENDLESS, dir.path())
    };
    // No space would be enough for so many.
    let options = Options { suite: suite::<Metarates>("--files 100000"), ..options };
    let report = run(&options, &mut |step| rounds.push((step.done, step.of))).unwrap();
    for row in &report.rows {
        assert_eq!((row.samples.len(), row.median.work.operations), (1, 3), "{}", row.phase);
    }
    let steps = rounds.len();
    assert_eq!(rounds, (0..steps).map(|done| (done, steps)).collect::<Vec<_>>());
    assert_eq!(steps % 3, 0);
    let large = Options { suite: suite::<Io>("--large 8M --random 1000"), ..options };
    let report = run(&large, &mut |_| {}).unwrap();
    let operations = |phase: &str| report.samples(phase, 0).first().unwrap().work.operations;
    // The write of one piece, and the fsync.
    assert_eq!((operations("write"), operations("read"), operations("random read")), (6, 3, 3));
    assert_eq!(entries(dir.path()), 0);
}

/// What this program is when a test starts it anew.
#[test]
fn a_rank() {
    common::rank::be();
}

#[test]
fn ranks_meet_over_tcp() {
    let dir = TempDir::new().unwrap();
    let meeting = free_place();
    // Rank 0 comes last.
    let ranks: Vec<Rank> =
        (0..4).rev().map(|number| rank(None, number, 4, &metarates(40), &meeting, dir.path())).collect();
    let said: Vec<(ExitStatus, String)> = ranks.into_iter().map(|rank| rank.end(PATIENCE)).collect();
    assert!(said.iter().all(|(status, _)| status.success()), "{said:?}");
    assert!(said.last().unwrap().1.contains("operations 40"), "{said:?}");
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn mpirun_starts_the_ranks_of_one_run() {
    let launchers = ["mpirun.openmpi", "mpirun"];
    let version = |program: &str| Command::new(program).arg("--version").output();
    let Some(launcher) = launchers.into_iter().find(|program| version(program).is_ok()) else {
        eprintln!("not tested: mpirun is not installed");
        return;
    };
    let dir = TempDir::new().unwrap();
    let mut command = Command::new(launcher);
    command.args(["--oversubscribe", "-np", "5"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "a_rank_of_a_launcher", "--nocapture"]);
    // In a container mpirun's root is no danger to anybody.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("COFS_BENCH_TEST_LAUNCHED", dir.path());
    command.env("COFS_BENCH_RENDEZVOUS", free_place());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("processes 5 operations 50").count(), 1, "{said}");
    assert_eq!(entries(dir.path()), 0);
}

/// What this program is when a launcher starts it: whichever rank the launcher says.
#[test]
fn a_rank_of_a_launcher() {
    let Ok(directory) = env::var("COFS_BENCH_TEST_LAUNCHED") else { return };
    let place = cofs_bench::place(&Told::default(), &|name| env::var(name).ok()).unwrap().unwrap();
    let own =
        Options { processes: place.size, place: Some(place.clone()), ..options(50, Path::new(&directory)) };
    match place.rank {
        0 => {
            let report = run(&own, &mut |_| {}).unwrap();
            println!("processes {} operations {}", report.processes, report.rows[0].median.work.operations);
        }
        _ => join(&own, &place).unwrap(),
    }
}

#[test]
fn a_rank_that_was_told_something_else_ends_the_run_before_anything_is_written() {
    let dir = TempDir::new().unwrap();
    let meeting = free_place();
    let files = [40, 40, 41];
    let ranks: Vec<Rank> =
        (0..3).map(|number| rank(None, number, 3, &metarates(files[number]), &meeting, dir.path())).collect();
    for said in ranks.into_iter().map(|rank| rank.end(PATIENCE)) {
        assert!(!said.0.success());
        assert!(said.1.contains("rank 2 on") && said.1.contains("files: 41, not 40"), "{said:?}");
    }
    assert_eq!(entries(dir.path()), 0);
}

/// What a rank of another version says first, in the frame that all versions read.
fn joins_from_the_past(meeting: &str) -> std::net::TcpStream {
    use std::io::Write;
    let word = r#"{"version":"0.0.1 (0)","rank":1,"job":{},"host":"old","process":7,"boot":"","can_drop_caches":false,"environments":[]}"#;
    let mut stream = knock(meeting);
    stream.write_all(&(word.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    stream
}

/// Connects to rank 0, as soon as it is there.
fn knock(meeting: &str) -> std::net::TcpStream {
    loop {
        match std::net::TcpStream::connect(meeting) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn a_rank_of_another_version_ends_the_run_before_anything_is_written() {
    let dir = TempDir::new().unwrap();
    let meeting = free_place();
    let first = rank(None, 0, 2, &metarates(40), &meeting, dir.path());
    let mut old = joins_from_the_past(&meeting);
    let (status, text) = first.end(PATIENCE);
    assert!(!status.success());
    assert!(text.contains("rank 1 on old (process 7) is of version 0.0.1 (0), rank 0 of "), "{text}");
    let mut told = Vec::new();
    old.read_to_end(&mut told).unwrap();
    assert!(String::from_utf8_lossy(&told).contains("is of version 0.0.1 (0)"), "it is told, too");
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn strangers_at_the_port_are_no_business_of_the_run() {
    use std::io::Write;
    let dir = TempDir::new().unwrap();
    let meeting = free_place();
    let first = rank(None, 0, 2, &metarates(40), &meeting, dir.path());
    let silent = knock(&meeting);
    knock(&meeting).write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    knock(&meeting).write_all(&[0, 0, 0, 2, b'{', b'}']).unwrap();
    let second = rank(None, 1, 2, &metarates(40), &meeting, dir.path());
    for rank in [first, second] {
        let (status, text) = rank.end(PATIENCE);
        assert!(status.success(), "{text}");
    }
    drop(silent);
}

/// Network namespaces, joined by a bridge in one more. They go with this.
struct Nodes {
    names: Vec<String>,
}

impl Nodes {
    /// As many as this, at 10.119.0.1 and so on; nothing where the machine does not let this user make them.
    fn new(count: usize) -> Option<Self> {
        let mut nodes = Self { names: Vec::new() };
        let prefix = format!("cb{}", std::process::id());
        let hub = format!("{prefix}h{count}");
        for name in (0..count).map(|n| format!("{prefix}n{count}{n}")).chain([hub.clone()]) {
            if !ip(&["netns", "add", &name]) {
                return None;
            }
            nodes.names.push(name);
        }
        let within = |node: &str, words: &[&str]| assert!(ip(&[&["-n", node], words].concat()), "{words:?}");
        within(&hub, &["link", "add", "hub", "type", "bridge"]);
        within(&hub, &["link", "set", "hub", "up"]);
        for (number, node) in nodes.names.iter().take(count).enumerate() {
            let (port, address) = (format!("port{number}"), format!("10.119.0.{}/24", number + 1));
            within(&hub, &["link", "add", &port, "type", "veth", "peer", "name", "net", "netns", node]);
            within(&hub, &["link", "set", &port, "master", "hub", "up"]);
            within(node, &["address", "add", &address, "dev", "net"]);
            within(node, &["link", "set", "net", "up"]);
            within(node, &["link", "set", "lo", "up"]);
        }
        Some(nodes)
    }

    /// Takes a node off the network, without a word to anybody.
    fn cut(&self, number: usize) {
        let hub = self.names.last().unwrap();
        assert!(ip(&["-n", hub, "link", "set", &format!("port{number}"), "down"]));
    }

    fn ranks(&self, size: usize, suite: &str, directory: &Path) -> Vec<Rank> {
        let nodes = self.names.len() - 1;
        let start = |number: usize| {
            let node = self.names.get(number * nodes / size).unwrap();
            rank(Some(node), number, size, suite, "10.119.0.1:4711", directory)
        };
        (0..size).map(start).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> bool {
    let status = Command::new("ip").args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn the_loss_of_rank_0_ends_the_others() {
    let dir = TempDir::new().unwrap();
    let meeting = free_place();
    let mut ranks: Vec<Rank> =
        (0..3).map(|number| rank(None, number, 3, &metarates(1_000_000), &meeting, dir.path())).collect();
    half_way(dir.path());
    ranks[0].child.kill().unwrap();
    for (status, text) in ranks.into_iter().skip(1).map(|rank| rank.end(PATIENCE)) {
        assert!(!status.success() && text.contains("bench: rank 0 is gone: it ended\n"), "{text}");
    }
}

/// Waits until the run has made some files, or has written something.
fn half_way(directory: &Path) {
    let begin = Instant::now();
    let run = || Some(fs::read_dir(directory).ok()?.next()?.ok()?.path());
    let files = |run: &Path| Some(fs::read_dir(run.join("shared")).ok()?.take(50).count());
    let bytes = |run: &Path| Some(fs::metadata(run.join("btio.out")).ok()?.len());
    let begun = |run: &Path| files(run).unwrap_or(0) >= 50 || bytes(run).unwrap_or(0) > 0;
    while !run().is_some_and(|run| begun(&run)) {
        assert!(begin.elapsed() < PATIENCE, "the run does not begin");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Network namespaces, or a word why not.
fn nodes(count: usize) -> Option<Nodes> {
    let nodes = Nodes::new(count);
    if nodes.is_none() {
        assert!(!rustix::process::geteuid().is_root(), "root cannot make network namespaces");
        eprintln!("not root: no network namespaces, not tested");
    }
    nodes
}

#[test]
fn eight_ranks_on_four_nodes_run_and_the_loss_of_one_ends_all() {
    let Some(nodes) = nodes(4) else { return };
    let dir = TempDir::new().unwrap();
    let said: Vec<(ExitStatus, String)> =
        nodes.ranks(8, &metarates(80), dir.path()).into_iter().map(|rank| rank.end(PATIENCE)).collect();
    assert!(said.iter().all(|(status, _)| status.success()), "{said:?}");
    assert_eq!(entries(dir.path()), 0);

    // Files enough for a long run, but not more than the file system has room for.
    let endless = metarates(1_000_000);
    // One is killed.
    lost(&nodes, 8, &endless, |ranks| ranks[5].child.kill().unwrap());
    // One is cut off.
    lost(&nodes, 8, &endless, |_| nodes.cut(3));
}

#[test]
fn nine_ranks_on_three_nodes_write_together_and_the_loss_of_one_ends_all() {
    let Some(nodes) = nodes(3) else { return };
    let written = |form: &str| {
        let dir = TempDir::new().unwrap();
        let suite = format!("btio -c S --steps 10 --keep -f {form}");
        let ranks = nodes.ranks(9, &suite, dir.path());
        let said: Vec<(ExitStatus, String)> = ranks.into_iter().map(|rank| rank.end(PATIENCE)).collect();
        assert!(said.iter().all(|(status, _)| status.success()), "{form}: {said:?}");
        fs::read(dir.path().join("cofs-bench-btio/btio.out")).unwrap()
    };
    let together = written("full");
    assert!(!together.is_empty() && together == written("simple"));

    let endless = "btio -c S -f full --interval 1 --steps 40000";
    lost(&nodes, 9, endless, |ranks| ranks[4].child.kill().unwrap());
    lost(&nodes, 9, endless, |_| nodes.cut(2));
}

/// A run of `size` ranks in the midst of which `accident` happens to one of them, or to a node but the first: every other
/// process ends within 10 s, and rank 0 says why and what is left.
fn lost(nodes: &Nodes, size: usize, suite: &str, accident: impl FnOnce(&mut Vec<Rank>)) {
    let dir = TempDir::new().unwrap();
    let mut ranks = nodes.ranks(size, suite, dir.path());
    half_way(dir.path());
    accident(&mut ranks);
    let begin = Instant::now();
    let said: Vec<(ExitStatus, String)> = ranks.into_iter().map(|rank| rank.end(PATIENCE)).collect();
    let took = begin.elapsed();
    assert!(said.iter().all(|(status, _)| !status.success()), "{said:?}");
    let first = &said.first().unwrap().1;
    assert!(first.contains("was lost") && first.contains("is left in"), "{first}");
    assert!(took < Duration::from_secs(10), "they took {took:?} to end");
    eprintln!("all ended {took:?} after the accident");
}

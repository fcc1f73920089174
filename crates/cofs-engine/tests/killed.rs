//! What was acknowledged survives the process: `kill -9`.
//!
//! The test binary runs itself: a child does the work and tells on its standard output what was
//! acknowledged.

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use cofs_engine::Engine;
use common::{changes, commit, open, open_journal, put};

/// Set in a child: the store's directory.
const DIRECTORY: &str = "COFS_ENGINE_TEST_DIRECTORY";
/// Set in a child: its journal is written by calls.
const BY_CALLS: &str = "COFS_ENGINE_TEST_BY_CALLS";
const THREADS: u64 = 4;

fn key(thread: u64, number: u64) -> Vec<u8> {
    format!("{thread}/{number:012}").into_bytes()
}

fn child_command(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--ignored"]);
    command.env(DIRECTORY, directory).stdout(Stdio::piped());
    command
}

fn directory() -> Option<String> {
    std::env::var(DIRECTORY).ok()
}

/// The child: commits as fast as it can and acknowledges each, until it is killed.
#[test]
#[ignore = "a child of acknowledged_commits_survive_kill_9"]
fn child_commits_for_ever() {
    let Some(directory) = directory() else { return };
    let engine = open_journal(Path::new(&directory), std::env::var_os(BY_CALLS).is_some());
    let stdout = Mutex::new(std::io::stdout());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, stdout) = (&engine, &stdout);
            scope.spawn(move || {
                for number in 0.. {
                    commit(engine, &changes(vec![put(key(thread, number), vec![7; 60])]));
                    writeln!(stdout.lock().unwrap(), "ack {thread} {number}").unwrap();
                }
            });
        }
    });
}

/// Enough of each thread for the death to cost something.
const AT_STAKE: u64 = 20;

/// The last acknowledged number of each thread, once the child is dead: killed so long after something is at stake.
fn acknowledged(child: &mut Child, after: Duration) -> [Option<u64>; THREADS as usize] {
    let mut last = [None; THREADS as usize];
    let pid = rustix::process::Pid::from_child(child);
    let mut killer: Option<thread::JoinHandle<()>> = None;
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n').map_while(Result::ok) {
        // The test harness prints before the first line's words.
        let line = String::from_utf8_lossy(&line).into_owned();
        let Some((_, words)) = line.split_once("ack ") else { continue };
        let mut words = words.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(thread)), Some(Ok(number))) = (words.next(), words.next()) {
            last[thread as usize] = Some(number);
        }
        let at_stake = last.iter().all(|number| *number > Some(AT_STAKE));
        if killer.is_none() && at_stake {
            killer = Some(thread::spawn(move || {
                thread::sleep(after);
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }));
        }
    }
    killer.expect("the child ended by itself").join().unwrap();
    last
}

#[test]
fn acknowledged_commits_survive_kill_9() {
    for round in 0..10_u64 {
        let directory = tempfile::tempdir().unwrap();
        let mut command = child_command("child_commits_for_ever", directory.path());
        if round % 2 == 1 {
            command.env(BY_CALLS, "");
        }
        let mut child = command.spawn().unwrap();
        let last = acknowledged(&mut child, Duration::from_millis(5 + 35 * round));
        child.wait().unwrap();
        let engine = open(directory.path());
        for (thread, last) in (0..).zip(last) {
            let last = last.expect("nothing was acknowledged: nothing was at stake");
            assert!(last > AT_STAKE, "only {last} acknowledged");
            for number in 0..=last {
                assert!(engine.get(&key(thread, number)).unwrap().is_some(), "{number} of {last} is lost");
            }
            // One more may have been on its way.
            assert!(engine.get(&key(thread, last + 3)).unwrap().is_none());
        }
    }
}

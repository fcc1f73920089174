//! The service manager, as a user of the machine speaks with it.

use std::{
    fs,
    process::{Command, Output},
    time::{Duration, Instant},
};

/// For what comes by itself: a restart, the end of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// `systemctl` with these words; it must succeed. What it prints.
#[track_caller]
pub fn systemctl(words: &[&str]) -> String {
    let output = try_systemctl(words);
    assert!(output.status.success(), "systemctl {words:?}: {}\n{}", said(&output), latest_messages());
    String::from_utf8(output.stdout).unwrap()
}

/// The end of the log: why something did not succeed.
fn latest_messages() -> String {
    said(&Command::new("journalctl").args(["--no-pager", "-n", "25"]).output().unwrap())
}

pub fn try_systemctl(words: &[&str]) -> Output {
    Command::new("systemctl").args(words).output().unwrap()
}

/// Both outputs of a program.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program and its words; it must succeed. What it prints.
#[track_caller]
pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-euc", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {:?} {}", output.status, said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A property of a unit.
#[track_caller]
pub fn property(unit: &str, name: &str) -> String {
    systemctl(&["show", "--value", "-p", name, unit]).trim().to_owned()
}

/// How many cofs mounts are on a directory, one over the other.
pub fn mounts_on(dir: &str) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some(dir) && line.contains(" - fuse.cofs "))
        .count()
}

/// The processes of cofs that serve a store.
pub fn servers_of(store: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let names = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| {
            let line = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.contains(&store.as_bytes())
        })
        .collect()
}

/// Waits for what must come true.
#[track_caller]
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

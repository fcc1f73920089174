//! Who has a volume in use: what `cofs status` calls its sessions.
//!
//! A mount tells of itself. Who only looks (a mount read-only, `dump`, `fsck`) shares the store's lock and writes nothing down: of those
//! only the kernel knows that they run on, and what it tells is its own machine's (`/proc/locks`, see proc(5)).

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use cofs_types::utc;
use serde_json::{Value, json};

use super::lock::FILE_NAME;

/// What this process tells of itself when it begins to serve.
pub fn mine() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "pid": std::process::id(),
        "host": host(),
        "uid": rustix::process::geteuid().as_raw(),
        "since": utc(now),
    })
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The session of a mount, from what it reports.
pub fn of_mount(report: &Value) -> Value {
    let told = |name: &str| report.get(name).cloned().unwrap_or(Value::Null);
    let access = if told("read_only") == true { "ro" } else { "rw" };
    json!({
        "pid": told("pid"),
        "host": told("host"),
        "uid": told("uid"),
        "since": told("since"),
        "point": told("point"),
        "access": access,
        "transport": told("transport"),
    })
}

/// Those who look at `store` on this machine, without this process and those who are in `known`.
pub fn readers(store: &Path, known: &[Value]) -> Vec<Value> {
    let is_known = |pid: u32| known.iter().any(|session| session["pid"] == pid) || pid == std::process::id();
    reader_pids(store).into_iter().filter(|pid| !is_known(*pid)).filter_map(by_process).collect()
}

/// Processes on this machine that look at `store`, in ascending order.
pub fn reader_pids(store: &Path) -> Vec<u32> {
    let Ok(file) = fs::metadata(store.join(FILE_NAME)) else { return Vec::new() };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut pids: Vec<u32> = locks.lines().filter_map(|line| reader(line, file.dev(), file.ino())).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// What is known of a process that runs.
fn by_process(pid: u32) -> Option<Value> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let unknown = Value::Null;
    Some(json!({
        "pid": pid, "host": host(), "uid": uid, "since": unknown, "point": unknown, "access": "ro", "transport": unknown,
    }))
}

/// Who has the file locked shared, if the line says so of that file: `1: FLOCK  ADVISORY  READ 4711 fe:01:1234 0 EOF`.
fn reader(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" || words.next()? != "ADVISORY" || words.next()? != "READ" {
        return None;
    }
    let pid = words.next()?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let mut hex = || u32::from_str_radix(file.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    let same = (major, minor) == (rustix::fs::major(device), rustix::fs::minor(device));
    (same && file.next()?.parse() == Ok(inode)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn only_readers_of_that_file_are_seen() {
        let (device, inode) = (makedev(0xfe, 1), 1234);
        let pid = |line: &str| reader(line, device, inode);
        assert_eq!(pid("1: FLOCK  ADVISORY  READ 4711 fe:01:1234 0 EOF"), Some(4711));
        for line in [
            "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF",
            "1: POSIX  ADVISORY  READ 4711 fe:01:1234 0 EOF",
            "1: -> FLOCK  ADVISORY  READ 4711 fe:01:1234 0 EOF",
            "1: FLOCK  ADVISORY  READ 4711 fe:01:12345 0 EOF",
            "1: FLOCK  ADVISORY  READ 4711 fe:02:1234 0 EOF",
            "1: FLOCK  ADVISORY  READ -1 fe:01:1234 0 EOF",
            "1: FLOCK  ADVISORY  READ 4711",
            "",
        ] {
            assert_eq!(pid(line), None, "{line}");
        }
    }
}

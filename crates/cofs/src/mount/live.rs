//! Speaking with a mounted volume: through extended attributes of its root and its inodes, which are never
//! stored and never listed (`cofs.status`, `cofs.info`, `cofs.gc`).

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{XattrFlags, lgetxattr, setxattr},
    io::Errno,
};
use serde_json::Value;

use super::mountinfo::{self, Mount};
use crate::{
    failure::{Done, Failure, without_numbers},
    output::shell_word,
    volume::{
        lock::StoreLock,
        open::{Found, find},
        sessions,
    },
};

const STATUS: &str = "cofs.status";
const INFO: &str = "cofs.info";
const COLLECT: &str = "cofs.gc";
/// Longest answer: what the kernel passes as a value.
const ANSWER_BYTES_MAX: usize = cofs_types::limits::XATTR_VALUE_BYTES_MAX;
/// Whoever begins to serve knows by then how.
const KNOWS_ITSELF_WITHIN: Duration = Duration::from_secs(5);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// What a path on a command line leads to.
pub enum Place {
    /// A mounted volume.
    Live(Mount),
    /// The store of one that is not.
    Store(Found),
}

/// Finds the volume that `path` means: a place in a mounted one, or a store.
pub fn place(path: &Path) -> Done<Place> {
    if let Some(mount) = containing(path)? {
        return whole(&mount).map(Place::Live);
    }
    if path.is_dir() && !crate::volume::config::is_store(path) && mountinfo::at(path)?.is_none() {
        return Err(Failure::new(format!(
            "{} is neither in a mounted volume nor a volume's store",
            path.display()
        ))
        .next("findmnt -t fuse.cofs lists what is mounted"));
    }
    let found = find(path)?;
    let mount = mountinfo::of_store(&found.store)?;
    mount.iter().try_for_each(refuse_stopped)?;
    match mount.filter(|mount| !mount.is_dead()) {
        Some(mount) => whole(&mount).map(Place::Live),
        None => Ok(Place::Store(found)),
    }
}

/// The mount of all of the volume of which `mount` may show a part only: that one's root answers.
pub fn whole(mount: &Mount) -> Done<Mount> {
    if mount.is_whole() {
        return Ok(mount.clone());
    }
    mountinfo::of_device(mount.device, &mount.source)?.filter(Mount::is_whole).ok_or_else(|| {
        let (root, shown) = (mount.root.display(), mount.point.display());
        Failure::new(format!(
            "only {root} of the volume is mounted here, on {shown}: the whole is not to be seen"
        ))
        .next(format!("ask where all of it is mounted, or unmount it (umount {shown}) and name its store"))
    })
}

/// The mounted volume in which `path` lies.
pub fn containing(path: &Path) -> Done<Option<Mount>> {
    let cannot = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOTCONN) => dead(path),
        _ => Failure::io("cannot reach", path, &error),
    };
    by_its_words(path).iter().try_for_each(refuse_stopped)?;
    // Of a symlink its own place counts, not its target's.
    let device = fs::symlink_metadata(path).map_err(cannot)?.dev();
    let whole = real_path(path).map_err(cannot)?;
    let mounts = mountinfo::mounts()?;
    let on_it = |mount: &&Mount| whole.starts_with(&mount.point);
    let same = |mount: &&Mount| fs::metadata(&mount.point).is_ok_and(|root| root.dev() == device);
    let mount = mounts.iter().rev().filter(on_it).find(same).cloned();
    if mount.as_ref().is_some_and(Mount::is_dead) { Err(dead(path)) } else { Ok(mount) }
}

fn dead(path: &Path) -> Failure {
    let point = by_its_words(path).map_or_else(|| path.to_owned(), |mount| mount.point);
    Failure::new(format!("the mount of {} is dead: its process has ended", path.display()))
        .next(format!("take it away (cofs umount {}) and mount the volume again", shell_word(&point)))
}

/// The mount in which it lies, by the words of the path: nothing in it is asked.
fn by_its_words(path: &Path) -> Option<Mount> {
    let whole = std::path::absolute(path).ok()?;
    let mounts = mountinfo::mounts().ok()?;
    mounts.into_iter().rfind(|mount| whole.starts_with(&mount.point))
}

/// Whoever asks anything of a mount whose process is stopped (SIGSTOP, a debugger) waits until it goes on, and could not even be killed meanwhile.
pub fn refuse_stopped(mount: &Mount) -> Done {
    stopped(&mount.source).map_or(Ok(()), |pid| {
        let shown = mount.point.display();
        let what = format!("process {pid}, which serves {shown}, is stopped: whoever asks it would wait");
        Err(Failure::new(what).next(go_on(pid)))
    })
}

/// The process that has `store`, if it is stopped.
pub fn stopped(store: &Path) -> Option<u32> {
    let is_stopped = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        state.is_some_and(|state| state.trim_start().starts_with(['T', 't']))
    };
    StoreLock::holder(store).filter(is_stopped)
}

pub fn go_on(pid: u32) -> String {
    format!("have it go on (kill -CONT {pid}), or end it (kill -9 {pid})")
}

fn real_path(path: &Path) -> io::Result<PathBuf> {
    let is_link = fs::symlink_metadata(path)?.is_symlink();
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if is_link => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}

/// The volume's state, with what only the outside knows: its store.
pub fn status(mount: &Mount) -> Done<Value> {
    refuse_stopped(mount)?;
    let (mut status, report) = state(&mount.point)?;
    plain_reasons(&mut status);
    if let Some(fields) = status.as_object_mut() {
        let uuid = fields.remove("volume").unwrap_or(Value::Null);
        fields.insert("uuid".into(), uuid);
        fields.insert("store".into(), Value::from(mount.source.to_string_lossy()));
        fields.insert("mounted".into(), Value::Bool(true));
        let (sessions, complete) = sessions(mount, &report);
        fields.insert("mount".into(), report);
        fields.insert("sessions".into(), Value::Array(sessions));
        fields.insert("sessions_complete".into(), Value::Bool(complete));
    }
    Ok(status)
}

/// The volume's state, and what the mount reports of itself. It serves for a moment before it knows how; then it is asked again.
fn state(point: &Path) -> Done<(Value, Value)> {
    let began = Instant::now();
    loop {
        let status = ask(point, STATUS)?;
        let report = status["mount"].as_str().and_then(|text| serde_json::from_str(text).ok());
        if report.is_some() || began.elapsed() > KNOWS_ITSELF_WITHIN {
            return Ok((status, report.unwrap_or(Value::Null)));
        }
        thread::sleep(ASK_AGAIN_AFTER);
    }
}

/// The mount that answers, others of the same store, and who else looks at it; and whether that is all. Who may write is alone.
fn sessions(mount: &Mount, report: &Value) -> (Vec<Value>, bool) {
    let mut all = vec![sessions::of_mount(report)];
    if report["read_only"] == false {
        return (all, true);
    }
    let others = mountinfo::mounts().unwrap_or_default();
    let others = others.iter().filter(|other| other.source == mount.source && other.device != mount.device);
    all.extend(others.filter_map(|other| {
        let (_, report) = state(&other.point).ok()?;
        (!report.is_null()).then(|| sessions::of_mount(&report))
    }));
    all.extend(sessions::readers(&mount.source, &all));
    (all, false)
}

/// The reasons of its engine and its pools as people read them.
pub fn plain_reasons(status: &mut Value) {
    let plain = |part: &mut Value| {
        if let Some(Value::String(text)) = part.get_mut("why") {
            *text = without_numbers(text);
        }
    };
    status.get_mut("engine").into_iter().for_each(plain);
    status.get_mut("pools").and_then(Value::as_array_mut).into_iter().flatten().for_each(plain);
}

/// What an inode is and where its bytes are. `path` lies in a mounted volume.
pub fn info(path: &Path) -> Done<Value> {
    ask(path, INFO)
}

fn may_collect(mount: &Mount) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || mount.owner_uid == Some(user.as_raw())
}

/// Has the volume delete what is on its reclaim list, now.
pub fn collect(mount: &Mount) -> Done {
    setxattr(&mount.point, COLLECT, b"1", XattrFlags::empty()).map_err(|errno| match errno {
        // To others it may be said of what is to be removed.
        Errno::PERM if !may_collect(mount) => Failure::new(format!(
            "{} may only be collected by root and by who mounted it",
            mount.point.display()
        ))
        .next("have one of them do it; a mounted volume does it by itself, too, a little later"),
        Errno::ROFS => {
            let shown = mount.point.display();
            Failure::new(format!("{shown} is mounted read-only, and nothing is removed there"))
                .next(format!("unmount it (cofs umount {}) and name its store", shell_word(&mount.point)))
        }
        errno => {
            let failure = Failure::io("cannot collect", &mount.point, &errno.into());
            failure.next(format!("cofs status {} tells how its pools are", shell_word(&mount.point)))
        }
    })
}

fn ask(path: &Path, question: &str) -> Done<Value> {
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let len = lgetxattr(path, question, &mut answer).map_err(|errno| {
        let error = io::Error::from(errno);
        Failure::io(&format!("{question} is not answered by"), path, &error)
    })?;
    answer.truncate(len);
    serde_json::from_slice(&answer).map_err(|error| {
        Failure::new(format!("{} answers {question} with what is no JSON: {error}", path.display()))
            .next("is it mounted by another version of cofs?")
    })
}

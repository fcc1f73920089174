//! `cofs umount`: takes a mount away and waits until the volume is closed.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cofs_fuse::{Unmount, unmount};
use rustix::process::geteuid;

use crate::{
    failure::{Done, Failure},
    mount::{
        dead, live,
        mountinfo::{self, Mount},
    },
    output,
    volume::{
        lock::{Purpose, StoreLock},
        sessions,
    },
};

/// Unmount a volume and wait until it is closed.
///
/// Returns when everything is on stable storage and the volume can be mounted again.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory it is mounted on.
    pub dir: PathBuf,

    /// Take it out of the tree at once, even if it is busy; it is closed when its last user is gone.
    #[arg(long, short)]
    pub lazy: bool,

    /// Take it away only if it is dead, its process having ended, and then even if it is busy; anything else is left as it
    /// is, which is no failure.
    #[arg(long, conflicts_with = "lazy")]
    pub dead: bool,

    /// Cut its users off first: what they do from now on fails (umount -f; needs root).
    #[arg(long, hide = true)]
    pub force: bool,

    /// Where it cannot be unmounted, say that it stays writable, too (umount -r has it read-only, which a mount of ours cannot become).
    #[arg(long, hide = true)]
    pub or_read_only: bool,

    /// Wait for the end of standard input first; then as --dead.
    #[arg(long, hide = true)]
    pub outlive: bool,
}

/// How long the daemon may take to close the volume before we say that it is still at it.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long it may be stopped (by a signal) before we say that it does not go on.
const STOPPED_TIME_MAX: Duration = Duration::from_secs(1);
/// Users of a busy mount that are named.
const USERS_SHOWN_MAX: usize = 5;

pub fn run(args: &Args) -> Done {
    if args.outlive {
        return dead::outlive(&args.dir);
    }
    if args.dead {
        return dead::take_away(&args.dir);
    }
    let mount = find(&args.dir)?;
    refuse_strangers(&mount)?;
    let how = match (args.lazy, args.force) {
        (true, _) => Unmount::Lazily,
        (_, true) => Unmount::Forcibly,
        _ => Unmount::IfUnused,
    };
    let before = StoreLock::last_words(&mount.source);
    let readers = sessions::reader_pids(&mount.source);
    let bound = all_at(&mount)?.filter(|other| other.device == mount.device).count();
    take_away(&mount, how).map_err(|error| {
        let failure = refused(&mount.point, &error);
        if args.or_read_only {
            failure.within("it stays as it was, as no mount of cofs becomes read-only (-r)")
        } else {
            failure
        }
    })?;
    // Who died while he replaced a dead mount has left two.
    dead::take_away(&mount.point)?;
    if args.lazy {
        return Ok(());
    }
    wait_until_closed(&mount.source, &readers)?;
    refuse_anew(&mount, bound)?;
    match StoreLock::last_words(&mount.source) {
        // One that was mounted to be read leaves what was there.
        Some(words) if Some(&words) != before.as_ref() => {
            Err(Failure::new(format!("{} is unmounted, but {words}", mount.point.display())))
        }
        _ => Ok(()),
    }
}

/// What of the same volume is mounted there, one upon the other.
fn all_at(mount: &Mount) -> io::Result<impl Iterator<Item = Mount>> {
    let same = |other: &Mount| other.point == mount.point && other.source == mount.source;
    Ok(mountinfo::mounts()?.into_iter().filter(same))
}

/// Who unmounts while somebody mounts, or while one that has died twice is replaced, is told what stands there now. One mount may have been `bound` to its
/// own point: then the others stay. (By their numbers they cannot be told apart: the next gets that of the last.)
fn refuse_anew(mount: &Mount, bound: usize) -> Done {
    // None, if it has been replaced since it was found.
    if all_at(mount)?.count() < bound.max(1) {
        return Ok(());
    }
    let (shown, store) = (mount.point.display(), mount.source.display());
    Err(Failure::new(format!("{shown} was unmounted, but {store} is mounted there anew")).next(format!(
        "unless somebody has just mounted it, unmount it again: cofs umount {}",
        output::shell_word(&mount.point)
    )))
}

/// The mount that `dir` names. Its root need not answer: a dead daemon's mount is to be taken away, too.
fn find(dir: &Path) -> Done<Mount> {
    let point = mountinfo::absolute(dir).map_err(|error| Failure::io("cannot reach", dir, &error))?;
    mountinfo::at(&point)?.ok_or_else(|| {
        let failure = Failure::new(format!("no cofs volume is mounted on {}", dir.display()));
        match dir.join(crate::volume::config::FILE_NAME).exists() {
            true => failure.next("that is a store: give the directory it is mounted on"),
            false => failure.next("findmnt -t fuse.cofs lists those that are"),
        }
    })
}

/// What fusermount3 says to those speaks of /etc/mtab.
fn refuse_strangers(mount: &Mount) -> Done {
    let us = geteuid();
    match mount.owner_uid.filter(|owner| !us.is_root() && *owner != us.as_raw()) {
        None => Ok(()),
        Some(owner) => {
            Err(Failure::new(format!("{} was mounted by the user {owner}", mount.point.display()))
                .next("have that user or root unmount it"))
        }
    }
}

/// Forced, the kernel cuts the users off first, and then refuses because they have it open still.
fn take_away(mount: &Mount, how: Unmount) -> io::Result<()> {
    let serves = |now: Mount| now.device == mount.device && !now.is_dead();
    let gone =
        || Ok::<_, io::Error>(mountinfo::at(&mount.point)?.is_none_or(|now| now.device != mount.device));
    match unmount_patiently(&mount.point, how) {
        // By somebody else, just now.
        Err(error) if error.kind() != ErrorKind::ResourceBusy && gone()? => Ok(()),
        Err(error)
            if how == Unmount::Forcibly
                && error.kind() == ErrorKind::ResourceBusy
                && !mountinfo::at(&mount.point)?.is_some_and(serves) =>
        {
            output::say(format!("{} was in use: its users were cut off", mount.point.display()));
            let taken = unmount(&mount.point, Unmount::Lazily);
            // Its process may have been quicker.
            taken.or_else(|error| if error.kind() == ErrorKind::InvalidInput { Ok(()) } else { Err(error) })
        }
        other => other,
    }
}

/// Tries for a moment: a dead mount is in use while another process puts the next one in its place.
fn unmount_patiently(point: &Path, how: Unmount) -> io::Result<()> {
    const TRIES: u32 = 5;
    for _ in 1..TRIES {
        match unmount(point, how) {
            Err(error) if how == Unmount::IfUnused && error.kind() == ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
    unmount(point, how)
}

fn refused(point: &Path, error: &io::Error) -> Failure {
    let shown = point.display();
    match error.kind() {
        ErrorKind::ResourceBusy => {
            let users = users_of(point);
            let by = match users.is_empty() {
                true if uses(Path::new("/proc/self"), point) => " by what this command was handed".to_owned(),
                true => String::new(),
                false => format!(" by {}", users.join(", ")),
            };
            Failure::new(format!("{shown} is in use{by}"))
                .next("close what is open there and try again, or add --lazy")
        }
        _ => Failure::io("cannot unmount", point, error),
    }
}

/// Processes with a working directory or an open file under `point`, as far as we may see them; not this one, which has them of who called it.
fn users_of(point: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|entry| entry.file_name().to_string_lossy() != std::process::id().to_string())
        .filter(|entry| uses(&entry.path(), point))
        .take(USERS_SHOWN_MAX)
        .map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} ({})", entry.file_name().to_string_lossy(), output::printable(name.trim()))
        })
        .collect()
}

/// The daemon lets go of the store's lock last. (Mounted elsewhere, too, to be read, the store stays in use.) Where it was one of several
/// `readers`, one of them goes.
fn wait_until_closed(store: &Path, readers: &[u32]) -> Done {
    // Attributes may be known of what cannot be reached any more.
    match File::open(store.join(crate::volume::config::FILE_NAME)) {
        Ok(_) => {}
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let text = "unmounted, but nobody can tell whether it was closed in order: cannot reach";
            return Err(Failure::io(text, store, &error));
        }
        // Mounted under another name (-o fsname=): there is nothing to watch.
        Err(_) => return Ok(()),
    }
    let begun = Instant::now();
    let one_is_gone = || {
        let left = sessions::reader_pids(store);
        readers.iter().any(|pid| !left.contains(pid))
    };
    while StoreLock::is_held(store, Purpose::Change)
        && mountinfo::of_store(store)?.is_none()
        && !one_is_gone()
    {
        if begun.elapsed() > STOPPED_TIME_MAX
            && let Some(pid) = live::stopped(store)
        {
            let what =
                format!("unmounted, but process {pid}, which is to close {}, is stopped", store.display());
            return Err(Failure::new(what).next(live::go_on(pid)));
        }
        if begun.elapsed() > CLOSE_TIME_MAX {
            return Err(Failure::new(format!("unmounted, but {} is still being closed", store.display()))
                .next("wait until its cofs process has ended"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn uses(process: &Path, point: &Path) -> bool {
    let links = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
    links
        .chain([process.join("cwd"), process.join("root"), process.join("exe")])
        .any(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(point)))
}

//! The store's lock: one process at a time changes a volume, and while none does, any number may look.
//!
//! `STORE/lock` is locked with flock(2) and holds a record of who has it. Where flock is known to be seen
//! by every host that can reach the store (a local file system), that is all. Elsewhere (network file
//! systems, whose flock may be absent or local to the client) the holder also counts up a heartbeat in the
//! record, and whoever finds a foreign record watches it for more than two beats before taking over. Of several who find none, each
//! writes his own and looks again after a moment: the one whose record stands then has the store, and the others have touched nothing.
//!
//! Who only looks writes nothing, and need not be able to: he has the flock shared. Others cannot see him where flock does not reach:
//! there he watches the record as long as he looks.
//!
//! Invariants: a holder that lives is never robbed; a holder that finds another's record in its place ends
//! its process at once, before it can write anything more, and so does one who looks, before it can tell much of what is no longer so;
//! an orderly release of a holder that may write empties the record. Where the volume could not be closed in order, a line behind it says why,
//! for who waited for that and for the next holder: the holder itself may have nobody to tell it to.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use cofs_engine::{open_regular, read_small, regular};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::locality::is_local;
use crate::failure::{Done, Failure};

/// The lock's file in the store.
pub const FILE_NAME: &str = "lock";
/// How often a holder counts up its record.
const BEAT: Duration = Duration::from_secs(2);
/// How long a foreign record is watched: more than two beats.
const WATCH_BEATS: u32 = 3;
/// Longest record read: what others wrote is not believed to be short.
const RECORD_BYTES_MAX: u64 = 4096;
/// Begins the line behind an emptied record.
const LAST_WORDS: &str = "at its end: ";
const LAST_WORDS_CHARS_MAX: usize = 800;
/// How often another's file may come in the place of the one that was locked.
const REPLACED_MAX: u32 = 100;

/// Who holds the lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Record {
    host: String,
    /// Changes with each boot of the host.
    boot_id: String,
    pid: u32,
    /// Seconds since 1970.
    since: u64,
    /// Drawn for each holder.
    token: Uuid,
    /// Counted up by the holder as long as it lives.
    beats: u64,
}

/// What a volume is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To change it: nobody else may have it.
    Change,
    /// To see it as it is: others may, too, but nobody may change it. Nothing in the store is written.
    Look,
}

impl Purpose {
    const fn flock(self) -> FlockOperation {
        match self {
            Self::Change => FlockOperation::NonBlockingLockExclusive,
            Self::Look => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// How far flock(2) on a file can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// Every process that can reach the file sees it.
    Everywhere,
    /// Other hosts may not see it.
    ThisHost,
    /// There is none.
    Nowhere,
}

/// The lock, for as long as it lives.
#[derive(Debug)]
pub struct StoreLock {
    file: File,
    purpose: Purpose,
    heart: Option<(Sender<()>, JoinHandle<()>)>,
    last_words: Option<String>,
}

impl StoreLock {
    /// Takes the lock of `store`, or says who has it.
    pub fn take(store: &Path, purpose: Purpose) -> Done<Self> {
        let path = store.join(FILE_NAME);
        for _ in 0..REPLACED_MAX {
            let file = match purpose {
                Purpose::Change => open_to_write(&path),
                Purpose::Look => open_to_look(store, &path),
            };
            let file = file.map_err(|error| cannot_open(&path, purpose, &error))?;
            let trust = flock_or_tell(store, &path, &file, purpose)?;
            // One that was removed or replaced meanwhile keeps nobody out.
            if stands_at(&file, &path) {
                return Self::trusting(store, &path, file, trust, purpose);
            }
        }
        Err(Failure::new(format!("cannot lock {}: it is another file each time", path.display()))
            .next("see who replaces it, or whether the file system numbers its files anew with each look"))
    }

    /// Gives it up together with its file, in a store that is to be as it was found.
    pub fn remove(mut self, store: &Path) {
        // From here on another may put his own in its place.
        self.stop_heart();
        let _ = fs::remove_file(store.join(FILE_NAME));
    }

    fn stop_heart(&mut self) {
        if let Some((stop, heart)) = self.heart.take() {
            drop(stop);
            let _ = heart.join();
        }
    }

    /// Goes on with the lock of a process that has ended: flock(2) belongs to the open file, of which `held` is a descriptor.
    pub fn take_over(store: &Path, held: OwnedFd, purpose: Purpose) -> Done<Self> {
        let (path, file) = (store.join(FILE_NAME), File::from(held));
        let trust = flock_or_tell(store, &path, &file, purpose)?;
        Self::trusting(store, &path, file, trust, purpose)
    }

    /// To be left in the store when the lock is released: a line.
    pub fn leave_last_words(&mut self, words: &str) {
        self.last_words = Some(words.chars().take(LAST_WORDS_CHARS_MAX).collect());
    }

    /// What the last holder has left, if nobody has had the lock to change the volume since.
    pub fn last_words(store: &Path) -> Option<String> {
        read_last_words(&store.join(FILE_NAME))
    }

    /// The process of this host that has the lock to change the volume, by what it has written down.
    pub fn holder(store: &Path) -> Option<u32> {
        let record = read_record(&store.join(FILE_NAME))?;
        (record.boot_id == boot_id()).then_some(record.pid)
    }

    /// What [`take_over`](Self::take_over) needs.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    fn trusting(store: &Path, path: &Path, file: File, trust: Trust, purpose: Purpose) -> Done<Self> {
        match purpose {
            Purpose::Change => Self::take_trusting(store, path, file, trust, BEAT),
            Purpose::Look => Self::look_trusting(store, path, file, trust, BEAT),
        }
    }

    /// Whether somebody on this host has the lock of `store` so that one who comes for `purpose` is refused; never waits.
    pub fn is_held(store: &Path, purpose: Purpose) -> bool {
        let path = store.join(FILE_NAME);
        // NFS asks for a file open for writing where the lock is exclusive.
        let to_write = || File::options().read(true).write(true).open(&path).and_then(regular);
        let opened = match purpose {
            Purpose::Change => to_write().or_else(|_| open_regular(&path)),
            Purpose::Look => open_regular(&path),
        };
        let Ok(file) = opened else { return false };
        match flock(&file, purpose.flock()) {
            Ok(()) => false,
            Err(Errno::WOULDBLOCK) => true,
            Err(_) => read_record(&path).is_some_and(|record| record.boot_id == boot_id()),
        }
    }

    fn look_trusting(store: &Path, path: &Path, file: File, trust: Trust, beat: Duration) -> Done<Self> {
        refuse_living(store, path, trust, beat)?;
        let heart = match trust {
            Trust::Everywhere => None,
            Trust::ThisHost | Trust::Nowhere => Some(
                start_watch(path.to_owned(), read_record(path), beat)
                    .map_err(|error| Failure::io("cannot watch over the lock", path, &error))?,
            ),
        };
        Ok(Self { file, purpose: Purpose::Look, heart, last_words: None })
    }

    fn take_trusting(store: &Path, path: &Path, file: File, trust: Trust, beat: Duration) -> Done<Self> {
        refuse_living(store, path, trust, beat)?;
        if let Some(words) = read_last_words(path) {
            tracing::warn!(store = %store.display(), words, "what was told when the store was last in use");
        }
        let record = Record::mine();
        match write_record(&file, &record) {
            // A full file system is mounted to make room; here the record is for people only.
            Err(error) if trust == Trust::Everywhere && is_full(&error) => {
                tracing::info!(%error, "who has the store cannot be written down");
            }
            written => written.map_err(|error| Failure::io("cannot write the lock", path, &error))?,
        }
        if trust != Trust::Everywhere {
            // Another may have found the store free, or judged the old holder dead, in the same moment: the last record written stays.
            std::thread::sleep(time_to_stand(trust, beat));
            if read_record(path).is_none_or(|now| now.token != record.token) {
                return Err(in_use(store, read_record(path).as_ref()));
            }
        }
        let heart = match trust {
            Trust::Everywhere => None,
            Trust::ThisHost | Trust::Nowhere => Some(
                start_heart(&file, path.to_owned(), record, beat)
                    .map_err(|error| Failure::io("cannot watch over the lock", path, &error))?,
            ),
        };
        Ok(Self { file, purpose: Purpose::Change, heart, last_words: None })
    }
}

fn open_to_write(path: &Path) -> io::Result<File> {
    // A link in a store that somebody else has made must not lead us to write another file.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .and_then(regular)
}

/// A store without the file (a copy) gets one, so that who comes to change it is kept out. Where that cannot be because the file system
/// is read-only, nobody can come, and the directory stands for it.
fn open_to_look(store: &Path, path: &Path) -> io::Result<File> {
    let kind = io::Error::kind;
    open_regular(path)
        .or_else(|error| match kind(&error) {
            io::ErrorKind::NotFound => open_to_write(path),
            _ => Err(error),
        })
        .or_else(|error| match kind(&error) {
            io::ErrorKind::ReadOnlyFilesystem => File::open(store),
            _ => Err(error),
        })
}

fn cannot_open(path: &Path, purpose: Purpose, error: &io::Error) -> Failure {
    let failure = Failure::io("cannot open the lock", path, error);
    match (purpose, error.kind()) {
        (Purpose::Change, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) => failure
            .next("who may only read the store can look at it: cofs mount -o ro, status, dump, fsck without --repair"),
        (Purpose::Look, io::ErrorKind::PermissionDenied) => {
            failure.next("be the store's owner or root, or have them let you read all of it")
        }
        (_, io::ErrorKind::IsADirectory | io::ErrorKind::InvalidData) => {
            failure.next("move it away: the file is made anew")
        }
        _ => failure,
    }
}

/// Locks `file`, or says who has it.
fn flock_or_tell(store: &Path, path: &Path, file: &File, purpose: Purpose) -> Done<Trust> {
    match flock_patiently(file, purpose) {
        Ok(()) if is_local(file) => Ok(Trust::Everywhere),
        Ok(()) => Ok(Trust::ThisHost),
        Err(Errno::WOULDBLOCK)
            if purpose == Purpose::Change && flock(file, Purpose::Look.flock()).is_ok() =>
        {
            Err(looked_at(store))
        }
        Err(Errno::WOULDBLOCK) => Err(in_use(store, read_record(path).as_ref())),
        Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(Trust::Nowhere),
        Err(error) => Err(Failure::io("cannot lock", path, &error.into())),
    }
}

/// Whether who comes by the name gets this file. It may have been removed between its opening and its locking, and another made.
fn stands_at(file: &File, path: &Path) -> bool {
    let Ok(own) = file.metadata() else { return false };
    // The directory stands for the file where none can be made.
    own.is_dir() || fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
}

/// Locks a directory that the store names: a copy of the store names it, too, and has a lock of its own. `None`: it is not there, cannot be opened,
/// or its file system has no locks.
pub fn hold_directory(directory: &Path, purpose: Purpose) -> Done<Option<File>> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(directory) else { return Ok(None) };
    match flock_patiently(&file, purpose) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(Failure::new(format!("{} is in use by another process", directory.display()))
            .next("unmount the volume there first: a copy of its store has the same directories, or they were moved and this one was not told (cofs config)")),
        Err(_) => Ok(None),
    }
}

/// Tries for a moment: `is_held` of another process may be looking just now, and one that has just been killed lets go of its files one after the other.
fn flock_patiently(file: &File, purpose: Purpose) -> Result<(), Errno> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match flock(file, purpose.flock()) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    flock(file, purpose.flock())
}

/// Waits until it is known that nobody on another host has the store, or says who has.
fn refuse_living(store: &Path, path: &Path, trust: Trust, beat: Duration) -> Done {
    let Some(holder) = read_record(path).filter(|record| may_live(record, trust)) else { return Ok(()) };
    tracing::info!(host = holder.host, pid = holder.pid, "waiting to see whether the store's holder lives");
    match watch(path, &holder, beat) {
        true => Err(in_use(store, read_record(path).as_ref())),
        false => Ok(()),
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        self.stop_heart();
        if self.purpose == Purpose::Change {
            // An empty record tells other hosts that nobody need be waited for. If it cannot be written they wait. The file
            // keeps its block: on a full file system the next holder would not get one.
            let _ = match &self.last_words {
                None => self.file.write_all_at(b"\n", 0),
                Some(words) => write_whole(&self.file, format!("\n{LAST_WORDS}{words}\n").as_bytes()),
            };
        }
    }
}

impl Record {
    fn mine() -> Self {
        let uname = rustix::system::uname();
        Self {
            host: uname.nodename().to_string_lossy().into_owned(),
            boot_id: boot_id(),
            pid: std::process::id(),
            since: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            token: Uuid::new_v4(),
            beats: 0,
        }
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Whether a record can be that of a living process, given that flock did not refuse us.
fn may_live(record: &Record, trust: Trust) -> bool {
    match trust {
        Trust::Everywhere => false,
        // On this very kernel the flock would have been seen.
        Trust::ThisHost => record.boot_id != boot_id(),
        Trust::Nowhere => true,
    }
}

/// How long a record that was just written must stay before it counts: longer than it takes another host to write its own after it has looked. (Half a second;
/// a whole beat where there is no flock at all, as each process of this host may have come, too.)
fn time_to_stand(trust: Trust, beat: Duration) -> Duration {
    match trust {
        Trust::Everywhere => Duration::ZERO,
        Trust::ThisHost => beat / 4,
        Trust::Nowhere => beat,
    }
}

/// Whether the holder shows a sign of life within more than two beats.
fn watch(path: &Path, holder: &Record, beat: Duration) -> bool {
    const LOOKS_PER_BEAT: u32 = 4;
    (0..WATCH_BEATS * LOOKS_PER_BEAT).any(|_| {
        std::thread::sleep(beat / LOOKS_PER_BEAT);
        read_record(path).is_some_and(|now| now != *holder)
    })
}

fn in_use(store: &Path, holder: Option<&Record>) -> Failure {
    let by = match holder {
        Some(record) if record.boot_id == boot_id() => format!("process {}", record.pid),
        Some(record) => format!("process {} on host {}", record.pid, record.host),
        None => "another process".to_owned(),
    };
    Failure::new(format!("{} is in use by {by}", store.display()))
        .next("give the path of its mount instead, or unmount it first (cofs umount)")
}

fn looked_at(store: &Path) -> Failure {
    Failure::new(format!("{} is in use by processes that read it", store.display())).next(
        "unmount it first where it is mounted read-only (cofs umount), or wait for the fsck, dump or status",
    )
}

fn read_record(path: &Path) -> Option<Record> {
    serde_json::from_str(read(path)?.lines().next()?).ok()
}

fn read_last_words(path: &Path) -> Option<String> {
    let text = read(path)?;
    let mut lines = text.lines();
    lines.next().filter(|record| record.is_empty())?;
    lines.next()?.strip_prefix(LAST_WORDS).map(str::to_owned)
}

/// Anew by its name, so that a network file system looks at its server.
fn read(path: &Path) -> Option<String> {
    read_small(path, RECORD_BYTES_MAX).ok()
}

fn write_record(file: &File, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.write_all(b"\n")?;
    write_whole(file, &line)?;
    file.sync_data()
}

fn write_whole(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Ends the process when somebody begins to write a store that it only looks at: what it has read, and would read, is of two times.
fn start_watch(
    path: PathBuf,
    found: Option<Record>,
    beat: Duration,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel();
    let watch = std::thread::Builder::new().name("store-lock".into()).spawn(move || {
        while stopped.recv_timeout(beat) == Err(RecvTimeoutError::Timeout) {
            let now = read_record(&path);
            if now.is_some() && now != found {
                tracing::error!(store = %path.display(), "another process changes the store: ending at once");
                std::process::abort();
            }
        }
    })?;
    Ok((stop, watch))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn start_heart(
    file: &File,
    path: PathBuf,
    mut record: Record,
    beat: Duration,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let file = file.try_clone()?;
    let (stop, stopped) = channel();
    let heart = std::thread::Builder::new().name("store-lock".into()).spawn(move || {
        while stopped.recv_timeout(beat) == Err(RecvTimeoutError::Timeout) {
            if read_record(&path).is_some_and(|found| found.token != record.token) {
                tracing::error!(store = %path.display(), "another process has taken the store: ending at once");
                std::process::abort();
            }
            record.beats += 1;
            if let Err(error) = write_record(&file, &record) {
                tracing::warn!(%error, "the store's heartbeat could not be written");
            }
        }
    })?;
    Ok((stop, heart))
}

#[cfg(test)]
mod tests;

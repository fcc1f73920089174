//! A small process that watches over the one which serves a mount, and starts it anew when it has died.
//!
//! A FUSE connection lives as long as anybody has a descriptor of it. So the process that serves hands a *parcel* to its supervisor
//! once it has mounted: descriptors and words, which mean nothing here. When it dies, the next one is started with that parcel, and
//! goes on. It takes the parcel back when its mount has ended: then its end is the supervisor's.
//!
//! ```text
//! supervisor ── parcel of the one before, or nothing ─►  the child, on its standard input: one message
//!            ◄─ keep PARCEL, ready, over ──────────────  each once, in this order
//!            ◄─ (replacing), ready, over ──────────────  where nothing is kept, from the second child on
//! ```
//!
//! - A child that dies again and again, moments after its start, is given up: its mount is taken away, so that none stays that
//!   nobody serves.
//! - Where nothing is kept the dead mount stays until the next child makes another in its place, which is where that is by then: with `ready` comes
//!   its device number. If somebody takes it away, or the new one before that is served, nobody
//!   wants that any more: the child's end is in order. (Where the one cannot be put beneath the other, a child says that it is about to take the dead one away itself, as the next
//!   would not find it if this one died then.)
//! - SIGTERM and SIGINT go to the child, which unmounts. If it has died of that, as it does who has not mounted yet, so do we. SIGUSR2 has it end without that, and the program that stands at our path by
//!   now go on: an upgrade. (It is ended by SIGKILL, which loses nothing: that is what all this is for.)
//! - If the supervisor is killed, or ends with its terminal (SIGHUP), the child unmounts as if it were told to: who ends what he has started wants no mount, and
//!   one that nobody watches over would be left dead by the next crash.
//!
//! The supervisor has no business with the mount itself: whoever waits for an answer of his own child waits for ever.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use cofs_fuse::Replaces;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
    process::{Pid, Signal},
};
use signal_hook::{
    consts::{SIGCHLD, SIGINT, SIGKILL, SIGTERM, SIGUSR2},
    iterator::Signals,
};

use super::{
    daemon, dead,
    mountinfo::{self, Device},
    notify::notify,
    program::Program,
    signals::die_of,
};
use crate::failure::{Done, EXIT_FAILED, Failure, Within};

/// Marks a child, whose standard input is the line to us. Its value is the mount point, as it was found before anything stood there, or where
/// that is by now: by a dead mount not every name leads there any more.
const MARK: &str = "COFS_SUPERVISED";
/// One that has served for less has not lived: what comes again, and may be what they die of, comes at once.
const LIFE_MIN: Duration = Duration::from_millis(100);
/// So many of those, one after the other, and we give up.
const SHORT_LIVES_MAX: u32 = 8;
/// After so many the next is told to be careful, unless it was somebody else who has ended the last (SIGKILL).
const SHORT_LIVES_UNSUSPICIOUS: u32 = 4;
/// Before the third short life; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(1600);
const WORDS_BYTES_MAX: usize = 16 << 10;
const DESCRIPTORS_MAX: usize = 4;

// The first byte of a message.
const KEEP: u8 = b'K';
const READY: u8 = b'R';
const OVER: u8 = b'O';
const REPLACING: u8 = b'T';
// And of the one that a child finds: then its life, and in the parcel what it goes on with, if there is anything.
const PLAIN: u8 = b'P';
const CAREFUL: u8 = b'C';
/// No dead mount need be there: the one before has died where it had taken that away.
const REPLACED: u8 = b'M';

/// What one child leaves to the next.
#[derive(Debug, Default)]
pub struct Parcel {
    pub words: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// What the child finds at its start.
pub struct Inheritance {
    /// How often the mount has been handed on, this time included: above 0.
    pub life: u32,
    /// Those before it have died moments after their starts: what they had in hand may be the cause.
    pub careful: bool,
    pub parcel: Parcel,
}

/// The child's end of the line.
pub struct Line {
    socket: OwnedFd,
    point: PathBuf,
    replaces: Replaces,
}

impl Line {
    /// In a process that was started by a supervisor: the line, and what there is to go on with. Errors: those of the socket; the supervisor has
    /// gone.
    pub fn open() -> io::Result<Option<(Self, Option<Inheritance>)>> {
        let Some(point) = std::env::var_os(MARK).map(PathBuf::from) else { return Ok(None) };
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        let line = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(daemon::null()?)?;
        let (head, parcel) = receive(line.as_fd())?.ok_or_else(gone)?;
        let [kind, life @ ..] = head;
        let life = u32::from_le_bytes(life);
        let goes_on = life > 0 && !parcel.words.is_empty();
        let replaces = match kind {
            _ if life == 0 || goes_on => Replaces::Nothing,
            REPLACED => Replaces::DeadOrNothing,
            _ => Replaces::Dead,
        };
        let line = Self { socket: line, point, replaces };
        let careful = kind == CAREFUL;
        Ok(Some((line, goes_on.then_some(Inheritance { life, careful, parcel }))))
    }

    /// What the mount is to take the place of: one before this may have served, and left nothing but a dead one.
    pub fn replaces(&self) -> Replaces {
        self.replaces
    }

    /// Where that stands.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// From here on that may be gone, and no other be there yet.
    pub fn replacing(&self) -> io::Result<()> {
        send(self.socket.as_fd(), &[REPLACING], &Parcel::default())
    }

    /// From here on the mount outlives this process.
    pub fn keep(&self, parcel: &Parcel) -> io::Result<()> {
        send(self.socket.as_fd(), &[KEEP], parcel)
    }

    /// `device` is what it has mounted, unless somebody has unmounted that already.
    pub fn ready(&self, device: Option<Device>) -> io::Result<()> {
        let words = device.map(|device| serde_json::to_vec(&device)).transpose()?.unwrap_or_default();
        send(self.socket.as_fd(), &[READY], &Parcel { words, descriptors: Vec::new() })
    }

    /// The mount has ended, and all is closed. Where the supervisor was killed nobody is left who needs to know.
    pub fn over(&self) -> io::Result<()> {
        match send(self.socket.as_fd(), &[OVER], &Parcel::default()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            told => told,
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the supervisor has ended")
}

/// Bytes of every message before its parcel's words.
const HEAD_BYTES: usize = 5;

fn send(line: BorrowedFd<'_>, head: &[u8], parcel: &Parcel) -> io::Result<()> {
    let mut first = [0; HEAD_BYTES];
    first.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
    let descriptors: Vec<_> = parcel.descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors to hand on"));
    }
    let message = [IoSlice::new(&first), IoSlice::new(&parcel.words)];
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(line, &message, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next message: its first bytes, and its parcel. `None`: the other end has gone.
fn receive(line: BorrowedFd<'_>) -> io::Result<Option<([u8; HEAD_BYTES], Parcel)>> {
    let (mut head, mut words) = ([0; HEAD_BYTES], vec![0; WORDS_BYTES_MAX]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut words)];
    let received = loop {
        match rustix::net::recvmsg(line, message, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let Some(length) = received.bytes.checked_sub(HEAD_BYTES) else { return Ok(None) };
    words.truncate(length);
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(theirs) = message {
            descriptors.extend(theirs);
        }
    }
    Ok(Some((head, Parcel { words, descriptors })))
}

/// What the child has told.
#[derive(Debug, Default)]
struct Told {
    kept: Option<Parcel>,
    ready: Option<Instant>,
    over: bool,
    /// The dead mount of the one before may be gone.
    replacing: bool,
    /// Where the mount was last seen.
    place: PathBuf,
    /// By which it is found that has been moved since.
    device: Option<Device>,
}

/// How a child's end is to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It has ended in order, or has never served: its end is ours.
    End,
    /// The next goes on, or mounts again where there is nothing to go on with.
    Again,
    GiveUp,
}

struct Supervisor<'a> {
    program: Program,
    arguments: Vec<OsString>,
    directory: Directory,
    log: Option<&'a File>,
    store: &'a Path,
    source: &'a Path,
    shown: String,
    told: Mutex<Told>,
}

/// Where we were started: what the command line names is meant from there.
struct Directory {
    path: PathBuf,
    /// Keeps it within reach. Only where it is needed: what is held open cannot be unmounted.
    _held: Option<OwnedFd>,
}

impl Directory {
    /// `point`: what will be mounted there may hide it.
    fn current(point: &Path) -> io::Result<Self> {
        let path = std::env::current_dir()?;
        if !path.starts_with(point) {
            return Ok(Self { path, _held: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(".", flags, Mode::empty())?;
        Ok(Self { path: format!("/proc/self/fd/{}", held.as_raw_fd()).into(), _held: Some(held) })
    }
}

/// Serves `store` at `point`, mounted under the name of `source`, by children of this program that are called as it was. Returns as they do when it
/// ends.
pub fn supervise(store: &Path, source: &Path, point: &Path, log: Option<&File>) -> Done<ExitCode> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR2, SIGCHLD]).within("cannot wait for signals")?;
    let supervisor = Supervisor {
        program: Program::this().within("cannot find this program to start it")?,
        arguments: std::env::args_os().collect(),
        directory: Directory::current(point).within("cannot find the current directory")?,
        log,
        store,
        source,
        shown: point.display().to_string(),
        told: Mutex::new(Told { place: point.to_owned(), ..Told::default() }),
    };
    let (mut life, mut short_lives, mut careful) = (0, 0, false);
    loop {
        let (end, wish) = supervisor.live(life, careful, &mut signals);
        let next = {
            let mut told = supervisor.told();
            let lived = told.ready.take().map(|ready| ready.elapsed());
            let has_lived = wish == Wish::Replace || lived.is_some_and(|lived| lived >= LIFE_MIN);
            short_lives = if has_lived { 0 } else { short_lives + 1 };
            after(&told, life > 0 || lived.is_some(), wish, short_lives)
        };
        match next {
            Next::End => return supervisor.end(end, wish),
            Next::Again => {}
            Next::GiveUp => return supervisor.give_up(&end, wish),
        }
        tracing::warn!(%end, life, point = supervisor.shown, "another process is to serve");
        pause(short_lives);
        careful = short_lives > SHORT_LIVES_UNSUSPICIOUS && !end.is_by_others();
        life += 1;
    }
}

fn after(told: &Told, has_served: bool, wish: Wish, short_lives: u32) -> Next {
    if told.over || !(has_served || told.kept.is_some()) {
        Next::End
    } else if wish == Wish::End || short_lives > SHORT_LIVES_MAX {
        Next::GiveUp
    } else {
        Next::Again
    }
}

fn pause(short_lives: u32) {
    if let Some(doublings) = short_lives.checked_sub(2) {
        thread::sleep(PAUSE_MAX.min(PAUSE_MIN * (1 << doublings.min(8))));
    }
}

/// How a child has ended.
enum End {
    Exited(ExitStatus),
    /// It could not be started, or given what it needs.
    NotBegun(Failure),
}

impl End {
    fn is_by_others(&self) -> bool {
        matches!(self, Self::Exited(status) if status.signal() == Some(SIGKILL))
    }

    /// The signal that it has died of, if that is what we passed on: it had nothing yet to take down.
    fn by_wish(&self, wish: Wish) -> Option<i32> {
        match (wish, self) {
            (Wish::End, Self::Exited(status)) => {
                status.signal().filter(|signal| [SIGTERM, SIGINT].contains(signal))
            }
            _ => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::NotBegun(failure) => failure.fmt(f),
        }
    }
}

/// What has been asked of a child by a signal to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    None,
    End,
    Replace,
}

impl Supervisor<'_> {
    /// Where it is mounted by now, dead or not: a directory above it may have been renamed. The kernel's table is asked, not the mount.
    fn place(&self) -> PathBuf {
        let mut told = self.told();
        let found = |device| mountinfo::of_device(device, self.source).ok().flatten();
        if let Some(mount) = told.device.and_then(found) {
            told.place = mount.point;
        }
        told.place.clone()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One child, from its start to its end.
    fn live(&self, life: u32, careful: bool, signals: &mut Signals) -> (End, Wish) {
        let (mut child, line) = match self.begin(life, careful) {
            Ok(begun) => begun,
            Err(failure) => return (End::NotBegun(failure), Wish::None),
        };
        thread::scope(|scope| {
            let listener = thread::Builder::new().spawn_scoped(scope, || self.listen(line.as_fd()));
            if let Err(error) = listener {
                // Nobody hears whether it serves.
                let ended = child.kill().and_then(|()| child.wait());
                let failure = ended.map_or_else(Failure::from, |_| Failure::from(error));
                let failure = failure.within("cannot listen to the process that is to serve");
                return (End::NotBegun(failure), Wish::None);
            }
            wait(&mut child, signals, &self.program)
        })
    }

    /// Starts a child and gives it what the one before has left.
    fn begin(&self, life: u32, careful: bool) -> Done<(Child, OwnedFd)> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = rustix::net::socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)
            .within("cannot speak with the process that is to serve")?;
        let mut child = self.spawn(theirs)?;
        let told = self.told();
        let kind = match (careful, told.replacing) {
            (_, true) => REPLACED,
            (true, false) => CAREFUL,
            (false, false) => PLAIN,
        };
        let mut head = [kind; HEAD_BYTES];
        head[1..].copy_from_slice(&life.to_le_bytes());
        match send(ours.as_fd(), &head, told.kept.as_ref().unwrap_or(&Parcel::default())) {
            // One that has ended already cannot hear us; its end will be seen.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                child.kill()?;
                child.wait()?;
                Err(error).within("cannot speak with the process that is to serve")
            }
            _ => Ok((child, ours)),
        }
    }

    fn spawn(&self, line: OwnedFd) -> Done<Child> {
        let (name, rest) =
            self.arguments.split_first().ok_or_else(|| Failure::new("called without a name"))?;
        let program = self.program.to_start();
        let mut command = Command::new(program);
        command
            .arg0(name)
            .args(rest)
            .env(MARK, self.place())
            // It is us whom the service manager has started, and hears.
            .env_remove("NOTIFY_SOCKET")
            .stdin(line);
        let begun = command.current_dir(&self.directory.path).spawn().or_else(|error| {
            // A directory that is not there any more means nothing to absolute paths.
            if error.kind() == io::ErrorKind::NotFound {
                command.current_dir("/").spawn()
            } else {
                Err(error)
            }
        });
        begun.map_err(|error| Failure::from(error).within(format!("cannot start {}", program.display())))
    }

    /// Takes the child's words until it has ended.
    fn listen(&self, line: BorrowedFd<'_>) {
        while let Ok(Some((head, parcel))) = receive(line) {
            match head[0] {
                KEEP => self.told().kept = Some(parcel),
                REPLACING => self.told().replacing = true,
                READY => self.serves(&parcel.words),
                OVER => {
                    let mut told = self.told();
                    (told.over, told.kept) = (true, None);
                    notify("STOPPING=1", "Closed");
                }
                _ => tracing::warn!("a word of the process that serves is not understood"),
            }
        }
    }

    fn serves(&self, words: &[u8]) {
        {
            let mut told = self.told();
            (told.ready, told.replacing) = (Some(Instant::now()), false);
            // An older version says nothing.
            told.device = serde_json::from_slice(words).ok();
        }
        notify("READY=1", &format!("Serving {} on {}", self.store.display(), self.shown));
        if daemon::is_background()
            && let Err(error) = daemon::detach().and_then(|()| daemon::ready(self.log))
        {
            tracing::warn!(%error, "cannot go to the background");
        }
    }

    /// The child's end is ours.
    fn end(&self, end: End, wish: Wish) -> Done<ExitCode> {
        match end {
            End::NotBegun(failure) => {
                // It may have been stopped when it had mounted already.
                dead::take_away(&self.place())?;
                return Err(failure);
            }
            End::Exited(status) => {
                if let Some(code) = status.code() {
                    // It may have lacked a process to take down what it had mounted: there is its own now.
                    if !self.told().over {
                        dead::take_away(&self.place())?;
                    }
                    return Ok(ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED)));
                }
            }
        }
        dead::take_away(&self.place())?;
        if let Some(signal) = end.by_wish(wish) {
            return die_of(signal);
        }
        Err(Failure::new(format!("the process that was to serve {} has ended ({end})", self.shown))
            .next("mount with --log debug to see why"))
    }

    fn give_up(&self, end: &End, wish: Wish) -> Done<ExitCode> {
        // The last descriptor of the connection: the kernel aborts it.
        self.told().kept = None;
        dead::take_away(&self.place())?;
        // The one before has crashed, and nobody serves now, as was wished.
        if let Some(signal) = end.by_wish(wish) {
            return die_of(signal);
        }
        let when = if wish == Wish::End { "while it closed" } else { "again and again" };
        let shown = &self.shown;
        Err(Failure::new(format!("the process that served {shown} has died {when} ({end}): it is unmounted"))
            .next("its messages tell why; what was written is kept: mount it again"))
    }
}

/// Until the child has ended; what it is asked to meanwhile is passed on. It makes way for `program` only where that is one.
fn wait(child: &mut Child, signals: &mut Signals, program: &Program) -> (End, Wish) {
    let mut wish = Wish::None;
    for signal in signals.forever() {
        let pass = match signal {
            SIGTERM | SIGINT => {
                wish = Wish::End;
                notify("STOPPING=1", "Closing the volume");
                Signal::from_named_raw(signal)
            }
            SIGUSR2 if wish == Wish::None => program.fits().then(|| {
                wish = Wish::Replace;
                Signal::KILL
            }),
            _ => None,
        };
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return (End::Exited(status), wish),
            Err(error) => return (End::NotBegun(error.into()), wish),
        }
        if let (Some(pass), Some(pid)) = (pass, i32::try_from(child.id()).ok().and_then(Pid::from_raw))
            // It has not been waited for: the number is still its own.
            && let Err(error) = rustix::process::kill_process(pid, pass)
        {
            tracing::warn!(%error, signal, "the process that serves cannot be told");
        }
    }
    (End::NotBegun(Failure::new("no signals come any more")), wish)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn told(kept: bool, ready: bool, over: bool) -> Told {
        let (kept, ready) = (kept.then(Parcel::default), ready.then(Instant::now));
        Told { kept, ready, over, ..Told::default() }
    }

    #[test]
    fn only_who_has_served_and_not_ended_in_order_is_followed_by_another() {
        let many = SHORT_LIVES_MAX + 1;
        for (told, has_served, wish, short_lives, next) in [
            (told(false, false, false), false, Wish::None, 1, Next::End),
            (told(true, false, false), false, Wish::None, 1, Next::Again),
            (told(true, true, false), false, Wish::None, 0, Next::Again),
            (told(false, true, false), true, Wish::None, 0, Next::Again),
            (told(false, false, false), true, Wish::None, many - 1, Next::Again),
            (told(false, false, false), true, Wish::None, many, Next::GiveUp),
            (told(true, true, false), true, Wish::None, many, Next::GiveUp),
            (told(true, true, false), true, Wish::Replace, 0, Next::Again),
            (told(true, true, false), true, Wish::End, 0, Next::GiveUp),
            (told(false, true, true), true, Wish::End, 0, Next::End),
            (told(false, true, true), true, Wish::None, many, Next::End),
        ] {
            assert_eq!(after(&told, has_served, wish, short_lives), next, "{told:?} {wish:?} {short_lives}");
        }
    }

    #[test]
    fn a_parcel_arrives_with_its_descriptors_and_the_end_is_seen() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = rustix::net::socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"the same file").unwrap();
        let parcel = Parcel { words: b"words".into(), descriptors: vec![file.into()] };
        send(one.as_fd(), &[KEEP], &parcel).unwrap();
        send(one.as_fd(), &[READY], &Parcel::default()).unwrap();
        drop((one, parcel));
        let (head, parcel) = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!((head[0], parcel.words.as_slice()), (KEEP, b"words".as_slice()));
        let [file] = <[OwnedFd; 1]>::try_from(parcel.descriptors).unwrap();
        assert_eq!(File::from(file).metadata().unwrap().len(), 13);
        let (head, parcel) = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!((head[0], parcel.words.len(), parcel.descriptors.len()), (READY, 0, 0));
        assert!(receive(other.as_fd()).unwrap().is_none());
    }
}

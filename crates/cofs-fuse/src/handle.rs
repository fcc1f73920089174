//! A mount from its beginning to its end.
//!
//! Order: the connection is mounted, INIT settled, all had that it takes to serve, the file system attached, the transport started; when the
//! kernel has let the mount go and every request taken has been answered, the file system is detached, once.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use cofs_face::FileSystem;
use cofs_types::{FsResult, failpoint};

use crate::{
    abi::init,
    dev_fuse::{self, Device},
    mount::{self, MountError, MountOptions, Replaces, Transport, Unmount},
    negotiate::{Settled, Wishes, negotiate},
    passthrough::privileged,
    resent::Resent,
    session::Session,
    uring,
};

/// What carries the requests of a mount, and what was settled with the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountReport {
    /// `Uring` or `DevFuse`.
    pub transport: Transport,
    /// Why that one.
    pub reason: String,
    /// The FUSE protocol in use: `7.protocol_minor`.
    pub protocol_minor: u32,
    pub features: Vec<&'static str>,
    pub passthrough: bool,
    /// Threads that take requests.
    pub threads: usize,
    /// Whether workers give way on a busy client's CPU, so that it stays there; or why not.
    pub stacking: Result<(), String>,
    /// Whether idle CPUs poll instead of halting while requests come; or why not.
    pub polling: Result<(), String>,
    /// Largest READ or WRITE.
    pub transfer_bytes: usize,
}

/// A mounted file system. Dropping it takes the mount down lazily, without waiting.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    report: MountReport,
    session: Option<JoinHandle<FsResult<()>>>,
    backing_files: Arc<AtomicUsize>,
}

/// What another process needs to go on with a mount: its connection lives as long as anybody has a descriptor of it.
#[derive(Debug)]
pub struct Handover {
    pub connection: OwnedFd,
    pub settled: Settled,
}

impl Mount {
    pub fn report(&self) -> &MountReport {
        &self.report
    }

    /// The mount point, resolved.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// How many files are registered with the kernel for passthrough now.
    pub fn backing_files(&self) -> usize {
        self.backing_files.load(Ordering::Relaxed)
    }

    /// Takes the mount down; [`Mount::join`] waits for its end. A mount that has ended already is success.
    /// Errors: EBUSY while it is in use and `how` is [`Unmount::IfUnused`].
    pub fn unmount(&self, how: Unmount) -> io::Result<()> {
        if self.is_over() { Ok(()) } else { mount::unmount(&self.point, how) }
    }

    /// Whether the mount has ended and the file system been detached.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the mount is gone, every request answered and the file system detached; returns what
    /// `detach` did.
    pub fn join(mut self) -> FsResult<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        session
            .join()
            .unwrap_or_else(|_| Err(cofs_types::FsError::Engine("the mount's thread has panicked".into())))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_over()
            && let Err(error) = mount::unmount(&self.point, Unmount::Lazily)
        {
            tracing::warn!(%error, point = %self.point.display(), "the mount stays");
        }
    }
}

/// Mounts `fs` at `point` and serves it from threads of its own. Where this fails, `fs` has been neither
/// attached nor detached.
pub fn mount<F: FileSystem>(fs: Arc<F>, point: &Path, options: &MountOptions) -> Result<Mount, MountError> {
    mount_handing_on(fs, point, options, || Ok(()), |_, _| Ok(()))
}

/// The same; where the mount is to survive ([`MountOptions::survives`]), `hand_on` gets what keeps it alive, and the resolved point,
/// before the first request is served. Where a dead mount is replaced ([`MountOptions::replaces`]), `lays_bare` is told before that goes with nothing in its place yet.
pub fn mount_handing_on<F: FileSystem>(
    fs: Arc<F>,
    point: &Path,
    options: &MountOptions,
    lays_bare: impl FnOnce() -> io::Result<()>,
    hand_on: impl FnOnce(Handover, &Path) -> io::Result<()>,
) -> Result<Mount, MountError> {
    let (connection, point) = mount::attach(point, options, lays_bare)?;
    failpoint("cofs.mount.attached");
    // From here on a failure takes the mount down again: dropping this does. One in the place of a dead one is left as dead as that was: it hides the directory
    // until another comes, or whoever sees to that gives up.
    let mut unfinished = Unfinished { point: (options.replaces == Replaces::Nothing).then(|| point.clone()) };
    let (uring, declined) = match prepare_uring(options) {
        Ok(prepared) => (Some(prepared), String::new()),
        Err(reason) => (None, reason),
    };
    let wishes = Wishes {
        kernel_checks: options.default_permissions,
        passthrough: options.passthrough && privileged() && !options.survives,
        handles: options.handles,
        stack_depth: if options.stacked_below { 2 } else { 1 },
        uring: uring.is_some(),
        transfer_bytes: uring.as_ref().map_or_else(dev_fuse::transfer_bytes, |uring| uring.transfer_bytes),
    };
    let settled = negotiate(connection.as_fd(), wishes).map_err(|error| unless_gone(error, &point))?;
    let device = if options.survives {
        let copy = connection.try_clone().map_err(MountError::Device)?;
        let handover = Handover { connection: copy, settled };
        hand_on(handover, &point).map_err(MountError::NotHandedOn)?;
        held(connection, settled)
    } else {
        Device::new(connection)
    };
    let session = Session::new(fs, Arc::new(device), settled, options, None)?;
    let mount = serve(session, point, options.fs_type(), uring, declined)?;
    unfinished.point = None;
    Ok(mount)
}

/// The kernel ends a connection when nothing is left of its mount: then INIT cannot be read, or is not waited for.
fn unless_gone(error: MountError, point: &Path) -> MountError {
    let is_gone = |cause: &io::Error| matches!(cause.raw_os_error(), Some(libc::ENODEV | libc::ENOENT));
    match error {
        MountError::Device(cause) if is_gone(&cause) => MountError::TakenAway(point.into()),
        other => other,
    }
}

/// Goes on with a mount that another process has made and left, at `point`, as if it had never ended: requests that it had in hand
/// come again (where the kernel can: Linux 6.9), and `resent` says what becomes of them. `fs` must know the nodes and handles that the other gave out. Where this fails the mount stands as it was, and `fs`
/// has been neither attached nor detached.
pub fn resume<F: FileSystem>(
    fs: Arc<F>,
    handover: Handover,
    point: &Path,
    options: &MountOptions,
    resent: Resent,
) -> Result<Mount, MountError> {
    let Handover { connection, settled } = handover;
    let device = Arc::new(held(connection, settled));
    let session = Session::new(fs, device, settled, options, Some(resent))?;
    serve(session, point.into(), options.fs_type(), None, SURVIVES.into())
}

/// A connection that another process holds, too.
fn held(connection: OwnedFd, settled: Settled) -> Device {
    // A kernel that cannot send again (before 6.9) would have those who wait for a dead process wait for ever: there each
    // task has a queue of its own, with whose end the kernel answers ECONNABORTED.
    if settled.has(init::HAS_RESEND) { Device::held(connection) } else { Device::new(connection) }
}

/// Starts a session's life.
fn serve<F: FileSystem>(
    session: Session<F>,
    point: PathBuf,
    fs_type: String,
    uring: Option<uring::Prepared>,
    declined: String,
) -> Result<Mount, MountError> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("cofs-mount".into());
    let (at, backing_files) = (point.clone(), session.registered.clone());
    let life = move || {
        let outcome = session.run(uring, declined, &tell);
        remove_if_dead(&at, &fs_type);
        outcome
    };
    let session = thread.spawn(life).map_err(MountError::NotStarted)?;
    let report = told.recv().map_err(|_| MountError::NotStarted(io::Error::other("it has panicked")))?;
    Ok(Mount { point, report, session: Some(session), backing_files })
}

/// A connection that was aborted rather than unmounted leaves its mount behind, dead: nobody can use it.
fn remove_if_dead(point: &Path, fs_type: &str) {
    if mount::is_dead_mount(point, fs_type)
        && let Err(error) = mount::unmount(point, Unmount::Lazily)
    {
        tracing::warn!(%error, point = %point.display(), "the dead mount stays");
    }
}

/// Why `/dev/fuse` serves a mount that survives: of io_uring's requests in hand the kernel sends none again.
const SURVIVES: &str = "requests over io_uring do not survive the process";

/// Errors: why not, for the report.
fn prepare_uring(options: &MountOptions) -> Result<uring::Prepared, String> {
    match options.transport {
        _ if options.survives => Err(SURVIVES.into()),
        Transport::DevFuse => Err("asked for by option".into()),
        Transport::Auto | Transport::Uring => uring::Prepared::new(options.over_network),
    }
}

/// A mount that lacked a thread has no process for fusermount3 either, until the threads that it had have ended.
const HELPER_TRIES: u32 = 20;
const HELPER_AFTER: Duration = Duration::from_millis(50);

/// A mount point with a mount on it that nobody serves yet.
struct Unfinished {
    point: Option<PathBuf>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(point) = &self.point else { return };
        for tries_left in (0..HELPER_TRIES).rev() {
            match mount::unmount(point, Unmount::Lazily) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries_left > 0 => {
                    std::thread::sleep(HELPER_AFTER);
                }
                Err(error) => {
                    // Whoever wanted it may find a process when he has ended his own threads.
                    return tracing::debug!(%error, point = %point.display(), "the failed mount stays");
                }
                Ok(()) => return,
            }
        }
    }
}

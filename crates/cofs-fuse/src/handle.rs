//! A mount from its beginning to its end.
//!
//! Order: the connection is mounted, INIT settled, the file system attached, the transport started; when the
//! kernel has let the mount go and every request taken has been answered, the file system is detached, once.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use cofs_fs::FileSystem;
use cofs_types::{FsResult, limits};

use crate::{
    mount::{self, MountError, MountOptions, Transport, Unmount},
    negotiate::{Wishes, negotiate},
    passthrough::privileged,
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
    /// Largest READ or WRITE.
    pub transfer_bytes: usize,
}

/// A mounted file system. Dropping it takes the mount down lazily, without waiting.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    report: MountReport,
    session: Option<JoinHandle<FsResult<()>>>,
}

impl Mount {
    pub fn report(&self) -> &MountReport {
        &self.report
    }

    /// The mount point, resolved.
    pub fn point(&self) -> &Path {
        &self.point
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
    let (device, point) = mount::attach(point, options)?;
    // From here on a failure takes the mount down again: dropping this does.
    let mut unfinished = Unfinished { point: Some(point) };
    let device = Arc::new(device);
    let (uring, declined) = match prepare_uring(options.transport) {
        Ok(prepared) => (Some(prepared), String::new()),
        Err(reason) => (None, reason),
    };
    let wishes = Wishes {
        kernel_checks: options.default_permissions,
        passthrough: options.passthrough && privileged(),
        uring: uring.is_some(),
        transfer_bytes: uring.as_ref().map_or(limits::FUSE_TRANSFER_BYTES_MAX, |uring| uring.transfer_bytes),
    };
    let settled = negotiate(device.fd(), wishes)?;
    let session = Session::new(fs, device, settled, options)?;
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("cofs-mount".into());
    let at = unfinished.point.clone().unwrap_or_default();
    let life = move || {
        let outcome = session.run(uring, declined, &tell);
        remove_if_dead(&at);
        outcome
    };
    let session = thread.spawn(life).map_err(MountError::Thread)?;
    let report = told.recv().map_err(|_| MountError::Thread(io::Error::other("it has panicked")))?;
    let point = unfinished.point.take().unwrap_or_default();
    Ok(Mount { point, report, session: Some(session) })
}

/// A connection that was aborted rather than unmounted leaves its mount behind, dead: nobody can use it.
fn remove_if_dead(point: &Path) {
    if mount::is_dead_mount(point)
        && let Err(error) = mount::unmount(point, Unmount::Lazily)
    {
        tracing::warn!(%error, point = %point.display(), "the dead mount stays");
    }
}

/// Errors: why not, for the report.
fn prepare_uring(asked: Transport) -> Result<uring::Prepared, String> {
    match asked {
        Transport::DevFuse => Err("asked for by option".into()),
        Transport::Auto | Transport::Uring => uring::Prepared::new(),
    }
}

/// A mount point with a mount on it that nobody serves yet.
struct Unfinished {
    point: Option<PathBuf>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(point) = &self.point
            && let Err(error) = mount::unmount(point, Unmount::Lazily)
        {
            tracing::warn!(%error, point = %point.display(), "the failed mount stays");
        }
    }
}

//! A mount from its beginning to its end.
//!
//! Order: the connection is mounted, INIT settled, the file system attached, the transport started; when the
//! kernel has let the mount go and every request taken has been answered, the file system is detached, once.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use cofs_fs::{FaceAbilities, FileSystem, Passthrough, Recall};
use cofs_types::{Authority, FsResult, limits};

use crate::{
    abi::init,
    dev_fuse::{DevFuse, Device},
    dispatch::Service,
    executor::Pool,
    mount::{self, MountError, MountOptions, Transport, Unmount},
    notify::Notifier,
    passthrough::{BackingFiles, privileged},
    request::Dialect,
    session::{self, Settled, Wishes},
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
    let wishes =
        Wishes { passthrough: privileged(), uring: false, transfer_bytes: limits::FUSE_TRANSFER_BYTES_MAX };
    let settled = session::negotiate(device.fd(), wishes)?;
    let session = Session::new(fs, device, settled, options)?;
    let report = session.report();
    let thread = std::thread::Builder::new().name("cofs-mount".into());
    let session = thread.spawn(move || session.run()).map_err(MountError::Thread)?;
    let point = unfinished.point.take().unwrap_or_default();
    Ok(Mount { point, report, session: Some(session) })
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

struct Session<F> {
    fs: Arc<F>,
    settled: Settled,
    threads: usize,
    pool: Arc<Pool>,
    notifier: Arc<Notifier>,
    recalls: JoinHandle<()>,
    transport: DevFuse<F>,
    abilities: FaceAbilities,
}

impl<F: FileSystem> Session<F> {
    fn new(
        fs: Arc<F>,
        device: Arc<Device>,
        settled: Settled,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let service = Arc::new(Service {
            fs: fs.clone(),
            dialect: Dialect { setxattr_ext: settled.has(init::SETXATTR_EXT) },
            authority: if options.default_permissions { Authority::Checked } else { Authority::Unchecked },
        });
        let pool = Pool::new().map_err(MountError::Thread)?;
        let notifier = Arc::new(Notifier::default());
        let recalls = notifier.start(device.clone()).map_err(MountError::Thread)?;
        let passthrough = settled
            .has(init::PASSTHROUGH)
            .then(|| Arc::new(BackingFiles::new(device.clone())) as Arc<dyn Passthrough>);
        let abilities = FaceAbilities { passthrough, recall: Some(notifier.clone() as Arc<dyn Recall>) };
        let transport = DevFuse::new(service, device, pool.clone(), settled.transfer_bytes);
        let threads = options.threads.unwrap_or_else(cpus).max(1);
        Ok(Self { fs, settled, threads, pool, notifier, recalls, transport, abilities })
    }

    fn report(&self) -> MountReport {
        MountReport {
            transport: Transport::DevFuse,
            reason: String::new(),
            protocol_minor: self.settled.minor,
            features: self.settled.feature_names(),
            passthrough: self.settled.has(init::PASSTHROUGH),
            threads: self.threads,
            transfer_bytes: self.settled.transfer_bytes,
        }
    }

    fn run(self) -> FsResult<()> {
        self.fs.attach(self.abilities.clone());
        if let Err(error) = self.transport.run(self.threads) {
            tracing::error!(%error, "nobody serves the mount");
        }
        self.pool.close();
        let detached = cofs_fs::run(self.fs.detach());
        self.notifier.close();
        if self.recalls.join().is_err() {
            tracing::error!("the thread for recalls has panicked");
        }
        detached
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

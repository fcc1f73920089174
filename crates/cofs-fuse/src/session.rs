//! What serves a mount: the file system, its transport, the pool and the recalls, from attachment to
//! detachment.

use std::{
    sync::{Arc, atomic::AtomicUsize, mpsc},
    thread::JoinHandle,
};

use cofs_face::{FaceAbilities, FileSystem, Passthrough, Recall};
use cofs_types::{Authority, FsResult, limits};
use rustix::process::getuid;

use crate::{
    abi::init,
    dev_fuse::{DevFuse, Device, cpus},
    dispatch::Service,
    executor::Pool,
    handle::MountReport,
    idle::{IdleCpus, Vigil},
    interrupt::Interrupts,
    mount::{MountError, MountOptions, Transport},
    negotiate::Settled,
    notify::{Notifier, resend},
    passthrough::BackingFiles,
    request::Dialect,
    resent::Resent,
    uring,
};

pub(crate) struct Session<F> {
    service: Arc<Service<F>>,
    reader: DevFuse<F>,
    device: Arc<Device>,
    settled: Settled,
    /// Workers on `/dev/fuse` where it serves alone.
    threads: usize,
    /// Workers may stack; then these threads give way with them.
    stacking: Option<Vec<String>>,
    idle_cpus: IdleCpus,
    pool: Arc<Pool>,
    notifier: Arc<Notifier>,
    recalls: JoinHandle<()>,
    interrupts: JoinHandle<()>,
    survives: bool,
    /// How many backing files the kernel has.
    pub registered: Arc<AtomicUsize>,
    /// Another process has served this connection before.
    resumes: bool,
}

impl<F: FileSystem> Session<F> {
    /// Errors: a thread could not be started, or what it takes to serve requests could not be had.
    pub fn new(
        fs: Arc<F>,
        device: Arc<Device>,
        settled: Settled,
        options: &MountOptions,
        resumes: Option<Resent>,
    ) -> Result<Self, MountError> {
        let notifier = Arc::<Notifier>::default();
        let interrupts = Arc::<Interrupts>::default();
        let pool = Pool::new().map_err(MountError::NotStarted)?;
        let service = Arc::new(Service {
            fs,
            dialect: Dialect::of(&settled),
            authority: if options.default_permissions { Authority::Checked } else { Authority::Unchecked },
            only: (!options.default_permissions && !options.allow_other).then(|| getuid().as_raw()),
            notifier: notifier.clone(),
            resent: resumes.unwrap_or_default(),
            interrupts: interrupts.clone(),
            forgets: Arc::default(),
            pool: pool.clone(),
            over_network: options.over_network,
        });
        let reader = DevFuse::new(service.clone(), device.clone(), pool.clone(), settled.transfer_bytes)
            .map_err(MountError::Device)?;
        let interrupts = interrupts.start().map_err(MountError::NotStarted)?;
        let recalls = notifier.start(device.clone()).map_err(MountError::NotStarted)?;
        let usual = if options.over_network { limits::FUSE_TASKS_MAX } else { cpus() };
        let threads = options.threads.unwrap_or(usual).max(1);
        let stacking = options.stacking.then(|| options.background.clone());
        let survives = options.survives;
        let resumes = resumes.is_some() && settled.has(init::HAS_RESEND);
        Ok(Self {
            service,
            reader,
            device,
            settled,
            threads,
            stacking,
            idle_cpus: options.idle_cpus,
            pool,
            notifier,
            recalls,
            interrupts,
            survives,
            registered: Arc::default(),
            resumes,
        })
    }

    /// The mount's whole life. `declined`: why `uring` is not there.
    pub fn run(
        self,
        uring: Option<uring::Prepared>,
        declined: String,
        tell: &mpsc::Sender<MountReport>,
    ) -> FsResult<()> {
        self.service.fs.attach(self.abilities());
        if self.resumes {
            self.device.tell(&resend());
        }
        let vigil = Vigil::start(self.idle_cpus);
        let (running, report) = self.start(uring, declined, &vigil);
        // Over io_uring, one thread drains what still comes by the device.
        let over_uring = report.transport == Transport::Uring;
        let threads = if over_uring { 1 } else { self.threads };
        // Whoever mounts waits for this; if not, it is of no use to anybody.
        let _ = tell.send(report);
        let vigil = vigil.ok();
        let reader = if over_uring { self.reader.unhurried() } else { self.reader.watched(vigil.clone()) };
        reader.run(threads);
        if let Some(running) = running {
            running.join();
        }
        if let Some(vigil) = vigil {
            vigil.end();
        }
        self.pool.close();
        self.service.interrupts.close();
        if self.interrupts.join().is_err() {
            tracing::error!("the thread for interrupted callers has panicked");
        }
        let detached = cofs_face::run(self.service.fs.detach());
        self.notifier.close();
        if self.recalls.join().is_err() {
            tracing::error!("the thread for recalls has panicked");
        }
        detached
    }

    fn abilities(&self) -> FaceAbilities {
        let backing_files = || -> Arc<dyn Passthrough> {
            Arc::new(BackingFiles::new(self.device.clone(), self.registered.clone()))
        };
        FaceAbilities {
            passthrough: self.settled.has(init::PASSTHROUGH).then(backing_files),
            recall: Some(self.notifier.clone() as Arc<dyn Recall>),
            // Which files are open past the cache, only this process would know.
            maps_direct: self.settled.has(init::DIRECT_IO_ALLOW_MMAP) && !self.survives,
            loses_appended: clears_behind_the_end(&rustix::system::uname().release().to_string_lossy()),
            // The kernel makes it.
            copies: true,
        }
    }

    fn start(
        &self,
        uring: Option<uring::Prepared>,
        declined: String,
        vigil: &Result<Arc<Vigil>, String>,
    ) -> (Option<uring::Running>, MountReport) {
        let not_pinned = || Err(uring::NOT_PINNED.to_owned());
        let polling = || vigil.as_ref().map(drop).map_err(String::clone);
        let fallback =
            |reason| self.report(Transport::DevFuse, reason, self.threads, not_pinned(), polling());
        let Some(prepared) = uring else { return (None, fallback(declined)) };
        if !self.settled.has(init::OVER_IO_URING) {
            return (None, fallback("the kernel did not grant FUSE over io_uring".into()));
        }
        let threads = prepared.threads();
        let (service, device, pool) = (self.service.clone(), self.device.clone(), self.pool.clone());
        let watch = vigil.as_ref().ok().cloned();
        let (running, outcome) = prepared.start(service, device, pool, watch, self.stacking.clone());
        let report = match outcome {
            Ok(()) => self.report(
                Transport::Uring,
                "the kernel offers it".into(),
                threads,
                running.stacking(),
                polling(),
            ),
            Err(reason) => fallback(reason),
        };
        (Some(running), report)
    }

    fn report(
        &self,
        transport: Transport,
        reason: String,
        threads: usize,
        stacking: Result<(), String>,
        polling: Result<(), String>,
    ) -> MountReport {
        MountReport {
            transport,
            reason,
            protocol_minor: self.settled.minor,
            features: self.settled.feature_names(),
            passthrough: self.settled.has(init::PASSTHROUGH),
            threads,
            stacking,
            polling,
            transfer_bytes: self.settled.transfer_bytes,
        }
    }
}
/// Whether a kernel of this release writes FUSE files back by iomap, which clears a page behind the file's end; a write that appends is in the page, unlocked, before
/// it moves the end. That came with 6.17; seen on 6.18, and not on 5.10 (the POSIX case `what_is_appended_to_a_page_that_is_written_back_is_kept`).
fn clears_behind_the_end(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_lose_what_is_appended_are_known_by_their_release() {
        for (release, loses) in [
            ("5.10.0-32-amd64", false),
            ("6.6.87", false),
            ("6.16.12+deb14", false),
            ("6.17.0-rc1", true),
            ("6.18.44-fc-v782", true),
            ("7.0", true),
            ("", false),
        ] {
            assert_eq!(clears_behind_the_end(release), loses, "{release}");
        }
    }
}

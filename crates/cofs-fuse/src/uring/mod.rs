//! The transport over io_uring: requests arrive on the CPU that they were made on.
//!
//! Order: everything that can fail (threads, rings, buffers) is had before INIT is answered, because a kernel
//! that was promised queues holds all requests back until it has them; only then is the feature asked for.
//! FORGET, INTERRUPT and the like still come over `/dev/fuse`, which one thread drains. Where something does
//! not allow io_uring, the reason is kept for the report and `/dev/fuse` serves alone.

mod entry;
mod plan;
mod ring;
mod stacking;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use self::{
    entry::Entry,
    plan::{Plan, WorkerPlan},
    stacking::{Post, Watcher},
    worker::{Means, Start, Worker},
};
use crate::{
    alarm::Alarm,
    dev_fuse::Device,
    dispatch::Service,
    executor::{Pool, Rest, Work, become_worker},
    idle::Vigil,
};
use cofs_face::{BlockingThread, FileSystem};

const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Why nobody stacks where `/dev/fuse` serves.
pub(crate) const NOT_PINNED: &str = "only io_uring's workers stay on a CPU";

/// Whom a worker tells how it gets on.
struct Listener {
    /// Whether it has all it needs; its CPU and its post, where it is pinned.
    ready: mpsc::Sender<Result<Option<(usize, Arc<Post>)>, String>>,
    /// Whether the kernel took its entries.
    registered: mpsc::Sender<Result<(), String>>,
}

struct Waiting {
    start: mpsc::Sender<Start>,
    thread: JoinHandle<()>,
}

/// Workers with all they need, waiting for a connection. Dropped, they end.
pub(crate) struct Prepared {
    workers: Vec<Waiting>,
    /// The posts of the pinned ones by CPU, and what they ring.
    posts: BTreeMap<usize, Vec<Arc<Post>>>,
    alarm: Arc<Alarm>,
    registered: mpsc::Receiver<Result<(), String>>,
    pub transfer_bytes: usize,
}

/// Workers that serve.
#[derive(Debug)]
pub(crate) struct Running {
    threads: Vec<JoinHandle<()>>,
    watcher: Result<Watcher, String>,
}

impl Prepared {
    /// With `crews`, for requests that may all have to wait. Errors: why there can be no io_uring here, in words for the report.
    pub fn new(crews: bool) -> Result<Self, String> {
        enabled()?;
        let plan = Plan::of_machine(crews)?;
        let (ready, prepared) = mpsc::channel();
        let (registered, outcomes) = mpsc::channel();
        let alarm = Arc::<Alarm>::default();
        let (mut workers, mut posts) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for worker in plan.workers {
            let to = Listener { ready: ready.clone(), registered: registered.clone() };
            workers.push(spawn(worker, plan.transfer_bytes, alarm.clone(), to)?);
        }
        drop(ready);
        for _ in &workers {
            let pinned = prepared.recv().map_err(|_| "an io_uring worker has panicked".to_owned())??;
            pinned.into_iter().for_each(|(cpu, post)| posts.entry(cpu).or_default().push(post));
        }
        Ok(Self { workers, posts, alarm, registered: outcomes, transfer_bytes: plan.transfer_bytes })
    }

    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Registers all queues; where `stacking` is wanted, the workers do it where they may, and the threads that it names give way
    /// with them. The second value tells what went wrong, in which case the kernel goes back to `/dev/fuse` by itself.
    pub fn start<F: FileSystem>(
        self,
        service: Arc<Service<F>>,
        device: Arc<Device>,
        pool: Arc<Pool>,
        vigil: Option<Arc<Vigil>>,
        stacking: Option<Vec<String>>,
    ) -> (Running, Result<(), String>) {
        let life = move |entry, rest| -> Work { Box::pin(serve_requests(service.clone(), entry, rest)) };
        let start = Start { device, pool, life: Arc::new(life), vigil };
        let mut threads = Vec::new();
        for worker in self.workers {
            // A worker that is gone is missed below.
            let _ = worker.start.send(start.clone());
            threads.push(worker.thread);
        }
        let outcome = threads.iter().try_for_each(|_| {
            self.registered.recv().unwrap_or_else(|_| Err("an io_uring worker has panicked".into()))
        });
        let watcher = match (&outcome, stacking) {
            (Ok(()), Some(background)) => Watcher::start(self.alarm, self.posts, background),
            (Ok(()), None) => Err("switched off by option".into()),
            (Err(_), _) => Err(NOT_PINNED.into()),
        };
        (Running { threads, watcher }, outcome)
    }
}

impl Running {
    /// Whether workers stack on their clients' CPUs. Errors: why not, in words for the report.
    pub fn stacking(&self) -> Result<(), String> {
        self.watcher.as_ref().map(drop).map_err(String::clone)
    }

    /// Waits until the kernel has given back every entry.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("an io_uring worker has panicked");
            }
        }
        if let Ok(watcher) = self.watcher {
            watcher.join();
        }
    }
}

/// Whether the kernel's module lets io_uring be used. Errors: why not.
fn enabled() -> Result<(), String> {
    match std::fs::read_to_string(ENABLED) {
        Ok(value) if value.trim() == "Y" => Ok(()),
        Ok(_) => Err(format!("the kernel's fuse.enable_uring is off (echo Y > {ENABLED})")),
        Err(_) => {
            Err("the kernel has no FUSE over io_uring (Linux 6.14 or newer with CONFIG_FUSE_IO_URING)".into())
        }
    }
}

fn refused(error: &std::io::Error) -> String {
    // io_uring_setup(2) is refused by the sysctl, and by what containers forbid.
    let blocked = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES));
    let by = if blocked { " (kernel.io_uring_disabled, or a sandbox's filter of system calls)" } else { "" };
    format!("io_uring cannot be used here{by}: {error}")
}

fn spawn(
    plan: WorkerPlan,
    transfer_bytes: usize,
    alarm: Arc<Alarm>,
    listener: Listener,
) -> Result<Waiting, String> {
    let (start, started) = mpsc::channel::<Start>();
    let name = plan.pin.map_or("cofs-fuse-rest".into(), |cpu| format!("cofs-fuse-cpu{cpu}"));
    let work = move || {
        let (means, outcome) = match Means::new(&plan, transfer_bytes, alarm) {
            Ok(means) => {
                let pinned = plan.pin.map(|cpu| (cpu, means.post.clone()));
                (Some(means), Ok(pinned))
            }
            Err(error) => (None, Err(refused(&error))),
        };
        // Whoever does not listen any more has given up, and sends no start.
        let _ = listener.ready.send(outcome);
        if let (Some(means), Ok(start)) = (means, started.recv()) {
            let _may_wait = plan.waits.then(BlockingThread::enter);
            run(means, &start, &listener.registered);
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(work).map_err(|error| error.to_string())?;
    Ok(Waiting { start, thread })
}

/// A worker's life. Tells `registered` whether the kernel took the entries.
fn run(means: Means, start: &Start, registered: &mpsc::Sender<Result<(), String>>) {
    become_worker();
    let mut worker = match Worker::new(means, start) {
        Ok(worker) => worker,
        Err(error) => return drop(registered.send(Err(error.to_string()))),
    };
    let outcome = worker.register().map_err(|error| format!("the kernel refused an io_uring queue: {error}"));
    // The listener waits for each worker's word, so that it is there.
    let _ = registered.send(outcome);
    if let Err(error) = worker.serve() {
        tracing::error!(%error, "an io_uring worker ends before its mount");
    }
}

/// The life of an entry's task: each poll after a rest is a request.
async fn serve_requests<F: FileSystem>(service: Arc<Service<F>>, mut entry: Entry, rest: Rest) {
    loop {
        rest.until_polled().await;
        let answer = service.serve(&mut entry).await;
        entry.finish(answer);
    }
}

//! The worker of one or more queues: takes a request, runs it to its end, commits, takes the next.
//!
//! A request that must wait leaves with its task for the pool; the entry comes back by the [`Doorbell`] and
//! is committed here, on its own ring. The worker ends when the kernel has given all entries back.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use io_uring::{IoUring, squeue::Entry128};
use parking_lot::Mutex;
use rustix::{event::EventfdFlags, thread::CpuSet};

use super::{
    entry::{Addresses, Entry},
    plan::WorkerPlan,
    ring::{Event, Ring},
    stacking::Post,
};
use crate::{
    alarm::Alarm,
    dev_fuse::Device,
    executor::{Home, Polled, Pool, Rest, Task, Work},
    idle::{Gauge, Vigil},
};

/// How often a worker looks whether it is where it belongs: a system call for so many waits.
const TURNS_ASTRAY: u64 = 64;

/// Makes the life of an entry's task.
pub(crate) type Life = dyn Fn(Entry, Rest) -> Work + Send + Sync;

/// What a worker is started with.
#[derive(Clone)]
pub(crate) struct Start {
    pub device: Arc<Device>,
    pub pool: Arc<Pool>,
    pub life: Arc<Life>,
    pub vigil: Option<Arc<Vigil>>,
}

/// Where tasks come home to from the pool.
#[derive(Debug)]
struct Doorbell {
    finished: Mutex<Vec<usize>>,
    bell: Arc<OwnedFd>,
}

impl Home for Doorbell {
    fn rests(&self, task: Arc<Task>) {
        let mut finished = self.finished.lock();
        finished.push(task.index);
        if finished.len() == 1
            && let Err(error) = rustix::io::write(&self.bell, &1_u64.to_ne_bytes())
        {
            tracing::error!(%error, "a worker cannot be told of a finished task");
        }
    }
}

/// A worker's means, had before the kernel is promised anything. Made on the worker's own thread.
pub(crate) struct Means {
    pin: Option<usize>,
    waits: bool,
    ring: IoUring<Entry128>,
    bell: Arc<OwnedFd>,
    entries: Vec<(u16, Entry)>,
    pub post: Arc<Post>,
}

impl Means {
    pub fn new(plan: &WorkerPlan, transfer_bytes: usize, alarm: Arc<Alarm>) -> io::Result<Self> {
        if let Some(cpu) = plan.pin {
            pin_to(cpu)?;
        }
        let places = plan.queues.iter().flat_map(|queue| std::iter::repeat_n(*queue, plan.depth));
        let entries: Vec<_> = places
            .map(|queue| Entry::new(transfer_bytes).map(|entry| (queue, entry)))
            .collect::<io::Result<_>>()?;
        let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let post = Arc::new(Post::of_this_thread(alarm));
        Ok(Self { pin: plan.pin, waits: plan.waits, ring: Ring::setup(entries.len())?, bell, entries, post })
    }
}

/// The calling thread on one CPU. Errors: that is offline, or not ours.
fn pin_to(cpu: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only)
}

/// None where there is no thread for it. (A worker without a queue would be no way out: the kernel, which was promised one for each CPU, would
/// have all clients wait for it.)
fn nearby(pool: &Arc<Pool>, cpu: usize) -> Option<Arc<Pool>> {
    let nearby = pool.nearby(cpu);
    nearby
        .inspect_err(|error| tracing::warn!(%error, cpu, "what waits has no thread of its own on a CPU"))
        .ok()
}

struct Slot {
    queue: u16,
    commit_id: Arc<AtomicU64>,
    addresses: Addresses,
    task: Arc<Task>,
    waker: Waker,
}

pub(crate) struct Worker {
    // Dropped first: it takes the entries' memory back from the kernel.
    ring: Ring,
    slots: Vec<Slot>,
    doorbell: Arc<Doorbell>,
    post: Arc<Post>,
    gauge: Gauge,
    pin: Option<usize>,
    /// Entries that the kernel has and will give back.
    alive: usize,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.post.leave();
    }
}

impl Worker {
    pub fn new(means: Means, start: &Start) -> io::Result<Self> {
        let doorbell = Arc::new(Doorbell { finished: Mutex::default(), bell: means.bell.clone() });
        // A thread that may wait itself has no use for others on its CPU.
        let nearby = means.pin.filter(|_| !means.waits).and_then(|cpu| nearby(&start.pool, cpu));
        let slot = |(index, (queue, entry)): (usize, (u16, Entry))| {
            let (rest, commit_id, addresses) = (Rest::default(), entry.commit_id(), entry.addresses());
            let work = (start.life)(entry, rest.clone());
            let pools = (&start.pool, nearby.as_ref().unwrap_or(&start.pool));
            let task = Task::beside(pools, doorbell.clone(), index, rest, work);
            let waker = Waker::from(task.clone());
            // To its first rest: from now on a poll is a request.
            task.poll(&waker);
            Slot { queue, commit_id, addresses, task, waker }
        };
        let slots = means.entries.into_iter().enumerate().map(slot).collect();
        let ring = Ring::new(means.ring, means.bell, start.device.clone())?;
        let gauge = Gauge::of_cpu(start.vigil.clone(), means.pin.unwrap_or_default());
        Ok(Self { ring, slots, doorbell, post: means.post, gauge, pin: means.pin, alive: 0 })
    }

    /// Hands all entries to the kernel. Errors: it refused one, and will not use io_uring for this mount.
    pub fn register(&mut self) -> io::Result<()> {
        for (index, slot) in self.slots.iter().enumerate() {
            self.ring.register(index, slot.queue, &slot.addresses)?;
            self.alive += 1;
        }
        self.ring.submit_and_wait(0)?;
        let mut outcome = Ok(());
        while let Some(event) = self.ring.next() {
            if let Event::Gone(_, errno) = event {
                outcome = Err(io::Error::from_raw_os_error(errno));
            }
            self.handle(event)?;
        }
        outcome
    }

    /// Serves until the mount is gone and every entry has come back.
    pub fn serve(&mut self) -> io::Result<()> {
        for turn in 1_u64.. {
            if self.alive == 0 {
                break;
            }
            self.ring.submit_and_wait(1)?;
            let mut requests = 0;
            while let Some(event) = self.ring.next() {
                requests += u64::from(matches!(event, Event::Request(_)));
                self.handle(event)?;
            }
            self.post.came(requests);
            if turn % TURNS_ASTRAY == 0 {
                self.return_to_cpu();
            }
        }
        Ok(())
    }

    /// When a CPU goes offline the kernel lets those that are pinned to it go everywhere, and leaves them there when it comes back. One
    /// that somebody has sent elsewhere stays there.
    fn return_to_cpu(&self) {
        let Some(cpu) = self.pin else { return };
        let strays = |cpus: CpuSet| cpus.is_set(cpu) && cpus.count() > 1;
        if rustix::thread::sched_getaffinity(None).is_ok_and(strays) {
            // It fails as long as the CPU is offline.
            let _ = pin_to(cpu);
        }
    }

    fn handle(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Request(index) => self.take(index),
            Event::Gone(index, errno) => {
                self.gone(index, errno);
                Ok(())
            }
            Event::Bell => {
                let finished = std::mem::take(&mut *self.doorbell.finished.lock());
                finished.into_iter().try_for_each(|index| self.commit(index))
            }
        }
    }

    /// Runs the request in an entry; commits it unless it waits.
    fn take(&mut self, index: usize) -> io::Result<()> {
        let Some(slot) = self.slots.get(index) else {
            return Err(io::Error::other("a completion for an entry that is not ours"));
        };
        self.post.count();
        self.gauge.count();
        match slot.task.poll(&slot.waker) {
            Polled::Rests => self.commit(index),
            Polled::Waits => Ok(()),
            Polled::Ended => Err(io::Error::other("an entry's task has ended")),
        }
    }

    fn commit(&mut self, index: usize) -> io::Result<()> {
        let Some(slot) = self.slots.get(index) else { return Ok(()) };
        self.ring.commit(index, slot.queue, slot.commit_id.load(Ordering::Acquire))
    }

    fn gone(&mut self, index: usize, errno: i32) {
        self.alive -= 1;
        if !matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV) {
            let error = io::Error::from_raw_os_error(errno);
            tracing::error!(%error, index, "the kernel refused an answer; its entry is lost");
        }
    }
}

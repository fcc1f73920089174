//! Many operations that wait, on real mounts over both transports: whom they hold up, and that all come to their end.

mod common;

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{JoinHandle, spawn},
};

use cofs_fuse::{MountOptions, Transport};
use cofs_types::limits;
use common::{Mounted, eventually, gated};
use rustix::thread::CpuSet;

/// The calling thread on one CPU, until this is dropped.
struct Pinned(CpuSet);

impl Pinned {
    /// `None` where there is no such CPU for us.
    fn to(cpu: usize) -> Option<Self> {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let mut only = CpuSet::new();
        only.set(cpu);
        rustix::thread::sched_setaffinity(None, &only).ok().map(|()| Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        rustix::thread::sched_setaffinity(None, &self.0).unwrap();
    }
}

/// How a mount is served.
#[derive(Clone, Copy)]
struct Kind {
    transport: Transport,
    over_network: bool,
    threads: Option<usize>,
}

impl Kind {
    const fn of(transport: Transport, over_network: bool) -> Self {
        Self { transport, over_network, threads: None }
    }
}

/// Both transports, as they serve what tells where it waits, and over a network, where it does not: there with fewer threads than
/// requests, too.
const KINDS: [Kind; 6] = [
    Kind::of(Transport::DevFuse, false),
    Kind::of(Transport::DevFuse, true),
    Kind { threads: Some(1), ..Kind::of(Transport::DevFuse, true) },
    Kind { threads: Some(3), ..Kind::of(Transport::DevFuse, true) },
    Kind::of(Transport::Uring, false),
    Kind::of(Transport::Uring, true),
];

/// A mount whose syncs wait at a gate, and over a network its links.
struct Gated {
    on: Mounted,
    over_network: bool,
    waiting: Arc<AtomicUsize>,
    open: mpsc::Sender<()>,
}

impl Gated {
    fn new(kind: Kind) -> Option<Self> {
        let Kind { transport, over_network, threads } = kind;
        let (fs, waiting, open) = gated();
        fs.slow_links.store(over_network, Ordering::Relaxed);
        let options = MountOptions { over_network, threads, ..MountOptions::default() };
        Some(Self { on: Mounted::with(transport, fs, options)?, over_network, waiting, open })
    }

    /// So many callers that wait, on that CPU. Each has his own file: the kernel has one sync of a file at a time, and keeps a link's text.
    fn wait(&self, callers: usize, cpu: usize) -> Vec<JoinHandle<()>> {
        let make = |number| {
            let path = self.on.path(&format!("slow{cpu}-{number}"));
            if self.over_network {
                symlink("text", &path).unwrap();
                Box::new(move || drop(fs::read_link(path).unwrap())) as Box<dyn FnOnce() + Send>
            } else {
                let file = File::create(path).unwrap();
                Box::new(move || file.sync_all().unwrap())
            }
        };
        // All of them before the first one waits.
        let calls: Vec<_> = (0..callers).map(make).collect();
        let caller = |call: Box<dyn FnOnce() + Send>| {
            spawn(move || {
                let _pinned = Pinned::to(cpu).unwrap();
                call();
            })
        };
        calls.into_iter().map(caller).collect()
    }

    fn waits(&self, wanted: usize) {
        eventually(&format!("{wanted} wait below"), || self.waiting.load(Ordering::SeqCst) == wanted);
    }

    fn quick_work(&self) {
        for number in 0..300 {
            let path = self.on.path("quick");
            fs::write(&path, format!("{number}")).unwrap();
            assert_eq!(fs::read(&path).unwrap(), format!("{number}").as_bytes());
            fs::remove_file(&path).unwrap();
        }
    }

    /// Lets all go.
    fn end(self, callers: Vec<JoinHandle<()>>) {
        assert!(callers.iter().all(|caller| !caller.is_finished()));
        callers.iter().for_each(|_| self.open.send(()).unwrap());
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        self.quick_work();
        self.on.end();
    }
}

/// One place is left to others.
const NEARLY_ALL: usize = limits::FUSE_QUEUE_DEPTH - 1;

#[test]
fn a_hanging_directory_below_holds_up_nobody_else_on_the_same_cpu() {
    for kind in KINDS {
        let Some(gated) = Gated::new(kind) else { continue };
        let callers = gated.wait(NEARLY_ALL, 0);
        gated.waits(NEARLY_ALL);
        let pinned = Pinned::to(0);
        gated.quick_work();
        drop(pinned);
        gated.end(callers);
    }
}

#[test]
fn other_slow_work_goes_on_beside_work_that_hangs() {
    for kind in KINDS {
        let Some(gated) = Gated::new(kind) else { continue };
        let another = File::create(gated.on.path("another")).unwrap();
        let callers = gated.wait(NEARLY_ALL, 0);
        gated.waits(NEARLY_ALL);
        // It comes to the gate, too: it has a thread.
        let another = spawn(move || another.sync_all().unwrap());
        gated.waits(NEARLY_ALL + 1);
        gated.end(callers.into_iter().chain([another]).collect());
    }
}

#[test]
fn a_cpu_whose_queue_is_full_of_what_waits_holds_up_no_other_cpu() {
    // Over /dev/fuse there is one queue for all.
    let all = |transport| match transport {
        Transport::Uring => (3 * limits::FUSE_QUEUE_DEPTH, limits::FUSE_QUEUE_DEPTH),
        _ => (limits::FUSE_TASKS_MAX - 2, limits::FUSE_TASKS_MAX - 2),
    };
    for kind in KINDS {
        let Some(gated) = Gated::new(kind) else { continue };
        let (callers, places) = all(kind.transport);
        let callers = gated.wait(callers, 0);
        gated.waits(places);
        match Pinned::to(1) {
            Some(_pinned) => gated.quick_work(),
            None => eprintln!("SKIPPED: this machine has one CPU for us"),
        }
        gated.end(callers);
    }
}

#[test]
fn a_cpu_that_the_mount_may_not_use_has_places_for_what_waits_and_what_is_quick() {
    for kind in KINDS.into_iter().filter(|kind| kind.transport == Transport::Uring) {
        let Some(pinned) = Pinned::to(1) else {
            return eprintln!("SKIPPED: this machine has one CPU for us");
        };
        let Some(gated) = Gated::new(kind) else { return };
        drop(pinned);
        let callers = gated.wait(limits::FUSE_STRAY_QUEUE_DEPTH - 1, 0);
        gated.waits(limits::FUSE_STRAY_QUEUE_DEPTH - 1);
        let pinned = Pinned::to(0);
        gated.quick_work();
        drop(pinned);
        gated.end(callers);
    }
}

#[test]
fn more_that_wait_than_there_are_places_anywhere_all_come_to_their_end() {
    for kind in KINDS {
        let Some(gated) = Gated::new(kind) else { continue };
        let files = |number| File::create(gated.on.path(&format!("all{number}"))).unwrap();
        let files: Vec<File> = (0..160).map(files).collect();
        let callers = files.into_iter().map(|file| spawn(move || file.sync_all().unwrap())).collect();
        let seen = || gated.waiting.load(Ordering::SeqCst);
        eventually("the places are taken", || seen() >= limits::FUSE_QUEUE_DEPTH);
        gated.end(callers);
    }
}

#[test]
fn what_forgets_leave_to_be_done_holds_up_nobody_and_takes_one_thread() {
    for kind in KINDS {
        let Some(gated) = Gated::new(kind) else { continue };
        let file = File::create(gated.on.path("another")).unwrap();
        gated.on.fs.slow_forgets.store(true, Ordering::Relaxed);
        // More than there are threads, or places.
        for number in 0..2 * limits::BLOCKING_THREADS_MAX {
            let path = gated.on.path(&format!("forgotten{number}"));
            fs::write(&path, "bytes").unwrap();
            fs::remove_file(&path).unwrap();
        }
        gated.waits(1);
        gated.quick_work();
        let another = spawn(move || file.sync_all().unwrap());
        gated.waits(2);
        // All of them, and those of the quick work.
        let Gated { on, open, waiting, .. } = gated;
        drop(open);
        another.join().unwrap();
        eventually("all are done", || waiting.load(Ordering::SeqCst) > 2 * limits::BLOCKING_THREADS_MAX);
        on.end();
    }
}

//! The transport over `/dev/fuse`: read a request, serve it, write its answer.
//!
//! Each task has its own descriptor of the connection (`FUSE_DEV_IOC_CLONE`: its own queue of requests in
//! hand, so that answers do not contend) and one buffer. The buffer is laid out so that both the data of a
//! WRITE and the body of a long answer start on a cache line, and what is short lies in one page, request and answer beside each other: the kernel looks up
//! each page: two less are 0.36 µs of a SETATTR.
//!
//! ```text
//!          0          16           304                   368         384
//! request:                         [header 40][WRITE's arguments 40][data ...]
//! short answer: [header 16][body]
//! long answer:                                           [header 16][body ...]
//! ```
//!
//! From the system call that waits for a request to the one that answers it no function returns that was called before. The first
//! return after a change from one thread to another has been seen to cost 0.4 µs, a twentieth of a whole request (`examples/returns`); presumably
//! it is mispredicted, as the kernel overwrites the CPU's memory of return addresses at each change (Spectre v2). Hence what is inlined by force here, and in [`crate::uring`].

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_face::{BlockingThread, FileSystem};
use cofs_types::limits;
use parking_lot::{Condvar, Mutex};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::OFlags,
    io::Errno as Failure,
};
use zerocopy::IntoBytes;

use crate::{
    abi::{self, InHeader, OutHeader},
    dispatch::{Answer, Frame, Service},
    executor::{Home, Polled, Pool, Rest, Task, become_worker},
    idle::{Gauge, Vigil},
    memory::{self, PAGE_BYTES, Pages},
    reply::{Body, SHORT_BYTES, Short},
    request::Message,
};

const SHORT_AT: usize = size_of::<OutHeader>();
const REQUEST_AT: usize = SHORT_AT + SHORT_BYTES;
/// Six cache lines.
const LONG_AT: usize = REQUEST_AT + size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();
const _: () = assert!(LONG_AT.is_multiple_of(64));

/// The largest READ or WRITE, so that all tasks' buffers stay within their bound: see [`crate::memory::transfer_bytes`].
pub(crate) fn transfer_bytes() -> usize {
    memory::transfer_bytes(limits::FUSE_TASKS_MAX, memory::bound(cpus()), PAGE_BYTES)
}

/// That this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where the largest request and the largest answer end.
fn end_at(transfer_bytes: usize) -> usize {
    LONG_AT + transfer_bytes.max(abi::MIN_READ_BUFFER)
}

/// What a task's buffer takes: whole pages.
pub(crate) fn seat_bytes(transfer_bytes: usize) -> usize {
    end_at(transfer_bytes).next_multiple_of(PAGE_BYTES)
}

/// How many tasks there may be, so that their buffers stay within the bound. They are fewer than usual where transfers were settled for io_uring, which has
/// fewer places on one CPU, and the kernel has gone back to `/dev/fuse`.
fn tasks_max(cpus: usize, transfer_bytes: usize) -> usize {
    (memory::bound(cpus) / seat_bytes(transfer_bytes)).clamp(1, limits::FUSE_TASKS_MAX)
}

/// Tasks kept for the next slow work.
const IDLE_TASKS_MAX: usize = 4;

/// A descriptor of the connection.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    /// It is an open file of its own, whose flags nobody shares.
    own: bool,
    /// Requests in hand must outlive this process: see [`Device::held`].
    held: bool,
}

/// What a read came to.
enum Received {
    Request(usize),
    /// The mount is gone.
    Gone,
}

impl Device {
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, own: false, held: false }
    }

    /// One that another process holds, too. The kernel ends the requests of a queue with its last descriptor; so there is one
    /// queue, that of the descriptor which is held, and what this process leaves behind can be asked for again.
    pub fn held(fd: OwnedFd) -> Self {
        Self { fd, own: false, held: true }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// A further descriptor of the same connection, with its own queue where the kernel can.
    pub fn another(&self) -> io::Result<Self> {
        if self.held {
            return Ok(Self { fd: self.fd.try_clone()?, own: false, held: true });
        }
        let fresh = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty());
        match fresh
            .map_err(io::Error::from)
            .and_then(|fd| clone_connection(&fd, self.fd.as_raw_fd()).map(|()| fd))
        {
            Ok(fd) => Ok(Self { fd, own: true, held: false }),
            Err(error) => {
                tracing::debug!(%error, "FUSE_DEV_IOC_CLONE; the descriptor is shared instead");
                Ok(Self { fd: self.fd.try_clone()?, own: false, held: false })
            }
        }
    }

    /// Reads give EAGAIN instead of waiting; `false` where that would concern others too.
    fn set_nonblocking(&self) -> io::Result<bool> {
        if self.own {
            rustix::fs::fcntl_setfl(&self.fd, OFlags::RDWR | OFlags::NONBLOCK)?;
        }
        Ok(self.own)
    }

    #[inline(always)]
    fn receive(&self, into: &mut [u8], pace: &mut Pace) -> Received {
        loop {
            match rustix::io::read(&self.fd, &mut *into) {
                Ok(len) if len > 0 => {
                    pace.received();
                    return Received::Request(len);
                }
                Err(Failure::AGAIN) => pace.wait(self),
                // ENOENT: the request was interrupted before we had it.
                Err(Failure::INTR | Failure::NOENT) => {}
                Ok(_) | Err(Failure::NODEV | Failure::CONNABORTED | Failure::NOTCONN) => {
                    return Received::Gone;
                }
                Err(error) => {
                    tracing::error!(%error, "read of /dev/fuse: this mount ends");
                    return Received::Gone;
                }
            }
        }
    }

    /// Sends a whole answer. That nobody waits for it any more (ENOENT), or that the mount is gone, is not
    /// an error.
    #[inline(always)]
    pub fn send(&self, answer: &[u8]) {
        if let Err(error) = self.write(answer) {
            tracing::error!(%error, "answer refused by the kernel");
        }
    }

    /// Sends a whole notice. Likewise, that the kernel knows nothing of what it is about (ENOENT) is not an error.
    pub fn tell(&self, notice: &[u8]) {
        match self.write(notice) {
            Ok(()) => {}
            // Of a name that is said to be removed: there is more below it, or something is mounted on it.
            Err(error @ (Failure::NOTEMPTY | Failure::BUSY)) => {
                tracing::warn!(%error, "the kernel still knows a name that was removed");
            }
            Err(error) => tracing::error!(%error, "notice refused by the kernel"),
        }
    }

    #[inline(always)]
    fn write(&self, message: &[u8]) -> rustix::io::Result<()> {
        loop {
            match rustix::io::write(&self.fd, message) {
                Err(Failure::INTR) => {}
                Ok(_) | Err(Failure::NOENT | Failure::NODEV | Failure::CONNABORTED) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// How a reader waits for the next request.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// In the read itself.
    Prompt,
    /// Over io_uring only FORGETs and INTERRUPTs come by the device, which nobody waits for; but who sends one has to
    /// wake a reader that waits, on another CPU and one message at a time: an unlink of the null file system took 27 µs
    /// instead of 23. So while such come, they are let gather, and nobody waits. The descriptor does not block.
    Unhurried { latest: Option<Instant> },
}

impl Pace {
    /// How long messages gather.
    const GATHER: Duration = Duration::from_millis(5);
    /// So long after the latest one the next may as well wake the reader, which then sleeps undisturbed.
    const QUIET_AFTER: Duration = Duration::from_millis(200);

    fn received(&mut self) {
        if let Self::Unhurried { latest } = self {
            *latest = Some(Instant::now());
        }
    }

    #[cold]
    fn wait(&mut self, device: &Device) {
        let Self::Unhurried { latest } = self else { return };
        if latest.is_some_and(|latest| latest.elapsed() < Self::QUIET_AFTER) {
            std::thread::sleep(Self::GATHER);
            return;
        }
        // Whatever this says, the read says more.
        let _ = poll(&mut [PollFd::new(&device.fd, PollFlags::IN)], None);
    }
}

fn clone_connection(fresh: &OwnedFd, of: RawFd) -> io::Result<()> {
    /// `_IOR(229, 0, uint32_t)`
    const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
    let of = of as u32;
    // SAFETY: the ioctl reads one u32 behind the pointer, which outlives the call.
    let done = unsafe { libc::ioctl(fresh.as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &of) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One request's memory; see the module's picture.
#[derive(Debug)]
struct Buffer {
    pages: Pages,
    request_bytes: usize,
    transfer_bytes: usize,
}

impl Buffer {
    fn new(transfer_bytes: usize) -> io::Result<Self> {
        // The kernel answers a request with EIO if it is being read when the process is killed and there is no page for it yet. All
        // others it hands to the process that follows (`resent.rs`).
        let pages = Pages::populated(seat_bytes(transfer_bytes))?;
        Ok(Self { pages, request_bytes: 0, transfer_bytes })
    }

    #[inline(always)]
    fn receive(&mut self, device: &Device, pace: &mut Pace) -> bool {
        let room = self.pages.get_mut(REQUEST_AT..end_at(self.transfer_bytes));
        match room.map(|room| device.receive(room, pace)) {
            Some(Received::Request(len)) => {
                self.request_bytes = len;
                true
            }
            Some(Received::Gone) | None => false,
        }
    }

    #[inline(always)]
    fn send(&mut self, device: &Device, answer: &Answer) {
        let (at, len, error) = match answer.outcome {
            Ok(Body::Short(len)) => (SHORT_AT, len, 0),
            Ok(Body::Long(len)) => (LONG_AT, len, 0),
            Err(errno) => (SHORT_AT, 0, -errno.0),
        };
        let total = size_of::<OutHeader>() + len;
        let header = OutHeader { len: total as u32, error, unique: answer.unique };
        if let Some(message) = self.pages.get_mut(at - size_of::<OutHeader>()..at + len) {
            let (head, _) = message.split_at_mut(size_of::<OutHeader>());
            head.copy_from_slice(header.as_bytes());
            device.send(message);
        }
    }
}

impl Frame for Buffer {
    fn header(&self) -> Option<InHeader> {
        Message::header_of(self.pages.get(REQUEST_AT..REQUEST_AT + self.request_bytes)?)
    }

    fn parts(&mut self, header: InHeader) -> Option<(Message<'_>, Short<'_>)> {
        let (front, rest) = self.pages.split_at_mut_checked(REQUEST_AT)?;
        let message = Message::from_bytes(header, rest.get(..self.request_bytes)?);
        Some((message, Short(front.last_chunk_mut()?)))
    }

    fn long(&mut self) -> &mut [u8] {
        self.pages.get_mut(LONG_AT..end_at(self.transfer_bytes)).unwrap_or_default()
    }
}

/// The life of a task: request after request, on whichever thread polls it.
async fn serve_requests<F: FileSystem>(
    service: Arc<Service<F>>,
    device: Device,
    mut buffer: Buffer,
    mut pace: Pace,
    mut gauge: Gauge,
    rest: Rest,
) {
    loop {
        rest.until_worker().await;
        if !buffer.receive(&device, &mut pace) {
            return;
        }
        gauge.count();
        if let Some(answer) = service.serve(&mut buffer).await {
            buffer.send(&device, &answer);
        }
    }
}

#[derive(Debug, Default)]
struct Roster {
    idle: Vec<Arc<Task>>,
    /// Tasks made and not ended.
    alive: usize,
    /// A task has seen the end of the mount.
    gone: bool,
}

#[derive(Debug, Default)]
struct Tasks {
    roster: Mutex<Roster>,
    changed: Condvar,
}

impl Home for Tasks {
    fn rests(&self, task: Arc<Task>) {
        let mut roster = self.roster.lock();
        // What a burst of slow work needed is let go, with the memory it touched.
        let spare = roster.idle.len() >= IDLE_TASKS_MAX;
        if spare {
            roster.alive -= 1;
        } else {
            roster.idle.push(task);
        }
        drop(roster);
        self.changed.notify_all();
    }
}

/// What a task takes requests with.
struct Seat {
    device: Device,
    buffer: Buffer,
}

impl Seat {
    fn new(device: &Device, transfer_bytes: usize) -> io::Result<Self> {
        Ok(Self { device: device.another()?, buffer: Buffer::new(transfer_bytes)? })
    }
}

/// The running transport.
pub(crate) struct DevFuse<F> {
    service: Arc<Service<F>>,
    device: Arc<Device>,
    pool: Arc<Pool>,
    transfer_bytes: usize,
    /// See [`tasks_max`].
    tasks_max: usize,
    /// The first task's, until it has it: with one, requests are served.
    first: Mutex<Option<Seat>>,
    /// See [`Pace::Unhurried`].
    unhurried: bool,
    vigil: Option<Arc<Vigil>>,
    tasks: Arc<Tasks>,
}

impl<F: FileSystem> DevFuse<F> {
    /// Errors: not even one descriptor or buffer could be had.
    pub fn new(
        service: Arc<Service<F>>,
        device: Arc<Device>,
        pool: Arc<Pool>,
        transfer_bytes: usize,
    ) -> io::Result<Self> {
        let first = Mutex::new(Some(Seat::new(&device, transfer_bytes)?));
        let (tasks_max, tasks) = (tasks_max(cpus(), transfer_bytes), Arc::default());
        let (unhurried, vigil) = (false, None);
        Ok(Self { service, device, pool, transfer_bytes, tasks_max, first, unhurried, vigil, tasks })
    }

    /// For a connection whose requests come another way.
    pub fn unhurried(self) -> Self {
        Self { unhurried: true, ..self }
    }

    /// Traffic is told to `vigil`.
    pub fn watched(self, vigil: Option<Arc<Vigil>>) -> Self {
        Self { vigil, ..self }
    }

    /// Serves with this many threads until the mount is gone and every request taken has been answered; with fewer, where
    /// something limits them, and with the caller's alone where there are no others.
    pub fn run(&self, threads: usize) {
        std::thread::scope(|scope| {
            for number in 0..threads.clamp(1, self.tasks_max) {
                // The first one passes on what may wait: however few there are, one goes on taking requests.
                let waits = self.service.over_network && number > 0;
                let thread = std::thread::Builder::new().name(format!("cofs-fuse-{number}"));
                if let Err(error) = thread.spawn_scoped(scope, move || self.work(waits)) {
                    tracing::warn!(%error, threads, started = number, "fewer threads than wanted for requests");
                    if number == 0 {
                        self.work(false);
                    }
                    break;
                }
            }
        });
        self.wait_for_tasks();
    }

    fn work(&self, waits: bool) {
        become_worker();
        let _may_wait = waits.then(BlockingThread::enter);
        while let Some(task) = self.task() {
            match task.poll(&task.clone().into()) {
                Polled::Waits => {}
                Polled::Rests => self.tasks.rests(task),
                Polled::Ended => {
                    let mut roster = self.tasks.roster.lock();
                    roster.alive -= 1;
                    roster.gone = true;
                    self.tasks.changed.notify_all();
                }
            }
        }
    }

    /// A task at rest: an idle one, a new one, or, when there are enough, the next to come back. `None`
    /// when the mount is gone.
    fn task(&self) -> Option<Arc<Task>> {
        let mut roster = self.tasks.roster.lock();
        while !roster.gone {
            if let Some(task) = roster.idle.pop() {
                return Some(task);
            }
            if roster.alive < self.tasks_max {
                match self.new_task(roster.alive) {
                    Ok(task) => {
                        roster.alive += 1;
                        return Some(task);
                    }
                    Err(error) => tracing::error!(%error, "no further descriptor or buffer for requests"),
                }
            }
            if roster.alive == 0 {
                return None;
            }
            self.tasks.changed.wait(&mut roster);
        }
        None
    }

    fn new_task(&self, index: usize) -> io::Result<Arc<Task>> {
        let first = self.first.lock().take();
        let Seat { device, buffer } =
            first.map_or_else(|| Seat::new(&self.device, self.transfer_bytes), Ok)?;
        let mut pace = Pace::Prompt;
        if self.unhurried && device.set_nonblocking()? {
            pace = Pace::Unhurried { latest: None };
        }
        let gauge = Gauge::of_reader(self.vigil.clone());
        let rest = Rest::default();
        let work = serve_requests(self.service.clone(), device, buffer, pace, gauge, rest.clone());
        Ok(Task::new(&self.pool, self.tasks.clone(), index, rest, Box::pin(work)))
    }

    /// Until every task that still serves a request in the pool has come back.
    fn wait_for_tasks(&self) {
        let mut roster = self.tasks.roster.lock();
        while roster.idle.len() < roster.alive {
            self.tasks.changed.wait(&mut roster);
        }
        roster.idle.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_stay_within_their_bound_on_any_machine() {
        for cpus in 1..=1024 {
            let transfer_bytes =
                memory::transfer_bytes(limits::FUSE_TASKS_MAX, memory::bound(cpus), PAGE_BYTES);
            assert!(limits::FUSE_TASKS_MAX * seat_bytes(transfer_bytes) <= memory::bound(cpus), "{cpus}");
            assert!(transfer_bytes.is_power_of_two() && transfer_bytes >= 128 << 10);
            assert_eq!(tasks_max(cpus, transfer_bytes), limits::FUSE_TASKS_MAX);
        }
        let buffer = Buffer::new(1 << 17).unwrap();
        assert_eq!(buffer.pages.len(), seat_bytes(1 << 17));
    }

    #[test]
    fn transfers_that_were_settled_for_io_uring_leave_room_for_fewer_tasks() {
        let settled = 512 << 10;
        let tasks = tasks_max(1, settled);
        let bytes = |tasks| tasks * seat_bytes(settled);
        assert!(bytes(tasks) <= memory::bound(1) && bytes(tasks + 1) > memory::bound(1), "{tasks}");
    }
}

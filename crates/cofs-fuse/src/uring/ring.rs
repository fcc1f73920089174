//! The ring of one worker: FUSE's commands as submissions, their completions as what happened.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types};
use rustix::{
    fd::BorrowedFd,
    io::Errno as Failure,
    io_uring::{IoringEnterFlags, io_uring_enter},
};
use zerocopy::IntoBytes;

use super::entry::Addresses;
use crate::{
    abi::{self, UringCmdReq},
    dev_fuse::Device,
};

/// `user_data` of the poll that watches the bell.
const BELL: u64 = u64::MAX;
/// Where `len` stands in a submission (`struct io_uring_sqe`).
const SQE_LEN_AT: std::ops::Range<usize> = 24..28;

/// What a completion tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The entry has a request in it.
    Request(usize),
    /// The entry is no longer the kernel's, for this errno: the mount is gone, or a command was refused.
    Gone(usize, i32),
    /// Somebody rang.
    Bell,
}

/// A ring whose completions are only made while its own thread waits: no interrupts, no locks.
pub(crate) struct Ring {
    ring: IoUring<Entry128>,
    bell: Arc<OwnedFd>,
    device: Arc<Device>,
}

impl Ring {
    /// The kernel's ring alone, for so many entries. To be used from this thread only.
    pub fn setup(entries: usize) -> io::Result<IoUring<Entry128>> {
        let slots = u32::try_from(entries + 2).map_err(io::Error::other)?.next_power_of_two();
        IoUring::<Entry128>::builder().setup_single_issuer().setup_defer_taskrun().build(slots)
    }

    /// `bell` is an eventfd that wakes the ring.
    pub fn new(ring: IoUring<Entry128>, bell: Arc<OwnedFd>, device: Arc<Device>) -> io::Result<Self> {
        let mut ring = Self { ring, bell, device };
        ring.watch_bell()?;
        Ok(ring)
    }

    fn watch_bell(&mut self) -> io::Result<()> {
        let bell = types::Fd(self.bell.as_raw_fd());
        let poll = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true).build().user_data(BELL);
        self.push(poll.into())
    }

    /// Gives the entry's memory to the kernel, to be filled with a request.
    pub fn register(&mut self, entry: usize, queue: u16, addresses: &Addresses) -> io::Result<()> {
        let command = self.command(abi::URING_CMD_REGISTER, entry, queue, 0, Some(addresses));
        self.push(command)
    }

    /// Hands the answer over and the memory with it, for the next request.
    pub fn commit(&mut self, entry: usize, queue: u16, commit_id: u64) -> io::Result<()> {
        let command = self.command(abi::URING_CMD_COMMIT_AND_FETCH, entry, queue, commit_id, None);
        self.push(command)
    }

    fn command(
        &self,
        code: u32,
        entry: usize,
        queue: u16,
        commit_id: u64,
        memory: Option<&Addresses>,
    ) -> Entry128 {
        let request = UringCmdReq { flags: 0, commit_id, qid: queue, padding: [0; 6] };
        let mut bytes = [0; 80];
        let (head, _) = bytes.split_at_mut(size_of::<UringCmdReq>());
        head.copy_from_slice(request.as_bytes());
        let command = opcode::UringCmd80::new(types::Fd(self.device.fd().as_raw_fd()), code)
            .cmd(bytes)
            .addr(memory.map(|addresses| addresses.iovecs.as_ptr() as u64))
            .build()
            .user_data(entry as u64);
        match memory {
            Some(addresses) => with_len(command, addresses.iovecs.len() as u32),
            None => command,
        }
    }

    fn push(&mut self, entry: Entry128) -> io::Result<()> {
        // SAFETY: what the entry points to (the iovecs of a registration) is read during the submission that
        // follows at once in `register`'s caller, the entries' memory outlives the ring, and so does the bell.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            return Ok(());
        }
        self.ring.submit()?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    /// Submits what was pushed and waits for at least `wanted` completions. May come back with fewer when the
    /// kernel is short of memory or wants its completions taken first.
    #[inline(always)]
    pub fn submit_and_wait(&mut self, wanted: u32) -> io::Result<()> {
        loop {
            match self.enter(wanted) {
                Ok(_) | Err(Failure::BUSY | Failure::AGAIN) => return Ok(()),
                Err(Failure::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The system call itself, and no function around it that would return: see [`crate::dev_fuse`].
    #[inline(always)]
    fn enter(&mut self, wanted: u32) -> rustix::io::Result<u32> {
        let pushed = self.ring.submission().len() as u32;
        // SAFETY: the ring is open as long as `self` lives.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        // SAFETY: what the submissions point to lives long enough: see `push`.
        unsafe { io_uring_enter(ring, pushed, wanted, IoringEnterFlags::GETEVENTS) }
    }

    /// The next thing that happened.
    pub fn next(&mut self) -> Option<Event> {
        let completion = self.ring.completion().next()?;
        if completion.user_data() != BELL {
            let (entry, result) = (completion.user_data() as usize, completion.result());
            return Some(if result < 0 { Event::Gone(entry, -result) } else { Event::Request(entry) });
        }
        let mut count = [0; 8];
        // Nothing to read is nothing to do: another ring of the bell was counted with this one.
        let _ = rustix::io::read(&self.bell, &mut count);
        if !cqueue::more(completion.flags())
            && let Err(error) = self.watch_bell()
        {
            tracing::error!(%error, "a worker no longer hears of finished tasks");
        }
        Some(Event::Bell)
    }
}

/// The crate's command has no way to set `len`, which FUSE wants to be the number of iovecs.
fn with_len(command: Entry128, len: u32) -> Entry128 {
    // SAFETY: an `Entry128` is a `repr(C)` submission of 128 plain bytes without padding, any value of which
    // is a submission.
    let mut bytes: [u8; 128] = unsafe { std::mem::transmute(command) };
    if let Some(place) = bytes.get_mut(SQE_LEN_AT) {
        place.copy_from_slice(&len.to_ne_bytes());
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute(bytes) }
}

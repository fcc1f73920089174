//! io_uring's queues by hand, without any library: a pinned thread and a ring for each CPU (io_uring_setup(2), io_uring_enter(2),
//! `include/uapi/linux/io_uring.h`), and one that reads what still comes by `/dev/fuse`.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use cofs_fuse::abi::{self, InHeader, OutHeader, UringCmdReq, UringEntInOut, UringReqHeader};
use rustix::{
    io_uring::{IoringEnterFlags, io_uring_enter},
    mm::{MapFlags, ProtFlags},
    thread::CpuSet,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Table, answer, argument_bytes, dev};

const TRANSFER_BYTES: usize = 256 << 10;
/// Requests in hand on a queue.
const DEPTH: usize = 32;
const SLOTS: usize = 64;
const SQE_BYTES: usize = 128;
const CQE_BYTES: usize = 16;

const IORING_SETUP_SQE128: u32 = 1 << 10;
const IORING_SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const IORING_SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const IORING_OFF_SQES: u64 = 0x1000_0000;
const IORING_OP_URING_CMD: u8 = 46;

/// `struct io_uring_params`, as words of 32 bits: 10 of its own, 10 of offsets in the submission ring, 10 in the completion ring.
type Params = [u32; 30];

/// Serves until the mount is gone. Errors: what the kernel refused.
pub fn serve(table: &'static Table, point: &Path) -> io::Result<()> {
    let device = super::mount(point, TRANSFER_BYTES, true)?;
    let fd = device.as_raw_fd();
    for cpu in 0..std::thread::available_parallelism()?.get() {
        std::thread::spawn(move || {
            if let Err(error) = queue(table, fd, cpu) {
                eprintln!("the queue of CPU {cpu}: {error}");
                std::process::exit(1);
            }
        });
    }
    dev::drain(table, &device, TRANSFER_BYTES);
    Ok(())
}

/// One entry's memory, as the kernel wants it.
struct Entry {
    header: Box<UringReqHeader>,
    payload: Vec<u8>,
}

fn queue(table: &Table, device: RawFd, cpu: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only)?;
    let mut ring = Ring::new()?;
    let blank =
        || UringReqHeader { in_out: [0; 128], op_in: [0; 128], ring_ent_in_out: UringEntInOut::default() };
    let mut entries: Vec<Entry> =
        (0..DEPTH).map(|_| Entry { header: Box::new(blank()), payload: vec![0; TRANSFER_BYTES] }).collect();
    let addresses: Vec<[libc::iovec; 2]> = entries.iter_mut().map(addresses).collect();
    for (number, iovecs) in addresses.iter().enumerate() {
        let command = UringCmdReq { qid: cpu as u16, ..Default::default() };
        ring.push(device, abi::URING_CMD_REGISTER, &command, number, Some(iovecs));
    }
    loop {
        ring.enter()?;
        while let Some((number, result)) = ring.next() {
            if result < 0 {
                // The mount is gone: who reads /dev/fuse learns of it, too.
                return Ok(());
            }
            let entry = &mut entries[number];
            let commit_id = serve_one(table, entry);
            let command = UringCmdReq { commit_id, qid: cpu as u16, ..Default::default() };
            ring.push(device, abi::URING_CMD_COMMIT_AND_FETCH, &command, number, None);
        }
    }
}

fn addresses(entry: &mut Entry) -> [libc::iovec; 2] {
    let header = std::ptr::from_mut(&mut *entry.header).cast();
    let payload = entry.payload.as_mut_ptr().cast();
    [
        libc::iovec { iov_base: header, iov_len: size_of::<UringReqHeader>() },
        libc::iovec { iov_base: payload, iov_len: TRANSFER_BYTES },
    ]
}

/// Answers in place; the number to commit.
fn serve_one(table: &Table, entry: &mut Entry) -> u64 {
    let Ok((request, _)) = InHeader::read_from_prefix(&entry.header.in_out) else { return 0 };
    let in_out = entry.header.ring_ent_in_out;
    let argument = entry.header.op_in;
    let argument = &argument[..argument_bytes(request.opcode)];
    // A name is short; it is taken out because the answer overwrites it.
    let mut tail = [0; 256];
    let tail_bytes = (in_out.payload_sz as usize).min(tail.len());
    tail[..tail_bytes].copy_from_slice(&entry.payload[..tail_bytes]);
    let outcome = answer(table, &request, argument, &tail[..tail_bytes], &mut entry.payload);
    let (len, error) = if outcome < 0 { (0, outcome as i32) } else { (outcome as u32, 0) };
    let head = OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique: request.unique };
    entry.header.in_out[..size_of::<OutHeader>()].copy_from_slice(head.as_bytes());
    entry.header.ring_ent_in_out = UringEntInOut { payload_sz: len, ..in_out };
    in_out.commit_id
}

/// Memory shared with the kernel, never unmapped: it lives as long as the process.
struct Ring {
    fd: OwnedFd,
    rings: NonNull<u8>,
    sqes: NonNull<u8>,
    params: Params,
    pending: u32,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let mut params: Params = [0; 30];
        params[2] = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        // SAFETY: the kernel reads and writes the 120 bytes of the parameters, which outlive the call.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, SLOTS as u32, params.as_mut_ptr()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        // Both rings are in one mapping (IORING_FEAT_SINGLE_MMAP, Linux 5.4); its end is that of the later one.
        let sq_end = params[16] as usize + SLOTS * 4;
        let cq_end = params[25] as usize + params[1] as usize * CQE_BYTES;
        let rings = map(&fd, sq_end.max(cq_end), 0)?;
        let sqes = map(&fd, SLOTS * SQE_BYTES, IORING_OFF_SQES)?;
        let ring = Self { fd, rings, sqes, params, pending: 0 };
        for slot in 0..SLOTS as u32 {
            ring.word(ring.params[16] + slot * 4).store(slot, Ordering::Relaxed);
        }
        Ok(ring)
    }

    /// The word at that offset of the rings.
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset; there it keeps an aligned word that both sides access atomically.
        unsafe { self.rings.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn push(
        &mut self,
        device: RawFd,
        code: u32,
        command: &UringCmdReq,
        entry: usize,
        memory: Option<&[libc::iovec; 2]>,
    ) {
        let tail_at = self.params[11];
        let tail = self.word(tail_at).load(Ordering::Relaxed);
        let at = (tail as usize % SLOTS) * SQE_BYTES;
        let mut sqe = [0; SQE_BYTES];
        sqe[0] = IORING_OP_URING_CMD;
        sqe[4..8].copy_from_slice(&device.to_ne_bytes());
        sqe[8..12].copy_from_slice(&code.to_ne_bytes());
        if let Some(iovecs) = memory {
            sqe[16..24].copy_from_slice(&(iovecs.as_ptr() as u64).to_ne_bytes());
            sqe[24..28].copy_from_slice(&(iovecs.len() as u32).to_ne_bytes());
        }
        sqe[32..40].copy_from_slice(&(entry as u64).to_ne_bytes());
        sqe[48..48 + size_of::<UringCmdReq>()].copy_from_slice(command.as_bytes());
        // SAFETY: the slot is ours until the tail has moved past it: never are there more commands than slots.
        unsafe { self.sqes.add(at).cast::<[u8; SQE_BYTES]>().write(sqe) };
        self.word(tail_at).store(tail.wrapping_add(1), Ordering::Release);
        self.pending += 1;
    }

    /// Submits what was pushed, and waits for a completion. Inlined with its system call, as in the crate: a return after it would cost 0.4 µs.
    #[inline(always)]
    fn enter(&mut self) -> io::Result<()> {
        loop {
            // SAFETY: no memory is handed over but what the commands name, which lives as long as the process.
            match unsafe { io_uring_enter(&self.fd, self.pending, 1, IoringEnterFlags::GETEVENTS) } {
                Ok(done) => {
                    self.pending -= done;
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next completion: whose, and its result.
    fn next(&mut self) -> Option<(usize, i32)> {
        let (head_at, tail_at, first) = (self.params[20], self.params[21], self.params[25]);
        let head = self.word(head_at).load(Ordering::Relaxed);
        if head == self.word(tail_at).load(Ordering::Acquire) {
            return None;
        }
        let at = first + (head & (self.params[1] - 1)) * CQE_BYTES as u32;
        let (entry, result) =
            (self.word(at).load(Ordering::Relaxed), self.word(at + 8).load(Ordering::Relaxed));
        self.word(head_at).store(head.wrapping_add(1), Ordering::Release);
        Some((entry as usize, result as i32))
    }
}

fn map(fd: &OwnedFd, bytes: usize, offset: u64) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            MapFlags::SHARED | MapFlags::POPULATE,
            fd,
            offset,
        )?
    };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

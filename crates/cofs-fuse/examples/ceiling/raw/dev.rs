//! `/dev/fuse` by hand: read, answer, write; a thread and a descriptor for each CPU.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use cofs_fuse::abi::{self, InHeader, OutHeader};
use rustix::fs::{Mode, OFlags};
use zerocopy::{FromBytes, IntoBytes};

use super::{Table, answer, argument_bytes, is_unanswered};

const TRANSFER_BYTES: usize = 1 << 20;
const HEAD: usize = size_of::<OutHeader>();

/// Serves until the mount is gone. Errors: what the kernel refused.
pub fn serve(table: &Table, point: &Path) -> io::Result<()> {
    let device = super::mount(point, TRANSFER_BYTES, false)?;
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let own = another(&device)?;
            scope.spawn(move || drain(table, &own, TRANSFER_BYTES));
        }
        drain(table, &device, TRANSFER_BYTES);
        Ok(())
    })
}

fn another(device: &OwnedFd) -> io::Result<OwnedFd> {
    /// `_IOR(229, 0, uint32_t)`
    const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
    let fresh = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let of = device.as_raw_fd() as u32;
    // SAFETY: the ioctl reads one u32 behind the pointer, which outlives the call.
    let done = unsafe { libc::ioctl(fresh.as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &of) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(fresh) }
}

/// Serves what comes by this descriptor until the mount is gone.
pub fn drain(table: &Table, device: &OwnedFd, transfer_bytes: usize) {
    let mut request = vec![0; transfer_bytes.max(abi::MIN_READ_BUFFER) + 4096];
    let mut reply = vec![0; transfer_bytes + HEAD];
    loop {
        let len = match rustix::io::read(device, &mut request[..]) {
            Ok(len) => len,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let Ok((header, body)) = InHeader::read_from_prefix(&request[..len]) else { return };
        if is_unanswered(header.opcode) {
            continue;
        }
        let (argument, tail) = body.split_at(argument_bytes(header.opcode).min(body.len()));
        let (head, out) = reply.split_at_mut(HEAD);
        let outcome = answer(table, &header, argument, tail, out);
        let (len, error) = if outcome < 0 { (0, outcome as i32) } else { (outcome as usize, 0) };
        head.copy_from_slice(OutHeader { len: (HEAD + len) as u32, error, unique: header.unique }.as_bytes());
        // Nobody waiting any more is not this loop's matter.
        let _ = rustix::io::write(device, &reply[..HEAD + len]);
    }
}

//! Backing files: the kernel is shown an open file once and reads and writes it by itself from then on.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cofs_face::{BackingId, Passthrough};
use rustix::thread::CapabilitySet;

use crate::{abi::BackingMap, dev_fuse::Device};

/// `_IOW(229, 1, struct fuse_backing_map)`, 16 bytes.
const FUSE_DEV_IOC_BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// `_IOW(229, 2, uint32_t)`.
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// Registers files with one connection.
#[derive(Debug)]
pub(crate) struct BackingFiles {
    device: Arc<Device>,
    /// How many the kernel has now.
    registered: Arc<AtomicUsize>,
}

impl BackingFiles {
    pub fn new(device: Arc<Device>, registered: Arc<AtomicUsize>) -> Self {
        Self { device, registered }
    }
}

/// Whether this process may register backing files: the kernel wants `CAP_SYS_ADMIN`.
pub(crate) fn privileged() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

impl Passthrough for BackingFiles {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the ioctl reads 16 bytes behind the pointer, which outlives the call.
        let id = unsafe { libc::ioctl(self.device.fd().as_raw_fd(), FUSE_DEV_IOC_BACKING_OPEN as _, &map) };
        match u32::try_from(id) {
            Ok(id) if id > 0 => {
                self.registered.fetch_add(1, Ordering::Relaxed);
                Ok(BackingId(id))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn unregister(&self, id: BackingId) {
        // SAFETY: the ioctl reads one u32 behind the pointer, which outlives the call.
        let done =
            unsafe { libc::ioctl(self.device.fd().as_raw_fd(), FUSE_DEV_IOC_BACKING_CLOSE as _, &id.0) };
        let error = io::Error::last_os_error();
        // ENOTCONN, EPERM: the mount is gone, and its registrations with it.
        let gone = matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::EPERM | libc::ENODEV));
        if done < 0 && !gone {
            return tracing::warn!(%error, id = id.0, "a backing file stays registered");
        }
        self.registered.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Backing files: the kernel is shown an open file once and reads and writes it by itself from then on.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cofs_face::{BackingId, Passthrough};
use rustix::thread::CapabilitySet;

use crate::{abi::BackingMap, dev_fuse::Device};

/// `_IOW(229, 1, struct fuse_backing_map)`, 16 bytes.
const FUSE_DEV_IOC_BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// `_IOW(229, 2, uint32_t)`.
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// fcntl(2); `asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// How often, and how long apart, somebody is looked for who may just be about to let go.
const LEASE_TRIES: u32 = 4;
const LEASE_PAUSE: Duration = Duration::from_micros(50);

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

    fn is_open_elsewhere(&self, file: BorrowedFd<'_>) -> bool {
        // The kernel lets go of a file a moment after it has told us of the close.
        (0..LEASE_TRIES).all(|attempt| {
            if attempt > 0 {
                std::thread::sleep(LEASE_PAUSE);
            }
            !takes_lease(file)
        })
    }
}

/// Whether anybody but the caller has the file open; `false` where the file system has no leases.
pub fn is_open_elsewhere(file: BorrowedFd<'_>) -> bool {
    !takes_lease(file) && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// A lease for writing (fcntl(2), `F_SETLEASE`) is given to one who alone has the file open, and given back here at once.
fn takes_lease(file: BorrowedFd<'_>) -> bool {
    let file = file.as_raw_fd();
    // Who opens the file in that moment waits for it, and a signal tells us, which is to be one that nobody needs to handle.
    // SAFETY: these calls touch no memory.
    unsafe {
        libc::fcntl(file, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::takes_lease;

    #[test]
    fn a_lease_is_given_to_one_who_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let file = open();
        let same = file.try_clone().unwrap();
        assert!(takes_lease(file.as_fd()) && takes_lease(same.as_fd()));
        let others: [&dyn Fn() -> File; 2] = [&open, &|| File::open(&path).unwrap()];
        for another in others.map(|open| open()) {
            assert!(!takes_lease(file.as_fd()));
            drop(another);
        }
        assert!(takes_lease(file.as_fd()));
    }
}

//! A mount that is held, so that it is that one which is asked and taken away, or none.
//!
//! By the name of its point one has what is on top by then: somebody may have unmounted it meanwhile, or mounted another, and what lies below may be a file
//! system of somebody else's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, statx},
    io::{Errno, Result},
    mount::UnmountFlags,
};

use super::{Unmount, is_end, unmount_by_helper};

/// A mount, whatever is done at the place where it stood. While it is held it is in use.
#[derive(Debug)]
pub struct HeldMount {
    root: OwnedFd,
    point: PathBuf,
}

impl HeldMount {
    /// The topmost at `point`, which is not asked for anything.
    pub fn at(point: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, point, flags, Mode::empty())?;
        Ok(Self::new(root, point))
    }

    /// `root` is a descriptor of its root.
    pub(super) fn new(root: OwnedFd, point: &Path) -> Self {
        Self { root, point: point.to_owned() }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Whether nobody serves it any more. Waits for who is about to serve it.
    pub fn is_dead(&self) -> bool {
        fstatfs(&self.root).is_err_and(is_end)
    }

    /// Takes it away, in use or not. `false`: somebody else has.
    pub fn take_away(&self) -> io::Result<bool> {
        let root = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        match rustix::mount::unmount(root, UnmountFlags::DETACH) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            // The helper goes by names.
            Err(Errno::PERM) if !self.is_on_top() => Ok(false),
            Err(Errno::PERM) => match unmount_by_helper(&self.point, Unmount::Lazily) {
                Err(error) if self.is_on_top() => Err(error),
                done => Ok(done.is_ok()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Lets go of one that has been taken away, in a thread of its own: what the kernel has of its tree ends with whoever holds it last, which
    /// takes that a second for 400,000 inodes.
    pub(super) fn let_go(self) {
        // Without a thread it is done here, by dropping what the thread would have had.
        let _ = thread::Builder::new().name("cofs-let-go".into()).spawn(move || drop(self));
    }

    fn is_on_top(&self) -> bool {
        let own = device(self.root(), Path::new(""));
        own.is_ok() && own == device(CWD, &self.point)
    }
}

/// Of what the kernel has; nobody is asked.
fn device(directory: BorrowedFd<'_>, path: &Path) -> Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let found = statx(directory, path, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

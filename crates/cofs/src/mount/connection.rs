//! The kernel's side of a mount: a file system with a number of its own. It may have been moved since (a directory above was renamed, `mount --move`), be bound
//! elsewhere, or have gone from this process's sight while somebody uses it still: unmounted lazily, or copied into another mount namespace.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use cofs_fuse::{Unmount, unmount};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statat, statx},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen},
};

use super::mountinfo::{self, Device};

/// Where fusectl is usually mounted, with a directory for each connection.
const CONTROL: &str = "/sys/fs/fuse/connections";

pub struct Connection {
    device: Device,
    /// Its directory in fusectl, if that can be had. It is this connection's and no other's, as a number may be that is given again.
    control: Option<OwnedFd>,
}

impl Connection {
    /// That of the living file system `device`.
    pub fn of(device: Device) -> Self {
        Self { device, control: control(device.1).ok() }
    }

    /// Whether it is mounted or used anywhere, as far as can be told. Its number alone tells that only where nothing else does: by now another may have it.
    pub fn is_there(&self) -> bool {
        match &self.control {
            Some(control) => statat(control, "abort", AtFlags::empty()).is_ok(),
            None => {
                mountinfo::mounts().is_ok_and(|mounts| mounts.iter().any(|mount| mount.device == self.device))
            }
        }
    }

    /// Where it stands on top, so that its root can be reached, and unmounted.
    pub fn points(&self) -> io::Result<Vec<PathBuf>> {
        if !self.is_there() {
            return Ok(Vec::new());
        }
        let mut mounts = mountinfo::mounts()?;
        mounts.retain(|mount| mount.device == self.device && device_at(&mount.point) == Some(self.device));
        Ok(mounts.into_iter().map(|mount| mount.point).collect())
    }

    /// Unmounts it wherever it is seen. Errors: EBUSY while it is in use there, also by what covers it.
    pub fn unmount(&self) -> io::Result<()> {
        let mut done = Ok(());
        for point in self.points()? {
            done = done.and(unless_gone(unmount(&point, Unmount::IfUnused)));
        }
        done
    }

    /// Takes it out of the tree and ends it: forced unmounting does both, but only for root, and only where there is something to unmount.
    pub fn cut_off(&self) -> io::Result<()> {
        let mut is_cut = false;
        for point in self.points()? {
            match rustix::mount::unmount(&point, UnmountFlags::FORCE | UnmountFlags::DETACH) {
                Ok(()) => is_cut = true,
                Err(Errno::PERM) => unless_gone(unmount(&point, Unmount::Lazily))?,
                Err(error) => unless_gone(Err(error.into()))?,
            }
        }
        if is_cut { Ok(()) } else { self.abort() }
    }

    fn abort(&self) -> io::Result<()> {
        let control = self.control.as_ref().ok_or_else(|| {
            io::Error::other(format!("fusectl is not mounted at {CONTROL}, or is not for this user"))
        })?;
        match openat(control, "abort", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            // It has ended meanwhile.
            Err(Errno::NOENT) => Ok(()),
            opened => Ok(rustix::io::write(opened?, b"1").map(drop)?),
        }
    }
}

/// Somebody else may have just taken it away, or with another of its kind (a shared mount).
fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == io::ErrorKind::InvalidInput { Ok(()) } else { Err(error) })
}

/// The directory by which a connection is aborted. Where fusectl is not mounted, as in most containers, root can have it nevertheless.
fn control(minor: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, format!("{CONTROL}/{minor}"), flags, Mode::empty()).or_else(|_| {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        openat(root, minor.to_string(), flags, Mode::empty())
    })
}

/// The number of the file system that stands at `point`.
///
/// The kernel is asked for what it has. A request to ourselves would do as well, but a process that is killed while it waits for one
/// can never end: the thread waits for an answer, and the connection for the thread to let go of it.
fn device_at(point: &Path) -> Option<Device> {
    let found = statx(CWD, point, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

//! What keeps a mount from being made, in words for whoever asked for it.

use std::{fmt, io, path::PathBuf};

/// Why a mount could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    DeviceMissing,
    DeviceNotPermitted,
    /// Something else stands at `/dev/fuse`.
    DeviceWrong,
    Device(io::Error),
    KernelTooOld {
        major: u32,
        minor: u32,
    },
    PointMissing(PathBuf),
    PointNotDirectory(PathBuf),
    PointNotEmpty(PathBuf),
    PointInUse(PathBuf),
    /// A mount whose daemon is gone stands there.
    PointStale(PathBuf),
    /// Somebody has unmounted it before it was served, or what it was to replace.
    TakenAway(PathBuf),
    Point {
        point: PathBuf,
        source: io::Error,
    },
    FusermountMissing,
    FusermountNotPermitted,
    /// What `fusermount3` said of a mount point where this user may not write.
    PointNotYours(String),
    /// What `fusermount3` said.
    Fusermount(String),
    Mount {
        point: PathBuf,
        source: io::Error,
    },
    /// A thread, or the helper.
    NotStarted(io::Error),
    /// The process that was to hold the mount could not be given it, or told of it.
    NotHandedOn(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceMissing => {
                write!(
                    f,
                    "/dev/fuse does not exist: load the kernel module (modprobe fuse), or give the container the device"
                )
            }
            Self::DeviceNotPermitted => {
                write!(f, "/dev/fuse may not be opened: give this user or container access to the device")
            }
            Self::DeviceWrong => {
                write!(
                    f,
                    "/dev/fuse is not the FUSE device (a container may have masked it): give the container the device, or make it anew (mknod /dev/fuse c 10 229)"
                )
            }
            Self::Device(source) => write!(f, "/dev/fuse: {source}"),
            Self::KernelTooOld { major, minor } => {
                write!(f, "the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or newer is needed")
            }
            Self::PointMissing(point) => {
                write!(f, "mount point {} does not exist: create it", point.display())
            }
            Self::PointNotDirectory(point) => write!(f, "mount point {} is not a directory", point.display()),
            Self::PointNotEmpty(point) => {
                write!(
                    f,
                    "mount point {} is not empty: choose another, or mount with -o nonempty",
                    point.display()
                )
            }
            Self::PointInUse(point) => {
                write!(
                    f,
                    "there is such a mount at {} already: unmount it first, or choose another directory",
                    point.display()
                )
            }
            Self::PointStale(point) => {
                write!(f, "a mount whose daemon is gone stands at {}: unmount it", point.display())
            }
            Self::TakenAway(point) => {
                write!(f, "the mount at {} was taken away before it was served", point.display())
            }
            Self::Point { point, source } => write!(f, "mount point {}: {source}", point.display()),
            Self::FusermountMissing => {
                write!(f, "fusermount3 not found: install fuse3, or mount as root")
            }
            Self::FusermountNotPermitted => {
                write!(
                    f,
                    "fusermount3 may not mount: it must be set-user-id root, and the container must allow mounts; or mount as root"
                )
            }
            Self::PointNotYours(said) => {
                write!(f, "fusermount3: {said}: mount on a directory of your own, or as root")
            }
            Self::Fusermount(said) => write!(f, "fusermount3: {said}"),
            Self::Mount { point, source } => write!(f, "mount at {}: {source}", point.display()),
            Self::NotStarted(source) => write!(f, "no thread or process for the mount: {source}"),
            Self::NotHandedOn(source) => {
                write!(f, "the mount's supervisor cannot be given it, or told: {source}")
            }
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(source) | Self::NotStarted(source) | Self::NotHandedOn(source) => Some(source),
            Self::Point { source, .. } | Self::Mount { source, .. } => Some(source),
            _ => None,
        }
    }
}

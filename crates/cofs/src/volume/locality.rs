//! What kind of file system a directory or file lies on: one that only this kernel serves, FUSE, one on another.

use std::{os::fd::AsFd, path::PathBuf};

use rustix::fs::{StatFs, fstatfs, statfs};

/// Magic numbers of statfs(2). What is not listed counts as remote, which is the safe side: locks are watched
/// longer, and calls below are expected to wait.
const LOCAL: &[(&str, u64)] = &[
    ("ext", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("tmpfs", 0x0102_1994),
    ("overlay", OVERLAY),
    ("zfs", 0x2fc1_2fc1),
    ("f2fs", 0xf2f5_2010),
    ("bcachefs", 0xca45_1a4e),
];

const OVERLAY: u64 = 0x794c_7630;
const ECRYPTFS: u64 = 0xf15f;
/// FUSE_SUPER_MAGIC (`fs/fuse/inode.c` of Linux).
const FUSE: u64 = 0x6573_5546;

/// What some of several directories lie on.
#[derive(Clone, Copy, Default)]
pub struct Below {
    /// Calls may have to wait for a network. What cannot be asked counts as remote, too.
    pub remote: bool,
    /// FUSE, such as the clients of GlusterFS, MooseFS and Ceph are.
    pub fuse: bool,
    /// A file system that lies on another one, as an overlay does, or may.
    pub stacked: bool,
}

impl Below {
    pub fn of(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        directories.into_iter().fold(Self::default(), |below, directory| {
            let magic = statfs(&directory).ok().map(magic);
            Self {
                remote: below.remote || !magic.is_some_and(is_local_magic),
                fuse: below.fuse || magic == Some(FUSE),
                stacked: below.stacked || matches!(magic, Some(OVERLAY | ECRYPTFS | FUSE)),
            }
        })
    }
}

/// What cannot be asked counts as remote, too.
pub fn is_local(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|of| is_local_magic(magic(of)))
}

fn is_local_magic(magic: u64) -> bool {
    LOCAL.iter().any(|(_, local)| *local == magic)
}

fn magic(of: StatFs) -> u64 {
    // The field's type differs between architectures; magic numbers have 32 bits.
    of.f_type as u64 & 0xffff_ffff
}

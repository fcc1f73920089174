//! Whether a directory or file lies on a file system that only this kernel serves.

use std::os::fd::AsFd;

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

/// What cannot be asked counts as remote, too.
pub fn is_local(file: impl AsFd) -> bool {
    let magic = magic_of(file);
    LOCAL.iter().any(|(_, local)| Some(*local) == magic)
}

/// Whether another FUSE file system serves it.
pub fn is_fuse(file: impl AsFd) -> bool {
    magic_of(file) == Some(FUSE)
}

/// Whether it lies on another file system, or may.
pub fn is_stacked(file: impl AsFd) -> bool {
    matches!(magic_of(file), Some(OVERLAY | ECRYPTFS | FUSE))
}

fn magic_of(file: impl AsFd) -> Option<u64> {
    // The field's type differs between architectures; magic numbers have 32 bits.
    rustix::fs::fstatfs(file).ok().map(|stat| stat.f_type as u64 & 0xffff_ffff)
}

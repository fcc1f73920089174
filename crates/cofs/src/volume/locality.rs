//! Whether a directory or file lies on a file system that only this kernel serves.

use std::os::fd::AsFd;

/// Magic numbers of statfs(2). What is not listed counts as remote, which is the safe side: locks are watched
/// longer, and calls below are expected to wait.
const LOCAL: &[(&str, u64)] = &[
    ("ext", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("tmpfs", 0x0102_1994),
    ("overlay", 0x794c_7630),
    ("zfs", 0x2fc1_2fc1),
    ("f2fs", 0xf2f5_2010),
    ("bcachefs", 0xca45_1a4e),
];

/// What cannot be asked counts as remote, too.
pub fn is_local(file: impl AsFd) -> bool {
    // The field's type differs between architectures; magic numbers have 32 bits.
    let magic = rustix::fs::fstatfs(file).map_or(0, |stat| stat.f_type as u64 & 0xffff_ffff);
    LOCAL.iter().any(|(_, local)| *local == magic)
}

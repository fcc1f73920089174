//! Reads of tables leave no access times below.
//!
//! Nobody wants to know when a table was read. But a file system below, unless it is mounted otherwise, notes the first read after a table was
//! written: it makes the file's inode dirty, for which it first reads the block that the inode is in. If the disk must be waited for, so must
//! that, even by a read that the page cache answers and that may not wait ([`impatient`](super::impatient)).
//!
//! RocksDB does not ask for `O_NOATIME`. So this process has an `open` of its own, which does where a file is only read. C and C++ call
//! it; Rust's code has `open64`, or calls the kernel itself.
//!
//! Tables are opened when they are first needed, and the names on the way there may have to be read from the disk, too: for who is
//! [impatient](cofs_wait::is_impatient) only those that are in memory are gone along (`RESOLVE_CACHED`).

#![allow(unsafe_code, reason = "a function of libc, for C++ to call, and a system call")]

use std::mem::size_of;

/// `open(2)`, whose third argument C leaves out where it has no meaning. Returns a descriptor, or -1 with `errno` set: EAGAIN where it was refused.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_PATH | libc::O_CREAT) == 0;
    let refuses = || std::io::Error::last_os_error().raw_os_error();
    if reads && cofs_wait::is_impatient() {
        // O_NOATIME is refused for what belongs to somebody else.
        for flags in [flags | libc::O_NOATIME, flags] {
            // SAFETY: the caller's promise of open(2), handed on.
            let file = unsafe { open_cached(path, flags) };
            match refuses() {
                _ if file >= 0 => return file,
                Some(libc::EAGAIN) => {
                    cofs_wait::refuse();
                    return -1;
                }
                _ => {}
            }
        }
        // The kernel is older than that, a sandbox does not know the call, or it cannot be opened: told below.
    }
    // SAFETY: as above; the kernel does not look at the mode of a file that is not made.
    unsafe {
        if reads {
            let file = libc::open64(path, flags | libc::O_NOATIME, mode);
            if file >= 0 || refuses() != Some(libc::EPERM) {
                return file;
            }
        }
        libc::open64(path, flags, mode)
    }
}

/// `openat2(2)` from the working directory, by what the kernel has in memory. As [`open`].
unsafe fn open_cached(path: *const libc::c_char, flags: libc::c_int) -> libc::c_int {
    /// `struct open_how`.
    #[repr(C)]
    struct How {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    const RESOLVE_CACHED: u64 = 0x20;
    let how = How { flags: flags as u32 as u64, mode: 0, resolve: RESOLVE_CACHED };
    // SAFETY: `how` is what the kernel reads, of the size that it is told; the path is the caller's.
    unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path, &raw const how, size_of::<How>())
            as libc::c_int
    }
}

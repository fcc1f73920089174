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

#![allow(unsafe_code, reason = "a function of libc, for C++ to call")]

use std::{ffi::CStr, os::fd::IntoRawFd};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// `open(2)`, whose third argument C leaves out where it has no meaning. Returns a descriptor, or -1 with `errno` set: EAGAIN where it was refused.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_PATH | libc::O_CREAT) == 0;
    // SAFETY: the caller's promise of open(2), handed on; the kernel does not look at the mode of a file that is not made.
    unsafe {
        if reads && cofs_wait::is_impatient() {
            match open_cached(CStr::from_ptr(path), flags) {
                Ok(file) => return file,
                Err(Errno::AGAIN) => {
                    cofs_wait::refuse();
                    *libc::__errno_location() = libc::EAGAIN;
                    return -1;
                }
                // The kernel is older than that, a sandbox does not know the call, or it cannot be opened: told below.
                Err(_) => {}
            }
        }
        if reads {
            let file = libc::open64(path, flags | libc::O_NOATIME, mode);
            // Refused for what belongs to somebody else.
            if file >= 0 || *libc::__errno_location() != libc::EPERM {
                return file;
            }
        }
        libc::open64(path, flags, mode)
    }
}

/// Opens for reading by what the kernel has in memory. Errors: EAGAIN where that is not enough.
fn open_cached(path: &CStr, flags: libc::c_int) -> rustix::io::Result<libc::c_int> {
    let flags = OFlags::from_bits_retain(flags as u32);
    let open = |flags| openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    let file = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    };
    Ok(file?.into_raw_fd())
}

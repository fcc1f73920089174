//! Reads of tables leave no access times below.
//!
//! Nobody wants to know when a table was read. But a file system below, unless it is mounted otherwise, notes the first read after a table was
//! written: it makes the file's inode dirty, for which it first reads the block that the inode is in. If the disk must be waited for, so must
//! that, even by a read that the page cache answers and that may not wait ([`impatient`](super::impatient)).
//!
//! RocksDB does not ask for `O_NOATIME`. So this process has an `open` of its own, which does where a file is only read. C and C++ call
//! it; Rust's code has `open64`, or calls the kernel itself.

#![allow(unsafe_code, reason = "a function of libc, for C++ to call")]

/// `open(2)`, whose third argument C leaves out where it has no meaning. Returns a descriptor, or -1 with `errno` set.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_PATH | libc::O_CREAT) == 0;
    // SAFETY: the caller's promise of open(2), handed on; the kernel does not look at the mode of a file that is not made.
    unsafe {
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

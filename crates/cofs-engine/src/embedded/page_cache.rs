//! What is drained stays in the kernel's page cache.
//!
//! RocksDB's writer of tables (`SstFileWriter`) asks the kernel to drop each table that it has written, since such tables are meant to
//! come from elsewhere and to be read some day; that this can be switched off, its C interface does not say. Ours hold what was written
//! seconds ago and is read next: a small file that is read once it was written, and compaction. Each such read went to the disk, and the
//! thread that serves requests waited for it.
//!
//! So this process has a `posix_fadvise` of its own, which the linker prefers to libc's, as it does with a program's own `malloc`: it
//! keeps what it is asked to drop, and hands everything else on. Nobody in this process but RocksDB calls it (Rust's code calls the kernel
//! itself), and of RocksDB only that writer asks to drop.

#![allow(unsafe_code, reason = "a function of libc, for C++ to call, and a system call")]

/// `posix_fadvise(3)`. Returns an error's number, or 0.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[unsafe(no_mangle)]
extern "C" fn posix_fadvise(
    file: libc::c_int,
    offset: libc::off_t,
    len: libc::off_t,
    advice: libc::c_int,
) -> libc::c_int {
    if advice == libc::POSIX_FADV_DONTNEED {
        return 0;
    }
    // SAFETY: numbers only; the kernel looks at them itself.
    let done = unsafe { libc::syscall(libc::SYS_fadvise64, file, offset, len, advice) };
    if done == 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL) }
}

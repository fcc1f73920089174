//! A read for someone impatient ends where the page cache does.
//!
//! RocksDB's own way to read only what is in memory (`kBlockCacheTier`) knows its block cache alone: what the kernel has in the page cache,
//! which is most of it here (see [`page_cache`](super::page_cache)) and takes microseconds, it would refuse as well. So this process has a `pread` of its own, as
//! it has a `posix_fadvise`: for who is [impatient](cofs_wait::is_impatient) it asks the kernel for what needs no waiting, and where there is none it
//! refuses, which begins the reading of it all the same (the kernel reads ahead before it refuses). RocksDB takes that for a failed read: what
//! was asked of it fails, or, where it was a filter that could not be read, goes on without; it keeps nothing of it. Nobody else
//! in this process calls it (Rust's code has `pread64`, or calls the kernel itself), and RocksDB's own threads are never impatient.

#![allow(unsafe_code, reason = "a function of libc, for C++ to call, and system calls")]

use std::sync::atomic::{AtomicBool, Ordering};

/// The file system below cannot tell: then reads wait.
static CANNOT_TELL: AtomicBool = AtomicBool::new(false);

/// `pread(3)`. Returns the bytes read, or -1 with `errno` set: EAGAIN where it was refused.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[unsafe(no_mangle)]
extern "C" fn pread(
    file: libc::c_int,
    buffer: *mut libc::c_void,
    count: libc::size_t,
    offset: libc::off_t,
) -> libc::ssize_t {
    if cofs_wait::is_impatient() && !CANNOT_TELL.load(Ordering::Relaxed) {
        let vector = libc::iovec { iov_base: buffer, iov_len: count };
        // The offset's upper half is the fifth argument, which 64-bit kernels do not look at.
        let (flags, upper) = (libc::RWF_NOWAIT, 0_usize);
        // SAFETY: the vector describes what the caller lends for the call, as pread(3) asks of him.
        let read = unsafe { libc::syscall(libc::SYS_preadv2, file, &vector, 1_usize, offset, upper, flags) };
        let error = match read {
            0 if count > 0 && !is_end(file, offset) => Some(libc::EAGAIN),
            0.. => return read as libc::ssize_t,
            _ => std::io::Error::last_os_error().raw_os_error(),
        };
        match error {
            Some(libc::EAGAIN) => {
                cofs_wait::refuse();
                // SAFETY: the thread's own, which is there as long as it is.
                unsafe { *libc::__errno_location() = libc::EAGAIN };
                return -1;
            }
            // Or the kernel is older than the flag, or a sandbox does not know the call.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM) => {
                CANNOT_TELL.store(true, Ordering::Relaxed);
            }
            _ => return -1,
        }
    }
    // SAFETY: the caller's promise of pread(3), handed on.
    unsafe { libc::pread64(file, buffer, count, offset) }
}

/// Whether nothing comes at `offset` or behind it, as far as can be told. Linux 5.9 and 5.10 read nothing, instead of refusing, where what comes is not
/// in memory (preadv2(2), BUGS); RocksDB would take the file for damaged.
fn is_end(file: libc::c_int, offset: libc::off_t) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for what the kernel writes, which it has done where it says so.
    let size = unsafe {
        if libc::fstat(file, status.as_mut_ptr()) != 0 {
            return true;
        }
        status.assume_init().st_size
    };
    size <= offset
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd};

    #[test]
    fn nothing_read_is_the_end_only_where_the_file_ends() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10]).unwrap();
        let is_end = |offset| super::is_end(file.as_raw_fd(), offset);
        assert_eq!([0, 9, 10, 11].map(is_end), [false, false, true, true]);
        assert!(super::is_end(-1, 0), "who cannot be asked");
    }
}

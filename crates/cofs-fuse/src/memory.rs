//! Page-aligned memory for requests. Pages cost nothing until they are touched.

use std::{
    io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use cofs_types::limits;

pub(crate) const PAGE_BYTES: usize = 4096;

/// What the buffers of all requests may take together.
pub(crate) fn bound(cpus: usize) -> usize {
    limits::FUSE_BUFFERS_BYTES + cpus * limits::FUSE_BUFFERS_BYTES_PER_CPU
}

/// The largest transfer for which so many buffers, each with so many bytes beside it, stay within `bound`; a power of two.
pub(crate) fn transfer_bytes(buffers: usize, bound: usize, beside: usize) -> usize {
    let share = (bound / buffers.max(1)).saturating_sub(beside).max(1);
    (1 << share.ilog2()).min(limits::FUSE_TRANSFER_BYTES_MAX)
}

/// Private, zeroed, page-aligned memory.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `Pages` owns its mapping alone, as a boxed slice owns its bytes.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `bytes` bytes, rounded up to whole pages.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, MapFlags::NORESERVE)
    }

    /// The same, all of them touched.
    pub fn populated(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, MapFlags::POPULATE)
    }

    fn map(bytes: usize, how: MapFlags) -> io::Result<Self> {
        let len = bytes.max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | how,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of the first byte, for the kernel.
    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping holds `len` initialised (zeroed) bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows it any more.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.len) } {
            tracing::error!(%error, "munmap of a request buffer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populated_memory_has_all_its_pages() {
        use std::os::unix::fs::FileExt;
        let pages = Pages::populated(9 * PAGE_BYTES).unwrap();
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        for page in 0..9 {
            let mut entry = [0; 8];
            let number = pages.address() as usize / PAGE_BYTES + page;
            map.read_exact_at(&mut entry, number as u64 * 8).unwrap();
            assert_eq!(entry[7] >> 7, 1, "page {page} is there");
        }
    }
}

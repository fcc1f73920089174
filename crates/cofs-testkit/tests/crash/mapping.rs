//! A shared, writable mapping of a file's first bytes.

use std::{io, os::fd::AsFd};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    pub fn new(file: impl AsFd, len: usize) -> Self {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, file, 0) }.unwrap();
        Self { start: start.cast(), len }
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, as was just seen; no reference to it is ever given out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping.
        Ok(unsafe { msync(self.start.cast(), self.len, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, of which no reference is left.
        unsafe { munmap(self.start.cast(), self.len) }.unwrap();
    }
}

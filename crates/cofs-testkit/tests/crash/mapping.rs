//! A shared, writable mapping of a file's first bytes.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap},
};

pub struct Mapping {
    start: *mut u8,
    len: usize,
    /// What is to be stored, for the kernel to do it.
    source: File,
}

impl Mapping {
    pub fn new(file: impl AsFd, len: usize) -> Self {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, file, 0) }.unwrap();
        Self { start: start.cast(), len, source: memfd_create("source", MemfdFlags::CLOEXEC).unwrap().into() }
    }

    /// Stores by read(2): of a page that cannot be had any more (the mount has ended) the kernel says EFAULT, where a store of ours would end
    /// the process (SIGBUS).
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        assert!(at + bytes.len() <= self.len);
        self.source.write_all_at(bytes, 0)?;
        // SAFETY: within the mapping, as was just seen; no other reference to it is ever given out.
        let place = unsafe { std::slice::from_raw_parts_mut(self.start.add(at), bytes.len()) };
        self.source.read_exact_at(place, 0)
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

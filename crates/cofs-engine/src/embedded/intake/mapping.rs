//! A segment's file in this process's memory.
//!
//! A store into it is in the kernel's page cache at once, as after a `write(2)`, and so survives the process; without
//! the system call, which behind FUSE, with cold caches, takes some 3 µs of an operation of 17.
//!
//! Where the file system below cannot take a store (its device has failed, or it went read-only) the kernel sends
//! SIGBUS. The handler here puts anonymous memory where the store went, notes that, and returns; who wrote looks
//! at the note after each record, and gets an error instead of a death. The note stays: what is stored afterwards would
//! not reach the file.
//!
//! Only file systems that write in place are used this way, with space set aside before. Elsewhere a store may need
//! space that is not there, or a server.

#![allow(
    unsafe_code,
    reason = "memory that the kernel gives: mapped files, and the signal of their failures"
)]

use std::{
    fs::{File, Metadata},
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    ptr::NonNull,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence},
    },
};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

/// Mappings that the signal handler knows, at most: beyond, segments are written to by calls. A process has
/// four for each volume that it has open.
const GUARDED_MAX: usize = 64;
/// So much is opened for stores at a time: enough to save most faults, and little enough for a sync, which writes all of it.
const OPENED_BYTES: u64 = 64 << 10;

struct Guarded {
    /// Addresses; 0 and 0 where there is no mapping.
    start: AtomicUsize,
    end: AtomicUsize,
    failed: AtomicBool,
}

static GUARDED: [Guarded; GUARDED_MAX] = [const {
    Guarded { start: AtomicUsize::new(0), end: AtomicUsize::new(0), failed: AtomicBool::new(false) }
}; GUARDED_MAX];
/// Held by who takes or gives back a place in the table.
static TABLE: Mutex<()> = Mutex::new(());
/// For the handler, which may not ask.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
/// What was to be done at SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A file, mapped for writing.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    place: &'static Guarded,
    /// Pages before this have been opened for stores, or somebody is about to.
    opened: AtomicU64,
    /// It stays in memory.
    locked: AtomicBool,
    /// The file, by device and number.
    file: (u64, u64),
}

// SAFETY: the memory belongs to nobody else in this process, and `write` only copies into it. Two writes at once to one
// range would leave either's bytes, as two write(2)s would; the intake's writer lock keeps them apart.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `len` bytes of `file`, which it must have; `None` where stores are not safe enough.
    pub(super) fn new(file: &File, len: u64) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        let metadata = file.metadata().ok()?;
        if !writes_in_place(file) || metadata.len() < len as u64 || !guard_sigbus() {
            return None;
        }
        let _table = TABLE.lock();
        let place = GUARDED.iter().find(|place| place.start.load(Ordering::Relaxed) == 0)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0).ok()? };
        let start = NonNull::new(start.cast::<u8>())?;
        place.failed.store(false, Ordering::Relaxed);
        place.end.store(start.as_ptr() as usize + len, Ordering::Relaxed);
        place.start.store(start.as_ptr() as usize, Ordering::Release);
        let (opened, locked) = Default::default();
        Some(Self { start, len, place, opened, locked, file: identity(&metadata) })
    }

    /// The same, for who stores from the beginning of `file` on; `None` if it is another file's, of another length, or a store has failed.
    pub(super) fn again(self, file: &File, len: u64) -> Option<Self> {
        let is_its = file.metadata().is_ok_and(|metadata| identity(&metadata) == self.file);
        let is_sound = !self.place.failed.load(Ordering::Relaxed);
        // The kernel has written pages meanwhile, and wants to hear of the next store into them.
        self.opened.store(0, Ordering::Relaxed);
        (is_its && is_sound && self.len as u64 == len).then_some(self)
    }

    /// Whether so many bytes from `at` on are within the mapping.
    pub(super) fn holds(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len as u64)
    }

    /// Stores `bytes` at `at`. Errors: EIO once the file system below has not taken a store; `InvalidInput` for a
    /// range that the mapping does not hold.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.holds(at, bytes.len() as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies within the mapping, which lives as long as `self`; nobody has a reference into it, so
        // `bytes` does not overlap it. A page that the file cannot take is replaced by the signal handler.
        unsafe {
            let to = self.start.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        // The handler runs on this thread, within the copy.
        compiler_fence(Ordering::SeqCst);
        if self.place.failed.load(Ordering::Relaxed) {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(())
    }

    /// Has the kernel read all of the file, and keep it: a store into a page of which it has let the old bytes go waits for the disk. Where the process may not
    /// lock so much memory (`RLIMIT_MEMLOCK`), the pages are there, and may go. Takes as long as the disk does.
    pub(super) fn keep_in_memory(&self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the range is this mapping, whose contents stay as they are. A page that cannot be read is an error of the call, no signal.
        unsafe {
            if mlock(start, self.len).is_ok() {
                self.locked.store(true, Ordering::Relaxed);
            } else {
                // As far as it goes: who stores finds out. (Unknown before Linux 5.14.)
                let _ = madvise(start, self.len, Advice::LinuxPopulateRead);
            }
        }
    }

    pub(super) fn stays_in_memory(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Where the next pages begin that should be [opened](Self::open), if it is time for that: who stores goes on at `at`. Whoever is told so is
    /// the only one.
    pub(super) fn to_open(&self, at: u64) -> Option<u64> {
        let opened = self.opened.load(Ordering::Relaxed);
        if at.saturating_add(OPENED_BYTES / 2) < opened {
            return None;
        }
        // What a large record has passed over has had its faults.
        let from = opened.max(at - at % OPENED_BYTES);
        let next = from.saturating_add(OPENED_BYTES);
        let mine = self.opened.compare_exchange(opened, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (mine && from < self.len as u64).then_some(from)
    }

    /// Has the kernel prepare the pages from `from` on for stores, all together: the first store into each is a fault otherwise, within the
    /// writer's lock. What stands in them stays. Before Linux 5.14, and where the file system below has failed, nothing happens.
    pub(super) fn open(&self, from: u64) {
        let Some(len) = (self.len as u64).checked_sub(from).map(|left| left.min(OPENED_BYTES)) else {
            return;
        };
        // SAFETY: the range lies within the mapping, whose contents are left as they are; a page that cannot be had is an error here, no signal.
        let opened = unsafe {
            let first = self.start.as_ptr().add(from as usize);
            madvise(first.cast(), len as usize, Advice::LinuxPopulateWrite)
        };
        if opened.is_err() {
            self.opened.store(u64::MAX, Ordering::Relaxed);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _table = TABLE.lock();
        self.place.start.store(0, Ordering::Release);
        self.place.end.store(0, Ordering::Release);
        // SAFETY: the mapping is this value's own, and nobody uses it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// ext2, ext3, ext4; XFS; tmpfs.
pub(super) fn writes_in_place(file: &File) -> bool {
    const KNOWN: [u32; 3] = [0xef53, 0x5846_5342, 0x0102_1994];
    rustix::fs::fstatfs(file).is_ok_and(|fs| KNOWN.contains(&(fs.f_type as u32)))
}

/// Whether the handler is in place.
fn guard_sigbus() -> bool {
    let _table = TABLE.lock();
    if BEFORE.get().is_some() {
        return true;
    }
    // SAFETY: plain old data, for which zeros are valid; the handler has the signature that SA_SIGINFO asks for, and
    // does only what a signal handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return false;
        }
        // First, because the handler reads them.
        let _ = BEFORE.set(before);
        if let Ok(bytes @ 1..) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
            PAGE_BYTES.store(bytes, Ordering::Relaxed);
        }
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) == 0
    }
}

extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &GUARDED {
        let start = place.start.load(Ordering::Acquire);
        if start == 0 || !(start..place.end.load(Ordering::Acquire)).contains(&address) {
            continue;
        }
        let page = (address & !(page_bytes - 1)) as *mut libc::c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies within a mapping of ours, which it replaces there; mmap is a bare system call.
        let mapped = unsafe { libc::mmap(page, page_bytes, protection, flags, -1, 0) };
        if mapped == page {
            place.failed.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: done again, with what was to be done before.
    if let Some(before) = BEFORE.get() {
        // SAFETY: it came from sigaction(2).
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(len: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = file(8192);
        let Some(mapping) = Mapping::new(&file, 8192) else { return };
        mapping.write(4000, &[7; 200]).unwrap();
        let mut bytes = [0; 200];
        file.read_exact_at(&mut bytes, 4000).unwrap();
        assert_eq!(bytes, [7; 200]);
        assert!(mapping.holds(8000, 192) && !mapping.holds(8000, 193) && !mapping.holds(u64::MAX, 1));
        assert!(mapping.write(8000, &[1; 193]).is_err());
    }

    /// A file that was cut off behind the mapping's back answers a store as a failing device does.
    #[test]
    fn a_store_that_the_file_cannot_take_is_an_error_and_stays_one() {
        let file = file(4 * 65_536);
        let Some(mapping) = Mapping::new(&file, 4 * 65_536) else { return };
        mapping.write(0, &[1; 100]).unwrap();
        file.set_len(65_536).unwrap();
        mapping.write(100, &[2; 100]).unwrap();
        let error = mapping.write(65_536 - 50, &vec![3; 100_000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        assert!(mapping.write(300, &[4; 10]).is_err(), "it stays");
        drop(mapping);
        assert!(Mapping::new(&file, 65_536).unwrap().write(0, &[5; 10]).is_ok(), "the next one starts anew");
    }

    /// Faults of this thread that waited for a disk.
    fn waits() -> i64 {
        // SAFETY: plain old data, for which zeros are valid, and which the call fills.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_majflt
        }
    }

    /// A file of the disk, all of whose bytes are on it.
    fn old_file(len: usize) -> File {
        let here = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(here.parent().unwrap()).unwrap();
        file.write_all_at(&vec![9; len], 0).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn drop_from_memory(file: &File) {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    #[test]
    fn a_store_into_what_is_kept_in_memory_does_not_wait_for_the_disk() {
        const LEN: usize = 4 << 20;
        const TMPFS: u32 = 0x0102_1994;
        let (kept, left) = (old_file(LEN), old_file(LEN));
        if rustix::fs::fstatfs(&kept).unwrap().f_type as u32 == TMPFS {
            return; // which has no disk
        }
        let (Some(kept_mapping), Some(left_mapping)) =
            (Mapping::new(&kept, LEN as u64), Mapping::new(&left, LEN as u64))
        else {
            return; // another file system is below
        };
        kept_mapping.keep_in_memory();
        drop_from_memory(&kept);
        drop_from_memory(&left);
        let store = |mapping: &Mapping| {
            let before = waits();
            (100..LEN as u64).step_by(4096).for_each(|at| mapping.write(at, &[7; 100]).unwrap());
            waits() - before
        };
        assert_eq!(store(&kept_mapping), 0);
        assert!(store(&left_mapping) > 0, "nothing was at stake");
        let mut bytes = [0; 101];
        kept.read_exact_at(&mut bytes, 99).unwrap();
        assert_eq!((bytes[0], &bytes[1..]), (9, [7; 100].as_slice()));
    }

    fn page_bytes() -> u64 {
        PAGE_BYTES.load(Ordering::Relaxed) as u64
    }

    /// The pages of a mapping that can be stored into without a fault.
    fn writable(mapping: &Mapping) -> Vec<bool> {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let first = mapping.start.as_ptr() as u64 / page_bytes();
        let page = |page: u64| {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, (first + page) * 8).unwrap();
            u64::from_le_bytes(entry) >> 63 == 1
        };
        (0..mapping.len as u64 / page_bytes()).map(page).collect()
    }

    #[test]
    fn pages_are_opened_ahead_of_stores_each_once_and_keep_what_they_have() {
        let len = 5 * OPENED_BYTES / 2;
        let file = file(len);
        file.write_all_at(&vec![9; len as usize], 0).unwrap();
        let Some(mapping) = Mapping::new(&file, len) else { return };
        assert!(writable(&mapping).iter().all(|there| !there));
        let mut opened = vec![];
        for at in (0..len).step_by(100) {
            if let Some(from) = mapping.to_open(at) {
                assert!(from <= at + OPENED_BYTES / 2, "no further ahead than that: {from} at {at}");
                mapping.open(from);
                opened.push(from);
            }
            let before = (at + OPENED_BYTES / 2).min(len) / page_bytes();
            let there = writable(&mapping).iter().take_while(|there| **there).count();
            assert!(there as u64 >= before, "{there} pages at {at}");
        }
        assert_eq!(opened, [0, OPENED_BYTES, 2 * OPENED_BYTES]);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9));
        assert_eq!((mapping.to_open(len), mapping.to_open(u64::MAX)), (None, None));
    }

    #[test]
    fn a_large_record_is_not_opened_behind_itself() {
        let file = file(8 * OPENED_BYTES);
        let Some(mapping) = Mapping::new(&file, 8 * OPENED_BYTES) else { return };
        assert_eq!(mapping.to_open(100), Some(0));
        assert_eq!(mapping.to_open(5 * OPENED_BYTES + 1), Some(5 * OPENED_BYTES));
        assert_eq!(mapping.to_open(5 * OPENED_BYTES + 2), None);
    }

    #[test]
    fn pages_that_the_file_does_not_have_are_left_to_the_store() {
        let file = file(4 * OPENED_BYTES);
        let Some(mapping) = Mapping::new(&file, 4 * OPENED_BYTES) else { return };
        file.set_len(OPENED_BYTES).unwrap();
        mapping.open(OPENED_BYTES);
        assert_eq!(mapping.to_open(OPENED_BYTES), None, "not tried again");
        mapping.write(0, &[1; 100]).unwrap();
        assert!(mapping.write(OPENED_BYTES, &[1; 100]).is_err());
    }

    #[test]
    fn a_file_too_short_is_not_mapped() {
        assert!(Mapping::new(&file(100), 101).is_none());
        assert!(Mapping::new(&file(100), 0).is_none());
    }
}

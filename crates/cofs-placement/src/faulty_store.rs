//! A store that fails as told: for the tests of whoever works with objects.
//!
//! A fault names operations, an errno, how many of them pass first and how many then fail; it lasts until
//! its count is used up or the store is healed. Operations that the kernel does on its own (through
//! passthrough) are not met.

use std::{
    fs::File,
    io,
    mem::ManuallyDrop,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};
use rustix::{
    fs::{Mode, OFlags},
    io::{DupFlags, Errno},
};

use crate::store::{At, BackingStore, EntryKind, OpenMode, Operation, Space};

/// Which operations fail, how, and how often.
#[derive(Clone, Debug)]
pub struct Fault {
    operations: Vec<Operation>,
    errno: i32,
    passing: u64,
    failing: Option<u64>,
}

impl Fault {
    /// `operations` (all, if empty) fail with `errno` until the store is healed.
    pub fn new(operations: &[Operation], errno: i32) -> Self {
        Self { operations: operations.to_vec(), errno, passing: 0, failing: None }
    }

    /// The first `count` operations pass.
    pub fn after(self, count: u64) -> Self {
        Self { passing: count, ..self }
    }

    /// Only `count` operations fail.
    pub fn times(self, count: u64) -> Self {
        Self { failing: Some(count), ..self }
    }

    /// Whether this operation fails now.
    fn meets(&mut self, operation: Operation) -> bool {
        if self.failing == Some(0) || !(self.operations.is_empty() || self.operations.contains(&operation)) {
            return false;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return false;
        }
        self.failing = self.failing.map(|left| left - 1);
        true
    }
}

#[derive(Default)]
struct Hangs {
    /// Which operations do, if any; all, if there is none in it.
    operations: Option<Vec<Operation>>,
    /// How many do now.
    waiting: usize,
}

impl Hangs {
    fn meets(&self, operation: Operation) -> bool {
        self.operations.as_ref().is_some_and(|met| met.is_empty() || met.contains(&operation))
    }
}

/// Another store, with faults.
pub struct FaultyStore {
    inner: Arc<dyn BackingStore>,
    faults: Mutex<Vec<Fault>>,
    injected: Mutex<u64>,
    hangs: Mutex<Hangs>,
    resumed: Condvar,
    without_kinds: AtomicBool,
    cold: AtomicBool,
    mounted_anew: AtomicU64,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn BackingStore>) -> Self {
        let (faults, injected, hangs, resumed, without_kinds, cold, mounted_anew) = Default::default();
        Self { inner, faults, injected, hangs, resumed, without_kinds, cold, mounted_anew }
    }

    /// Listings do not say what an entry is from now on, as those of file systems without `d_type`.
    pub fn tell_no_kinds(&self) {
        self.without_kinds.store(true, Ordering::Relaxed);
    }

    /// Nothing is in memory from now on: who is impatient is refused whatever he opens.
    pub fn be_cold(&self) {
        self.cold.store(true, Ordering::Relaxed);
    }

    /// As if the file system below had failed and was mounted anew. What is lost of it then is the test's to take away.
    pub fn mount_anew(&self) {
        self.mounted_anew.fetch_add(1, Ordering::Relaxed);
    }

    pub fn inject(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// No operation returns until the store resumes, or is healed.
    pub fn hang(&self) {
        self.hang_at(&[]);
    }

    /// None of `operations` (all, if empty) does.
    pub fn hang_at(&self, operations: &[Operation]) {
        self.hangs.lock().operations = Some(operations.to_vec());
    }

    /// How many operations hang now.
    pub fn hanging(&self) -> usize {
        self.hangs.lock().waiting
    }

    /// No operation hangs any more; those that did fail if a fault meets them.
    pub fn resume(&self) {
        self.hangs.lock().operations = None;
        self.resumed.notify_all();
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.faults.lock().clear();
        self.resume();
    }

    /// Every file that this process has open below answers EBADF from now on, as those do that an NFS client has given up; opened anew they
    /// are as before. How many there were.
    pub fn give_up_open_files(&self) -> io::Result<usize> {
        let mut count = 0;
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let link = entry?.path();
            let number = link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let below = std::fs::read_link(&link).is_ok_and(|path| path.starts_with(self.path()));
            let Some(number) = number.filter(|_| below && link.is_file()) else { continue };
            let dead = rustix::fs::open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            replace(number, &dead)?;
            count += 1;
        }
        Ok(count)
    }

    fn wait_while_it_hangs(&self, operation: Operation) {
        let mut hangs = self.hangs.lock();
        hangs.waiting += 1;
        self.resumed.wait_while(&mut hangs, |hangs| hangs.meets(operation));
        hangs.waiting -= 1;
    }

    /// How many operations failed because of a fault: a test asserts that something was at stake.
    pub fn injected(&self) -> u64 {
        *self.injected.lock()
    }
}

impl BackingStore for FaultyStore {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn attach(&self, accept: &mut dyn FnMut(&File) -> io::Result<()>) -> io::Result<()> {
        self.admit(Operation::Attach)?;
        // What `accept` opens comes through this store again, if its caller holds this one.
        self.inner.attach(accept)
    }

    fn admit(&self, operation: Operation) -> io::Result<()> {
        self.wait_while_it_hangs(operation);
        let met =
            self.faults.lock().iter_mut().find_map(|fault| fault.meets(operation).then_some(fault.errno));
        match met {
            Some(errno) => {
                *self.injected.lock() += 1;
                Err(io::Error::from_raw_os_error(errno))
            }
            None if operation == Operation::Open
                && self.cold.load(Ordering::Relaxed)
                && cofs_wait::is_impatient() =>
            {
                cofs_wait::refuse();
                Err(Errno::AGAIN.into())
            }
            None => self.inner.admit(operation),
        }
    }

    fn open(&self, at: At<'_>, mode: OpenMode) -> io::Result<File> {
        let create = mode == OpenMode::CreateNew;
        self.admit(if create { Operation::Create } else { Operation::Open })?;
        self.inner.open(at, mode)
    }

    fn make_directory(&self, at: At<'_>) -> io::Result<()> {
        self.admit(Operation::MakeDirectory)?;
        self.inner.make_directory(at)
    }

    fn remove_file(&self, at: At<'_>) -> io::Result<()> {
        self.admit(Operation::RemoveFile)?;
        self.inner.remove_file(at)
    }

    fn remove_directory(&self, at: At<'_>) -> io::Result<()> {
        self.admit(Operation::RemoveDirectory)?;
        self.inner.remove_directory(at)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.admit(Operation::Rename)?;
        self.inner.rename(from, to)
    }

    fn list(
        &self,
        directory: &File,
        visit: &mut dyn FnMut(&[u8], EntryKind) -> io::Result<()>,
    ) -> io::Result<()> {
        self.admit(Operation::List)?;
        let told = !self.without_kinds.load(Ordering::Relaxed);
        self.inner
            .list(directory, &mut |name, kind| visit(name, if told { kind } else { EntryKind::Unknown }))
    }

    fn space(&self) -> io::Result<Space> {
        self.admit(Operation::Space)?;
        self.inner.space()
    }

    /// There is one, whatever kernel this is.
    fn mount(&self) -> Option<u64> {
        Some(self.inner.mount().unwrap_or(1) + self.mounted_anew.load(Ordering::Relaxed))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.admit(Operation::SyncAll)?;
        self.inner.sync_all()
    }
}

/// Puts another file in the place of descriptor `number`, which stays its owner's.
#[allow(unsafe_code, reason = "a file that dies while its owner has it is what is tested")]
fn replace(number: RawFd, file: &OwnedFd) -> io::Result<()> {
    // SAFETY: it is open, and is not closed here.
    let mut its = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(rustix::io::dup3(file, &mut its, DupFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_as_often_as_told() {
        let store = FaultyStore::new(Arc::new(crate::DirectoryStore::new("/")));
        store.inject(Fault::new(&[Operation::Write], 28).after(1).times(2));
        let results: Vec<bool> = (0..5).map(|_| store.admit(Operation::Write).is_ok()).collect();
        assert_eq!(results, [true, false, false, true, true]);
        assert!(store.admit(Operation::Read).is_ok());
        store.inject(Fault::new(&[], 5));
        assert_eq!(store.admit(Operation::Read).unwrap_err().raw_os_error(), Some(5));
        store.heal();
        assert!(store.admit(Operation::Read).is_ok());
        assert_eq!(store.injected(), 3);
    }
}

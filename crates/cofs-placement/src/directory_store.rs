//! A real directory, reached through a descriptor of it.
//!
//! The descriptor is taken when the store is attached and every path is resolved below it: a file system
//! mounted over the directory, or a rename of it, changes nothing for those who use the store.
//!
//! Who opens the directory to change it has it alone, and who reads it shares it with others who do: by flock(2) on the directory itself, which
//! needs no file of its own, no right to write, and hardly anywhere an answer of a server, as file systems leave it to the kernel for directories. So
//! other hosts do not see it: they are kept out by the lock of the volume's store, and this one is to keep out a copy of the store on the same host.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use rustix::{
    fs::{
        self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawDir, ResolveFlags, SeekFrom,
        StatxFlags,
    },
    io::Errno,
};

use crate::store::{At, BackingStore, EntryKind, OpenMode, Space};

/// Bytes of directory entries read at a time.
const LIST_BUFFER_BYTES: usize = 32 << 10;
/// Backing files are nobody's but the daemon's: permissions of the volume are checked above.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory of any file system that the kernel has mounted.
pub struct DirectoryStore {
    path: PathBuf,
    root: RwLock<Option<Arc<File>>>,
    held: Option<Held>,
}

/// How the directory is to be had.
struct Held {
    lock: FlockOperation,
    /// The root that is locked; it outlives its place in the store where another cannot be locked because it is the same directory.
    root: Mutex<Option<Arc<File>>>,
}

impl DirectoryStore {
    /// Names the directory; [`BackingStore::attach`] opens it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), root: RwLock::new(None), held: None }
    }

    /// As [`new`](Self::new), for who changes what is in the directory: attaching fails with EWOULDBLOCK while another store has it.
    pub fn alone(path: impl Into<PathBuf>) -> Self {
        Self::locked(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// As [`new`](Self::new), for who reads what is in the directory: attaching fails with EWOULDBLOCK while another store has it alone.
    pub fn shared(path: impl Into<PathBuf>) -> Self {
        Self::locked(path, FlockOperation::NonBlockingLockShared)
    }

    fn locked(path: impl Into<PathBuf>, lock: FlockOperation) -> Self {
        Self { held: Some(Held { lock, root: Mutex::default() }), ..Self::new(path) }
    }

    fn root(&self) -> io::Result<Arc<File>> {
        self.root.read().clone().ok_or_else(|| io::Error::from(rustix::io::Errno::NOENT))
    }

    /// Runs `call` with the descriptor that `at` is relative to.
    fn resolve<T>(
        &self,
        at: At<'_>,
        call: impl FnOnce(&File, &str) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match at.directory {
            Some(directory) => Ok(call(directory, at.path)?),
            None => Ok(call(&*self.root()?, at.path)?),
        }
    }
}

impl Held {
    /// Locks `root`, unless it is the directory that is locked already.
    fn hold(&self, root: &Arc<File>) -> io::Result<()> {
        let mut held = self.root.lock();
        match lock_patiently(root, self.lock) {
            Err(Errno::WOULDBLOCK) => match &*held {
                Some(held) if is_same(held, root)? => return Ok(()),
                _ => return Err(Errno::WOULDBLOCK.into()),
            },
            // A file system without locks is used without.
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {}
            locked => locked?,
        }
        *held = Some(Arc::clone(root));
        Ok(())
    }
}

/// Tries for a moment: a process that has just been killed lets go of its files one after the other.
fn lock_patiently(root: &File, lock: FlockOperation) -> rustix::io::Result<()> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match fs::flock(root, lock) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    fs::flock(root, lock)
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (fs::fstat(one)?, fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// openat(2); for who is impatient, by what the kernel has in memory. Errors: EAGAIN where he is refused.
fn open_what_is_there(directory: &File, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    if cofs_wait::is_impatient() {
        match fs::openat2(directory, path, flags, Mode::empty(), ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => {
                cofs_wait::refuse();
                return Err(Errno::AGAIN);
            }
            // The kernel (before 5.12) or a sandbox cannot tell.
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {}
            opened => return opened,
        }
    }
    fs::openat(directory, path, flags, Mode::empty())
}

/// Nobody wants the access times of what is below, and to note one may have to be waited for even where the bytes are in memory. (With passthrough the
/// kernel's own reads leave theirs, whatever is set here, and they are wanted.)
fn leave_no_access_times(file: &OwnedFd) {
    // Refused where the file is somebody else's: then reads leave them.
    let _ = fs::fcntl_setfl(file, OFlags::NOATIME);
}

impl BackingStore for DirectoryStore {
    fn path(&self) -> &Path {
        &self.path
    }

    fn attach(&self, accept: &mut dyn FnMut(&File) -> io::Result<()>) -> io::Result<()> {
        // Not O_PATH: syncfs(2) and fstatvfs want a descriptor that is really open.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(File::from(fs::openat(CWD, &self.path, flags, Mode::empty())?));
        accept(&root)?;
        if let Some(held) = &self.held {
            held.hold(&root)?;
        }
        *self.root.write() = Some(root);
        Ok(())
    }

    fn open(&self, at: At<'_>, mode: OpenMode) -> io::Result<File> {
        let flags = OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | match mode {
                // A FIFO in its place would be waited for.
                OpenMode::Read | OpenMode::Look => OFlags::RDONLY | OFlags::NONBLOCK,
                OpenMode::ReadWrite => OFlags::RDWR,
                OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                OpenMode::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            };
        let open = |directory: &File, path: &str| match mode {
            OpenMode::CreateNew => fs::openat(directory, path, flags, FILE_MODE),
            _ => open_what_is_there(directory, path, flags),
        };
        let file = self.resolve(at, open)?;
        if mode == OpenMode::Read {
            // File systems that keep files elsewhere (tapes) answer EAGAIN instead of bringing them.
            fs::fcntl_setfl(&file, OFlags::empty())?;
        }
        leave_no_access_times(&file);
        Ok(File::from(file))
    }

    fn make_directory(&self, at: At<'_>) -> io::Result<()> {
        self.resolve(at, |directory, path| fs::mkdirat(directory, path, Mode::RWXU))
    }

    fn remove_file(&self, at: At<'_>) -> io::Result<()> {
        self.resolve(at, |directory, path| fs::unlinkat(directory, path, AtFlags::empty()))
    }

    fn remove_directory(&self, at: At<'_>) -> io::Result<()> {
        self.resolve(at, |directory, path| fs::unlinkat(directory, path, AtFlags::REMOVEDIR))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let root = self.root()?;
        Ok(fs::renameat(&*root, from, &*root, to)?)
    }

    fn list(
        &self,
        directory: &File,
        visit: &mut dyn FnMut(&[u8], EntryKind) -> io::Result<()>,
    ) -> io::Result<()> {
        fs::seek(directory, SeekFrom::Start(0))?;
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
        let mut entries = RawDir::new(directory.as_fd(), &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Directory,
                FileType::Unknown => EntryKind::Unknown,
                _ => EntryKind::Other,
            };
            visit(name, kind)?;
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let root = self.root()?;
        let found = fs::fstatvfs(&*root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space {
            device: fs::fstat(&*root)?.st_dev,
            block_size_bytes: found.f_bsize,
            total_bytes: bytes(found.f_blocks),
            free_bytes: bytes(found.f_bfree),
            available_bytes: bytes(found.f_bavail),
            files_total: found.f_files,
            files_free: found.f_ffree,
        })
    }

    fn mount(&self) -> Option<u64> {
        // STATX_MNT_ID_UNIQUE, since Linux 6.8. (The number by STATX_MNT_ID is that of the next mount as soon as this one is gone.)
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = fs::statx(&*self.root().ok()?, "", flags, UNIQUE).ok()?;
        (found.stx_mask & UNIQUE.bits() != 0).then_some(found.stx_mnt_id)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&*self.root()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_its_number_whoever_asks_and_another_has_another() {
        let store = |path: &str| {
            let store = DirectoryStore::new(path);
            store.attach(&mut |_| Ok(())).unwrap();
            store.mount()
        };
        assert_eq!(DirectoryStore::new("/").mount(), None);
        let Some(root) = store("/") else { return eprintln!("SKIPPED: it takes Linux 6.8") };
        assert_eq!(store("/"), Some(root));
        assert_ne!(store("/proc"), Some(root));
    }

    #[test]
    fn who_has_a_directory_alone_may_attach_it_again_and_nobody_else() {
        let scratch = tempfile::tempdir().unwrap();
        let attach = |store: &DirectoryStore| store.attach(&mut |_| Ok(())).map_err(|error| error.kind());
        let [first, second] = [(); 2].map(|()| DirectoryStore::alone(scratch.path()));
        assert_eq!((attach(&first), attach(&first)), (Ok(()), Ok(())));
        assert_eq!(attach(&second), Err(io::ErrorKind::WouldBlock));
        let [reader, another] = [(); 2].map(|()| DirectoryStore::shared(scratch.path()));
        assert_eq!(attach(&reader), Err(io::ErrorKind::WouldBlock));
        assert_eq!(attach(&DirectoryStore::new(scratch.path())), Ok(()), "who does without");
        drop(first);
        assert_eq!(attach(&second), Ok(()));
        drop(second);
        assert_eq!([&reader, &another, &reader].map(attach), [Ok(()); 3]);
        assert_eq!(attach(&DirectoryStore::alone(scratch.path())), Err(io::ErrorKind::WouldBlock));
    }
}

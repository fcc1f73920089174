//! The directory under test, other users, and the few system calls for which there is no safe wrapper.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Gid, Uid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

/// A fresh directory under the one under test; removed when the case succeeds.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    pub fn top(&self) -> &Path {
        &self.0
    }

    /// A file of these bytes.
    pub fn file(&self, name: &str, data: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, data).unwrap();
        path
    }

    /// An empty file that nobody has ever opened. A descriptor's end is told to a server after close(2) has returned, so what has
    /// been closed may still count as open.
    pub fn never_opened(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, &path, FileType::RegularFile, mode, 0).unwrap();
        path
    }

    /// A directory with this mode, whatever the umask.
    pub fn dir(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

/// The directory for one case, or `None`, said aloud, when there is nothing to test.
pub fn scratch() -> Option<Scratch> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(top) = std::env::var_os("COFS_TEST_DIR") else {
        eprintln!("SKIPPED: COFS_TEST_DIR is not set; ./test posix sets it");
        return None;
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(&top).join(format!("case-{}-{number}", std::process::id()));
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    Some(Scratch(path))
}

/// Runs `work` as another user: real, effective and saved ids, and these supplementary groups only.
pub fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            set_thread_groups(&groups).unwrap();
            let gid = Gid::from_raw(gid);
            set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The error number of what must fail.
#[track_caller]
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("succeeded, and must not"),
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("no errno: {error}")),
    }
}

/// Bytes that differ at every place: `seed` makes one run of them unlike another.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// Sizes around the bounds of inline data: chunks, and every `inline-max` that is likely.
pub const SIZES: &[usize] =
    &[0, 1, 511, 4095, 4096, 4097, 8192, 16383, 16384, 16385, 32769, 65535, 65536, 65537, 131_072, 1_000_003];

/// A pause longer than the kernel's coarse clock, which stamps files.
pub fn nap() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}

/// A file handle, as `name_to_handle_at(2)` gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handle {
    pub kind: i32,
    pub bytes: Vec<u8>,
}

const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

pub fn handle_of(path: &Path) -> io::Result<Handle> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut raw = RawHandle { bytes: HANDLE_BYTES_MAX as u32, kind: 0, data: [0; HANDLE_BYTES_MAX] };
    let mut mount = 0;
    // SAFETY: `raw` begins with the two fields of `struct file_handle` and has room for as many bytes as it says;
    // `name` and `mount` live through the call.
    let status = unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), (&raw mut raw).cast(), &raw mut mount, 0)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Handle { kind: raw.kind, bytes: raw.data[..raw.bytes as usize].to_vec() })
}

/// Opens by handle on the file system that `mount` (any open file of it) stands on.
pub fn open_handle(mount: &File, handle: &Handle, flags: i32) -> io::Result<File> {
    let mut raw =
        RawHandle { bytes: handle.bytes.len() as u32, kind: handle.kind, data: [0; HANDLE_BYTES_MAX] };
    raw.data[..handle.bytes.len()].copy_from_slice(&handle.bytes);
    // SAFETY: as above; the kernel reads as many bytes as the handle says, which are there.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just given, and that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Makes the kernel let go of the inodes and names it remembers.
pub fn drop_caches() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// The length of an attribute's value, asked for without a buffer.
pub fn xattr_bytes(path: &Path, name: &str) -> io::Result<usize> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: both strings live through the call; no buffer is given, and its size is none.
    let bytes = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// truncate(2): by the name, without an open.
pub fn truncate(path: &Path, size: u64) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the string lives through the call.
    let status = unsafe { libc::truncate(path.as_ptr(), size.try_into().unwrap()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A record lock: `command` is `F_SETLK`, `F_OFD_SETLK`, `F_GETLK` …; gives back what the kernel filled in.
pub fn record_lock(
    file: impl AsFd,
    command: i32,
    kind: i32,
    start: i64,
    len: i64,
) -> io::Result<(i32, libc::pid_t)> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `lock` lives through the call.
    let status = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok((i32::from(lock.l_type), lock.l_pid)) }
}

/// A shared, writable mapping of a file's first bytes.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    pub fn new(file: impl AsFd, len: usize) -> Self {
        Self::new_at(file, 0, len)
    }

    /// From `offset`, which is a page's.
    pub fn new_at(file: impl AsFd, offset: u64, len: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, file, offset) }.unwrap();
        Self { start: start.cast(), len }
    }

    /// The whole; pages beyond the end of the file must not be touched.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as self, and no other reference to it is given out meanwhile; its
        // bytes can change through the file, but these tests change it only from this thread.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    pub fn sync(&self) {
        // SAFETY: the range is the mapping.
        unsafe { rustix::mm::msync(self.start.cast(), self.len, rustix::mm::MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, of which no reference is left.
        unsafe { rustix::mm::munmap(self.start.cast(), self.len) }.unwrap();
    }
}

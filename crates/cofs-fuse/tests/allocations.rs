//! Serving a request allocates nothing: counted on the thread that serves, by an allocator of this binary's own, with the kernel played over a
//! socket.

#[path = "common/canned.rs"]
mod canned;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use canned::Canned;
use cofs_fuse::{
    Handover, Mount, MountOptions, Resent, Settled, Transport,
    abi::{self, InHeader, OutHeader, init, opcode},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use zerocopy::{FromBytes, Immutable, IntoBytes};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Whose allocations count; others of this process are just starting, or the test's own.
static SERVER: AtomicI32 = AtomicI32::new(0);

fn count() {
    if rustix::thread::gettid().as_raw_nonzero().get() == SERVER.load(Ordering::SeqCst) {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: all is the system's allocator's doing; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as our caller promises.
        unsafe { System.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const TRANSFER_BYTES: usize = 128 << 10;

/// The crate at work, and the other end of its connection, where the kernel would be.
struct Served {
    kernel: OwnedFd,
    mount: Mount,
    answer: Box<[u8]>,
    _point: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let (kernel, connection) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_timeout(&kernel, sockopt::Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
        let settled = Settled { minor: 45, features: init::SETXATTR_EXT, transfer_bytes: TRANSFER_BYTES };
        let options =
            MountOptions { transport: Transport::DevFuse, threads: Some(1), ..MountOptions::default() };
        let point = tempfile::tempdir().unwrap();
        let handover = Handover { connection, settled };
        let mount =
            cofs_fuse::resume(Arc::new(Canned::default()), handover, point.path(), &options, Resent::Served)
                .unwrap();
        SERVER.store(thread_named("cofs-fuse-0"), Ordering::SeqCst);
        let answer = vec![0; TRANSFER_BYTES + size_of::<OutHeader>()].into();
        Self { kernel, mount, answer, _point: point }
    }

    /// The errno, 0 for none, and how many bytes came with it. Allocates nothing.
    fn ask(&mut self, request: &[u8]) -> (i32, usize) {
        rustix::io::write(self.kernel.as_fd(), request).unwrap();
        let len = rustix::io::read(self.kernel.as_fd(), &mut *self.answer).expect("an answer in time");
        let (header, _) = OutHeader::read_from_prefix(&self.answer[..len]).unwrap();
        assert_eq!((header.unique, header.len as usize), (UNIQUE, len));
        (-header.error, len - size_of::<OutHeader>())
    }

    /// Hands over what is not answered, and waits until it has been taken up.
    fn tell(&mut self, request: &[u8], next: &[u8]) {
        rustix::io::write(self.kernel.as_fd(), request).unwrap();
        self.ask(next);
    }

    fn end(self) {
        drop(self.kernel);
        self.mount.join().unwrap();
    }
}

/// The number of a thread of this process that is about to have this name.
fn thread_named(name: &str) -> i32 {
    for _ in 0..2000 {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            if std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name) {
                return task.file_name().to_str().unwrap().parse().unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no thread {name}");
}

const UNIQUE: u64 = 7;

fn request(opcode: u32, arguments: impl IntoBytes + Immutable, rest: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + size_of_val(&arguments) + rest.len()) as u32;
    let header = InHeader { len, opcode, unique: UNIQUE, nodeid: 1, ..Default::default() };
    [header.as_bytes(), arguments.as_bytes(), rest].concat()
}

/// The requests of which all others are a small part, each with its answer's length.
fn hot() -> Vec<(&'static str, Vec<u8>, usize)> {
    let open = abi::OpenIn { flags: libc::O_RDWR as u32, open_flags: 0 };
    let create = abi::CreateIn { flags: 0o102, mode: 0o100_644, ..Default::default() };
    let read = abi::ReadIn { size: 1 << 16, ..Default::default() };
    let list = abi::ReadIn { size: 4096, ..Default::default() };
    let write = abi::WriteIn { size: 1 << 16, ..Default::default() };
    let set = abi::SetattrIn { valid: abi::setattr::MTIME_NOW | abi::setattr::MTIME, ..Default::default() };
    let space = abi::GetxattrIn { size: 64, padding: 0 };
    vec![
        ("LOOKUP", request(opcode::LOOKUP, (), b"name\0"), size_of::<abi::EntryOut>()),
        ("GETATTR", request(opcode::GETATTR, abi::GetattrIn::default(), b""), size_of::<abi::AttrOut>()),
        ("STATX", request(opcode::STATX, abi::StatxIn::default(), b""), size_of::<abi::StatxOut>()),
        ("SETATTR", request(opcode::SETATTR, set, b""), size_of::<abi::AttrOut>()),
        (
            "CREATE",
            request(opcode::CREATE, create, b"name\0"),
            size_of::<abi::EntryOut>() + size_of::<abi::OpenOut>(),
        ),
        ("OPEN", request(opcode::OPEN, open, b""), size_of::<abi::OpenOut>()),
        ("READ", request(opcode::READ, read, b""), 1 << 16),
        ("WRITE", request(opcode::WRITE, write, &[1; 1 << 16]), size_of::<abi::WriteOut>()),
        ("FLUSH", request(opcode::FLUSH, abi::FlushIn::default(), b""), 0),
        ("RELEASE", request(opcode::RELEASE, abi::ReleaseIn::default(), b""), 0),
        ("UNLINK", request(opcode::UNLINK, (), b"name\0"), 0),
        ("MKDIR", request(opcode::MKDIR, abi::MkdirIn::default(), b"name\0"), size_of::<abi::EntryOut>()),
        ("RENAME", request(opcode::RENAME, 1_u64, b"from\0to\0"), 0),
        ("READDIR", request(opcode::READDIR, list, b""), 4096),
        ("READDIRPLUS", request(opcode::READDIRPLUS, list, b""), 4000),
        ("READLINK", request(opcode::READLINK, (), b""), 6),
        ("GETXATTR", request(opcode::GETXATTR, space, b"user.a\0"), 5),
        ("STATFS", request(opcode::STATFS, (), b""), size_of::<abi::Kstatfs>()),
    ]
}

fn unanswered() -> Vec<(&'static str, Vec<u8>)> {
    let two = abi::BatchForgetIn { count: 2, dummy: 0 };
    let all = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    vec![
        ("FORGET", request(opcode::FORGET, 1_u64, b"")),
        ("BATCH_FORGET", request(opcode::BATCH_FORGET, two, &[1; 32])),
        ("BATCH_FORGET of all there can be", request(opcode::BATCH_FORGET, all, &[1; 32])),
    ]
}

/// Requests that claim what they do not have, or want what nobody has.
fn immodest() -> Vec<(&'static str, Vec<u8>, i32)> {
    let read = abi::ReadIn { size: u32::MAX, ..Default::default() };
    let write = abi::WriteIn { size: u32::MAX, ..Default::default() };
    let set = abi::SetxattrIn { size: u32::MAX, ..Default::default() };
    let room = abi::GetxattrIn { size: u32::MAX, padding: 0 };
    let spoilt = |at: usize, bytes: &[u8]| {
        let groups = [16, abi::EXT_GROUPS, u32::MAX, 1_u32];
        let mut mkdir =
            request(opcode::MKDIR, abi::MkdirIn::default(), &[b"name\0\0\0\0", groups.as_bytes()].concat());
        mkdir[at..at + bytes.len()].copy_from_slice(bytes);
        mkdir
    };
    vec![
        ("READ", request(opcode::READ, read, b""), 0),
        ("READDIR", request(opcode::READDIR, read, b""), 0),
        ("READDIRPLUS", request(opcode::READDIRPLUS, read, b""), 0),
        ("GETXATTR", request(opcode::GETXATTR, room, b"user.a\0"), 0),
        ("LISTXATTR", request(opcode::LISTXATTR, room, b""), 0),
        ("WRITE", request(opcode::WRITE, write, b"data"), libc::EINVAL),
        ("SETXATTR", request(opcode::SETXATTR, set, b"user.a\0value"), libc::EINVAL),
        ("a length", spoilt(0, &u32::MAX.to_ne_bytes()), libc::EINVAL),
        ("extensions", spoilt(36, &u16::MAX.to_ne_bytes()), libc::EINVAL),
        ("groups", spoilt(36, &2_u16.to_ne_bytes()), libc::EINVAL),
        ("a name", request(opcode::UNLINK, (), &[b'x'; 4096]), libc::EINVAL),
        ("nothing known", request(999, (), b""), libc::ENOSYS),
    ]
}

/// How many allocations the thread that serves makes meanwhile.
fn allocations(meanwhile: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    meanwhile();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

#[test]
fn requests_are_served_without_an_allocation_whatever_they_claim() {
    let mut served = Served::new();
    let (hot, unanswered, immodest) = (hot(), unanswered(), immodest());
    let getattr = request(opcode::GETATTR, abi::GetattrIn::default(), b"");
    // The first round is for what is had once.
    for round in 0..100 {
        for (kind, request, len) in &hot {
            let mut answer = (0, 0);
            let made = allocations(|| answer = served.ask(request));
            assert!(made == 0 || round == 0, "{kind} made {made} allocations");
            assert!(
                answer == (0, *len) || (answer.0 == 0 && kind.starts_with("READDIR")),
                "{kind}: {answer:?}"
            );
        }
        for (kind, request) in &unanswered {
            let made = allocations(|| served.tell(request, &getattr));
            assert!(made == 0 || round == 0, "{kind} made {made} allocations");
        }
        for (kind, request, errno) in &immodest {
            let mut answer = (0, 0);
            let made = allocations(|| answer = served.ask(request));
            assert!(made == 0 || round == 0, "{kind} made {made} allocations");
            assert_eq!(answer.0, *errno, "{kind}");
        }
    }
    let fsync = request(opcode::FSYNC, abi::FsyncIn::default(), b"");
    let made = allocations(|| assert_eq!(served.ask(&fsync), (0, 0)));
    assert_eq!(made, 1, "a sync can be left, so that its future stands apart");
    served.end();
}

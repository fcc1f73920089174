//! The file-system operations as the faces see them: one trait, spoken by FUSE and NFS above and
//! answered by cofs (and by the null file system of the benches).
//!
//! Every operation is an `async fn` that completes on its first poll wherever it can. What truly waits
//! calls [`crate::blocking`] first: its future then moves to a thread that may wait, and goes on there. Over a network anything
//! may wait; there the face serves each request on such a thread from its beginning.

use std::{future::Future, os::fd::BorrowedFd, sync::Arc, time::Duration};

use bytes::Bytes;
use cofs_types::{
    Attributes, Credentials, FallocateMode, FileKind, FsResult, InodeId, Name, NewInode, OpenFlags,
    RenameMode, SeekWhence, SetAttributes, XattrMode, XattrName,
};

/// Who asks, and for which process.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub credentials: Credentials<'a>,
    /// The caller's process, 0 where there is none.
    pub pid: u32,
}

/// How long an answer may be believed unless it is recalled before ([`Recall`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    pub entry: Duration,
    pub attributes: Duration,
}

impl Validity {
    pub const FOREVER: Self = Self { entry: Duration::MAX, attributes: Duration::MAX };
    pub const NEVER: Self = Self { entry: Duration::ZERO, attributes: Duration::ZERO };
}

/// A name resolved: the inode it leads to. Each one given out counts as one look-up until `forget`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub attributes: Attributes,
    pub validity: Validity,
}

/// Attributes and how long they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    pub attributes: Attributes,
    pub validity: Duration,
}

/// What an open file or directory is called until its release.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HandleId(pub u64);

/// What the kernel calls a registered backing file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BackingId(pub u32);

/// How the bytes of an open file travel. All opens of one inode at one time have the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPath {
    /// Through `read` and `write`, with the kernel's page cache; `keep_cache`: what it holds is still true.
    Cached { keep_cache: bool },
    /// Through `read` and `write`, past the page cache.
    Direct,
    /// By the kernel itself, from and to the backing file.
    Passthrough(BackingId),
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    pub handle: HandleId,
    pub data_path: DataPath,
    /// Nothing is to be done at each close(2): the face need not ask (`FOPEN_NOFLUSH`).
    pub no_flush: bool,
}

/// An open directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedDirectory {
    pub handle: HandleId,
    /// The kernel may cache the listing, and what it holds is still true.
    pub cache: bool,
    pub keep_cache: bool,
}

/// One directory entry on its way to the caller.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    pub ino: InodeId,
    pub kind: FileKind,
    /// Raw bytes: `.` and `..` are among the entries.
    pub name: &'a [u8],
    /// Where a listing goes on behind this entry (telldir); stable under change, above 0, below 2^63.
    pub cookie: u64,
    /// For `readdir` with attributes. `.` and `..` have none, and are not counted as look-ups.
    pub entry: Option<Entry>,
}

/// What a listing is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ListOf {
    /// Behind which entry it begins; 0: from the start.
    pub cookie: u64,
    /// There is room for attributes (READDIRPLUS). Entries may come without them all the same.
    pub with_attributes: bool,
    /// More entries than these have no room, however short their names. At least 1.
    pub entries_max: usize,
}

/// Takes entries until it is full; `false` means that this one did not fit and no more are wanted.
/// An entry that was refused has not been looked up (its count is taken back).
pub type DirSink<'a> = dyn FnMut(DirEntry<'_>) -> bool + Send + 'a;

/// How a write came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// The writer lacks the privilege to keep set-id bits (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_set_id: bool,
    /// The write comes from the page cache, not from a caller.
    pub from_cache: bool,
}

/// Space and files, as statfs(2) tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_bytes_max: u32,
}

/// Registers files with the kernel for passthrough. The FUSE face implements it.
pub trait Passthrough: Send + Sync + 'static {
    /// Errors: EPERM without the privilege, EOPNOTSUPP, ELOOP where the file system below is stacked too deep.
    fn register(&self, file: BorrowedFd<'_>) -> std::io::Result<BackingId>;
    fn unregister(&self, id: BackingId);
    /// Whether anybody but the caller has the file below open: the kernel has for as long as a program does, or has a mapping of what it has closed.
    /// What cannot be told is taken for open.
    fn is_open_elsewhere(&self, file: BorrowedFd<'_>) -> bool;
}

/// Takes back what the kernel has been told, or tells it unasked. The FUSE face implements it; calls may come from any thread, never wait (but
/// [`carried_out`](Self::carried_out)), and are carried out soon after.
pub trait Recall: Send + Sync + 'static {
    fn attributes(&self, ino: InodeId);
    /// Attributes and the cached bytes.
    fn data(&self, ino: InodeId);
    /// What was known of a name, there or not. Who has it open, or stands in it, sees it as removed.
    fn entry(&self, parent: InodeId, name: &Name);
    /// The name is to be asked for again before it is used; nothing changes for those who have it open.
    fn expire(&self, parent: InodeId, name: &Name);
    /// `ino` has lost this name, its last: those who watch it (inotify) hear of it. A directory that the kernel knows entries of stays known.
    fn removed(&self, parent: InodeId, name: &Name, ino: InodeId);
    /// Bytes that the kernel may keep, so that reading them need not ask; they may end beyond what was known of the file's size. A later
    /// `data` takes them back. They are not kept where too many wait.
    fn store(&self, ino: InodeId, offset: u64, data: Bytes);
    /// A number for all that has been said until now, for [`carried_out`](Self::carried_out).
    fn said(&self) -> u64;
    /// Whether all that was said until then is carried out, which is waited for `at_most` so long. What is said may wait for an operation to end: so
    /// an operation does not wait for long.
    fn carried_out(&self, said: u64, at_most: Duration) -> bool;
}

/// What the face can do, told once before the first operation.
#[derive(Clone, Default)]
pub struct FaceAbilities {
    pub passthrough: Option<Arc<dyn Passthrough>>,
    pub recall: Option<Arc<dyn Recall>>,
    /// A file that is open past the page cache can be mapped all the same ([`DataPath::Direct`], Linux 6.6).
    pub maps_direct: bool,
    /// What write(2) appends to a page that is written back in the same moment may be lost in the page cache.
    pub loses_appended: bool,
    /// A `copy_range` that is refused (`NotSupported`) is made by reads and writes.
    pub copies: bool,
}

type Answer<T> = FsResult<T>;

/// The operations. `ino`, `parent` are inode numbers that the caller has been given, or remembers from a
/// file handle: any number may come, and `Stale` answers those that lead nowhere.
#[rustfmt::skip]
pub trait FileSystem: Send + Sync + 'static {
    /// Called once, before the first operation.
    fn attach(&self, abilities: FaceAbilities);

    /// How long a `NotFound` of `lookup` may be believed.
    fn negative_validity(&self) -> Duration;

    // Names.
    fn lookup(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> impl Future<Output = Answer<Entry>> + Send;
    /// LOOKUP of `.`: the inode by its number (file handles).
    fn lookup_self(&self, ino: InodeId) -> impl Future<Output = Answer<Entry>> + Send;
    /// LOOKUP of `..`: a directory's parent; the root is its own.
    fn lookup_parent(&self, ino: InodeId) -> impl Future<Output = Answer<Entry>> + Send;
    /// `count` look-ups of `ino` are over. Never fails, never waits; `true` if something is left to be done that may take long, by
    /// [`forgotten`](Self::forgotten).
    fn forget(&self, ino: InodeId, count: u64) -> bool;
    /// What a `forget` has left to be done. Where it is not called it is done when the mount ends.
    fn forgotten(&self, _ino: InodeId) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// Makes anything but a regular file to be opened: directory, symlink, FIFO, socket, device, and mknod(2)'s file.
    fn make(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>) -> impl Future<Output = Answer<Entry>> + Send;
    fn link(&self, ctx: &Context<'_>, ino: InodeId, parent: InodeId, name: &Name) -> impl Future<Output = Answer<Entry>> + Send;
    fn unlink(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> impl Future<Output = Answer<()>> + Send;
    fn rmdir(&self, ctx: &Context<'_>, parent: InodeId, name: &Name) -> impl Future<Output = Answer<()>> + Send;
    fn rename(&self, ctx: &Context<'_>, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> impl Future<Output = Answer<()>> + Send;
    fn readlink(&self, ino: InodeId) -> impl Future<Output = Answer<Bytes>> + Send;

    // Attributes.
    /// May be dropped before its end, and asked anew.
    fn getattr(&self, ino: InodeId, handle: Option<HandleId>) -> impl Future<Output = Answer<Stat>> + Send;
    fn setattr(&self, ctx: &Context<'_>, ino: InodeId, handle: Option<HandleId>, change: &SetAttributes) -> impl Future<Output = Answer<Stat>> + Send;
    fn getxattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> impl Future<Output = Answer<Bytes>> + Send;
    /// `kill_set_gid`: this ACL is set by one who may not keep the set-group-id bit (`FUSE_SETXATTR_ACL_KILL_SGID`).
    fn setxattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName, value: &[u8], mode: XattrMode, kill_set_gid: bool) -> impl Future<Output = Answer<()>> + Send;
    /// The names, each followed by a NUL, as listxattr(2) has them.
    fn listxattr(&self, ctx: &Context<'_>, ino: InodeId) -> impl Future<Output = Answer<Bytes>> + Send;
    fn removexattr(&self, ctx: &Context<'_>, ino: InodeId, name: &XattrName) -> impl Future<Output = Answer<()>> + Send;
    /// access(2) where the kernel does not check for itself; `mask` has R 4, W 2, X 1.
    fn access(&self, ctx: &Context<'_>, ino: InodeId, mask: u32) -> impl Future<Output = Answer<()>> + Send;

    // Files.
    fn create(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>, flags: OpenFlags) -> impl Future<Output = Answer<(Entry, Opened)>> + Send;
    fn tmpfile(&self, ctx: &Context<'_>, parent: InodeId, new: NewInode<'_>, flags: OpenFlags) -> impl Future<Output = Answer<(Entry, Opened)>> + Send;
    fn open(&self, ctx: &Context<'_>, ino: InodeId, flags: OpenFlags) -> impl Future<Output = Answer<Opened>> + Send;
    /// Fills `into` from `offset`; returns how many bytes, fewer only at the end of the file. `for_cache`: what is read becomes pages in the kernel; of a file that
    /// is open past its page cache that tells of a mapping. (Else a caller takes it.)
    fn read(&self, ino: InodeId, handle: HandleId, offset: u64, into: &mut [u8], for_cache: bool) -> impl Future<Output = Answer<usize>> + Send;
    /// Writes all of `data`, or fails.
    fn write(&self, ino: InodeId, handle: HandleId, offset: u64, data: &[u8], flags: WriteFlags) -> impl Future<Output = Answer<usize>> + Send;
    fn flush(&self, ino: InodeId, handle: HandleId) -> impl Future<Output = Answer<()>> + Send;
    fn fsync(&self, ino: InodeId, handle: Option<HandleId>, data_only: bool) -> impl Future<Output = Answer<()>> + Send;
    fn release(&self, ino: InodeId, handle: HandleId) -> impl Future<Output = Answer<()>> + Send;
    /// By a caller who is not root, a change of bytes takes the set-id bits away, as with `write`.
    fn fallocate(&self, ctx: &Context<'_>, ino: InodeId, handle: HandleId, mode: FallocateMode, offset: u64, len: u64) -> impl Future<Output = Answer<()>> + Send;
    fn lseek(&self, ino: InodeId, handle: HandleId, offset: u64, whence: SeekWhence) -> impl Future<Output = Answer<u64>> + Send;
    fn copy_range(&self, ctx: &Context<'_>, from: (InodeId, HandleId, u64), to: (InodeId, HandleId, u64), len: u64) -> impl Future<Output = Answer<u64>> + Send;

    // Directories.
    /// Of `flags`, `no_atime` says something of a directory.
    fn opendir(&self, ctx: &Context<'_>, ino: InodeId, flags: OpenFlags) -> impl Future<Output = Answer<OpenedDirectory>> + Send;
    /// Entries into `sink`, until it is full.
    fn readdir(&self, ctx: &Context<'_>, ino: InodeId, handle: HandleId, of: ListOf, sink: &mut DirSink<'_>) -> impl Future<Output = Answer<()>> + Send;
    fn releasedir(&self, ino: InodeId, handle: HandleId) -> impl Future<Output = Answer<()>> + Send;
    fn fsyncdir(&self, ino: InodeId) -> impl Future<Output = Answer<()>> + Send;

    // The whole.
    /// May be dropped before its end, and asked anew.
    fn statfs(&self) -> impl Future<Output = Answer<Space>> + Send;
    fn syncfs(&self) -> impl Future<Output = Answer<()>> + Send;
    /// The last call: the mount is gone. Everything is committed, synced and let go.
    fn detach(&self) -> impl Future<Output = Answer<()>> + Send;
}

//! A bound on everything that can grow: names, values, queues, caches, batches.
//!
//! A room takes its bounds from here and nowhere else, so that one page tells what a process may hold.

use std::time::Duration;

// Names and values.

/// A directory entry's name (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// A symlink's target (Linux `PATH_MAX` less its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// An extended attribute's name (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// An extended attribute's value (Linux `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// All names of one inode's extended attributes, as listxattr(2) returns them (Linux `XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65_536;
/// Extended attributes up to this size are kept inside the inode record ...
pub const XATTR_SMALL_BYTES_MAX: usize = 256;
/// ... as long as all of them together stay below this.
pub const XATTR_INODE_BYTES_MAX: usize = 2048;
/// Entries of one ACL: as many as an extended attribute's value holds.
pub const ACL_ENTRIES_MAX: usize = (XATTR_VALUE_BYTES_MAX - 4) / 8;
/// Entries of one directory whose names have one hash: reached only by a broken hash.
pub const ENTRY_CHAIN_MAX: u64 = 4096;
/// Directories above one another: more can only be a circle.
pub const DIRECTORY_DEPTH_MAX: usize = 1 << 20;
/// Links to one inode.
pub const LINKS_MAX: u32 = 1_000_000_000;
/// A file's size: what `loff_t` holds.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

// Inline data.

/// The largest `inline-max` a volume can be formatted with.
pub const INLINE_BYTES_LIMIT: u32 = 65_536;
/// Inline data is stored in records of this many bytes, so that a small append does not rewrite it all.
pub const INLINE_CHUNK_BYTES: usize = 4096;

// Objects.

/// Objects in one directory of a pool.
pub const OBJECTS_PER_DIRECTORY: u64 = 512;
/// Inodes that a crash left unlinked while open and that one start releases; the others wait for the next.
pub const UNLINKED_KEPT_MAX: usize = 1_000_000;
/// Object numbers reserved by one durable step of a pool: how many a crash can leave to look at.
pub const OBJECT_RESERVATION: u64 = 4096;
/// The filler keeps between these many objects ready, following the load.
pub const OBJECTS_READY_MIN: usize = 16;
pub const OBJECTS_READY_MAX: usize = 2048;
/// Objects that the filler creates before it looks at the load again.
pub const FILLER_BURST_MAX: usize = 64;
/// Ready objects of a pool that are kept open, so that handing one out opens nothing.
pub const OBJECTS_READY_OPEN_MAX: usize = 256;
/// Object directories that a pool keeps open.
pub const OBJECT_DIRECTORIES_OPEN_MAX: usize = 64;
/// Object directories remembered as perhaps empty, to be removed in the background.
pub const OBJECT_DIRECTORIES_EMPTIED_MAX: usize = 1024;
/// Bytes of a volume's configuration: of all its pools, each with a path as long as may be.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a pool's identity file.
pub const POOL_IDENTITY_BYTES_MAX: u64 = 4096;
/// Pools of one volume.
pub const POOLS_MAX: usize = 64;

// Memory.

/// Inodes that the file-system layer remembers while open, or kept open after their last close.
pub const OPEN_FILES_MAX: usize = 1 << 20;
/// How long the kernel takes at most, presumably, to drop a file's pages after an open was answered so.
pub const PAGES_DROPPED: Duration = Duration::from_millis(20);
/// How long a write waits for the kernel to drop pages that may lack it. What it has to drop before may wait for an operation that waits as this one does.
pub const RECALL_PATIENCE: Duration = Duration::from_millis(100);
/// Descriptors, of those that the process may have, that open objects leave to others, the metadata above all; at most half of them.
pub const DESCRIPTORS_KEPT: usize = 4096;
/// Objects kept open after the last close, so that reopening is cheap.
pub const IDLE_OBJECTS_MAX: usize = 1024;
/// Replaced files that stay openable until the kernel forgets them.
pub const LINGERING_MAX: usize = 16_384;
/// Removed inodes whose last attributes are remembered for those who still hold them.
pub const GHOSTS_MAX: usize = 65_536;
/// Directories whose changed times wait in memory to be committed.
pub const DIRTY_DIRECTORIES_MAX: usize = 16_384;
/// Inodes whose access times wait in memory to be committed.
pub const ACCESS_TIMES_MAX: usize = 16_384;
/// Directories with a block of inode numbers to hand out from.
pub const INODE_BLOCKS_MAX: usize = 8192;
/// Inode numbers that a directory takes at once: few at first, more as it goes on.
pub const INODE_BLOCK_MIN: u64 = 8;
pub const INODE_BLOCK_MAX: u64 = 1024;
/// Stripes that the keys of a volume share for the isolation of transactions, 16 bytes each.
pub const STRIPES: usize = 1 << 14;
/// Directories of which is known what has been taken in them since they were made, 8 bytes each; a power of two.
pub const YOUNG_DIRECTORIES_MAX: usize = 1 << 16;
/// Bits for the slots taken in those: 8 MiB; a power of two.
pub const YOUNG_SLOT_BITS: usize = 1 << 26;
/// Inode numbers reserved in the header by one commit.
pub const INODE_RESERVATION: u64 = 1 << 20;
/// Bytes that the embedded engine may hold: block cache, filters, memtables and record cache together.
pub const ENGINE_MEMORY_BYTES: usize = 480 << 20;
/// What is put right in memory where a volume is opened for reading only: some 500 bytes for each file that was open for writing at
/// a crash.
pub const OVERLAY_BYTES_MAX: usize = 256 << 20;

/// Directories of which is remembered how their files ended (large or small).
pub const LEARNED_DIRECTORIES_MAX: usize = 8192;
/// Processes of which is remembered whether they look at the files that they list.
pub const LISTERS_MAX: usize = 256;
/// Entries of one directory that come with attributes before it is known whether anybody looks at them.
pub const LIST_ATTRIBUTES_UNASKED_MAX: usize = 32_768;
/// How long it is believed that a process looks at the files that it lists.
pub const LISTING_HABIT_LASTS: Duration = Duration::from_secs(10);
/// Inodes whose pages in the kernel are known to be out of date.
pub const STALE_PAGES_MAX: usize = 65_536;

// Queues and batches.

/// Records on the reclaim list handled by one commit.
pub const RECLAIM_BATCH: usize = 256;
/// Inodes whose gathered times are committed together.
pub const GATHERED_TIMES_BATCH: usize = 64;
/// Entries that a listing reads ahead.
pub const LIST_BATCH_MAX: usize = 1024;
/// Records on the reclaim list that the collector looks at in one pass, those that fail included.
pub const RECLAIM_PASS_MAX: usize = 16 * RECLAIM_BATCH;
/// How long what the objects of closed files have may wait for a sync of their pool: as long as the kernel lets written pages wait
/// (`dirty_expire_centisecs`), so that such a sync finds most of it written.
pub const CLOSED_UNSYNCED: Duration = Duration::from_secs(30);
/// Files that programs have open since before a crash, and may write behind our backs: one more is taken for one that nobody has.
pub const STRANGERS_MAX: usize = 65_536;
/// Inodes that recovery handles at a time.
pub const RECOVERY_BATCH: usize = 256;
/// Bytes that one step of a copy by hand moves, and that one copy request moves at most.
pub const COPY_CHUNK_BYTES: usize = 256 << 10;
pub const COPY_BYTES_MAX: u64 = 1 << 30;
/// Attempts of a transaction before it runs alone.
pub const CONFLICTS_MAX: u32 = 32;
/// Threads for work that waits (syncs, slow opens): as many as requests of `/dev/fuse` can be in hand, because those that wait for a
/// directory below that hangs keep theirs.
pub const BLOCKING_THREADS_MAX: usize = FUSE_TASKS_MAX;
/// Requests waiting for such a thread beyond those in hand: syncs whose callers were killed.
pub const BLOCKING_QUEUE_MAX: usize = 4096;

// The FUSE face.

/// The largest READ or WRITE that the kernel is asked for.
pub const FUSE_TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Requests of `/dev/fuse` in hand at one time, each with a buffer for the largest transfer.
pub const FUSE_TASKS_MAX: usize = 64;
/// Requests in hand on the io_uring queue of one CPU, those that wait included.
pub const FUSE_QUEUE_DEPTH: usize = 32;
/// Likewise on the queue of a CPU that the mount may not use itself, but others may.
pub const FUSE_STRAY_QUEUE_DEPTH: usize = 8;
/// Memory for requests, headers and the reader of `/dev/fuse` included: so much, and so much more for each possible CPU. Transfers are made
/// smaller, and queues shallower, until they fit.
pub const FUSE_BUFFERS_BYTES: usize = 16 << 20;
pub const FUSE_BUFFERS_BYTES_PER_CPU: usize = 1 << 20;
/// Requests in the background (read-ahead, releases) that the kernel may have under way.
pub const FUSE_BACKGROUND_MAX: u16 = 64;
/// Inodes that the kernel has forgotten and for which something is still to be done.
pub const FUSE_FORGETS_MAX: usize = 1 << 16;
/// Inodes and entries that the kernel is still to be told to forget.
pub const FUSE_RECALLS_MAX: usize = 1 << 20;
/// Bytes that wait to be put into the kernel's page cache unasked; what is beyond is not put there.
pub const FUSE_STORES_BYTES_MAX: usize = 16 << 20;

// Checks.

/// Problems that one check of the metadata tells; the rest comes up in the next, after a repair.
pub const CHECK_PROBLEMS_MAX: usize = 10_000;

// Dumps.

/// A line of a dump: the largest extended attribute in hexadecimal, and its name.
pub const DUMP_LINE_BYTES_MAX: usize = 256 * 1024;
/// Records of a dump that are loaded by one commit.
pub const LOAD_BATCH: usize = 1000;

// Times.

/// How far access times, and a directory's own times, may lag behind in a crash.
pub const GATHERED_TIMES_LAG: Duration = Duration::from_secs(1);
/// How often a failed pool is looked at again, and how old a pool's free space may be.
pub const POOL_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a pool is waited for that is asked for its free space; then what it said before must do.
pub const POOL_PATIENCE: Duration = Duration::from_secs(1);
/// How long who makes a file waits for the object that it is to begin in: the kernel has the directory locked meanwhile, and all who look a
/// name up there wait with him. A network's slowest round trips in order take less; without an object the file only begins as a small one.
pub const OBJECT_PATIENCE: Duration = Duration::from_millis(200);
/// The longest pause of the filler after errors.
pub const FILLER_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long the name of a new object may wait to be made durable in the background.
pub const OBJECT_NAME_LAG: Duration = Duration::from_secs(1);
/// How long the collector lets removals gather before it works on them.
pub const RECLAIM_GATHER: Duration = Duration::from_millis(50);
/// How long the collector waits after a failure: at first, and at most.
pub const RECLAIM_BACKOFF_MIN: Duration = Duration::from_secs(1);
pub const RECLAIM_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Metadata that nobody asked to sync is synced each so many of these: what a power cut costs at most.
pub const SYNC_TICKS: u32 = 5;

//! Metadata over a network: what is not in memory is not waited for on a thread that must not wait, whatever the operation.

mod common;

use std::{
    cell::Cell,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context as Polling, Poll, Waker},
};

use bytes::Bytes;
use cofs_engine::{AtOnce, Batch, Engine, EngineError, EngineStats, MemoryEngine, Outcome, Show, Visit};
use cofs_fs::{FileSystem, FsOptions, ListOf, WriteFlags, run};
use cofs_types::{
    FallocateMode, FileKind, FsResult, InodeId, NewInode, RenameMode, SeekWhence, SetAttributes, XattrMode,
    XattrName,
};
use common::*;

thread_local! {
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// An engine that has nothing in memory while it is far.
struct Far {
    inner: Arc<MemoryEngine>,
    far: AtomicBool,
    /// Reads for which a thread that must not wait would have waited.
    waits: AtomicUsize,
    /// Operations that went to where they may wait.
    moves: AtomicUsize,
}

impl Far {
    fn ask(&self) -> Result<(), EngineError> {
        if !self.far.load(Ordering::Relaxed) {
            return Ok(());
        }
        if AtOnce::is_wanted() {
            let errno = Some(rustix::io::Errno::WOULDBLOCK.raw_os_error());
            return Err(EngineError { what: "far".into(), errno, advice: None });
        }
        self.waits.fetch_add(MUST_NOT_WAIT.get().into(), Ordering::Relaxed);
        Ok(())
    }
}

impl Engine for Far {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.ask().and_then(|()| self.inner.get(key))
    }
    fn show(&self, keys: &[&[u8]], see: Show<'_>) -> Result<(), EngineError> {
        self.ask().and_then(|()| self.inner.show(keys, see))
    }
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        self.ask().and_then(|()| self.inner.multi_get(keys))
    }
    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        self.ask().and_then(|()| self.inner.scan(start, end, visit))
    }
    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        self.inner.commit(batch)
    }
    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }
    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }
}

/// Polls once, as a worker does, while nothing is in memory; then lets the operation come to its end where it may wait.
fn begins_without_waiting<T>(far: &Far, what: &str, operation: impl Future<Output = FsResult<T>>) -> T {
    let mut operation = pin!(operation);
    far.far.store(true, Ordering::Relaxed);
    MUST_NOT_WAIT.set(true);
    let polled = operation.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
    MUST_NOT_WAIT.set(false);
    assert_eq!(far.waits.load(Ordering::Relaxed), 0, "{what} waited");
    let done = match polled {
        // All that it wanted was what the thread had just read.
        Poll::Ready(done) => done,
        Poll::Pending => {
            far.moves.fetch_add(1, Ordering::Relaxed);
            run(operation)
        }
    };
    far.far.store(false, Ordering::Relaxed);
    done.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// What is in memory is served where it came in.
fn ends_at_once<T>(what: &str, operation: impl Future<Output = FsResult<T>>) -> T {
    match pin!(operation).poll(&mut Polling::from_waker(Waker::noop())) {
        Poll::Ready(done) => done.unwrap(),
        Poll::Pending => panic!("{what} went to wait"),
    }
}

#[test]
fn what_is_not_in_memory_is_read_on_a_thread_that_may_wait() {
    let world = World::new();
    let engine = Arc::clone(&world.engine);
    let far = Arc::new(Far {
        inner: engine,
        far: AtomicBool::new(false),
        waits: AtomicUsize::new(0),
        moves: AtomicUsize::new(0),
    });
    let options = FsOptions { remote_metadata: true, ..FsOptions::default() };
    let volume = world.mount_over(Arc::clone(&far) as _, options);
    let fs = &volume.fs;
    let root = InodeId::ROOT;
    let user = XattrName::new(b"user.a").unwrap();
    let mode = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    let link = NewInode { kind: FileKind::Symlink, target: b"to", ..new_file(0o777) };
    let flags = WriteFlags::default();
    let keep_size = FallocateMode::Allocate { keep_size: true };
    let mut into = [0; 4];

    let made = begins_without_waiting(&far, "mkdir", fs.make(&CONTEXT, root, name("d"), new_directory()));
    let dir = made.attributes.ino;
    let made = begins_without_waiting(&far, "symlink", fs.make(&CONTEXT, dir, name("s"), link));
    let symlink = made.attributes.ino;
    let (made, file) =
        begins_without_waiting(&far, "create", fs.create(&CONTEXT, dir, name("f"), new_file(0o644), RW));
    let ino = made.attributes.ino;
    let (_, nameless) =
        begins_without_waiting(&far, "tmpfile", fs.tmpfile(&CONTEXT, dir, new_file(0o644), RW));
    let _ = nameless;
    begins_without_waiting(&far, "write", fs.write(ino, file.handle, 0, b"data", flags));
    begins_without_waiting(&far, "append", fs.write(ino, file.handle, 4, b"more", flags));
    begins_without_waiting(&far, "fallocate", fs.fallocate(&CONTEXT, ino, file.handle, keep_size, 0, 8));
    begins_without_waiting(&far, "lseek", fs.lseek(ino, file.handle, 0, SeekWhence::Data));
    begins_without_waiting(&far, "release", fs.release(ino, file.handle));
    begins_without_waiting(&far, "lookup", fs.lookup(&CONTEXT, dir, name("f")));
    begins_without_waiting(&far, "lookup of .", fs.lookup_self(ino));
    begins_without_waiting(&far, "lookup of ..", fs.lookup_parent(dir));
    begins_without_waiting(&far, "getattr", fs.getattr(ino, None));
    begins_without_waiting(&far, "setattr", fs.setattr(&CONTEXT, ino, None, &mode));
    begins_without_waiting(&far, "access", fs.access(&CONTEXT, ino, 4));
    begins_without_waiting(&far, "setxattr", fs.setxattr(&CONTEXT, ino, user, b"v", XattrMode::Set, false));
    begins_without_waiting(&far, "getxattr", fs.getxattr(&CONTEXT, ino, user));
    begins_without_waiting(&far, "listxattr", fs.listxattr(&CONTEXT, ino));
    begins_without_waiting(&far, "removexattr", fs.removexattr(&CONTEXT, ino, user));
    let target = begins_without_waiting(&far, "readlink", fs.readlink(symlink));
    assert_eq!(target, &b"to"[..]);
    let opened = begins_without_waiting(&far, "open", fs.open(&CONTEXT, ino, RO));
    begins_without_waiting(&far, "read", fs.read(ino, opened.handle, 2, &mut into));
    assert_eq!(&into, b"tamo");
    run(fs.release(ino, opened.handle)).unwrap();
    let listing = begins_without_waiting(&far, "opendir", fs.opendir(&CONTEXT, dir));
    let of = ListOf { cookie: 0, with_attributes: true, entries_max: 100 };
    let mut names = 0;
    let mut sink = |_: cofs_fs::DirEntry<'_>| {
        names += 1;
        true
    };
    begins_without_waiting(&far, "readdir", fs.readdir(&CONTEXT, dir, listing.handle, of, &mut sink));
    assert_eq!(names, 4, "each once, with . and ..");
    begins_without_waiting(&far, "link", fs.link(&CONTEXT, ino, root, name("l")));
    let (from, to) = ((dir, name("f")), (root, name("l2")));
    begins_without_waiting(&far, "rename", fs.rename(&CONTEXT, from, to, RenameMode::Replace));
    begins_without_waiting(&far, "unlink", fs.unlink(&CONTEXT, root, name("l")));
    run(fs.unlink(&CONTEXT, dir, name("s"))).unwrap();
    begins_without_waiting(&far, "rmdir", fs.rmdir(&CONTEXT, root, name("d")));

    let moves = far.moves.load(Ordering::Relaxed);
    assert!(moves > 20, "{moves} of some 30 went");

    // Near again.
    ends_at_once("lookup", fs.lookup(&CONTEXT, root, name("l2")));
    ends_at_once("getattr", fs.getattr(ino, None));
    let opened = ends_at_once("open", fs.open(&CONTEXT, ino, RW));
    ends_at_once("read", fs.read(ino, opened.handle, 0, &mut into));
    ends_at_once("write", fs.write(ino, opened.handle, 0, b"d", flags));
    ends_at_once("release", fs.release(ino, opened.handle));
    ends_at_once("unlink", fs.unlink(&CONTEXT, root, name("l2")));
}

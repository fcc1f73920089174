//! Whatever an operation must read may be on a disk. It is tried without patience first, and comes to the same as where everything is in memory:
//! once, and whole.

mod common;

use std::{
    cell::Cell,
    fmt::Write,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context as Polling, Poll, Waker},
};

use bytes::Bytes;
use cofs_engine::{Batch, Engine, EngineError, EngineStats, MemoryEngine, Outcome, Visit};
use cofs_fs::{Context, FileSystem, FsOptions, ListOf, Opened, Stat, WriteFlags, run};
use cofs_metadata::MetadataDriver;
use cofs_types::{
    Authority, Credentials, FallocateMode, FileKind, FsResult, InodeId, NewInode, OpenFlags, RenameMode,
    SeekWhence, SetAttributes, SetTime, Timestamp, XattrMode, XattrName, limits,
};
use common::*;
use rustix::io::Errno;

thread_local! {
    /// This thread must not wait, and has changed nothing yet.
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Everything is on the disk, but for so many reads. Who has patience has all of it.
struct ColdEngine {
    inner: Arc<MemoryEngine>,
    warm: AtomicU64,
    refused: AtomicU64,
}

impl ColdEngine {
    fn read(&self) -> Result<(), EngineError> {
        if !cofs_wait::is_impatient() {
            assert!(!MUST_NOT_WAIT.get(), "a worker waits");
            return Ok(());
        }
        if self.warm.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |warm| warm.checked_sub(1)).is_ok() {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        cofs_wait::refuse();
        Err(EngineError {
            what: "on the disk".into(),
            errno: Some(Errno::AGAIN.raw_os_error()),
            advice: None,
        })
    }
}

impl Engine for ColdEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.read()?;
        self.inner.get(key)
    }
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        self.read()?;
        self.inner.multi_get(keys)
    }
    fn scan(&self, start: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), EngineError> {
        self.read()?;
        self.inner.scan(start, end, visit)
    }
    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        assert!(!cofs_wait::is_impatient(), "who changes something waits from there on");
        MUST_NOT_WAIT.set(false);
        self.inner.commit(batch)
    }
    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }
    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }
}

struct Fixture {
    volume: Volume,
    engine: Arc<ColdEngine>,
    _world: World,
    /// Inline, and open.
    small: (InodeId, Opened),
    /// In an object, and open.
    large: (InodeId, Opened),
    /// Inline, open, and without a name.
    gone: (InodeId, Opened),
    /// A program that its owner has made set-user-id, open.
    program: (InodeId, Opened),
    directory: InodeId,
}

const ALICE: Credentials<'static> =
    Credentials { uid: 1000, gid: 1000, groups: &[], authority: Authority::Unchecked };
const BY_ALICE: Context<'static> = Context { credentials: ALICE, pid: 2 };

fn attribute(name: &str) -> &XattrName {
    XattrName::new(name.as_bytes()).unwrap()
}

impl Fixture {
    fn new() -> Self {
        let world = World::new();
        let engine = Arc::new(ColdEngine {
            inner: Arc::clone(&world.engine),
            warm: AtomicU64::new(u64::MAX),
            refused: AtomicU64::default(),
        });
        let volume = world.mount_over(Arc::clone(&engine) as _, FsOptions::default());
        let fs = &volume.fs;
        let directory = run(fs.make(&CONTEXT, InodeId::ROOT, name("directory"), new_directory())).unwrap();
        let directory = directory.attributes.ino;
        run(fs.make(&CONTEXT, directory, name("empty"), new_directory())).unwrap();
        let target = NewInode { kind: FileKind::Symlink, target: b"small", ..new_file(0o777) };
        run(fs.make(&CONTEXT, InodeId::ROOT, name("link"), target)).unwrap();
        let small = volume.create("small");
        volume.write(small.0, small.1, 0, &pattern(3000, 1));
        run(fs.setxattr(&CONTEXT, small.0, attribute("user.a"), b"value", XattrMode::Set, false)).unwrap();
        let other = volume.create_in(directory, "other", RW);
        volume.write(other.0, other.1, 0, &pattern(2000, 2));
        volume.close(other.0, other.1);
        let large = volume.create("large");
        volume.write(large.0, large.1, 0, &pattern(INLINE_MAX * 3, 3));
        let gone = volume.create("gone");
        volume.write(gone.0, gone.1, 0, &pattern(500, 4));
        volume.unlink("gone");
        let program = volume.create("program");
        volume.write(program.0, program.1, 0, &pattern(700, 5));
        let owned = SetAttributes { uid: Some(1000), gid: Some(1000), ..SetAttributes::default() };
        volume.setattr(program.0, owned).unwrap();
        let set_id = SetAttributes { permissions: Some(0o4755), ..SetAttributes::default() };
        volume.setattr(program.0, set_id).unwrap();
        // Who writes what was just opened waits for that, on a thread that may.
        std::thread::sleep(limits::PAGES_DROPPED);
        Self { volume, engine, _world: world, small, large, gone, program, directory }
    }

    /// Everything that can be seen of the volume, and nothing that depends on when it was.
    fn seen(&self) -> String {
        let mut seen = String::new();
        self.see_directory(InodeId::ROOT, &mut seen);
        let metadata = self.volume.fs.metadata();
        let unlinked = run(metadata.unlinked_set(None, 100)).unwrap().value.len();
        let written = run(metadata.writing_set(None, 100)).unwrap().value.len();
        writeln!(seen, "{} files, {unlinked} unlinked, {written} being written", metadata.files()).unwrap();
        seen
    }

    fn see_directory(&self, directory: InodeId, seen: &mut String) {
        let fs = &self.volume.fs;
        let handle = run(fs.opendir(&CONTEXT, directory, RO)).unwrap().handle;
        let mut entries = Vec::new();
        let of = ListOf { cookie: 0, with_attributes: false, entries_max: 1000 };
        let mut sink = |entry: cofs_fs::DirEntry<'_>| {
            entries.push((entry.name.to_vec(), entry.ino));
            true
        };
        run(fs.readdir(&CONTEXT, directory, handle, of, &mut sink)).unwrap();
        entries.sort();
        for (name, ino) in entries {
            let name = String::from_utf8(name).unwrap();
            let it = self.volume.stat(ino);
            writeln!(
                seen,
                "{name}: {:?} {:o} {}:{} {} links {} bytes",
                it.kind, it.permissions, it.uid, it.gid, it.nlink, it.size_bytes
            )
            .unwrap();
            let attributes = run(fs.listxattr(&CONTEXT, ino)).unwrap();
            for attribute in attributes.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                let value = run(fs.getxattr(&CONTEXT, ino, XattrName::new(attribute).unwrap())).unwrap();
                writeln!(seen, "  {} = {value:?}", String::from_utf8_lossy(attribute)).unwrap();
            }
            match it.kind {
                FileKind::Regular => {
                    let bytes = self.volume.contents(ino);
                    let sum = bytes.iter().fold(7_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
                    writeln!(seen, "  {} {sum:x}", self.volume.is_inline(ino)).unwrap();
                }
                FileKind::Symlink => writeln!(seen, "  {:?}", run(fs.readlink(ino)).unwrap()).unwrap(),
                FileKind::Directory if !name.starts_with('.') => self.see_directory(ino, seen),
                _ => {}
            }
        }
    }
}

type Done<'a> = Pin<Box<dyn Future<Output = String> + 'a>>;
type Operation = for<'a> fn(&'a Fixture) -> Done<'a>;

/// What one who asks learns: no times, and no numbers of inodes, which an operation that begins again may leave out.
fn told<T>(result: FsResult<T>, tell: impl Fn(T) -> String) -> String {
    match result {
        Ok(value) => tell(value),
        Err(error) => format!("{error:?}"),
    }
}

fn nothing<T>(_: T) -> String {
    "done".into()
}

/// The operation on a worker that has read nothing lately, where only so many reads are answered from memory; and whether one was refused.
fn tried(fixture: &Fixture, warm: u64, operation: Operation) -> (String, bool) {
    let begin_here = || {
        let mut operation = operation(fixture);
        fixture.engine.warm.store(warm, Ordering::Relaxed);
        MUST_NOT_WAIT.set(true);
        let polled = operation.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
        MUST_NOT_WAIT.set(false);
        fixture.engine.warm.store(u64::MAX, Ordering::Relaxed);
        match polled {
            Poll::Ready(done) => done,
            Poll::Pending => run(operation),
        }
    };
    let done = std::thread::scope(|scope| scope.spawn(begin_here).join().unwrap());
    (done, fixture.engine.refused.load(Ordering::Relaxed) > 0)
}

/// `operation` comes to the same, whatever has to be read from the disk for it. It reads `reads` times at least.
fn whatever_is_cold(reads: u64, operation: Operation) {
    let fixture = Fixture::new();
    let expected = run(operation(&fixture));
    let seen = fixture.seen();
    for warm in 0.. {
        let fixture = Fixture::new();
        let (done, refused) = tried(&fixture, warm, operation);
        assert_eq!(done, expected, "{warm} reads in memory");
        assert_eq!(fixture.seen(), seen, "{warm} reads in memory");
        if !refused {
            assert!(warm >= reads, "it reads {warm} times");
            break;
        }
    }
}

macro_rules! whatever_is_cold {
    ($($test:ident($reads:literal): |$f:ident| $operation:expr => $tell:expr;)*) => {$(
        #[test]
        fn $test() {
            whatever_is_cold($reads, |$f| Box::pin(async move { told($operation.await, $tell) }));
        }
    )*};
}

const NOTHING: SetAttributes = SetAttributes { kill_set_id: false, ..SetAttributes::KILL_SET_ID };
const TIMES: SetAttributes =
    SetAttributes { mtime: Some(SetTime::To(Timestamp { secs: 7, nanos: 8 })), ..NOTHING };
const SHORT: SetAttributes = SetAttributes { size_bytes: Some(100), ..NOTHING };
const LONG: SetAttributes = SetAttributes { size_bytes: Some(INLINE_MAX as u64 * 2), ..NOTHING };
const TRUNCATE: OpenFlags = OpenFlags { truncate: true, ..RW };

fn attributes(stat: Stat) -> String {
    let it = stat.attributes;
    format!("{:o} {}:{} {} bytes", it.permissions, it.uid, it.gid, it.size_bytes)
}

whatever_is_cold! {
    create(1): |f| f.volume.fs.create(&CONTEXT, f.directory, name("new"), new_file(0o640), RW) => nothing;
    create_what_is_there(3): |f| f.volume.fs.create(&CONTEXT, InodeId::ROOT, name("small"), new_file(0o640), RW) => nothing;
    create_over(4): |f| f.volume.fs.create(&CONTEXT, InodeId::ROOT, name("small"), new_file(0o640), TRUNCATE) => nothing;
    create_exclusively(2): |f| f.volume.fs.create(&CONTEXT, InodeId::ROOT, name("small"), new_file(0o640), OpenFlags { exclusive: true, ..RW }) => nothing;
    tmpfile(1): |f| f.volume.fs.tmpfile(&CONTEXT, f.directory, new_file(0o600), RW) => nothing;
    mkdir(2): |f| f.volume.fs.make(&CONTEXT, f.directory, name("new"), new_directory()) => nothing;
    mkdir_twice(2): |f| f.volume.fs.make(&CONTEXT, f.directory, name("empty"), new_directory()) => nothing;
    link(2): |f| f.volume.fs.link(&CONTEXT, f.small.0, f.directory, name("new")) => nothing;
    unlink(3): |f| f.volume.fs.unlink(&CONTEXT, f.directory, name("other")) => nothing;
    unlink_what_is_open(3): |f| f.volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("small")) => nothing;
    unlink_an_object(3): |f| f.volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("large")) => nothing;
    unlink_nothing(2): |f| f.volume.fs.unlink(&CONTEXT, InodeId::ROOT, name("nobody")) => nothing;
    rmdir(4): |f| f.volume.fs.rmdir(&CONTEXT, f.directory, name("empty")) => nothing;
    rmdir_what_is_full(4): |f| f.volume.fs.rmdir(&CONTEXT, InodeId::ROOT, name("directory")) => nothing;
    rename(4): |f| f.volume.fs.rename(&CONTEXT, (InodeId::ROOT, name("small")), (f.directory, name("new")), RenameMode::Replace) => nothing;
    rename_over(5): |f| f.volume.fs.rename(&CONTEXT, (InodeId::ROOT, name("small")), (f.directory, name("other")), RenameMode::Replace) => nothing;
    rename_over_what_is_open(5): |f| f.volume.fs.rename(&CONTEXT, (f.directory, name("other")), (InodeId::ROOT, name("large")), RenameMode::Replace) => nothing;
    exchange(5): |f| f.volume.fs.rename(&CONTEXT, (InodeId::ROOT, name("small")), (f.directory, name("other")), RenameMode::Exchange) => nothing;
    set_times(1): |f| f.volume.fs.setattr(&CONTEXT, f.directory, None, &TIMES) => attributes;
    set_times_of_what_is_open(1): |f| f.volume.fs.setattr(&CONTEXT, f.small.0, None, &TIMES) => attributes;
    set_times_of_an_object(1): |f| f.volume.fs.setattr(&CONTEXT, f.large.0, None, &TIMES) => attributes;
    lose_set_id(1): |f| f.volume.fs.setattr(&BY_ALICE, f.program.0, None, &SetAttributes::KILL_SET_ID) => attributes;
    cut(2): |f| f.volume.fs.setattr(&CONTEXT, f.small.0, None, &SHORT) => attributes;
    cut_by_path(2): |f| f.volume.fs.setattr(&BY_ALICE, f.program.0, None, &SHORT) => attributes;
    cut_what_is_gone(2): |f| f.volume.fs.setattr(&CONTEXT, f.gone.0, Some(f.gone.1.handle), &SHORT) => attributes;
    cut_an_object(1): |f| f.volume.fs.setattr(&CONTEXT, f.large.0, None, &SHORT) => attributes;
    stretch(1): |f| f.volume.fs.setattr(&CONTEXT, f.small.0, None, &LONG) => attributes;
    open_and_empty(1): |f| f.volume.fs.open(&CONTEXT, f.small.0, TRUNCATE) => nothing;
    open_and_empty_an_object(1): |f| f.volume.fs.open(&CONTEXT, f.large.0, TRUNCATE) => nothing;
    open(1): |f| f.volume.fs.open(&CONTEXT, f.small.0, RO) => nothing;
    write(2): |f| f.volume.fs.write(f.small.0, f.small.1.handle, 2000, &[7; 2000], WriteFlags::default()) => |n| n.to_string();
    write_past_inline(0): |f| f.volume.fs.write(f.small.0, f.small.1.handle, 2000, &[7; INLINE_MAX], WriteFlags::default()) => |n| n.to_string();
    write_a_program(2): |f| f.volume.fs.write(f.program.0, f.program.1.handle, 0, b"new", WriteFlags { kill_set_id: true, ..WriteFlags::default() }) => |n| n.to_string();
    close_what_is_gone(1): |f| f.volume.fs.release(f.gone.0, f.gone.1.handle) => nothing;
    close_an_object(1): |f| f.volume.fs.release(f.large.0, f.large.1.handle) => nothing;
    punch_a_hole(2): |f| f.volume.fs.fallocate(&CONTEXT, f.small.0, f.small.1.handle, FallocateMode::PunchHole, 100, 1000) => nothing;
    allocate(1): |f| f.volume.fs.fallocate(&CONTEXT, f.small.0, f.small.1.handle, FallocateMode::Allocate { keep_size: false }, 0, 5000) => nothing;
    zero_a_program(1): |f| f.volume.fs.fallocate(&BY_ALICE, f.program.0, f.program.1.handle, FallocateMode::ZeroRange { keep_size: true }, 0, 10) => nothing;
    copy(0): |f| f.volume.fs.copy_range(&CONTEXT, (f.small.0, f.small.1.handle, 0), (f.program.0, f.program.1.handle, 100), 500) => |n| n.to_string();
    set_attribute(1): |f| f.volume.fs.setxattr(&CONTEXT, f.small.0, attribute("user.b"), b"new", XattrMode::Set, false) => nothing;
    change_attribute(1): |f| f.volume.fs.setxattr(&CONTEXT, f.small.0, attribute("user.a"), b"new", XattrMode::Replace, false) => nothing;
    remove_attribute(1): |f| f.volume.fs.removexattr(&CONTEXT, f.small.0, attribute("user.a")) => nothing;
    remove_no_attribute(1): |f| f.volume.fs.removexattr(&CONTEXT, f.small.0, attribute("user.c")) => nothing;
    stat(1): |f| f.volume.fs.getattr(f.large.0, None) => attributes;
    lookup(2): |f| f.volume.fs.lookup(&CONTEXT, f.directory, name("other")) => |entry| entry.attributes.size_bytes.to_string();
    seek(1): |f| f.volume.fs.lseek(f.small.0, f.small.1.handle, 10, SeekWhence::Hole) => |at| at.to_string();
    read_a_link(1): |f| async { let link = f.volume.fs.lookup(&CONTEXT, InodeId::ROOT, name("link")).await?; f.volume.fs.readlink(link.attributes.ino).await } => |to| format!("{to:?}");
    list(2): |f| async {
        let mut names = 0;
        let handle = f.volume.fs.opendir(&CONTEXT, f.directory, RO).await?.handle;
        let mut sink = |_: cofs_fs::DirEntry<'_>| { names += 1; true };
        let of = ListOf { cookie: 0, with_attributes: true, entries_max: 100 };
        f.volume.fs.readdir(&CONTEXT, f.directory, handle, of, &mut sink).await?;
        Ok(names)
    } => |names: u32| names.to_string();
}

//! A worker: random operations on its own directory, each noted when it is acknowledged.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use cofs_testkit::machine::{Release, running};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags, linkat,
    renameat_with, utimensat,
};

use crate::{
    disk::{compare, look},
    judge::{Outcome, judge},
    world::{FileId, Node, Op, World, bytes},
};

const FILES_MAX: usize = 70;
const OPEN_MAX: usize = 6;
/// Where FUSE has `O_TMPFILE`. Before, a file appears in two steps (which an end at work may come between; older kernels are tried without).
const UNNAMED_FILES: Release = (6, 1);

pub struct Worker {
    pub top: PathBuf,
    world: World,
    open: BTreeMap<FileId, fs::File>,
    random: SmallRng,
    next_id: FileId,
    in_flight: Option<(Op, Instant)>,
    pub acknowledged: u64,
}

impl Worker {
    pub fn new(top: PathBuf, seed: u64) -> Self {
        fs::create_dir(&top).unwrap();
        Self {
            top,
            world: World::default(),
            open: BTreeMap::new(),
            random: SmallRng::seed_from_u64(seed),
            next_id: 1,
            in_flight: None,
            acknowledged: 0,
        }
    }

    /// Works until `stop`, or until the daemon is gone, or `ops_max` operations are done.
    pub fn run(&mut self, stop: &AtomicBool, ops_max: u64) {
        for _ in 0..ops_max {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let op = self.draw();
            let begun = Instant::now();
            match self.execute(&op) {
                Ok(()) => {
                    self.world.apply(&op);
                    self.acknowledged += 1;
                }
                Err(error) if gone(&error) || self.cut_off(&error) => {
                    self.in_flight = Some((op, begun));
                    break;
                }
                Err(error) => panic!("{op:?} in {:?}: {error}", self.top),
            }
        }
    }

    /// An open whose reply was the daemon's last word may fail with EIO, as the kernel has let go of the backing
    /// file that it names: the mount itself then tells whether the daemon is gone.
    fn cut_off(&self, error: &io::Error) -> bool {
        let mount = || rustix::fs::statfs(&self.top).err().map(io::Error::from);
        error.raw_os_error() == Some(libc::EIO) && mount().is_some_and(|error| gone(&error))
    }

    /// Lets go of every descriptor; they are of no use once the daemon is gone.
    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// Whether an operation had begun before that time and was not acknowledged.
    pub fn was_in_flight(&self, at: Instant) -> bool {
        self.in_flight.as_ref().is_some_and(|(_, begun)| *begun < at)
    }

    /// Compares the directory with what was acknowledged, with and without the operation in flight, and goes on from what is there.
    #[track_caller]
    pub fn check(&mut self) -> Outcome {
        assert!(self.open.is_empty());
        let seen = look(&self.top);
        let (outcome, world) = match self.in_flight.take() {
            Some((op, _)) => {
                judge(&self.world, &op, &seen).unwrap_or_else(|why| panic!("{:?}, {why}", self.top))
            }
            None => {
                let world = self.world.after_crash([]);
                compare(&world, &seen).unwrap_or_else(|why| panic!("{:?}: {why}", self.top));
                (Outcome::NothingInFlight, world)
            }
        };
        self.world = world;
        outcome
    }

    // ---- drawing an operation that must succeed -------------------------------------------------

    fn draw(&mut self) -> Op {
        for _ in 0..100 {
            if let Some(op) = self.try_draw() {
                return op;
            }
        }
        self.create()
    }

    fn try_draw(&mut self) -> Option<Op> {
        if self.world.files.len() > FILES_MAX {
            let path = self.some_file()?;
            return Some(Op::Unlink { path });
        }
        Some(match self.random.random_range(0..100) {
            0..15 => self.create(),
            15..18 => {
                let (id, len, seed) = (self.new_id(), self.some_len(), self.random.random());
                Op::Appear { path: self.new_name(), id, seed, len }
            }
            18..45 => {
                let id = self.some_id()?;
                let size = self.world.files[&id].data.len();
                let offset =
                    if self.random.random_bool(0.5) { size } else { self.random.random_range(0..=size) };
                Op::Write { id, offset, seed: self.random.random(), len: self.some_len().max(1) }
            }
            45..51 => Op::Truncate { id: self.some_id()?, len: self.some_len() },
            51..54 => {
                let (id, offset) = (self.some_id()?, self.some_len());
                Op::Punch { id, offset, len: self.some_len().max(1) }
            }
            54..56 => Op::Allocate { id: self.some_id()?, len: self.some_len().max(1) },
            56..58 => {
                let (from, to) = (self.some_id()?, self.some_id()?);
                let len = self.world.files[&from].data.len();
                (from != to && len > 0).then_some(Op::Copy { from, to, len })?
            }
            58..66 => Op::Unlink { path: self.some_file()? },
            66..74 => self.rename()?,
            74..76 => {
                let (one, other) = (self.some_file()?, self.some_file()?);
                Op::Exchange { one, other }
            }
            76..79 => Op::Link { from: self.some_file()?, to: self.new_name() },
            79..82 => Op::Mkdir { path: format!("d{}", self.new_id()) },
            82..84 => Op::Rmdir { path: self.empty_directory()? },
            84..86 => {
                let path = self.new_name();
                let length = self.random.random_range(1..300);
                Op::Symlink { path, target: "t".repeat(length) }
            }
            86..88 => {
                Op::Chmod { path: self.some_file()?, mode: self.random.random_range(0..0o1000) | 0o600 }
            }
            88..90 => {
                let (seed, len) = (self.random.random(), self.random.random_range(0..2000));
                Op::SetAttribute { path: self.some_file()?, value: bytes(seed, len) }
            }
            90..91 => {
                let path = self.some_file()?;
                let id = self.world.id(&path);
                self.world.files[&id].attribute.is_some().then_some(Op::RemoveAttribute { path })?
            }
            91..93 => {
                let mtime =
                    (self.random.random_range(1..4_000_000_000), self.random.random_range(0..1_000_000_000));
                Op::SetTime { path: self.some_file()?, mtime }
            }
            93..95 => Op::Sync { id: self.some_id()? },
            95..96 if self.random.random_bool(0.2) => Op::SyncAll,
            _ => Op::Close { id: *self.open.keys().next()? },
        })
    }

    fn create(&mut self) -> Op {
        Op::Create { path: self.new_name(), id: self.new_id(), mode: 0o644 }
    }

    fn rename(&mut self) -> Option<Op> {
        if self.random.random_bool(0.2) {
            let from = self.some_directory()?;
            return Some(Op::Rename { from, to: format!("d{}", self.new_id()) });
        }
        let from = self.some_file()?;
        let to = if self.random.random_bool(0.4) { self.some_file()? } else { self.new_name() };
        // One link onto another of the same file does nothing, which the model does not know.
        let same = self.world.names.get(&to) == self.world.names.get(&from);
        (!same).then_some(Op::Rename { from, to })
    }

    fn new_id(&mut self) -> FileId {
        self.next_id += 1;
        self.next_id
    }

    fn new_name(&mut self) -> String {
        let name = format!("f{}", self.new_id());
        match self.some_directory() {
            Some(directory) if self.random.random_bool(0.6) => format!("{directory}/{name}"),
            _ => name,
        }
    }

    fn pick<T>(&mut self, from: Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let at = self.random.random_range(0..from.len());
        from.into_iter().nth(at)
    }

    fn some_file(&mut self) -> Option<String> {
        let files = self.world.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        let files = files.map(|(name, _)| name.clone()).collect();
        self.pick(files)
    }

    fn some_directory(&mut self) -> Option<String> {
        let directories = self.world.names.iter().filter(|(_, node)| **node == Node::Directory);
        let directories = directories.map(|(name, _)| name.clone()).collect();
        self.pick(directories)
    }

    fn empty_directory(&mut self) -> Option<String> {
        let directory = self.some_directory()?;
        let inside = format!("{directory}/");
        (!self.world.names.keys().any(|name| name.starts_with(&inside))).then_some(directory)
    }

    /// A file that has a name, or an unlinked one that is held open.
    fn some_id(&mut self) -> Option<FileId> {
        let world = &self.world;
        let reachable = |id: &&FileId| self.open.contains_key(*id) || world.links(**id) > 0;
        let ids = world.files.keys().filter(reachable).copied().collect();
        self.pick(ids)
    }

    /// Mostly small, sometimes around the bounds of inline data, sometimes large.
    fn some_len(&mut self) -> usize {
        match self.random.random_range(0..100) {
            0..50 => self.random.random_range(0..3000),
            50..75 => self.random.random_range(0..20_000),
            75..96 => self.random.random_range(0..150_000),
            _ => self.random.random_range(0..1_500_000),
        }
    }

    // ---- doing it -----------------------------------------------------------------------------------

    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// The descriptor held for a file, or a new one; some are held, so that files are open when the daemon ends.
    fn with<T>(&mut self, id: FileId, work: impl FnOnce(&fs::File) -> io::Result<T>) -> io::Result<T> {
        if let Some(file) = self.open.get(&id) {
            return work(file);
        }
        let name = self.world.name(id).unwrap().to_owned();
        let file = OpenOptions::new().read(true).write(true).open(self.path(&name))?;
        let done = work(&file)?;
        if self.open.len() < OPEN_MAX && self.random.random_bool(0.3) {
            self.open.insert(id, file);
        }
        Ok(done)
    }

    fn execute(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Create { path, id, mode } => {
                let mut options = OpenOptions::new();
                let file =
                    options.read(true).write(true).create_new(true).mode(*mode).open(self.path(path))?;
                if self.open.len() < OPEN_MAX {
                    self.open.insert(*id, file);
                }
                Ok(())
            }
            Op::Appear { path, seed, len, .. } => appear(&self.top, &self.path(path), &bytes(*seed, *len)),
            Op::Close { id } => {
                self.open.remove(id);
                Ok(())
            }
            Op::SyncAll => Ok(rustix::fs::syncfs(fs::File::open(&self.top)?)?),
            Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Exchange { .. }
            | Op::Link { .. }
            | Op::Mkdir { .. } => self.execute_on_names(op),
            Op::Rmdir { path } => fs::remove_dir(self.path(path)),
            Op::Symlink { path, target } => symlink(target, self.path(path)),
            Op::Chmod { .. } | Op::SetAttribute { .. } | Op::RemoveAttribute { .. } | Op::SetTime { .. } => {
                self.execute_on_attributes(op)
            }
            data => self.execute_on_data(data),
        }
    }

    fn execute_on_names(&self, op: &Op) -> io::Result<()> {
        match op {
            Op::Unlink { path } => fs::remove_file(self.path(path)),
            Op::Rename { from, to } => fs::rename(self.path(from), self.path(to)),
            Op::Exchange { one, other } => {
                Ok(renameat_with(CWD, self.path(one), CWD, self.path(other), RenameFlags::EXCHANGE)?)
            }
            Op::Link { from, to } => fs::hard_link(self.path(from), self.path(to)),
            Op::Mkdir { path } => fs::create_dir(self.path(path)),
            other => panic!("not on names: {other:?}"),
        }
    }

    fn execute_on_attributes(&self, op: &Op) -> io::Result<()> {
        match op {
            Op::Chmod { path, mode } => {
                fs::set_permissions(self.path(path), PermissionsExt::from_mode(*mode))
            }
            Op::SetAttribute { path, value } => {
                Ok(rustix::fs::setxattr(self.path(path), "user.test", value, XattrFlags::empty())?)
            }
            Op::RemoveAttribute { path } => Ok(rustix::fs::removexattr(self.path(path), "user.test")?),
            Op::SetTime { path, mtime } => {
                let both = Timestamps {
                    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                    last_modification: Timespec { tv_sec: mtime.0, tv_nsec: mtime.1.into() },
                };
                Ok(utimensat(CWD, self.path(path), &both, AtFlags::empty())?)
            }
            other => panic!("not on attributes: {other:?}"),
        }
    }

    fn execute_on_data(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Write { id, offset, seed, len } => {
                self.with(*id, |file| file.write_all_at(&bytes(*seed, *len), *offset as u64))
            }
            Op::Truncate { id, len } => self.with(*id, |file| file.set_len(*len as u64)),
            Op::Punch { id, offset, len } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.with(*id, |file| Ok(rustix::fs::fallocate(file, mode, *offset as u64, *len as u64)?))
            }
            Op::Allocate { id, len } => self
                .with(*id, |file| Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, *len as u64)?)),
            Op::Copy { from, to, len } => {
                let from = self.with(*from, fs::File::try_clone)?;
                self.with(*to, |to| copy(&from, to, *len))
            }
            Op::Sync { id } => self.with(*id, fs::File::sync_all),
            other => panic!("not on data: {other:?}"),
        }
    }
}

fn appear(top: &Path, path: &Path, data: &[u8]) -> io::Result<()> {
    if running() < UNNAMED_FILES {
        return fs::write(path, data)
            .and_then(|()| fs::set_permissions(path, PermissionsExt::from_mode(0o600)));
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(top)?;
    file.write_all_at(data, 0)?;
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, &*fd, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn copy(from: &fs::File, to: &fs::File, len: usize) -> io::Result<()> {
    let (mut source, mut target) = (0, 0);
    while source < len as u64 {
        let left = len - source as usize;
        if rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), left)? == 0 {
            return Err(io::Error::other("copied less than there is"));
        }
    }
    Ok(())
}

/// What a call says when the daemon has gone; ECANCELED is io_uring's word for a request that it had.
fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
}

//! The file-system layer as a subject: all that lies between a face and the disk, without a kernel.
//!
//! It does what the kernel would: counts look-ups and forgets them, asks for listings in pieces, and, for files
//! that were opened for passthrough, reads and writes the backing file by itself. Permissions are the
//! kernel's to check, so only the superuser acts.

use std::{
    collections::BTreeMap,
    fs::File,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use cofs_engine::MemoryEngine;
use cofs_fs::{
    BackingId, Cofs, Context, DataPath, DirEntry, Entry, FaceAbilities, FileSystem, FsOptions, ListOf,
    OpenTable, Opened, Passthrough, VolumeParts, WriteFlags, run,
};
use cofs_metadata::LocalDriver;
use cofs_namespace::{Namespace, VolumeOptions};
use cofs_placement::{Placement, PoolConfig, Tier};
use cofs_types::{
    AccessMode, Attributes, Credentials, FileKind, FsError, FsResult, InodeId, Name, NewInode, OpenFlags,
    PoolId, SetAttributes, SetTime, Timestamp, XattrName,
};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::{
    answer::{Answer, errno_of},
    compare::Subject,
    model::READ_ALL_BYTES_MAX,
    ops::{Op, SLOTS, Step, UMASK, names, pattern},
};

const CONTEXT: Context<'static> = Context { credentials: Credentials::ROOT, pid: 1 };
const RW: OpenFlags = OpenFlags::new(AccessMode::ReadWrite);
const RO: OpenFlags = OpenFlags::new(AccessMode::Read);
const LISTING_PIECE: usize = 3;

/// The kernel's table of backing files.
#[derive(Default)]
struct Backing {
    next: AtomicU32,
    files: Mutex<BTreeMap<u32, File>>,
}

impl Passthrough for Backing {
    fn register(&self, file: BorrowedFd<'_>) -> std::io::Result<BackingId> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.files.lock().insert(id, file.try_clone_to_owned()?.into());
        Ok(BackingId(id))
    }

    fn unregister(&self, id: BackingId) {
        self.files.lock().remove(&id.0);
    }

    fn is_open_elsewhere(&self, _: BorrowedFd<'_>) -> bool {
        false
    }
}

struct Slot {
    ino: InodeId,
    opened: Opened,
    write: bool,
    /// The kernel's own reference to the backing file.
    backing: Option<File>,
}

/// A volume over a memory engine and one pool in a directory of its own.
pub struct FileSystemSubject {
    engine: Arc<MemoryEngine>,
    pool: tempfile::TempDir,
    fs: Cofs<LocalDriver>,
    backing: Option<Arc<Backing>>,
    slots: [Option<Slot>; SLOTS],
    lookups: BTreeMap<InodeId, u64>,
    listings: usize,
}

const VOLUME: Uuid = Uuid::from_u128(7);

fn open_volume(
    engine: &Arc<MemoryEngine>,
    pool: &tempfile::TempDir,
    backing: Option<&Arc<Backing>>,
) -> FsResult<Cofs<LocalDriver>> {
    let placement = Arc::new(Placement::open(&[pool_config(pool)], VOLUME)?);
    let opens = Arc::new(OpenTable::default());
    let metadata = LocalDriver::open(Arc::<MemoryEngine>::clone(engine), Arc::<OpenTable>::clone(&opens))?;
    let fs = Cofs::open(VolumeParts { metadata, placement, opens, options: FsOptions::default() })?;
    let passthrough = backing.map(|b| Arc::<Backing>::clone(b) as Arc<dyn Passthrough>);
    fs.attach(FaceAbilities {
        passthrough,
        recall: None,
        maps_direct: true,
        loses_appended: true,
        copies: false,
    });
    Ok(fs)
}

fn pool_config(pool: &tempfile::TempDir) -> PoolConfig {
    let directory = pool.path().to_owned();
    PoolConfig { id: PoolId(0), name: "default".into(), directory, tier: Tier::Disk }
}

impl FileSystemSubject {
    pub fn format(inline_bytes_max: u32, root: u16, passthrough: bool, now: Timestamp) -> FsResult<Self> {
        let pool = tempfile::tempdir().map_err(|error| FsError::from_io("a pool", error))?;
        let engine = Arc::new(MemoryEngine::new());
        let options = VolumeOptions { inline_bytes_max, hash_key: [7; 16] };
        Namespace::format(&*engine, &options, (0, 0, root), now)?;
        Placement::format_pool(&pool_config(&pool), VOLUME)?;
        let backing = passthrough.then(Arc::<Backing>::default);
        let fs = open_volume(&engine, &pool, backing.as_ref())?;
        let slots = [const { None }; SLOTS];
        Ok(Self { engine, pool, fs, backing, slots, lookups: BTreeMap::new(), listings: 0 })
    }

    pub fn engine(&self) -> &MemoryEngine {
        &self.engine
    }

    /// Closes all files, unmounts and mounts again.
    pub fn remount(mut self) -> FsResult<Self> {
        (0..SLOTS).try_for_each(|slot| self.close(slot))?;
        run(self.fs.detach())?;
        drop(self.fs);
        let fs = open_volume(&self.engine, &self.pool, self.backing.as_ref())?;
        Ok(Self { fs, lookups: BTreeMap::new(), ..self })
    }

    /// The end of the process without a word: open files are left as they are.
    pub fn crash(self) -> FsResult<Self> {
        let Self { engine, pool, fs, backing, .. } = self;
        drop(fs);
        let fs = open_volume(&engine, &pool, backing.as_ref())?;
        let slots = [const { None }; SLOTS];
        Ok(Self { engine, pool, fs, backing, slots, lookups: BTreeMap::new(), listings: 0 })
    }

    fn dispatch(&mut self, op: &Op) -> FsResult<Answer> {
        match op {
            Op::Make { path, kind, permissions } => self.make(path, *kind, *permissions, &[]),
            Op::Symlink { path, target } => self.make(path, FileKind::Symlink, 0o777, target),
            Op::Link { from, to } => {
                let ((from, old), (to, new)) = (self.parent_of(from)?, self.parent_of(to)?);
                let entry = run(self.fs.lookup(&CONTEXT, from, old))?;
                self.looked_up(&entry)?;
                let entry = run(self.fs.link(&CONTEXT, entry.attributes.ino, to, new))?;
                self.looked_up(&entry)
            }
            Op::LinkSlot { slot, to } => {
                let (ino, (to, new)) = (self.slot(*slot)?.ino, self.parent_of(to)?);
                let entry = run(self.fs.link(&CONTEXT, ino, to, new))?;
                self.looked_up(&entry)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent_of(path)?;
                run(self.fs.unlink(&CONTEXT, dir, name)).map(done)
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent_of(path)?;
                run(self.fs.rmdir(&CONTEXT, dir, name)).map(done)
            }
            Op::Rename { from, to, mode } => {
                let (from, to) = (self.parent_of(from)?, self.parent_of(to)?);
                run(self.fs.rename(&CONTEXT, from, to, *mode)).map(done)
            }
            Op::Sync => run(self.fs.syncfs()).map(done),
            Op::Stat { path } => {
                let ino = self.walk(path)?.ino;
                Ok(stat(&run(self.fs.getattr(ino, None))?.attributes))
            }
            Op::Readdir { path } => self.readdir(path),
            Op::Readlink { path } => {
                let ino = self.walk(path)?.ino;
                Ok(Answer::Bytes(run(self.fs.readlink(ino))?.to_vec()))
            }
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => self.change(op),
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. } | Op::ListXattr { .. } => {
                self.xattr(op)
            }
            Op::Open { .. } | Op::Tmpfile { .. } | Op::ReadAll { .. } => self.open_op(op),
            _ => self.slot_op(op),
        }
    }

    fn looked_up(&mut self, entry: &Entry) -> FsResult<Answer> {
        *self.lookups.entry(entry.attributes.ino).or_default() += 1;
        Ok(Answer::Done)
    }

    /// What is not open is forgotten after each operation.
    fn forget(&mut self) {
        let open: Vec<_> = self.slots.iter().flatten().map(|slot| slot.ino).collect();
        self.lookups.retain(|ino, count| {
            let keep = open.contains(ino);
            if !keep && self.fs.forget(*ino, *count) {
                run(self.fs.forgotten(*ino));
            }
            keep
        });
    }

    fn walk(&mut self, path: &[u8]) -> FsResult<Attributes> {
        let mut at = run(self.fs.getattr(InodeId::ROOT, None))?.attributes;
        for name in names(path) {
            if at.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            let entry = run(self.fs.lookup(&CONTEXT, at.ino, Name::new(name)?))?;
            self.looked_up(&entry)?;
            at = entry.attributes;
        }
        Ok(at)
    }

    fn parent_of(&mut self, path: &[u8]) -> FsResult<(InodeId, &'static Name)> {
        let (last, parents) = path.split_last().ok_or(FsError::InvalidArgument("the root has no parent"))?;
        let dir = self.walk(parents)?;
        if dir.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok((dir.ino, Name::new(names(&[*last]).next().unwrap_or_default())?))
    }

    fn make(&mut self, path: &[u8], kind: FileKind, permissions: u16, target: &[u8]) -> FsResult<Answer> {
        let (dir, name) = self.parent_of(path)?;
        let new = NewInode { kind, permissions, umask: UMASK, rdev: 0, target };
        if kind != FileKind::Regular {
            let entry = run(self.fs.make(&CONTEXT, dir, name, new))?;
            return self.looked_up(&entry);
        }
        let flags = OpenFlags { exclusive: true, ..RW };
        let (entry, opened) = run(self.fs.create(&CONTEXT, dir, name, new, flags))?;
        self.looked_up(&entry)?;
        run(self.fs.release(entry.attributes.ino, opened.handle)).map(done)
    }

    fn readdir(&mut self, path: &[u8]) -> FsResult<Answer> {
        let dir = self.walk(path)?;
        if dir.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        self.listings += 1;
        let with_attributes = self.listings.is_multiple_of(2);
        let opened = run(self.fs.opendir(&CONTEXT, dir.ino, RO))?;
        let (mut entries, mut seen, mut cookie) = (Vec::new(), Vec::new(), 0);
        loop {
            let (mut piece, from) = (0, cookie);
            let mut sink = |entry: DirEntry<'_>| {
                if piece == LISTING_PIECE {
                    return false;
                }
                piece += 1;
                cookie = entry.cookie;
                seen.extend(entry.entry);
                if entry.name != b"." && entry.name != b".." {
                    entries.push((entry.name.to_vec(), entry.kind));
                }
                true
            };
            let of = ListOf { cookie: from, with_attributes, entries_max: LISTING_PIECE + 1 };
            run(self.fs.readdir(&CONTEXT, dir.ino, opened.handle, of, &mut sink))?;
            if piece < LISTING_PIECE {
                break;
            }
        }
        seen.iter().try_for_each(|entry| self.looked_up(entry).map(drop))?;
        run(self.fs.releasedir(dir.ino, opened.handle))?;
        entries.sort();
        Ok(Answer::Listing(entries))
    }

    fn change(&mut self, op: &Op) -> FsResult<Answer> {
        let (path, change) = match op {
            Op::Chmod { path, permissions } => {
                (path, SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() })
            }
            Op::Chown { path, uid, gid } => {
                (path, SetAttributes { uid: *uid, gid: *gid, kill_set_id: true, ..SetAttributes::default() })
            }
            Op::Utimens { path, atime, mtime } => {
                let (atime, mtime) = (Some(SetTime::To(*atime)), Some(SetTime::To(*mtime)));
                (path, SetAttributes { atime, mtime, ..SetAttributes::default() })
            }
            _ => return Ok(Answer::Skip),
        };
        let ino = self.walk(path)?.ino;
        run(self.fs.setattr(&CONTEXT, ino, None, &change)).map(done)
    }

    fn xattr(&mut self, op: &Op) -> FsResult<Answer> {
        match op {
            Op::SetXattr { path, name, value, mode } => {
                let ino = self.walk(path)?.ino;
                run(self.fs.setxattr(&CONTEXT, ino, XattrName::new(name)?, value, *mode, false)).map(done)
            }
            Op::GetXattr { path, name } => {
                let ino = self.walk(path)?.ino;
                Ok(Answer::Bytes(run(self.fs.getxattr(&CONTEXT, ino, XattrName::new(name)?))?.to_vec()))
            }
            Op::RemoveXattr { path, name } => {
                let ino = self.walk(path)?.ino;
                run(self.fs.removexattr(&CONTEXT, ino, XattrName::new(name)?)).map(done)
            }
            Op::ListXattr { path } => {
                let ino = self.walk(path)?.ino;
                let list = run(self.fs.listxattr(&CONTEXT, ino))?;
                let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
                let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
                names.sort();
                Ok(Answer::Names(names))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn open_op(&mut self, op: &Op) -> FsResult<Answer> {
        match op {
            Op::Open { slot, path, write, truncate } => {
                let at = self.walk(path)?;
                match at.kind {
                    FileKind::Directory => return Err(FsError::IsDirectory),
                    FileKind::Symlink => return Err(FsError::TooManySymlinks),
                    _ => {}
                }
                let flags = OpenFlags { truncate: *truncate, ..if *write { RW } else { RO } };
                self.close(*slot)?;
                let opened = run(self.fs.open(&CONTEXT, at.ino, flags))?;
                self.put_slot(*slot, at.ino, opened, *write)
            }
            Op::Tmpfile { slot, path, permissions, linkable } => {
                let dir = self.walk(path)?;
                if dir.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                let kind = FileKind::Regular;
                let new = NewInode { kind, permissions: *permissions, umask: UMASK, rdev: 0, target: &[] };
                self.close(*slot)?;
                let flags = OpenFlags { exclusive: !linkable, ..RW };
                let (entry, opened) = run(self.fs.tmpfile(&CONTEXT, dir.ino, new, flags))?;
                self.looked_up(&entry)?;
                self.put_slot(*slot, entry.attributes.ino, opened, true)
            }
            Op::ReadAll { path } => {
                let ino = self.walk(path)?.ino;
                let opened = run(self.fs.open(&CONTEXT, ino, RO))?;
                let slot = self.new_slot(ino, opened, false)?;
                let bytes = self.read(&slot, 0, READ_ALL_BYTES_MAX)?;
                drop(slot);
                run(self.fs.release(ino, opened.handle))?;
                Ok(Answer::Bytes(bytes))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn slot(&self, slot: usize) -> FsResult<&Slot> {
        self.slots.get(slot).and_then(Option::as_ref).ok_or(FsError::BadHandle)
    }

    fn new_slot(&self, ino: InodeId, opened: Opened, write: bool) -> FsResult<Slot> {
        let backing = match opened.data_path {
            DataPath::Passthrough(id) => {
                let files = self.backing.as_ref().map(|backing| backing.files.lock());
                let file = files.as_ref().and_then(|files| files.get(&id.0)).ok_or(FsError::BadHandle)?;
                Some(file.try_clone().map_err(below)?)
            }
            _ => None,
        };
        Ok(Slot { ino, opened, write, backing })
    }

    fn put_slot(&mut self, slot: usize, ino: InodeId, opened: Opened, write: bool) -> FsResult<Answer> {
        let new = self.new_slot(ino, opened, write)?;
        *self.slots.get_mut(slot).ok_or(FsError::BadHandle)? = Some(new);
        Ok(Answer::Done)
    }

    fn close(&mut self, slot: usize) -> FsResult<()> {
        let Some(open) = self.slots.get_mut(slot).and_then(Option::take) else { return Ok(()) };
        if !open.opened.no_flush {
            run(self.fs.flush(open.ino, open.opened.handle))?;
        }
        run(self.fs.release(open.ino, open.opened.handle))
    }

    fn slot_op(&mut self, op: &Op) -> FsResult<Answer> {
        match op {
            Op::Close { slot } => self.close(*slot).map(done),
            Op::StatSlot { slot } => {
                let open = self.slot(*slot)?;
                Ok(stat(&run(self.fs.getattr(open.ino, Some(open.opened.handle)))?.attributes))
            }
            Op::Read { slot, offset, len } => {
                Ok(Answer::Bytes(self.read(self.slot(*slot)?, *offset, *len)?))
            }
            Op::Write { slot, offset, len, fill } => {
                let open = self.writable(*slot)?;
                let data = pattern(*fill, *offset, *len);
                if let Some(file) = &open.backing {
                    return file.write_all_at(&data, *offset).map_err(below).map(done);
                }
                let flags = WriteFlags::default();
                run(self.fs.write(open.ino, open.opened.handle, *offset, &data, flags)).map(done)
            }
            Op::Truncate { slot, size } => {
                let open = self.writable(*slot)?;
                let change = SetAttributes { size_bytes: Some(*size), ..SetAttributes::default() };
                run(self.fs.setattr(&CONTEXT, open.ino, Some(open.opened.handle), &change)).map(done)
            }
            Op::Fallocate { slot, mode, offset, len } => {
                let open = self.writable(*slot)?;
                run(self.fs.fallocate(&CONTEXT, open.ino, open.opened.handle, *mode, *offset, *len)).map(done)
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn writable(&self, slot: usize) -> FsResult<&Slot> {
        self.slot(slot).and_then(|slot| if slot.write { Ok(slot) } else { Err(FsError::BadHandle) })
    }

    fn read(&self, open: &Slot, offset: u64, len: usize) -> FsResult<Vec<u8>> {
        let mut out = vec![0xaa; len];
        let mut got = 0;
        while let Some(rest) = out.get_mut(got..).filter(|rest| !rest.is_empty()) {
            let at = offset + got as u64;
            let read = match &open.backing {
                Some(file) => file.read_at(rest, at).map_err(below)?,
                None => run(self.fs.read(open.ino, open.opened.handle, at, rest, false))?,
            };
            if read == 0 {
                break;
            }
            got += read;
        }
        out.truncate(got);
        Ok(out)
    }
}

impl Subject for FileSystemSubject {
    fn apply(&mut self, step: &Step, _now: Timestamp) -> Answer {
        let answer = self.dispatch(&step.op).unwrap_or_else(|error| Answer::Error(errno_of(&error)));
        self.forget();
        answer
    }
}

fn below(error: std::io::Error) -> FsError {
    FsError::from_io("the backing file", error)
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}

fn stat(attributes: &Attributes) -> Answer {
    Answer::Stat(attributes.into())
}

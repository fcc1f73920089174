//! A real directory as a subject: of the kernel file system that the model is held against, or a mount.
//!
//! Users other than root are played by the calling thread alone, so a run keeps to one thread and needs
//! root. Paths are walked name by name and never through symlinks.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use cofs_types::{FallocateMode, FileKind, RenameMode, Timestamp, XattrMode};
use rustix::{
    fs::{self, AtFlags, Dir, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags},
    io::{Errno, dup},
    process::{Gid, Uid},
    thread,
};

use crate::{
    answer::{Answer, Result, View},
    compare::Subject,
    model::READ_ALL_BYTES_MAX,
    ops::{Op, SLOTS, Step, UMASK, Who, names, pattern},
};

/// A directory in which steps are done by system calls.
pub struct Directory {
    path: PathBuf,
    /// The directory above and the root's name in it: asking for the root by `.` would need the right to
    /// search it.
    above: OwnedFd,
    name: Vec<u8>,
    root: OwnedFd,
    slots: [Option<OwnedFd>; SLOTS],
}

impl Directory {
    /// Takes over an empty directory, and the process's umask.
    pub fn new(path: &Path) -> Result<Self> {
        let _ = rustix::process::umask(Mode::from_raw_mode(UMASK.into()));
        let root = fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let (parent, name) = (path.parent().ok_or(Errno::INVAL)?, path.file_name().ok_or(Errno::INVAL)?);
        let above = fs::open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let name = name.as_bytes().to_vec();
        Ok(Self { path: path.to_owned(), above, name, root, slots: [const { None }; SLOTS] })
    }

    fn dispatch(&mut self, op: &Op) -> Result<Answer> {
        match op {
            Op::Make { path, kind, permissions } => self.make(path, *kind, *permissions),
            Op::Symlink { path, target } => {
                let (dir, name) = self.at(path)?;
                done(fs::symlinkat(target.as_slice(), dir, name))
            }
            Op::Link { from, to } => {
                let ((from, old), (to, new)) = (self.at(from)?, self.at(to)?);
                done(fs::linkat(from, old, to, new, AtFlags::empty()))
            }
            Op::LinkSlot { slot, to } => {
                let (to, new) = self.at(to)?;
                done(fs::linkat(self.slot(*slot)?, "", to, new, AtFlags::EMPTY_PATH))
            }
            Op::Unlink { path } => {
                let (dir, name) = self.at(path)?;
                done(fs::unlinkat(dir, name, AtFlags::empty()))
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.at(path)?;
                done(fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
            }
            Op::Rename { from, to, mode } => self.rename(from, to, *mode),
            Op::Readdir { path } => self.readdir(path),
            Op::Readlink { path } => {
                let (dir, name) = self.at(path)?;
                Ok(Answer::Bytes(fs::readlinkat(dir, name, Vec::new())?.into_bytes()))
            }
            Op::Stat { path } => {
                let (dir, name) = self.at(path)?;
                Ok(Answer::Stat(view(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)))
            }
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => self.change(op),
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. } | Op::ListXattr { .. } => {
                self.xattr(op)
            }
            Op::Sync => done(fs::syncfs(fs::open(&self.path, OFlags::RDONLY, Mode::empty())?)),
            _ => self.file(op),
        }
    }

    /// The directory of the last name, and that name.
    fn at(&self, path: &[u8]) -> Result<(OwnedFd, &[u8])> {
        let Some((last, parents)) = path.split_last() else { return Ok((dup(&self.above)?, &self.name)) };
        let mut dir = dup(&self.root)?;
        for name in names(parents) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            dir = fs::openat(&dir, name, flags, Mode::empty())?;
        }
        Ok((dir, names(&[*last]).next().ok_or(Errno::INVAL)?))
    }

    /// The whole path, its parents walked before so that the right error is found.
    fn full(&self, path: &[u8]) -> Result<PathBuf> {
        self.at(path)?;
        let mut full = self.path.clone();
        names(path).for_each(|name| full.push(std::ffi::OsStr::from_bytes(name)));
        Ok(full)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd> {
        self.slots.get(slot).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn make(&self, path: &[u8], kind: FileKind, permissions: u16) -> Result<Answer> {
        let (dir, name) = self.at(path)?;
        let mode = Mode::from_raw_mode(permissions.into());
        match kind {
            FileKind::Directory => done(fs::mkdirat(dir, name, mode)),
            FileKind::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                done(fs::openat(dir, name, flags, mode).map(drop))
            }
            kind => done(fs::mknodat(dir, name, fs::FileType::from_raw_mode(kind.mode_bits()), mode, 0)),
        }
    }

    fn rename(&self, from: &[u8], to: &[u8], mode: RenameMode) -> Result<Answer> {
        let ((from, old), (to, new)) = (self.at(from)?, self.at(to)?);
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout { replace: true } => RenameFlags::WHITEOUT,
            RenameMode::Whiteout { replace: false } => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        done(fs::renameat_with(from, old, to, new, flags))
    }

    fn readdir(&self, path: &[u8]) -> Result<Answer> {
        let (dir, name) = self.at(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut entries = Vec::new();
        for entry in Dir::new(fs::openat(dir, name, flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = FileKind::from_mode(entry.file_type().as_raw_mode()).ok_or(Errno::IO)?;
                entries.push((name.to_vec(), kind));
            }
        }
        entries.sort();
        Ok(Answer::Listing(entries))
    }

    fn change(&self, op: &Op) -> Result<Answer> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        match op {
            Op::Chmod { path, permissions } => {
                let (dir, name) = self.at(path)?;
                done(fs::chmodat(dir, name, Mode::from_raw_mode((*permissions).into()), AtFlags::empty()))
            }
            Op::Chown { path, uid, gid } => {
                let (dir, name) = self.at(path)?;
                done(fs::chownat(dir, name, uid.map(Uid::from_raw), gid.map(Gid::from_raw), nofollow))
            }
            Op::Utimens { path, atime, mtime } => {
                let (dir, name) = self.at(path)?;
                let times = Timestamps { last_access: timespec(*atime), last_modification: timespec(*mtime) };
                done(fs::utimensat(dir, name, &times, nofollow))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn xattr(&self, op: &Op) -> Result<Answer> {
        match op {
            Op::SetXattr { path, name, value, mode } => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                    XattrMode::Never => XattrFlags::CREATE | XattrFlags::REPLACE,
                };
                done(fs::lsetxattr(self.full(path)?, *name, value, flags))
            }
            Op::GetXattr { path, name } => {
                let mut value = Vec::with_capacity(1 << 16);
                fs::lgetxattr(self.full(path)?, *name, rustix::buffer::spare_capacity(&mut value))?;
                Ok(Answer::Bytes(value))
            }
            Op::RemoveXattr { path, name } => done(fs::lremovexattr(self.full(path)?, *name)),
            Op::ListXattr { path } => {
                let mut list = Vec::with_capacity(1 << 16);
                fs::llistxattr(self.full(path)?, rustix::buffer::spare_capacity(&mut list))?;
                let mut names: Vec<_> = list.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
                names.retain(|name| !name.is_empty());
                names.sort();
                Ok(Answer::Names(names))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn file(&mut self, op: &Op) -> Result<Answer> {
        match op {
            Op::Open { slot, path, write, truncate } => {
                let (dir, name) = self.at(path)?;
                let mut flags = OFlags::NOFOLLOW | if *write { OFlags::RDWR } else { OFlags::RDONLY };
                flags.set(OFlags::TRUNC, *truncate);
                self.put_slot(*slot, fs::openat(dir, name, flags, Mode::empty())?)
            }
            Op::Tmpfile { slot, path, permissions, linkable } => {
                let (dir, name) = self.at(path)?;
                let mut flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::NOFOLLOW;
                flags.set(OFlags::EXCL, !linkable);
                self.put_slot(
                    *slot,
                    fs::openat(dir, name, flags, Mode::from_raw_mode((*permissions).into()))?,
                )
            }
            Op::Close { slot } => {
                self.slots.get_mut(*slot).map(Option::take);
                Ok(Answer::Done)
            }
            Op::Write { slot, offset, len, fill } => {
                write_all(self.slot(*slot)?, *offset, &pattern(*fill, *offset, *len))
            }
            Op::Read { slot, offset, len } => Ok(Answer::Bytes(read(self.slot(*slot)?, *offset, *len)?)),
            Op::Truncate { slot, size } => done(fs::ftruncate(self.slot(*slot)?, *size)),
            Op::Fallocate { slot, mode, offset, len } => {
                done(fs::fallocate(self.slot(*slot)?, fallocate_flags(*mode), *offset, *len))
            }
            Op::StatSlot { slot } => Ok(Answer::Stat(view(&fs::fstat(self.slot(*slot)?)?))),
            Op::ReadAll { path } => {
                let (dir, name) = self.at(path)?;
                let file = fs::openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())?;
                Ok(Answer::Bytes(read(&file, 0, READ_ALL_BYTES_MAX)?))
            }
            _ => Ok(Answer::Skip),
        }
    }

    fn put_slot(&mut self, slot: usize, file: OwnedFd) -> Result<Answer> {
        *self.slots.get_mut(slot).ok_or(Errno::BADF)? = Some(file);
        Ok(Answer::Done)
    }
}

impl Subject for Directory {
    fn apply(&mut self, step: &Step, _now: Timestamp) -> Answer {
        if let Err(errno) = become_user(step.who) {
            return Answer::Error(errno);
        }
        let answer = self.dispatch(&step.op).into();
        match become_user(Who::ROOT) {
            Ok(()) => answer,
            Err(errno) => Answer::Error(errno),
        }
    }
}

/// The calling thread acts as `who` from now on; it stays able to come back.
fn become_user(who: Who) -> Result<()> {
    let c = who.credentials();
    let root = Some(Uid::ROOT);
    thread::set_thread_res_uid(root, root, root)?;
    let groups: Vec<Gid> = c.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    thread::set_thread_groups(&groups)?;
    let gid = Some(Gid::from_raw(c.gid));
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(root, Some(Uid::from_raw(c.uid)), root)
}

fn done(result: rustix::io::Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}

fn view(stat: &fs::Stat) -> View {
    let kind = FileKind::from_mode(stat.st_mode).unwrap_or(FileKind::Regular);
    let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
    View {
        kind,
        permissions: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        size_bytes: if kind == FileKind::Directory { 0 } else { stat.st_size as u64 },
        atime: time(stat.st_atime, stat.st_atime_nsec),
        atime_oldest: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn timespec(t: Timestamp) -> Timespec {
    Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() }
}

fn fallocate_flags(mode: FallocateMode) -> FallocateFlags {
    let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match mode {
        FallocateMode::Allocate { keep_size } => keep(keep_size),
        FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateMode::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
    }
}

fn write_all(file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Result<Answer> {
    while !data.is_empty() {
        let written = rustix::io::pwrite(file, data, offset)?;
        offset += written as u64;
        data = data.get(written..).unwrap_or_default();
    }
    Ok(Answer::Done)
}

fn read(file: &OwnedFd, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let mut piece = vec![0; len - out.len()];
        let got = rustix::io::pread(file, &mut piece, offset + out.len() as u64)?;
        if got == 0 {
            break;
        }
        out.extend_from_slice(piece.get(..got).unwrap_or_default());
    }
    Ok(out)
}

/// Whether this process may play several users: it is root.
pub fn can_play_users() -> bool {
    rustix::process::geteuid().is_root()
}

/// `fs.protected_hardlinks` of the running kernel.
pub fn protected_hardlinks() -> bool {
    std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|text| text.trim() != "0")
}

/// The directory that tests are to be run in: `COFS_TEST_DIR`, or the system's own for temporary files.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let dir = match std::env::var_os("COFS_TEST_DIR") {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

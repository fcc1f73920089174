//! An open object.
//!
//! Invariants: once a sync failed, no later sync of the same `ObjectFile` succeeds, because the kernel
//! tells of a lost page once and then forgets it; an object open for writing is never silently opened
//! anew, because pages written through the old descriptor may be lost with it.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::{Arc, OnceLock},
};

use cofs_types::{FallocateMode, FsError, FsResult, ObjectId, SeekWhence, Timestamp};
use parking_lot::Mutex;
use rustix::{
    fs::{self, FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT},
    io::{Errno, ReadWriteFlags},
};

use crate::{
    era::Since,
    object_directory::ObjectDirectory,
    path,
    store::{At, BackingStore, OpenMode, Operation, errno},
};

/// fstat(2) of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectStat {
    pub size_bytes: u64,
    pub blocks_512: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// The directory entry of an object that may not be durable yet: its directory, and the entry's turn in it.
pub(crate) type Unsettled = (Arc<ObjectDirectory>, u64);

/// One object, open. Shared by all who have the file open.
pub struct ObjectFile {
    id: ObjectId,
    write: bool,
    file: File,
    /// Taken when the first descriptor of a read-only object turned stale (network file systems).
    second: OnceLock<File>,
    store: Arc<dyn BackingStore>,
    unsettled: Option<Unsettled>,
    since: Since,
    /// Serialises syncs; holds the errno of the one that failed.
    failed_sync: Mutex<Option<i32>>,
}

impl ObjectFile {
    pub(crate) fn new(
        id: ObjectId,
        write: bool,
        file: File,
        store: Arc<dyn BackingStore>,
        unsettled: Option<Unsettled>,
        since: Since,
    ) -> Self {
        let (second, failed_sync) = (OnceLock::new(), Mutex::new(None));
        Self { id, write, file, second, store, unsettled, since, failed_sync }
    }

    /// Whether the file system below may have given it up: who does not need what was written to it opens it anew.
    pub fn is_outlived(&self) -> bool {
        self.since.is_over()
    }

    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Whether it is open for writing too.
    pub fn writable(&self) -> bool {
        self.write
    }

    pub fn file(&self) -> &File {
        self.second.get().unwrap_or(&self.file)
    }

    /// The file below, and since when it is open, unless a sync of it failed.
    pub(crate) fn into_sound_file(self) -> Option<(File, Since)> {
        let sound = self.failed_sync.into_inner().is_none();
        sound.then_some((self.file, self.since))
    }

    /// Reads at `offset`; fewer bytes than asked for only at the object's end.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.reading("read an object", Operation::Read, |file| read(file, rest, at))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes at `offset`, as write(2): what was written before an error is told; the error comes again with the rest.
    pub fn write_at(&self, data: &[u8], offset: u64) -> FsResult<usize> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.writing("write an object", Operation::Write, |file| write(file, rest, at)) {
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// All of it, or an error; some of it may have been written then.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> FsResult<()> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            done += self.write_at(rest, offset.saturating_add(done as u64))?;
        }
        Ok(())
    }

    pub fn stat(&self) -> FsResult<ObjectStat> {
        self.reading("stat an object", Operation::Stat, |file| Ok(stat_of(&fs::fstat(file)?)))
    }

    pub fn set_len(&self, size_bytes: u64) -> FsResult<()> {
        self.writing("set an object's length", Operation::SetLen, |file| file.set_len(size_bytes))
    }

    /// Sets the times given, and leaves those that are `None`.
    pub fn set_times(&self, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> FsResult<()> {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        self.calling("set an object's times", Operation::SetTimes, |file| Ok(fs::futimens(file, &times)?))
    }

    /// Makes the object durable, with its name below: fdatasync(2) if `data_only`, else fsync(2).
    ///
    /// Fails for ever after it failed once.
    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        const CONTEXT: &str = "sync an object";
        let mut failed = self.failed_sync.lock();
        if let Some(errno) = *failed {
            let source = io::Error::from_raw_os_error(errno);
            return Err(FsError::from_io("sync an object whose sync failed before", source));
        }
        self.settle()
            .and_then(|()| self.store.admit(Operation::Sync))
            .and_then(|()| if data_only { self.file().sync_data() } else { self.file().sync_all() })
            .map_err(|error| {
                let error = self.since.judge(error);
                *failed = Some(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
                FsError::from_io(CONTEXT, error)
            })
    }

    /// Makes the object's name durable if it may not be yet.
    fn settle(&self) -> io::Result<()> {
        match &self.unsettled {
            Some((directory, turn)) => directory.settle(&*self.store, *turn),
            None => Ok(()),
        }
    }

    pub fn fallocate(&self, mode: FallocateMode, offset: u64, len_bytes: u64) -> FsResult<()> {
        let flags = match mode {
            FallocateMode::Allocate { keep_size: false } => FallocateFlags::empty(),
            FallocateMode::Allocate { keep_size: true } => FallocateFlags::KEEP_SIZE,
            FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateMode::ZeroRange { keep_size: false } => FallocateFlags::ZERO_RANGE,
            FallocateMode::ZeroRange { keep_size: true } => {
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
            }
        };
        self.writing("allocate in an object", Operation::Allocate, |file| {
            Ok(fs::fallocate(file, flags, offset, len_bytes)?)
        })
        .map_err(unsupported)
    }

    /// The next data or hole at or after `offset`; [`FsError::NoData`] when there is none (`ENXIO`).
    pub fn seek(&self, whence: SeekWhence, offset: u64) -> FsResult<u64> {
        let to = match whence {
            SeekWhence::Data => SeekFrom::Data(offset),
            SeekWhence::Hole => SeekFrom::Hole(offset),
        };
        self.reading("seek in an object", Operation::Seek, |file| Ok(fs::seek(file, to)?)).map_err(|error| {
            match errno_of(&error) {
                Some(Errno::NXIO) => FsError::NoData,
                _ => unsupported(error),
            }
        })
    }

    /// copy_file_range(2) from `from`; fewer bytes than asked for at its end. [`FsError::NotSupported`] or
    /// [`FsError::CrossDevice`] tell the caller to copy by hand.
    pub fn copy_range(
        &self,
        from: &ObjectFile,
        from_offset: u64,
        offset: u64,
        len_bytes: u64,
    ) -> FsResult<u64> {
        let (mut from_at, mut to_at) = (from_offset, offset);
        let mut done = 0;
        while done < len_bytes {
            let want = usize::try_from(len_bytes - done).unwrap_or(usize::MAX);
            let copied = self.writing("copy between objects", Operation::CopyRange, |file| {
                Ok(fs::copy_file_range(from.file(), Some(&mut from_at), file, Some(&mut to_at), want)?)
            });
            match copied {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                // What was copied before the error is told; the error comes again with the rest.
                Err(_) if done > 0 => break,
                Err(error) => return Err(unsupported(error)),
            }
        }
        Ok(done)
    }

    fn calling<T>(
        &self,
        context: &'static str,
        operation: Operation,
        mut call: impl FnMut(&File) -> io::Result<T>,
    ) -> FsResult<T> {
        loop {
            let result = self.store.admit(operation).and_then(|()| call(self.file()));
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    return other.map_err(|error| FsError::from_io(context, self.since.judge(error)));
                }
            }
        }
    }

    /// As [`calling`](Self::calling), for what only who has it open for writing may do: else it fails with EBADF, as what was given up does.
    fn writing<T>(
        &self,
        context: &'static str,
        operation: Operation,
        call: impl FnMut(&File) -> io::Result<T>,
    ) -> FsResult<T> {
        if self.write { self.calling(context, operation, call) } else { Err(FsError::ReadOnly) }
    }

    /// As [`calling`](Self::calling), for what only reads: a stale descriptor is replaced once.
    fn reading<T>(
        &self,
        context: &'static str,
        operation: Operation,
        mut call: impl FnMut(&File) -> io::Result<T>,
    ) -> FsResult<T> {
        match self.calling(context, operation, &mut call) {
            Err(error) if !self.write && errno_of(&error) == Some(Errno::STALE) => {
                if self.second.get().is_some() {
                    return Err(error);
                }
                let again = self.reopen().map_err(|_| error)?;
                // Another thread may have been faster; its descriptor is as good.
                let _ = self.second.set(again);
                self.calling(context, operation, call)
            }
            other => other,
        }
    }

    fn reopen(&self) -> io::Result<File> {
        self.store.open(At::root(&path::of_object(self.id.sequence())), OpenMode::Read)
    }
}

/// pread(2); for who is impatient, of what is in memory. Errors: EAGAIN where he is refused.
fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if !cofs_wait::is_impatient() {
        return file.read_at(buffer, offset);
    }
    let into = &mut [io::IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, into, offset, ReadWriteFlags::NOWAIT) {
        Err(Errno::AGAIN) => refused(),
        Ok(0) if !is_end(file, offset)? => refused(),
        // The file system below, the kernel or a sandbox cannot tell.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => file.read_at(buffer, offset),
        read => Ok(read?),
    }
}

/// pwrite(2) of what is not empty; at least one byte is written.
fn write(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.write_at(data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn refused() -> io::Result<usize> {
    cofs_wait::refuse();
    Err(Errno::AGAIN.into())
}

/// Whether nothing comes at `offset` or behind it. Linux 5.9 and 5.10 read nothing, instead of refusing, where what comes is not in memory
/// (preadv2(2), BUGS).
fn is_end(file: &File, offset: u64) -> io::Result<bool> {
    Ok(fs::fstat(file)?.st_size as u64 <= offset)
}

impl AsFd for ObjectFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }
}

pub(crate) fn errno_of(error: &FsError) -> Option<Errno> {
    match error {
        FsError::Backing { source, .. } => errno(source),
        _ => None,
    }
}

/// Gives what the file system below cannot do, or not across two of them, its own word.
fn unsupported(error: FsError) -> FsError {
    match errno_of(&error) {
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => FsError::NotSupported,
        Some(Errno::XDEV) => FsError::CrossDevice,
        Some(Errno::INVAL) => FsError::InvalidArgument("refused by the file system below"),
        _ => error,
    }
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    match time {
        Some(time) => Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

pub(crate) fn stat_of(stat: &fs::Stat) -> ObjectStat {
    let time = |secs, nanos| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    ObjectStat {
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        blocks_512: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

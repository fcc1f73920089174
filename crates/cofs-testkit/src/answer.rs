//! What an operation answers, in a form that answers of different subjects can be compared in.

use cofs_types::{Attributes, FileKind, FsError, Timestamp};
use rustix::io::Errno;

/// The answer to one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Error(Errno),
    Stat(View),
    /// Entries without `.` and `..`, by name.
    Listing(Vec<(Vec<u8>, FileKind)>),
    Names(Vec<Vec<u8>>),
    Bytes(Vec<u8>),
    /// The operation makes no sense here (an empty slot, say), and is not put to the other subject.
    Skip,
}

pub type Result<T> = std::result::Result<T, Errno>;

impl From<Result<Answer>> for Answer {
    fn from(result: Result<Answer>) -> Self {
        result.unwrap_or_else(Answer::Error)
    }
}

/// What `stat` shows and every subject must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    pub kind: FileKind,
    pub permissions: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// 0 for directories: that is each file system's own affair.
    pub size_bytes: u64,
    pub atime: Timestamp,
    /// In the model: the access time without the reads that a crash may take. Elsewhere as `atime`.
    pub atime_oldest: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// Times from here on come from a clock; those that operations set lie before.
pub const CLOCK_FROM_SECS: i64 = 1_000_000_000;

/// How exactly a subject's answers can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// The subject is told the time: all stamps are equal.
    Exact,
    /// As `OwnClock`, but for directories' times.
    OwnClockAfterCrash,
    /// As `Exact`, but for directories' times and for access times, which may lag behind in a crash.
    AfterCrash,
    /// The subject has its own clock: of the stamps, only an mtime that an operation has set is compared.
    OwnClock,
}

impl View {
    fn seen_with(mut self, precision: Precision) -> Self {
        let none = Timestamp::default();
        let crashed = matches!(precision, Precision::AfterCrash | Precision::OwnClockAfterCrash);
        if crashed && self.kind == FileKind::Directory {
            (self.atime, self.atime_oldest, self.mtime, self.ctime) = (none, none, none, none);
        }
        if matches!(precision, Precision::OwnClock | Precision::OwnClockAfterCrash) {
            (self.atime, self.ctime) = (none, none);
            if self.mtime.secs >= CLOCK_FROM_SECS {
                self.mtime = Timestamp { secs: CLOCK_FROM_SECS, nanos: 0 };
            }
        }
        if precision != Precision::AfterCrash {
            self.atime_oldest = self.atime;
        }
        self
    }
}

impl Answer {
    /// Whether `got` is this answer, both seen with one precision.
    pub fn agrees(&self, got: &Self) -> bool {
        match (self, got) {
            (Self::Stat(expected), Self::Stat(got)) => {
                let lags = expected.atime_oldest <= got.atime && got.atime <= expected.atime;
                let (atime, atime_oldest) = (expected.atime, expected.atime_oldest);
                let rest = View { atime, atime_oldest, ..*got };
                rest == *expected && (lags || got.atime == expected.atime)
            }
            _ => self == got,
        }
    }

    /// The answer with that removed which `precision` does not compare.
    #[must_use]
    pub fn seen_with(self, precision: Precision) -> Self {
        match self {
            Self::Stat(view) => Self::Stat(view.seen_with(precision)),
            other => other,
        }
    }
}

impl From<&Attributes> for View {
    fn from(a: &Attributes) -> Self {
        let size_bytes = if a.kind == FileKind::Directory { 0 } else { a.size_bytes };
        Self {
            kind: a.kind,
            permissions: a.permissions,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            size_bytes,
            atime: a.atime,
            atime_oldest: a.atime,
            mtime: a.mtime,
            ctime: a.ctime,
        }
    }
}

/// The errno that a caller of the kernel should see; written down here apart from the faces' own maps.
pub fn errno_of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::Exists => Errno::EXIST,
        FsError::NotDirectory => Errno::NOTDIR,
        FsError::IsDirectory => Errno::ISDIR,
        FsError::NotEmpty => Errno::NOTEMPTY,
        FsError::PermissionDenied => Errno::ACCESS,
        FsError::NotPermitted => Errno::PERM,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::InvalidArgument(_) => Errno::INVAL,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::TooManySymlinks => Errno::LOOP,
        FsError::FileTooLarge => Errno::FBIG,
        FsError::NoSpace => Errno::NOSPC,
        FsError::QuotaExceeded => Errno::DQUOT,
        FsError::ReadOnly => Errno::ROFS,
        FsError::NoAttribute => Errno::NODATA,
        FsError::RangeTooSmall => Errno::RANGE,
        FsError::ValueTooLarge => Errno::TOOBIG,
        FsError::NoData => Errno::NXIO,
        FsError::CrossDevice => Errno::XDEV,
        FsError::NotSupported => Errno::OPNOTSUPP,
        FsError::NotImplemented => Errno::NOSYS,
        FsError::Stale => Errno::STALE,
        FsError::BadHandle => Errno::BADF,
        FsError::Busy => Errno::BUSY,
        FsError::ProgramRuns => Errno::TXTBSY,
        FsError::Interrupted => Errno::INTR,
        FsError::TooManyOpenFiles => Errno::NFILE,
        _ => Errno::IO,
    }
}

//! The one semantic error. The cause picks it; each edge (FUSE, NFS, the command line) maps it once.

use std::{borrow::Cow, error::Error, fmt, io, sync::Arc};

pub type FsResult<T> = Result<T, FsError>;

/// Why an operation on the file system failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FsError {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    /// The mode or ACL forbids it (EACCES).
    PermissionDenied,
    /// Only the owner or the superuser may (EPERM).
    NotPermitted,
    NameTooLong,
    InvalidArgument(&'static str),
    TooManyLinks,
    TooManySymlinks,
    FileTooLarge,
    NoSpace,
    QuotaExceeded,
    ReadOnly,
    /// No such extended attribute (ENODATA).
    NoAttribute,
    /// The caller's buffer, or a name, is out of range (ERANGE).
    RangeTooSmall,
    /// An extended attribute's value is too large (E2BIG).
    ValueTooLarge,
    /// A seek beyond the last data (ENXIO).
    NoData,
    CrossDevice,
    NotSupported,
    NotImplemented,
    /// The inode is gone, or its number never named one.
    Stale,
    BadHandle,
    Busy,
    /// The file is a program that runs (ETXTBSY).
    ProgramRuns,
    Interrupted,
    TooManyOpenFiles,
    /// The directory or list cannot grow further.
    LimitReached(&'static str),
    /// A record, object or frame that cannot be right. The text says which.
    Corrupt(Arc<str>),
    /// Something below failed; `context` says what was being done. The `io::Error`'s errno reaches the caller.
    Backing {
        context: Cow<'static, str>,
        source: Arc<io::Error>,
    },
    /// The volume's metadata cannot be reached or written; nothing further is promised.
    Engine(Arc<str>),
    /// A commit's outcome is unknown: it may or may not have happened.
    Unknown(Arc<str>),
}

impl FsError {
    /// Maps an I/O error from below: what has a word of its own becomes that word.
    pub fn from_io(context: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull => Self::NoSpace,
            io::ErrorKind::QuotaExceeded => Self::QuotaExceeded,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::FileTooLarge => Self::FileTooLarge,
            _ => Self::Backing { context: context.into(), source: Arc::new(source) },
        }
    }

    pub fn corrupt(what: impl Into<Arc<str>>) -> Self {
        Self::Corrupt(what.into())
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "already exists",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::NotEmpty => "directory not empty",
            Self::PermissionDenied => "permission denied",
            Self::NotPermitted => "operation not permitted",
            Self::NameTooLong => "name longer than 255 bytes",
            Self::InvalidArgument(why) => return write!(f, "invalid argument: {why}"),
            Self::TooManyLinks => "too many links",
            Self::TooManySymlinks => "too many levels of symbolic links",
            Self::FileTooLarge => "file too large",
            Self::NoSpace => "no space left",
            Self::QuotaExceeded => "quota exceeded",
            Self::ReadOnly => "read-only file system",
            Self::NoAttribute => "no such extended attribute",
            Self::RangeTooSmall => "out of range",
            Self::ValueTooLarge => "value too large",
            Self::NoData => "no data beyond this offset",
            Self::CrossDevice => "cross-device link",
            Self::NotSupported => "not supported",
            Self::NotImplemented => "not implemented",
            Self::Stale => "the inode is gone",
            Self::BadHandle => "no such open file",
            Self::Busy => "busy",
            Self::ProgramRuns => "a program that runs",
            Self::Interrupted => "interrupted",
            Self::TooManyOpenFiles => "too many open files",
            Self::LimitReached(what) => return write!(f, "limit reached: {what}"),
            Self::Corrupt(what) => return write!(f, "corrupt: {what}"),
            Self::Backing { context, source } => return write!(f, "{context}: {source}"),
            Self::Engine(why) => return write!(f, "metadata engine: {why}"),
            Self::Unknown(why) => return write!(f, "outcome unknown: {why}"),
        };
        f.write_str(text)
    }
}

impl Error for FsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backing { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

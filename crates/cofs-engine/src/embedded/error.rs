//! RocksDB's failures as engine errors.
//!
//! RocksDB keeps the errno of a failed call only in the text that strerror(3) gave it, so it is read
//! back from there.

use rustix::io::Errno;

use crate::EngineError;

/// Texts of strerror(3) (glibc, C locale; musl's where it differs) and their errno.
const TEXTS: &[(&str, Errno)] = &[
    ("No space left on device", Errno::NOSPC),
    ("Disk quota exceeded", Errno::DQUOT),
    ("Quota exceeded", Errno::DQUOT),
    ("Read-only file system", Errno::ROFS),
    ("Permission denied", Errno::ACCESS),
    ("Operation not permitted", Errno::PERM),
    ("No such file or directory", Errno::NOENT),
    ("Not a directory", Errno::NOTDIR),
    ("Is a directory", Errno::ISDIR),
    ("Too many open files in system", Errno::NFILE),
    ("Too many open files", Errno::MFILE),
    ("No file descriptors available", Errno::MFILE),
    ("File too large", Errno::FBIG),
    ("Cannot allocate memory", Errno::NOMEM),
    ("Out of memory", Errno::NOMEM),
    ("Stale file handle", Errno::STALE),
    ("Transport endpoint is not connected", Errno::NOTCONN),
    ("Connection timed out", Errno::TIMEDOUT),
    ("Resource temporarily unavailable", Errno::AGAIN),
    ("lock hold by current process", Errno::AGAIN),
    ("Input/output error", Errno::IO),
    ("I/O error", Errno::IO),
];

/// The errno behind a RocksDB status. Damage found by a checksum, or by a file that is missing among others, is EUCLEAN, an
/// input/output error of no known errno EIO.
pub(super) fn errno(error: &rocksdb::Error) -> Option<Errno> {
    let told = errno_in(error.as_ref());
    match (error.kind(), told) {
        (rocksdb::ErrorKind::Corruption, None | Some(Errno::NOENT)) => Some(Errno::UCLEAN),
        (rocksdb::ErrorKind::IOError, None) => Some(Errno::IO),
        _ => told,
    }
}

/// The errno that a status tells in words.
pub(super) fn errno_in(text: &str) -> Option<Errno> {
    TEXTS.iter().find(|(words, _)| text.contains(words)).map(|(_, errno)| *errno)
}

/// `doing` is what was being done.
pub(super) fn engine_error(doing: &str, error: &rocksdb::Error) -> EngineError {
    let errno = errno(error).map(Errno::raw_os_error);
    EngineError { what: format!("{doing}: {error}").into(), errno, advice: None }
}

pub(super) fn from_errno(what: impl AsRef<str>, errno: Errno) -> EngineError {
    EngineError { what: what.as_ref().into(), errno: Some(errno.raw_os_error()), advice: None }
}

pub(super) fn from_io(doing: &str, error: &std::io::Error) -> EngineError {
    // What stands there is not what should.
    let unfit = (error.kind() == std::io::ErrorKind::InvalidData).then_some(Errno::UCLEAN.raw_os_error());
    EngineError {
        what: format!("{doing}: {error}").into(),
        errno: error.raw_os_error().or(unfit),
        advice: None,
    }
}

/// Whether there was no space, or none for a file of that size under the limit on them (ulimit -f).
pub(super) fn is_full(error: &EngineError) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(|errno| Some(errno.raw_os_error()));
    full.contains(&error.errno)
}

//! The one map from the semantic error to errno; what is our own failure is logged here, once.
//!
//! Two numbers mean more to the kernel than to a caller: ENOSYS switches an operation off for the whole
//! mount, so nothing from below may leak it, and errors of 512 and above are refused.

use cofs_types::FsError;

/// A positive errno on its way to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl From<FsError> for Errno {
    /// Maps and, where the failure is internal, logs.
    fn from(error: FsError) -> Self {
        match &error {
            FsError::Corrupt(_) | FsError::Engine(_) | FsError::Unknown(_) => {
                tracing::error!(%error, "operation failed");
            }
            FsError::Backing { source, .. }
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                tracing::warn!(
                    %error,
                    "operation failed below: have the limit on open files raised (ulimit -n; LimitNOFILE= of a unit)"
                );
            }
            FsError::Backing { .. } => tracing::warn!(%error, "operation failed below"),
            _ => {}
        }
        Self(number(&error))
    }
}

fn number(error: &FsError) -> i32 {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotDirectory => libc::ENOTDIR,
        FsError::IsDirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::PermissionDenied => libc::EACCES,
        FsError::NotPermitted => libc::EPERM,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::InvalidArgument(_) => libc::EINVAL,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::TooManySymlinks => libc::ELOOP,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::NoSpace | FsError::LimitReached(_) => libc::ENOSPC,
        FsError::QuotaExceeded => libc::EDQUOT,
        FsError::ReadOnly => libc::EROFS,
        FsError::NoAttribute => libc::ENODATA,
        FsError::RangeTooSmall => libc::ERANGE,
        FsError::ValueTooLarge => libc::E2BIG,
        FsError::NoData => libc::ENXIO,
        FsError::CrossDevice => libc::EXDEV,
        FsError::NotSupported => libc::EOPNOTSUPP,
        FsError::NotImplemented => libc::ENOSYS,
        FsError::Stale => libc::ESTALE,
        FsError::BadHandle => libc::EBADF,
        FsError::Busy => libc::EBUSY,
        FsError::ProgramRuns => libc::ETXTBSY,
        FsError::Interrupted => libc::EINTR,
        FsError::TooManyOpenFiles => libc::ENFILE,
        FsError::Corrupt(_) => libc::EUCLEAN,
        FsError::Backing { source, .. } => from_below(source.raw_os_error()),
        _ => libc::EIO,
    }
}

/// What the file system below answered, unless the kernel would take it for something else.
fn from_below(errno: Option<i32>) -> i32 {
    match errno {
        Some(libc::ENOSYS) => libc::EOPNOTSUPP,
        Some(errno) if (1..512).contains(&errno) => errno,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_cause_has_the_errno_that_posix_names_for_it() {
        for (error, errno) in [
            (FsError::NotFound, libc::ENOENT),
            (FsError::NotEmpty, libc::ENOTEMPTY),
            (FsError::PermissionDenied, libc::EACCES),
            (FsError::NotPermitted, libc::EPERM),
            (FsError::NoAttribute, libc::ENODATA),
            (FsError::ValueTooLarge, libc::E2BIG),
            (FsError::Stale, libc::ESTALE),
            (FsError::corrupt("x"), libc::EUCLEAN),
            (FsError::Engine("x".into()), libc::EIO),
        ] {
            assert_eq!(Errno::from(error.clone()), Errno(errno), "{error}");
        }
    }

    #[test]
    fn an_errno_from_below_reaches_the_caller_but_never_switches_an_operation_off() {
        let below = |errno| FsError::from_io("test", io::Error::from_raw_os_error(errno));
        assert_eq!(Errno::from(below(libc::ESTALE)), Errno(libc::ESTALE));
        assert_eq!(Errno::from(below(libc::EIO)), Errno(libc::EIO));
        assert_eq!(Errno::from(below(libc::ENOSYS)), Errno(libc::EOPNOTSUPP));
        assert_eq!(Errno::from(below(4096)), Errno(libc::EIO));
    }
}

//! What a verb says when it cannot do what it was asked to: one line, and an exit code.
//!
//! The line says what failed, for whom, why, and what to do next. Exit codes: 0 done; 1 failed, nothing
//! changed unless the line says so; 2 wrong usage (clap's); `fsck` has those of fsck(8).

use std::{error::Error, fmt, io, path::Path, process::ExitCode};

use cofs_fuse::MountError;
use cofs_types::FsError;
use rustix::io::Errno;

use crate::output::printable;

pub const EXIT_FAILED: u8 = 1;
pub const EXIT_USAGE: u8 = 2;

pub type Done<T = ()> = Result<T, Failure>;

#[derive(Debug)]
pub struct Failure {
    what: String,
    next: Option<String>,
    code: u8,
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), next: None, code: EXIT_FAILED }
    }

    /// A command line that cannot be right.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { code: EXIT_USAGE, ..Self::new(what) }
    }

    /// Adds what the reader can do about it.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Something about `path` failed below.
    pub fn io(what: &str, path: &Path, source: &io::Error) -> Self {
        let failure = Self::new(format!("{what} {}: {}", path.display(), plain(source)));
        Self { next: remedy(source).map(str::to_owned), ..failure }
    }

    /// Puts what was being done before the cause.
    pub fn within(mut self, doing: impl fmt::Display) -> Self {
        self.what = format!("{doing}: {}", self.what);
        self
    }
}

/// What can be done about an error of a file system that we know no more of.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => {
            Some("have the limit on open files raised (ulimit -n; LimitNOFILE= of a unit)")
        }
        _ if Errno::from_io_error(error) == Some(Errno::LOOP) => {
            Some("it is a symbolic link, and must not be one: remove it")
        }
        _ if Errno::from_io_error(error) == Some(Errno::NOTCONN) => {
            Some("the process of what is mounted there has ended: unmount it, and mount it again")
        }
        _ if Errno::from_io_error(error) == Some(Errno::UCLEAN) => {
            Some("restore what is damaged from a copy, or load a dump if it is the metadata (cofs load)")
        }
        io::ErrorKind::PermissionDenied => Some("do it as its owner or as root, or get the permission first"),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("have that file system mounted for writing, or name another place")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("make room there and try again"),
        io::ErrorKind::FileTooLarge => Some("have the limit raised (ulimit -f), or name another place"),
        io::ErrorKind::NotFound => Some("look at the path's spelling, or make what is missing first"),
        io::ErrorKind::NotADirectory => {
            Some("name another path: what comes before its last part must be directories")
        }
        io::ErrorKind::InvalidFilename => Some("name a shorter one"),
        // Of a process or a thread that could not be started: the limit counts both, of all that are the user's. A thread's stack may be what lacks.
        io::ErrorKind::WouldBlock => Some(
            "have the limit on processes raised (ulimit -u; TasksMax= of a unit), or that on memory (ulimit -v)",
        ),
        io::ErrorKind::IsADirectory => Some("name a file, or move the directory away"),
        _ => None,
    }
}

/// An I/O error's words without `(os error 13)`, beginning small, as they follow a colon.
pub fn plain(error: &io::Error) -> String {
    let text = without_numbers(&error.to_string());
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Without the ` (os error 13)` of Rust's I/O errors.
pub fn without_numbers(line: &str) -> String {
    const MARK: &str = " (os error ";
    let mut parts = line.split(MARK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => all + rest,
        _ => all + MARK + part,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a library below put into its message.
        let line = self.what.split_whitespace().collect::<Vec<_>>().join(" ");
        f.write_str(&printable(&without_numbers(&line)))?;
        match &self.next {
            Some(next) => write!(f, "; {}", printable(next)),
            None => Ok(()),
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        let next = match &error {
            FsError::NoSpace | FsError::QuotaExceeded => remedy(&io::ErrorKind::StorageFull.into()),
            FsError::ReadOnly => remedy(&io::ErrorKind::ReadOnlyFilesystem.into()),
            FsError::FileTooLarge => remedy(&io::ErrorKind::FileTooLarge.into()),
            FsError::Backing { source, .. } => remedy(source),
            _ => None,
        };
        Self { next: next.map(str::to_owned), ..Self::new(error.to_string()) }
    }
}

/// Turns errors of any kind into failures that say what was being done.
pub trait Within<T> {
    fn within(self, doing: impl fmt::Display) -> Done<T>;
}

impl<T, E: Into<Failure>> Within<T> for Result<T, E> {
    fn within(self, doing: impl fmt::Display) -> Done<T> {
        self.map_err(|error| error.into().within(doing))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { next: remedy(&error).map(str::to_owned), ..Self::new(plain(&error)) }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let next = match error {
            MountError::PointInUse(_) | MountError::PointStale(_) => Some("cofs umount takes it down"),
            _ => cause.and_then(remedy),
        };
        Self { next: next.map(str::to_owned), ..Self::new(error.to_string()) }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new("a\nb").within("mount").next("try c");
        assert_eq!(failure.to_string(), "mount: a b; try c");
        let failure = Failure::new("no \u{1b}[2J").next("make a\nb");
        assert_eq!(failure.to_string(), "no \\u{1b}[2J; make a\\nb", "a name may hold anything");
    }

    #[test]
    fn numbers_of_errors_are_for_programmers() {
        let said = |text: &str| Failure::new(text).to_string();
        assert_eq!(said("a: denied (os error 13), b: full (os error 28)"), "a: denied, b: full");
        assert_eq!(said("a (os error) (os error x)"), "a (os error) (os error x)");
        let failure = Failure::io("cannot read", Path::new("/x"), &io::Error::from_raw_os_error(13));
        assert!(failure.to_string().starts_with("cannot read /x: permission denied; do it as"), "{failure}");
    }

    #[test]
    fn an_error_of_a_file_system_has_a_remedy_however_it_comes() {
        for number in [13, 28, 30, 122] {
            let error = || io::Error::from_raw_os_error(number);
            let said = [Failure::from(error()), FsError::from_io("do", error()).into()];
            assert!(said.iter().all(|failure| failure.to_string().contains("; ")), "{said:?}");
        }
    }

    #[test]
    fn an_errno_reads_as_part_of_a_sentence() {
        assert_eq!(plain(&io::Error::from_raw_os_error(13)), "permission denied");
        let told = io::Error::other("A: denied (os error 13); name another");
        assert_eq!(plain(&told), "a: denied; name another", "what follows the number is told, too");
    }
}

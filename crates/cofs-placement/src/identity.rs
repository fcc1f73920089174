//! A pool's identity: `cofs-pool.toml` in its directory.
//!
//! It says which volume the pool belongs to and as which of its pools, so that a directory that is not
//! (or no longer) the pool, such as the empty mount point of a file system that is not mounted, is never
//! taken for it. Format: `docs/design/placement.md`.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use cofs_types::{is_as_good_as_empty_with, limits};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    PoolConfig,
    store::{At, BackingStore, OpenMode, Operation, errno, open_regular},
};

pub const FILE: &str = "cofs-pool.toml";
pub const FILE_NEW: &str = "cofs-pool.toml.new";
/// The pool format that this program writes, and the newest it reads.
pub const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    version: u32,
    volume: Uuid,
    pool: u16,
    name: String,
}

/// Why a directory is not the pool that was asked for.
#[derive(Debug)]
pub enum Mismatch {
    /// It cannot be read; the errno is the cause's.
    Unreadable(io::Error),
    /// There is none: not formatted, or not mounted.
    Absent,
    Foreign,
    /// Another process has it to change it.
    InUse,
    Newer(u64),
    Malformed(String),
}

impl Mismatch {
    /// What to do about it, where that follows from what it is.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::InUse => {
                Some("unmount that volume (a copy of this one?) first, or give this one pools of its own")
            }
            Self::Newer(_) => Some("use a newer cofs"),
            Self::Malformed(_) => Some("restore it from a copy"),
            Self::Unreadable(error) if matches!(errno(error), Some(Errno::MFILE | Errno::NFILE)) => {
                Some("have the limit on open files raised (ulimit -n; LimitNOFILE= of a unit)")
            }
            _ => None,
        }
    }

    /// All of it for one line.
    pub fn told(&self) -> String {
        self.advice().map_or_else(|| self.to_string(), |advice| format!("{self}; {advice}"))
    }

    /// The errno for those who wanted something of the pool.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Unreadable(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            Self::InUse => Errno::BUSY.raw_os_error(),
            _ => Errno::IO.raw_os_error(),
        }
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "{FILE} cannot be read: {error}"),
            Self::Absent => write!(f, "{FILE} is not there (not mounted?)"),
            Self::InUse => f.write_str("it is in use by another process"),
            Self::Foreign => write!(f, "{FILE} is that of another volume or pool"),
            Self::Newer(version) => {
                write!(f, "pool format {version} is newer than this cofs reads ({VERSION})")
            }
            Self::Malformed(why) => write!(f, "{FILE} is malformed: {why}"),
        }
    }
}

impl Identity {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn new(config: &PoolConfig, volume: Uuid) -> Self {
        Self { version: VERSION, volume, pool: config.id.0, name: config.name.clone() }
    }

    /// Checks that `root` is the directory of this pool. The name is for people and may change.
    pub fn check(&self, store: &dyn BackingStore, root: Option<&File>) -> Result<(), Mismatch> {
        let text = read(store, root)?;
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let malformed = |error: toml::de::Error| Mismatch::Malformed(error.message().to_owned());
        let Version { version } = toml::from_str(&text).map_err(malformed)?;
        if version > VERSION.into() {
            return Err(Mismatch::Newer(version));
        }
        if version == 0 {
            return Err(Mismatch::Malformed(format!("version {version} does not exist")));
        }
        let found: Self = toml::from_str(&text).map_err(malformed)?;
        let same = found.volume == self.volume && found.pool == self.pool;
        if same { Ok(()) } else { Err(Mismatch::Foreign) }
    }

    /// Writes it durably; the directory is a pool from the rename on.
    pub fn write(&self, store: &dyn BackingStore) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        absent_is_well(store.remove_file(At::root(FILE_NEW)))?;
        let mut file = store.open(At::root(FILE_NEW), OpenMode::CreateNew)?;
        store.admit(Operation::Write)?;
        file.write_all(text.as_bytes())?;
        store.admit(Operation::Sync)?;
        file.sync_all()?;
        store.rename(FILE_NEW, FILE)?;
        store.open(At::root("."), OpenMode::Directory)?.sync_all()
    }
}

/// Whether `name` may stand in a directory that is to become a pool: what takes nothing from its being empty, and
/// what a format that was cut short leaves.
pub fn harmless(name: &[u8]) -> bool {
    is_as_good_as_empty_with(name) || name == FILE_NEW.as_bytes()
}

/// Takes back [`Identity::write`], also one that was cut short.
pub fn remove(store: &dyn BackingStore) -> io::Result<()> {
    [FILE, FILE_NEW].iter().try_for_each(|name| absent_is_well(store.remove_file(At::root(name))))
}

/// What is to be removed may be gone already.
pub fn absent_is_well(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(store: &dyn BackingStore, root: Option<&File>) -> Result<String, Mismatch> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Mismatch::Absent,
        io::ErrorKind::InvalidData => Mismatch::Malformed(error.to_string()),
        _ => Mismatch::Unreadable(error),
    };
    let file = open_regular(store, At { directory: root, path: FILE }, OpenMode::Look).map_err(unreadable)?;
    store.admit(Operation::Read).map_err(Mismatch::Unreadable)?;
    let mut text = String::new();
    file.take(limits::POOL_IDENTITY_BYTES_MAX).read_to_string(&mut text).map_err(|error| {
        match error.kind() {
            io::ErrorKind::InvalidData => Mismatch::Malformed("not text".to_owned()),
            _ => Mismatch::Unreadable(error),
        }
    })?;
    Ok(text)
}

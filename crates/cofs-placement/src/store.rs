//! The seam to the file system below: what a pool needs of a directory.
//!
//! Paths are relative, to an open directory or to the store's root; nothing here goes up, and nothing
//! follows a symbolic link in the last component. Files come back as plain [`File`]s, because the
//! kernel wants descriptors for passthrough; operations on them are announced with
//! [`BackingStore::admit`], which is where a test store puts its faults.

use std::{fs::File, io, path::Path};

use rustix::io::Errno;

/// A path below an open directory, or below the store's root when there is none.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub directory: Option<&'a File>,
    pub path: &'a str,
}

impl<'a> At<'a> {
    pub const fn root(path: &'a str) -> Self {
        Self { directory: None, path }
    }

    pub const fn below(directory: &'a File, path: &'a str) -> Self {
        Self { directory: Some(directory), path }
    }
}

/// How a file below is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    Read,
    /// For reading what may be anything: a FIFO would be waited for.
    Look,
    ReadWrite,
    /// For reading and writing; fails with `EEXIST` if it is there.
    CreateNew,
    Directory,
}

/// What a directory's entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    File,
    Directory,
    Other,
    /// The file system does not say; the entry has to be looked at.
    Unknown,
}

/// Every kind of operation below, so that a fault can be aimed at one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    Attach,
    Open,
    Create,
    MakeDirectory,
    RemoveFile,
    RemoveDirectory,
    Rename,
    List,
    Space,
    SyncAll,
    Read,
    Write,
    Sync,
    SetLen,
    Allocate,
    Stat,
    SetTimes,
    Seek,
    CopyRange,
    Tag,
    ReadTag,
}

/// statvfs(3), in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Whose space it is: the number of the file system's device.
    pub device: u64,
    pub block_size_bytes: u64,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// What is free for those who are not root.
    pub available_bytes: u64,
    /// 0 where the file system below has no fixed number of inodes.
    pub files_total: u64,
    pub files_free: u64,
}

/// A directory of any file system.
///
/// Errors are those of the system calls; mapping them to the volume's words is the caller's job.
pub trait BackingStore: Send + Sync + 'static {
    /// Where the directory was found, for messages.
    fn path(&self) -> &Path;

    /// Opens the root anew at its path and keeps it if `accept` finds it right; else the one before
    /// stays. Until this succeeded once, everything else fails with `ENOENT`.
    fn attach(&self, accept: &mut dyn FnMut(&File) -> io::Result<()>) -> io::Result<()>;

    /// Called before every operation on an open file of this store.
    fn admit(&self, operation: Operation) -> io::Result<()> {
        let _ = operation;
        Ok(())
    }

    fn open(&self, at: At<'_>, mode: OpenMode) -> io::Result<File>;
    fn make_directory(&self, at: At<'_>) -> io::Result<()>;
    fn remove_file(&self, at: At<'_>) -> io::Result<()>;
    fn remove_directory(&self, at: At<'_>) -> io::Result<()>;
    /// Replaces `to` if it is there. Both are below the root.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Calls `visit` with each entry but `.` and `..`, from the beginning, holding a bounded number of
    /// them in memory.
    fn list(
        &self,
        directory: &File,
        visit: &mut dyn FnMut(&[u8], EntryKind) -> io::Result<()>,
    ) -> io::Result<()>;
    fn space(&self) -> io::Result<Space>;
    /// The number of the mount that the root stands in, which no other has in this run of the machine. `None`: it is not known. Does not wait.
    fn mount(&self) -> Option<u64>;
    /// syncfs(2) of the file system that holds the root.
    fn sync_all(&self) -> io::Result<()>;
}

/// Opens a file of the store's root that is to be a regular one; anything may stand in its place. Errors: EISDIR for a directory, `InvalidData` for
/// anything else.
pub fn open_regular(store: &dyn BackingStore, at: At<'_>, mode: OpenMode) -> io::Result<File> {
    let file = store.open(at, mode)?;
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no regular file")),
    }
}

pub fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

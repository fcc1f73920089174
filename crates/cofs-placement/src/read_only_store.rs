//! A store that is only read: nothing below it is changed, whoever asks.
//!
//! What would change something fails with EROFS, as it does on a file system that is mounted so. That is decided here and not by
//! those who ask, so that a pool opened for reading cannot be written by oversight.

use std::{fs::File, io, path::Path, sync::Arc};

use rustix::io::Errno;

use crate::store::{At, BackingStore, EntryKind, OpenMode, Operation, Space};

/// Another store, for reading.
pub struct ReadOnlyStore {
    inner: Arc<dyn BackingStore>,
}

impl ReadOnlyStore {
    pub fn new(inner: Arc<dyn BackingStore>) -> Self {
        Self { inner }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(Errno::ROFS.into())
}

impl BackingStore for ReadOnlyStore {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn attach(&self, accept: &mut dyn FnMut(&File) -> io::Result<()>) -> io::Result<()> {
        self.inner.attach(accept)
    }

    fn admit(&self, operation: Operation) -> io::Result<()> {
        match operation {
            Operation::Create
            | Operation::MakeDirectory
            | Operation::RemoveFile
            | Operation::RemoveDirectory
            | Operation::Rename
            | Operation::Write
            | Operation::SetLen
            | Operation::Allocate
            | Operation::SetTimes
            | Operation::CopyRange
            | Operation::Tag => refused(),
            Operation::Attach
            | Operation::Open
            | Operation::List
            | Operation::Space
            | Operation::SyncAll
            | Operation::Read
            | Operation::Sync
            | Operation::Stat
            | Operation::Seek
            | Operation::ReadTag => self.inner.admit(operation),
        }
    }

    fn open(&self, at: At<'_>, mode: OpenMode) -> io::Result<File> {
        match mode {
            OpenMode::Read | OpenMode::Look | OpenMode::Directory => self.inner.open(at, mode),
            OpenMode::ReadWrite | OpenMode::CreateNew => refused(),
        }
    }

    fn make_directory(&self, _: At<'_>) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _: At<'_>) -> io::Result<()> {
        refused()
    }

    fn remove_directory(&self, _: At<'_>) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn list(
        &self,
        directory: &File,
        visit: &mut dyn FnMut(&[u8], EntryKind) -> io::Result<()>,
    ) -> io::Result<()> {
        self.inner.list(directory, visit)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn mount(&self) -> Option<u64> {
        self.inner.mount()
    }

    /// Nothing was written. (syncfs(2) would wait for what others have.)
    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}

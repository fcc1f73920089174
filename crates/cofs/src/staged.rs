//! Files that verbs write: each appears when it is whole, and replaces one of that name; one that could not be finished leaves nothing.
//!
//! Anything else under the name, such as a FIFO or a device, is written to: a file in its place would be a loss.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{
    failure::{Done, Failure, Within},
    volume::config::sync_parent,
};

/// A file that is written, on stable storage, and not there yet; if it goes before it is [placed](Self::place) nothing is left of it.
pub struct Staged {
    /// Where it is to be; what a symbolic link leads to, not the link.
    path: PathBuf,
    /// Where it stands beside that; none where there is nothing to put in its place.
    temporary: Option<Temporary>,
}

/// A file of ours that is removed again.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing.
        let _ = fs::remove_file(&self.0);
    }
}

impl Staged {
    /// Has `write` write what is to be in `path`.
    pub fn write<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<T>) -> Done<(Self, T)> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|at| !at.is_file()) {
            let file = File::options().write(true).open(&path);
            let file = file.map_err(|error| cannot_write(&path, &error))?;
            let written = write_file(file, &path, write)?;
            return Ok((Self { path, temporary: None }, written));
        }
        let beside = beside(&path);
        let file = File::options().write(true).create_new(true).open(&beside);
        let file = file.map_err(|error| cannot_write(&path, &error))?;
        let temporary = Temporary(beside);
        let written = write_file(file, &path, write)?;
        Ok((Self { path, temporary: Some(temporary) }, written))
    }

    /// Has `bytes` to be in `path`.
    pub fn of(path: &Path, bytes: &[u8]) -> Done<Self> {
        Self::write(path, |out| out.write_all(bytes).within("cannot be written")).map(|(staged, ())| staged)
    }

    /// Puts it in its place.
    pub fn place(self) -> Done {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        fs::rename(&temporary.0, &self.path)
            .and_then(|()| sync_parent(&std::path::absolute(&self.path)?))
            .map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::io("cannot write", path, error)
}

/// A name beside `file` that nobody else has.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

/// `path` is for messages.
fn write_file<T>(file: File, path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<T>) -> Done<T> {
    let mut out = BufWriter::new(file);
    let written = write(&mut out).within(path.display())?;
    let file = out.into_inner().map_err(|error| cannot_write(path, error.error()))?;
    match file.sync_all() {
        // A device or a FIFO may have nothing to sync.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(written),
        synced => synced.map_err(|error| cannot_write(path, &error)).map(|()| written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_placed_leaves_nothing_and_what_is_replaces() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "older").unwrap();
        let write = |text: &str| Staged::of(&path, text.as_bytes()).unwrap();
        drop(write("newer"));
        assert_eq!(fs::read(&path).unwrap(), b"older");
        assert!(Staged::write(&path, |_| Err::<(), _>(Failure::new("no"))).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        write("newer").place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}

//! Files that verbs write: each appears when it is whole, and replaces one of that name; one that could not be finished leaves nothing.
//!
//! Anything else under the name, such as a FIFO or a device, is written to: a file in its place would be a loss. What is replaced leaves its
//! mode and owner to what replaces it.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, BufWriter, Write},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, OFlags},
    io::Errno,
};

use crate::{
    failure::{Done, Failure, Within},
    volume::config::sync_parent,
};

/// A file that is written, on stable storage, and not there yet; if it goes before it is [placed](Self::place) nothing is left of it.
pub struct Staged {
    /// Where it is to be; what a symbolic link leads to, not the link.
    path: PathBuf,
    /// What is to be put there; none where there is nothing to put in its place.
    temporary: Option<Temporary>,
}

/// Who may read a file that was not there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// All whom the umask lets.
    All,
    /// Its owner alone.
    Owner,
}

impl Staged {
    /// Has `write` write what is to be in `path`.
    pub fn write<T>(
        named: &Path,
        readers: Readers,
        write: impl FnOnce(&mut dyn Write) -> Done<T>,
    ) -> Done<(Self, T)> {
        let path = match place_of(named) {
            // From a deep directory the file may be reached nevertheless, as it was named.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NAMETOOLONG) => named.to_owned(),
            place => place.map_err(|error| cannot_write(named, &error))?,
        };
        let replaced = fs::metadata(&path).ok();
        if replaced.is_none() && named.as_os_str().as_bytes().ends_with(b"/") {
            return Err(
                cannot_write(named, &Errno::NOENT.into()).next("name a file: that is a directory's name")
            );
        }
        if replaced.as_ref().is_some_and(|at| !at.is_file()) {
            let file = File::options().write(true).open(&path);
            let file = file.map_err(|error| cannot_write(&path, &error))?;
            let written = write_file(&file, &path, write)?;
            return Ok((Self { path, temporary: None }, written));
        }
        let mode = if replaced.is_some() || readers == Readers::Owner { 0o600 } else { 0o666 };
        let temporary = Temporary::beside(&path, mode).map_err(|error| cannot_write(&path, &error))?;
        if let Some(replaced) = replaced {
            take_after(&temporary.file, &replaced).map_err(|error| cannot_write(&path, &error))?;
        }
        let written = write_file(&temporary.file, &path, write)?;
        Ok((Self { path, temporary: Some(temporary) }, written))
    }

    /// Has `bytes` to be in `path`.
    pub fn of(path: &Path, bytes: &[u8]) -> Done<Self> {
        let write = |out: &mut dyn Write| out.write_all(bytes).within("cannot be written");
        Self::write(path, Readers::All, write).map(|(staged, ())| staged)
    }

    /// Puts it in its place.
    pub fn place(mut self) -> Done {
        let Some(temporary) = &mut self.temporary else { return Ok(()) };
        // Its directory may be within reach only from here.
        let path = Path::new(".").join(&self.path);
        temporary
            .name()
            .and_then(|()| fs::rename(&temporary.path, &path))
            .and_then(|()| sync_parent(&path))
            .map_err(|error| cannot_write(&self.path, &error))
    }
}

/// A file of ours that is removed again.
struct Temporary {
    file: File,
    /// Beside its place.
    path: PathBuf,
    /// Whether it stands there yet. Where the file system below can do without, it does so for an instant only: nothing is left of it when we are killed.
    is_named: bool,
}

impl Temporary {
    /// A file for the directory of `path`.
    fn beside(path: &Path, mode: u32) -> io::Result<Self> {
        let dotted = Path::new(".").join(path);
        let directory = dotted.parent().unwrap_or(Path::new("/"));
        let unnamed = OFlags::TMPFILE.bits().cast_signed();
        match File::options().write(true).custom_flags(unnamed).mode(mode).open(directory) {
            Ok(file) => Ok(Self { file, path: beside(path), is_named: false }),
            // Not every file system has such.
            Err(_) => Self::named(path, mode),
        }
    }

    fn named(path: &Path, mode: u32) -> io::Result<Self> {
        let path = beside(path);
        let file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { file, path, is_named: true })
    }

    fn name(&mut self) -> io::Result<()> {
        if !self.is_named {
            let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, unnamed, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_named {
            // After a rename there is nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A name beside `file` that nobody else has.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

/// Gives a file the owner and the mode of what it replaces. Where that owner cannot be had, those whom the mode let in are others now.
fn take_after(file: &File, replaced: &Metadata) -> io::Result<()> {
    let is_owned = fchown(file, Some(replaced.uid()), Some(replaced.gid())).is_ok();
    let mode = replaced.mode() & if is_owned { 0o7777 } else { 0o700 };
    file.set_permissions(Permissions::from_mode(mode))
}

/// Where a file stands, or will: a path without links, also of one that leads where nothing stands yet. Errors: nothing can stand there.
pub fn place_of(file: &Path) -> io::Result<PathBuf> {
    let mut file = std::path::absolute(file)?;
    loop {
        let error = match file.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            found => return found,
        };
        // What has no name of its own, such as the pipe behind /dev/stdout.
        if file.exists() {
            return Ok(file);
        }
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { return Err(error) };
        let place = parent.canonicalize()?.join(name);
        match fs::read_link(&place) {
            // The kernel has followed all of them, and found no circle.
            Ok(target) => file = parent.canonicalize()?.join(target),
            Err(_) => return Ok(place),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::io("cannot write", path, error)
}

/// `path` is for messages.
fn write_file<T>(file: &File, path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<T>) -> Done<T> {
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
        assert!(Staged::write(&path, Readers::All, |_| Err::<(), _>(Failure::new("no"))).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        write("newer").place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_stands_there_while_it_is_written_and_what_has_a_name_goes_like_what_has_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let count = || fs::read_dir(root.path()).unwrap().count();
        let staged = Staged::of(&path, b"bytes").unwrap();
        let can_do_without = staged.temporary.as_ref().is_some_and(|temporary| !temporary.is_named);
        assert_eq!(count(), if can_do_without { 0 } else { 1 });
        drop(staged);
        let named =
            || Staged { path: path.clone(), temporary: Some(Temporary::named(&path, 0o600).unwrap()) };
        drop(named());
        assert_eq!(count(), 0);
        named().place().unwrap();
        assert_eq!((count(), path.exists()), (1, true));
    }

    #[test]
    fn somebody_elses_file_of_that_name_stays() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(beside(&path), "somebody's").unwrap();
        assert!(Staged::of(&path, b"bytes").and_then(Staged::place).is_err());
        assert_eq!(fs::read(beside(&path)).unwrap(), b"somebody's");
        assert!(!path.exists());
    }
}

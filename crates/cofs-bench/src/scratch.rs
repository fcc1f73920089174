//! Where in a directory a run works, and what is looked at before it writes anything.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use cofs_types::size::show_size;
use rustix::fs::{Access, access, statvfs};

use crate::{Need, Suite};

/// What the names of all directories of benches begin with.
const PREFIX: &str = "cofs-bench-";
/// What stands in every new file system of the ext family.
const NOTHING: &str = "lost+found";
/// What to do where there is too little.
const LESS: &str = "make room there, name another directory, or have less done";

/// A run's own place. It goes with all that is left in it when the run is through; what a run that failed leaves
/// stays until somebody wants it removed.
pub struct Scratch {
    pub path: PathBuf,
    /// Not a device.
    is_directory: bool,
}

impl Scratch {
    /// A new directory in `target`, or the one that an earlier run left, or `target` itself if it is a device.
    pub fn new(target: &Path, suite: &dyn Suite, round: usize) -> io::Result<Self> {
        if !target.is_dir() {
            return Ok(Self { path: target.to_owned(), is_directory: false });
        }
        let path = place(target, suite, round);
        if !suite.finds() {
            fs::create_dir(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => earlier(target, &path.display().to_string()),
                _ => unwritable(target, error),
            })?;
        }
        Ok(Self { path, is_directory: true })
    }

    /// Its name in the target; none where it is the target itself.
    pub fn name(&self) -> Option<String> {
        let name = self.path.file_name().filter(|_| self.is_directory);
        name.map(|name| name.to_string_lossy().into_owned())
    }

    /// The round is through: only what the suite leaves stays.
    pub fn done(self, suite: &dyn Suite) -> io::Result<()> {
        match self.is_directory && !suite.leaves() {
            true => remove(&self.path),
            false => Ok(()),
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot remove all of {}: {error}", path.display()))
    })
}

/// What runs left in `target`: those that failed, and those that were told to leave their files.
pub fn left(target: &Path) -> io::Result<Vec<PathBuf>> {
    if !is_directory(target)? {
        return Err(no_directory(target));
    }
    let told = |error| of(target, error);
    let mut left = Vec::new();
    for entry in fs::read_dir(target).map_err(told)? {
        let entry = entry.map_err(told)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.path().is_dir() {
            left.push(entry.path());
        }
    }
    left.sort();
    Ok(left)
}

/// Removes what runs [`left`] in `target`; tells what it was. Errors: one of them goes on, on this host; then nothing is removed.
pub fn clean(target: &Path) -> io::Result<Vec<PathBuf>> {
    let left = left(target)?;
    if let Some((path, process)) = left.iter().find_map(|path| Some((path, process_of(path)?))) {
        let text = format!(
            "{} is of a run that goes on (process {process}): wait for its end, or end it",
            path.display()
        );
        return Err(io::Error::other(text));
    }
    left.iter().try_for_each(|path| remove(path))?;
    Ok(left)
}

/// Whose run has this directory, where that is another process than this one and goes on.
fn process_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let process: u32 = name.split_once('-')?.0.parse().ok()?;
    let program = |process: &str| fs::read(format!("/proc/{process}/comm")).ok();
    let is_like_us = program(&process.to_string()).is_some_and(|name| Some(name) == program("self"));
    (process != std::process::id() && is_like_us).then_some(process)
}

/// A name of this run's own; what stays for other runs has a name that they know. Each round has another, because mounts
/// of a file system that keep names for a while without asking (GlusterFS's for a second) would take one that is made
/// again for the one that was removed, and fail.
fn place(target: &Path, suite: &dyn Suite, round: usize) -> PathBuf {
    match suite.leaves() || suite.finds() {
        true => target.join(format!("{PREFIX}{}", suite.name())),
        false => target.join(format!("{PREFIX}{}-{round}", std::process::id())),
    }
}

/// Whether a suite of any kind can work in `target`: it is an empty directory, or one where that does not matter. Writes nothing.
///
/// Errors: one line that says what is in the way, and what to do.
pub fn ready(target: &Path, beside: bool) -> io::Result<()> {
    match is_directory(target)? {
        true => writable(target).and_then(|()| empty(target, beside).map_err(|error| of(target, error))),
        false => Err(no_directory(target)),
    }
}

fn no_directory(target: &Path) -> io::Error {
    io::Error::other(format!("{} is not a directory; name one", target.display()))
}

fn of(target: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", target.display()))
}

fn is_directory(target: &Path) -> io::Result<bool> {
    match fs::metadata(target) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{} is not there: make it, or mount what is to be measured", target.display());
            Err(io::Error::other(text))
        }
        Err(error) => Err(of(target, error)),
    }
}

fn writable(target: &Path) -> io::Result<()> {
    access(target, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unwritable(target, error.into()))
}

/// access(2) may have said otherwise: it does not know of all that stands in the way (of root, in /proc, where there is no room).
fn unwritable(target: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => of(target, error),
        _ => io::Error::other(format!(
            "{} is not writable: {error}; name a directory in which you may make one",
            target.display()
        )),
    }
}

/// Whether the suite can work in `target`. Writes nothing.
///
/// Errors: one line that says what is in the way.
pub fn check(target: &Path, suite: &dyn Suite, processes: usize, beside: bool) -> io::Result<()> {
    if !is_directory(target)? {
        return suite.takes(target, processes).map_err(io::Error::other);
    }
    writable(target)?;
    let own = place(target, suite, 0);
    if suite.finds() {
        return match own.is_dir() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "no earlier run left its files: no {}; have one write them and leave them first",
                own.display()
            ))),
        };
    }
    empty(target, beside).map_err(|error| of(target, error))?;
    space(target, suite.need(processes)).map_err(|error| of(target, error))
}

/// Nothing of an earlier run, and nothing at all unless that is allowed.
fn empty(target: &Path, beside: bool) -> io::Result<()> {
    let mut left = Vec::new();
    for entry in fs::read_dir(target)? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with(PREFIX) {
            left.push(name.to_string_lossy().into_owned());
        } else if name != NOTHING && !beside {
            return Err(io::Error::other("not empty: take an empty directory, or say --beside"));
        }
    }
    match left.is_empty() || beside {
        true => Ok(()),
        false => Err(earlier(target, &left.join(", "))),
    }
}

fn earlier(target: &Path, left: &str) -> io::Error {
    io::Error::other(format!(
        "files of an earlier run are left: {left}; `cofs bench clean {}` removes them",
        target.display()
    ))
}

fn space(target: &Path, need: Need) -> io::Result<()> {
    let has = statvfs(target)?;
    let free = has.f_bavail.saturating_mul(has.f_frsize);
    if need.bytes > free {
        let [needed, free] = [need.bytes, free].map(show_size);
        let text = format!("not enough space: {needed} are needed, {free} are free; {LESS}");
        return Err(io::Error::other(text));
    }
    // File systems that make inodes as they go say that they have none, or none free.
    if has.f_files > 0 && has.f_favail > 0 && need.inodes > has.f_favail {
        let text =
            format!("not enough inodes: {} are needed, {} are free; {LESS}", need.inodes, has.f_favail);
        return Err(io::Error::other(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_told_with_what_to_do() {
        // As root access(2) lets us, and mkdir(2) does not.
        let error = Scratch::new(Path::new("/proc"), &crate::Metarates::new(1), 0).err().unwrap().to_string();
        assert!(
            error.starts_with("/proc is not writable: ") && error.contains("; name a directory"),
            "{error}"
        );
    }

    #[test]
    fn each_round_works_under_a_name_that_no_mount_remembers() {
        let dir = tempfile::tempdir().unwrap();
        let suite = crate::Metarates::new(1);
        let names: Vec<_> =
            (0..3).map(|round| Scratch::new(dir.path(), &suite, round).unwrap().name().unwrap()).collect();
        assert_eq!(
            left(dir.path()).unwrap(),
            names.iter().map(|name| dir.path().join(name)).collect::<Vec<_>>()
        );
        clean(dir.path()).unwrap();
        assert!(left(dir.path()).unwrap().is_empty());
    }
}

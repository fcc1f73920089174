//! Everything that stands in a pool, for those who check it.
//!
//! The walk goes directory by directory in the order of numbers and holds one directory's names at a
//! time. What is created or removed meanwhile may be met or not.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use cofs_types::{FsError, FsResult, InodeId, ObjectId, Timestamp};

use crate::{
    object_file::stat_of,
    owner,
    path::{self, DirectoryNumber},
    pool::Pool,
    store::{At, EntryKind, OpenMode, Operation},
};

/// What a scan of a pool met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundObject {
    Object {
        id: ObjectId,
        /// The inode it was taken for; `None` if it carries no (legible) tag.
        owner: Option<InodeId>,
        size_bytes: u64,
        blocks_512: u64,
        mtime: Timestamp,
        /// Its file has other names, too: somebody has made hard links of it.
        linked: bool,
        /// Untagged and empty, and the driver's own: waiting to be taken, or of the last reservation, so
        /// that the next start looks at it. Nobody else may remove it.
        ready: bool,
    },
    /// Something below `objects/` that the driver did not make. Its path is below the pool's directory.
    Foreign { path: PathBuf },
}

type Visit<'a> = &'a mut dyn FnMut(FoundObject) -> FsResult<()>;

pub fn scan(pool: &Pool, visit: Visit<'_>) -> FsResult<()> {
    let look_from = pool.read_reservations(|| pool.numbers.look_from_in(&*pool.store))?;
    let lowest = pool.ready.lowest().unwrap_or(u64::MAX);
    let driver_from = lowest.min(look_from);
    let mut scan = Scan { pool, driver_from, visit };
    if scan.open(path::OBJECTS)?.is_none() {
        return Err(pool.explained(FsError::NotFound));
    }
    for top in scan.directories(path::OBJECTS, path::parse_top)? {
        for middle in scan.directories(&path::top_path(top), path::parse_index)? {
            scan.objects(DirectoryNumber::from_parts(top, middle))?;
        }
    }
    Ok(())
}

struct Scan<'a> {
    pool: &'a Pool,
    /// Untagged, empty objects from this number on are the driver's.
    driver_from: u64,
    visit: Visit<'a>,
}

impl Scan<'_> {
    fn foreign(&mut self, directory: &str, name: &[u8]) -> FsResult<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(directory).join(std::ffi::OsStr::from_bytes(name));
        (self.visit)(FoundObject::Foreign { path })
    }

    /// The numbers of the directories in `path`, in order; what else is there is foreign.
    fn directories(&mut self, path: &str, parse: fn(&[u8]) -> Option<u64>) -> FsResult<Vec<u64>> {
        let mut numbers = Vec::new();
        let Some(directory) = self.open(path)? else { return Ok(numbers) };
        self.list(&directory, path, |name, kind| {
            let number = parse(name).filter(|_| matches!(kind, EntryKind::Directory | EntryKind::Unknown));
            numbers.extend(number);
            number.is_some()
        })?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Visits the objects of one directory, in order.
    fn objects(&mut self, number: DirectoryNumber) -> FsResult<()> {
        let path = number.path();
        let Some(directory) = self.open(&path)? else { return Ok(()) };
        let mut indices = Vec::new();
        self.list(&directory, &path, |name, kind| {
            let index =
                path::parse_index(name).filter(|_| matches!(kind, EntryKind::File | EntryKind::Unknown));
            indices.extend(index);
            index.is_some() || name == path::OWNERS.as_bytes()
        })?;
        indices.sort_unstable();
        let pool = self.pool;
        let owners = pool.run("read a log of owners", || owner::read_log(&*pool.store, &directory))?;
        for index in indices {
            let sequence = number.sequence(index);
            let found = pool.run("look at an object", || look(pool, &directory, sequence, &owners))?;
            match found {
                None => {}
                Some(Look::NoFile) => self.foreign(&path, path::name_of(sequence).as_bytes())?,
                Some(Look::Object(stat, linked, owner)) => {
                    let ready = owner.is_none() && stat.size_bytes == 0 && sequence >= self.driver_from;
                    (self.visit)(FoundObject::Object {
                        id: pool.object_id(sequence)?,
                        owner,
                        size_bytes: stat.size_bytes,
                        blocks_512: stat.blocks_512,
                        mtime: stat.mtime,
                        linked,
                        ready,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// `None` if it is gone since its name was read.
    fn open(&self, path: &str) -> FsResult<Option<File>> {
        let store = &*self.pool.store;
        match self.pool.run("open a pool's directory", || store.open(At::root(path), OpenMode::Directory)) {
            Ok(directory) => Ok(Some(directory)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory; what `ours` disowns is foreign.
    fn list(
        &mut self,
        directory: &File,
        path: &str,
        mut ours: impl FnMut(&[u8], EntryKind) -> bool,
    ) -> FsResult<()> {
        let pool = self.pool;
        // The visitor's own error stops the listing, and is kept beside it.
        let mut refused = None;
        let listed = pool.once("list a pool's directory", || {
            pool.store.list(directory, &mut |name, kind| {
                if ours(name, kind) {
                    return Ok(());
                }
                self.foreign(path, name).map_err(|error| {
                    refused = Some(error);
                    io::ErrorKind::Interrupted.into()
                })
            })
        });
        refused.map_or(listed, Err)
    }
}

enum Look {
    /// What it tells, whether it has other names, and whose it is.
    Object(crate::ObjectStat, bool, Option<InodeId>),
    NoFile,
}

fn look(
    pool: &Pool,
    directory: &File,
    sequence: u64,
    owners: &HashMap<u64, InodeId>,
) -> io::Result<Option<Look>> {
    let name = path::name_of(sequence);
    let at = At::below(directory, &name);
    let file = match pool.store.open(at, OpenMode::Look) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A symbolic link under an object's name, or a socket.
        Err(error) if error.raw_os_error().is_some_and(no_file) => return Ok(Some(Look::NoFile)),
        other => other?,
    };
    pool.store.admit(Operation::Stat)?;
    let stat = rustix::fs::fstat(&file)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Ok(Some(Look::NoFile));
    }
    let tag = owner::get_xattr(&*pool.store, &file)?;
    let owner = tag.or_else(|| owners.get(&path::index(sequence)).copied());
    Ok(Some(Look::Object(stat_of(&stat), stat.st_nlink > 1, owner)))
}

fn no_file(errno: i32) -> bool {
    use rustix::io::Errno;
    [Errno::LOOP, Errno::NXIO].contains(&Errno::from_raw_os_error(errno))
}

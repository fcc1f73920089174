//! What a pool that is there may lack: without its reservations, or the directory of its objects, no object can be made in it.
//!
//! Who meets it by doing something and who only looks say the same of it, and what can be done.

use std::{io, path::Path};

use cofs_types::FsError;

use crate::{
    path,
    reservation::{self, ReservationFile},
    store::{At, BackingStore, OpenMode},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    ReservationsGone,
    ReservationsIllegible,
    /// A directory stands there.
    ReservationsNoFile,
    ObjectsGone,
    ObjectsNoDirectory,
}

impl Damage {
    /// Looks for it, and changes nothing. None is also what a file system below shows that fails: then it is not the pool's.
    pub fn look(store: &dyn BackingStore) -> Option<Self> {
        if let Err(error) = ReservationFile::look(store) {
            return Self::of_reservations(error.kind());
        }
        let objects = store.open(At::root(path::OBJECTS), OpenMode::Directory);
        objects.err().and_then(|error| Self::of_objects(error.kind()))
    }

    /// What it means that the reservations could not be read.
    fn of_reservations(kind: io::ErrorKind) -> Option<Self> {
        match kind {
            io::ErrorKind::NotFound => Some(Self::ReservationsGone),
            io::ErrorKind::InvalidData => Some(Self::ReservationsIllegible),
            io::ErrorKind::IsADirectory => Some(Self::ReservationsNoFile),
            _ => None,
        }
    }

    /// What it means that the directory of the objects could not be opened.
    fn of_objects(kind: io::ErrorKind) -> Option<Self> {
        match kind {
            io::ErrorKind::NotFound => Some(Self::ObjectsGone),
            io::ErrorKind::NotADirectory => Some(Self::ObjectsNoDirectory),
            _ => None,
        }
    }

    /// What is wrong with the pool in `directory`, and what to do.
    pub fn tell(self, directory: &Path) -> String {
        const NEW: &str = ", or make it anew (mkdir) if what was in it is lost";
        let (name, what, more) = match self {
            Self::ReservationsGone => (reservation::FILE, "is not there", ""),
            Self::ReservationsIllegible => (reservation::FILE, "is illegible", ""),
            Self::ReservationsNoFile => (reservation::FILE, "is not a file", ""),
            Self::ObjectsGone => (path::OBJECTS, "is not there", NEW),
            Self::ObjectsNoDirectory => (path::OBJECTS, "is not a directory", NEW),
        };
        format!("{} {what}; restore it from a copy{more}", directory.join(name).display())
    }

    /// For who wanted something of the pool in `directory`.
    pub fn error(self, directory: &Path) -> FsError {
        FsError::corrupt(self.tell(directory))
    }
}

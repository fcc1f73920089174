//! Creation: a number that was reserved durably becomes a file.

use std::io;

use cofs_types::failpoint;

use super::Pool;
use crate::{path::DirectoryNumber, ready::ReadyObject, store::OpenMode};

/// Attempts to make an object in a directory that others remove, or whose number is taken.
const CREATE_ATTEMPTS: usize = 16;

impl Pool {
    /// Creates an object that nobody has.
    pub fn create(&self) -> io::Result<ReadyObject> {
        for _ in 0..CREATE_ATTEMPTS {
            let sequence = self.numbers.take(&*self.store, &|| self.lowest())?;
            if let Some(object) = self.create_numbered(sequence)? {
                return Ok(object);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "object numbers that were never given out are in use"))
    }

    /// The lowest number of those objects that are nobody's.
    pub fn lowest(&self) -> Option<u64> {
        let unwanted = self.unwanted.lock().first().copied();
        [self.ready.lowest(), unwanted].into_iter().flatten().min()
    }

    /// Creates object `sequence`; `None` if it exists.
    fn create_numbered(&self, sequence: u64) -> io::Result<Option<ReadyObject>> {
        let number = DirectoryNumber::of(sequence);
        for attempt in 1.. {
            let since = self.era.now();
            let directory = self.directories.open_or_make(&*self.store, number)?;
            match directory.open_object(&*self.store, sequence, OpenMode::CreateNew) {
                Ok(file) => {
                    failpoint("placement.create.created");
                    let turn = directory.entry_made();
                    return Ok(Some(ReadyObject { sequence, directory, turn, file: Some((file, since)) }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                // The directory was removed as empty between its last removal and this.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < CREATE_ATTEMPTS => {
                    self.directories.forget(number);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

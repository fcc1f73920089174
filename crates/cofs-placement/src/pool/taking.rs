//! Handing objects out to inodes, and taking them back.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use cofs_types::{FsError, FsResult, InodeId, failpoint, limits::OBJECTS_READY_MAX};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

use super::Pool;
use crate::{
    ObjectFile, Taken,
    era::Since,
    object_directory::ObjectDirectory,
    owner,
    path::{self, DirectoryNumber},
    ready::ReadyObject,
    store::{OpenMode, Operation},
};

const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

impl Pool {
    /// Hands an object out to `owner`.
    pub fn take(&self, owner: InodeId) -> FsResult<Taken> {
        let _taking = self.takes.begin();
        let (object, file, since) = self.take_tagged(owner).map_err(|error| {
            // Not the pool refuses what its caller cannot wait for.
            if !cofs_wait::was_refused() {
                *self.refused.lock() = Some(Instant::now());
            }
            self.explained(error)
        })?;
        failpoint("placement.take.tagged");
        let id = self.object_id(object.sequence)?;
        let unsettled =
            (!object.directory.is_durable(object.turn)).then_some((object.directory, object.turn));
        let file = Arc::new(ObjectFile::new(id, true, file, Arc::clone(&self.store), unsettled, since));
        Ok(Taken { id, file })
    }

    /// An object that was ready, or a new one, tagged.
    fn take_tagged(&self, owner: InodeId) -> FsResult<(ReadyObject, File, Since)> {
        self.ensure()?;
        let (mut ready, low) = self.ready.pop();
        if low {
            self.signal.wake();
        }
        let taken = self.run("create an object", || {
            loop {
                let (mut object, new) = match ready.take() {
                    Some(object) => (object, false),
                    None => (self.create()?, true),
                };
                match self.hand_over(&mut object, owner) {
                    Ok((file, since)) => return Ok((object, file, since)),
                    // Somebody has removed what was ready.
                    Err(error) if !new && error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        ready = Some(object);
                        return Err(error);
                    }
                }
            }
        });
        if let Some(object) = ready {
            self.ready.push(object);
        }
        taken
    }

    /// Tags the object and makes it look born now; its file, and since when that is open.
    fn hand_over(&self, object: &mut ReadyObject, owner: InodeId) -> io::Result<(File, Since)> {
        let (file, since) = match object.file.take() {
            Some((file, since)) if !since.is_over() => (file, since),
            _ => {
                let since = self.era.now();
                (object.directory.open_object(&*self.store, object.sequence, OpenMode::ReadWrite)?, since)
            }
        };
        failpoint("placement.take.created");
        if let Some(turn) = self.tag(&object.directory, &file, object.sequence, Some(owner))? {
            object.turn = turn;
        }
        self.store.admit(Operation::SetTimes)?;
        rustix::fs::futimens(&file, &NOW)?;
        Ok((file, since))
    }

    /// Notes whose an object is: in its extended attribute, or in the sidecar log. The turn of the record there, which is later
    /// than the entry's.
    pub fn tag(
        &self,
        directory: &ObjectDirectory,
        file: &File,
        sequence: u64,
        owner: Option<InodeId>,
    ) -> io::Result<Option<u64>> {
        if !self.sidecar.load(Ordering::Relaxed) {
            let set = match owner {
                Some(owner) => owner::set_xattr(&*self.store, file, owner),
                None => owner::clear_xattr(&*self.store, file),
            };
            match set {
                Err(error) if owner::unsupported(&error) => self.sidecar.store(true, Ordering::Relaxed),
                other => return other.map(|()| None),
            }
        }
        directory.log_owner(&*self.store, path::index(sequence), owner).map(Some)
    }

    /// Takes back an object whose commit did not happen.
    pub fn give_back(&self, taken: Taken) {
        let sequence = taken.id.sequence();
        if let Err(error) = self.restore(taken) {
            tracing::debug!(pool = self.config.id.0, sequence, %error, "an object was not made ready again");
            if self.remove(sequence).is_err() {
                self.remove_later(sequence);
            }
        }
    }

    /// Makes a taken object as it was before, and ready. Fails if that cannot be known to be safe: others
    /// still have it open, or a crash would not find it.
    fn restore(&self, taken: Taken) -> FsResult<()> {
        let sequence = taken.id.sequence();
        let fits = self.ready.len() < OBJECTS_READY_MAX && sequence >= self.numbers.look_from();
        // Among numbers that are still to be looked at after a crash it would be found, and be ready twice.
        self.read_reservations(|| self.numbers.load(&*self.store))?;
        let looked_at = self.numbers.unsettled().is_none_or(|window| !window.contains(&sequence));
        let whole = fits && looked_at && !self.sidecar.load(Ordering::Relaxed);
        let file = Arc::into_inner(taken.file).filter(|_| whole).ok_or(FsError::Busy)?;
        file.set_len(0)?;
        let (file, since) = file.into_sound_file().ok_or(FsError::Busy)?;
        failpoint("placement.give_back.emptied");
        let (directory, turn) = self.run("give back an object", || {
            let directory = self.directories.open(&*self.store, DirectoryNumber::of(sequence))?;
            self.tag(&directory, &file, sequence, None)?;
            let turn = directory.unsettled().unwrap_or(0);
            Ok((directory, turn))
        })?;
        self.ready.push(ReadyObject { sequence, directory, turn, file: Some((file, since)) });
        Ok(())
    }
}

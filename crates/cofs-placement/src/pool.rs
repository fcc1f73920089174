//! One pool: its objects from creation to removal.
//!
//! Orders (each arrow has a failpoint; a crash at any leaves an object that nobody names, never a name
//! without its object):
//!
//! - create: number reserved durably -> file created -> ready list;
//! - take: off the ready list -> tagged with its owner -> handed out (the caller's commit follows);
//! - remove: (the caller's commit came before) -> unlinked -> its directory removed once that is used up
//!   and empty.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use cofs_types::{
    FsError, FsResult, InodeId, ObjectId, failpoint,
    limits::{OBJECT_DIRECTORIES_EMPTIED_MAX, OBJECTS_READY_MAX, POOL_PROBE_INTERVAL},
};
use parking_lot::Mutex;
use rustix::{
    fs::{Timespec, Timestamps, UTIME_NOW},
    io::Errno,
};
use uuid::Uuid;

use crate::{
    ObjectFile, PoolConfig, PoolSpace, Taken,
    damage::Damage,
    era::Era,
    filler::Signal,
    free_space::FreeSpace,
    health::{Health, Look, suspicious},
    numbers::Numbers,
    object_directory::{Directories, ObjectDirectory},
    object_file::Unsettled,
    owner,
    path::{self, DirectoryNumber},
    ready::{Ready, ReadyObject},
    recovery::LeftBehind,
    store::{At, BackingStore, OpenMode, Operation, Space},
    takes::Takes,
};

/// Attempts to make an object in a directory that others remove, or whose number is taken.
const CREATE_ATTEMPTS: usize = 16;
const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

pub struct Pool {
    pub config: PoolConfig,
    pub store: Arc<dyn BackingStore>,
    pub numbers: Numbers,
    pub directories: Directories,
    pub ready: Ready,
    health: Health,
    era: Era,
    /// The last one of which what is kept open was let go.
    followed: AtomicU64,
    /// Set once the file system below said that it has no extended attributes.
    sidecar: AtomicBool,
    free: FreeSpace,
    pub takes: Takes,
    /// The last time an object could not be had; others are asked first for a while.
    refused: Mutex<Option<Instant>>,
    /// Objects that were given back and could not be removed.
    unwanted: Mutex<BTreeSet<u64>>,
    /// Directories in which something was removed: perhaps empty now.
    emptied: Mutex<BTreeSet<DirectoryNumber>>,
    /// Objects that a crashed process had handed out.
    pub left_behind: Mutex<Vec<LeftBehind>>,
    /// Wakes the filler.
    signal: Arc<Signal>,
    syncing: Mutex<()>,
    failed_syncs: AtomicU64,
}

impl Pool {
    /// A pool that may be absent; it is looked at now.
    pub fn open(
        config: PoolConfig,
        store: Arc<dyn BackingStore>,
        volume: Uuid,
        boot: Uuid,
        signal: Arc<Signal>,
    ) -> FsResult<Self> {
        let health = Health::new(Arc::clone(&store), &config, volume);
        health.look(true);
        health.refusal()?;
        Ok(Self {
            config,
            free: FreeSpace::new(Arc::clone(&store))
                .map_err(|error| FsError::from_io("start a thread that asks a pool for its space", error))?,
            store,
            numbers: Numbers::new(boot),
            directories: Directories::default(),
            ready: Ready::default(),
            health,
            era: Era::default(),
            followed: AtomicU64::new(0),
            sidecar: AtomicBool::new(false),
            takes: Takes::default(),
            refused: Mutex::new(None),
            unwanted: Mutex::default(),
            emptied: Mutex::default(),
            left_behind: Mutex::default(),
            signal,
            syncing: Mutex::new(()),
            failed_syncs: AtomicU64::new(0),
        })
    }

    /// Fails if the pool is not there. Looks again at most once in the probe interval.
    pub fn ensure(&self) -> FsResult<()> {
        if self.era.number() != self.followed.load(Ordering::Relaxed) {
            self.follow();
        }
        if self.health.is_failed() { self.look_again() } else { Ok(()) }
    }

    /// Lets go of what is kept open of an era that is over.
    #[cold]
    fn follow(&self) {
        let now = self.era.number();
        if self.followed.swap(now, Ordering::AcqRel) != now {
            self.numbers.detach();
            self.ready.close_files();
        }
    }

    #[cold]
    fn look_again(&self) -> FsResult<()> {
        match self.health.look(false) {
            Look::Failed => return Err(self.health.error()),
            Look::Reattached => self.detach(),
            Look::Same => {}
        }
        Ok(())
    }

    /// Drops what was opened below a root that is no longer the pool's.
    fn detach(&self) {
        self.numbers.detach();
        self.directories.forget_all();
        self.ready.close_files();
        self.free.forget();
    }

    /// Runs `call`, an operation below; an error that looks as if the pool were gone makes it be looked at.
    pub fn run<T>(&self, context: &'static str, call: impl FnOnce() -> io::Result<T>) -> FsResult<T> {
        self.ensure()?;
        let since = self.era.now();
        call().map_err(|error| {
            let error = since.judge(error);
            if suspicious(&error) && self.look_again().is_err() {
                return self.health.error();
            }
            match error.kind() {
                io::ErrorKind::NotFound => FsError::NotFound,
                io::ErrorKind::InvalidData => FsError::corrupt(error.to_string()),
                _ => FsError::from_io(context, error),
            }
        })
    }

    /// Runs `read`, which reads the reservations; where they are gone or illegible the error names the file.
    pub fn read_reservations<T>(&self, read: impl FnOnce() -> io::Result<T>) -> FsResult<T> {
        let read = self.run("read the reservations of a pool", read);
        let damage = match &read {
            Err(FsError::NotFound) => Some(Damage::ReservationsGone),
            Err(FsError::Corrupt(_)) => Some(Damage::ReservationsIllegible),
            Err(FsError::Backing { source, .. }) => Damage::of_reservations(source.kind()),
            _ => None,
        };
        damage.map_or(read, |damage| Err(self.damaged(damage)))
    }

    pub fn object_id(&self, sequence: u64) -> FsResult<ObjectId> {
        ObjectId::from_parts(self.config.id, sequence)
            .ok_or(FsError::LimitReached("object numbers of a pool"))
    }

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
            let directory = self.directories.open_or_make(&*self.store, number)?;
            let name = path::name_of(sequence);
            let at = At::below(directory.file(), &name);
            match self.store.open(at, OpenMode::CreateNew) {
                Ok(file) => {
                    failpoint("placement.create.created");
                    let turn = directory.entry_made();
                    return Ok(Some(ReadyObject { sequence, directory, turn, file: Some(file) }));
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

    /// Hands an object out to `owner`.
    pub fn take(&self, owner: InodeId) -> FsResult<Taken> {
        let _taking = self.takes.begin();
        let since = self.era.now();
        let taken = match self.take_ready(owner) {
            // What was kept open was of an era that is over: it is opened anew.
            Err(FsError::Backing { source, .. }) if errno(&source) == Some(Errno::STALE) => {
                self.take_ready(owner)
            }
            other => other,
        };
        let (object, file) = taken.map_err(|error| {
            *self.refused.lock() = Some(Instant::now());
            match error {
                FsError::NotFound => self.what_is_gone(),
                other => other,
            }
        })?;
        failpoint("placement.take.tagged");
        let id = self.object_id(object.sequence)?;
        let unsettled =
            (!object.directory.is_durable(object.turn)).then_some((object.directory, object.turn));
        let file = Arc::new(ObjectFile::new(id, true, file, Arc::clone(&self.store), unsettled, since));
        Ok(Taken { id, file })
    }

    /// An object that was ready, or a new one, tagged.
    fn take_ready(&self, owner: InodeId) -> FsResult<(ReadyObject, File)> {
        self.ensure()?;
        let (ready, low) = self.ready.pop();
        if low {
            self.signal.wake();
        }
        self.run("create an object", || {
            let (mut object, file) = self.opened(ready)?;
            failpoint("placement.take.created");
            match self.hand_over(&mut object, &file, owner) {
                Ok(()) => Ok((object, file)),
                Err(error) => {
                    self.ready.push(ReadyObject { file: Some(file), ..object });
                    Err(error)
                }
            }
        })
    }

    /// Why no object can be made in a pool that is there.
    fn what_is_gone(&self) -> FsError {
        let reservations = self.read_reservations(|| self.numbers.load(&*self.store));
        reservations.err().unwrap_or_else(|| self.objects_gone())
    }

    /// The pool is there, and the directory of its objects is not.
    pub fn objects_gone(&self) -> FsError {
        self.damaged(Damage::ObjectsGone)
    }

    pub fn damaged(&self, damage: Damage) -> FsError {
        damage.error(&self.config.directory)
    }

    /// An object and its file: the one that is ready, or a new one.
    fn opened(&self, ready: Option<ReadyObject>) -> io::Result<(ReadyObject, File)> {
        let mut object = match ready {
            Some(object) => object,
            None => self.create()?,
        };
        if let Some(file) = object.file.take() {
            return Ok((object, file));
        }
        let name = path::name_of(object.sequence);
        match self.store.open(At::below(object.directory.file(), &name), OpenMode::ReadWrite) {
            Ok(file) => Ok((object, file)),
            // Somebody removed it, or the directory is of a root that is no longer the pool's.
            Err(error) if matches!(errno(&error), Some(Errno::NOENT | Errno::STALE)) => {
                let mut object = self.create()?;
                let file = object.file.take().ok_or(error)?;
                Ok((object, file))
            }
            Err(error) => {
                self.ready.push(object);
                Err(error)
            }
        }
    }

    /// Tags the object and makes it look born now.
    fn hand_over(&self, object: &mut ReadyObject, file: &File, owner: InodeId) -> io::Result<()> {
        if let Some(turn) = self.tag(&object.directory, file, object.sequence, Some(owner))? {
            object.turn = turn;
        }
        self.store.admit(Operation::SetTimes)?;
        Ok(rustix::fs::futimens(file, &NOW)?)
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

    fn remove_later(&self, sequence: u64) {
        let mut unwanted = self.unwanted.lock();
        // One more is an orphan, which a scan finds.
        if unwanted.len() < OBJECTS_READY_MAX {
            unwanted.insert(sequence);
            self.signal.wake();
        }
    }

    /// Removes what could not be removed when it was given back.
    pub fn remove_unwanted(&self) -> FsResult<()> {
        loop {
            let Some(sequence) = self.unwanted.lock().first().copied() else { return Ok(()) };
            self.remove(sequence)?;
            self.unwanted.lock().remove(&sequence);
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
        let file = file.into_sound_file().ok_or(FsError::Busy)?;
        failpoint("placement.give_back.emptied");
        self.run("give back an object", || {
            let directory = self.directories.open(&*self.store, DirectoryNumber::of(sequence))?;
            self.tag(&directory, &file, sequence, None)?;
            let turn = directory.unsettled().unwrap_or(0);
            self.ready.push(ReadyObject { sequence, directory, turn, file: Some(file) });
            Ok(())
        })
    }

    /// Opens an object; one attempt more if the file system says that what it knew of the path is stale.
    pub fn open_object(&self, id: ObjectId, write: bool) -> FsResult<ObjectFile> {
        let mode = if write { OpenMode::ReadWrite } else { OpenMode::Read };
        let sequence = id.sequence();
        let since = self.era.now();
        let (file, unsettled) = self.run("open an object", || match self.open_below(sequence, mode) {
            Err(error) if errno(&error) == Some(Errno::STALE) => {
                self.directories.forget(DirectoryNumber::of(sequence));
                self.open_below(sequence, mode)
            }
            other => other,
        })?;
        Ok(ObjectFile::new(id, write, file, Arc::clone(&self.store), unsettled, since))
    }

    fn open_below(&self, sequence: u64, mode: OpenMode) -> io::Result<(File, Option<Unsettled>)> {
        let number = DirectoryNumber::of(sequence);
        if let Some(directory) = self.directories.cached(number) {
            let name = path::name_of(sequence);
            let at = At::below(directory.file(), &name);
            let file = self.store.open(at, mode)?;
            let unsettled = directory.unsettled().map(|turn| (directory, turn));
            return Ok((file, unsettled));
        }
        let file = self.store.open(At::root(&path::of_object(sequence)), mode)?;
        if !self.numbers.unsettled().is_some_and(|window| window.contains(&sequence)) {
            return Ok((file, None));
        }
        // Made by a process that crashed, not looked at yet: its name may not be durable.
        let directory = self.directories.open(&*self.store, number)?;
        let turn = directory.entry_made();
        Ok((file, Some((directory, turn))))
    }

    /// Removes an object; one that is not there is removed.
    pub fn remove(&self, sequence: u64) -> FsResult<()> {
        failpoint("placement.remove.before");
        let number = DirectoryNumber::of(sequence);
        let removed = self.run("remove an object", || match self.directories.cached(number) {
            Some(directory) => self.store.remove_file(At::below(directory.file(), &path::name_of(sequence))),
            None => self.store.remove_file(At::root(&path::of_object(sequence))),
        });
        match removed {
            Ok(()) => self.note_emptied(number),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        failpoint("placement.remove.after");
        Ok(())
    }

    fn note_emptied(&self, number: DirectoryNumber) {
        let mut emptied = self.emptied.lock();
        if emptied.is_empty() {
            self.signal.wake();
        }
        emptied.insert(number);
        if emptied.len() > OBJECT_DIRECTORIES_EMPTIED_MAX {
            // The oldest; if it is not empty, a later removal in it brings it back.
            let oldest = emptied.pop_first();
            drop(emptied);
            if let Some(oldest) = oldest {
                self.remove_if_empty(oldest);
            }
        }
    }

    /// Whether there are directories to look at with [`sweep`](Self::sweep).
    pub fn has_emptied(&self) -> bool {
        let next = DirectoryNumber::of(self.numbers.next());
        self.emptied.lock().first().is_some_and(|&first| first < next)
    }

    /// Removes the directories that are used up and empty; `all`: also those not used up (at the end).
    pub fn sweep(&self, all: bool) {
        let next = DirectoryNumber::of(self.numbers.next());
        let due: Vec<_> = {
            let mut emptied = self.emptied.lock();
            let later = if all { BTreeSet::new() } else { emptied.split_off(&next) };
            std::mem::replace(&mut *emptied, later).into_iter().collect()
        };
        for number in due {
            self.remove_if_empty(number);
        }
    }

    fn remove_if_empty(&self, number: DirectoryNumber) {
        if self.ready.any_in(number) {
            return;
        }
        // What is not empty, or cannot be removed now, stays: an empty directory harms nobody.
        let removed = self.remove_directory(number);
        if removed.is_ok() {
            self.directories.forget(number);
            failpoint("placement.remove.directory");
            if number.top() < DirectoryNumber::of(self.numbers.next()).top() {
                let _ = self.store.remove_directory(At::root(&number.parent_path()));
            }
        }
    }

    fn remove_directory(&self, number: DirectoryNumber) -> io::Result<()> {
        let path = number.path();
        match self.store.remove_directory(At::root(&path)) {
            Err(error) if errno(&error) == Some(Errno::NOTEMPTY) => {
                let directory = self.store.open(At::root(&path), OpenMode::Directory)?;
                self.store.list(&directory, &mut |name, _| {
                    let log = name == path::OWNERS.as_bytes();
                    if log { Ok(()) } else { Err(io::ErrorKind::DirectoryNotEmpty.into()) }
                })?;
                // Only the log of owners is left, of objects that are no more.
                self.store.remove_file(At::below(&directory, path::OWNERS))?;
                self.store.remove_directory(At::root(&path))
            }
            other => other,
        }
    }

    /// Whether others should be asked for an object first.
    pub fn is_refusing(&self) -> bool {
        self.health.is_failed()
            || self.free.silent().is_some()
            || self.takes.owes()
            || self.refused.lock().is_some_and(|since| since.elapsed() < POOL_PROBE_INTERVAL)
    }

    /// statvfs: see [`FreeSpace::get`]; nothing of a failed pool.
    pub fn space(&self) -> FsResult<Space> {
        self.run("statvfs of a pool", || self.free.get())
    }

    /// Whether the pool is there and answers, asked anew where that is not known of the last second. Waits for it as [`space`](Self::space)
    /// does.
    pub fn answers(&self) -> bool {
        !self.health.is_failed() && {
            // An error is an answer, too.
            let _ = self.free.get();
            self.free.silent().is_none()
        }
    }

    /// Whether the pool can be expected to hand out an object at once. Waits for nothing.
    pub fn is_prompt(&self) -> bool {
        !self.health.is_failed() && self.free.silent().is_none() && !self.takes.owes() && !self.takes.owed()
    }

    /// What was said last of its space, for who must not wait.
    pub fn known_space(&self) -> Option<Space> {
        if self.health.is_failed() { None } else { self.free.known().or_else(|| self.space().ok()) }
    }

    pub fn report(&self) -> PoolSpace {
        let space = self.space().unwrap_or_default();
        let damage = if self.health.is_failed() { None } else { self.free.damage() };
        PoolSpace {
            id: self.config.id,
            name: self.config.name.clone(),
            tier: self.config.tier,
            health: self.health.report(),
            silent: self.free.silent(),
            damage: damage.map(|damage| damage.tell(&self.config.directory)),
            space,
            ready: self.ready.len(),
        }
    }

    /// The logs of owners, which alone know what is lost of them, and syncfs for all else, their directories too. An error is told
    /// to everyone who asked before it was known, because the kernel tells it once.
    pub fn sync(&self) -> FsResult<()> {
        let before = self.failed_syncs.load(Ordering::Acquire);
        let _alone = self.syncing.lock();
        if self.failed_syncs.load(Ordering::Acquire) != before {
            let source = Arc::new(io::Error::from(Errno::IO));
            return Err(FsError::Backing { context: "sync a pool", source });
        }
        let sync = || {
            if self.sidecar.load(Ordering::Relaxed) {
                let logs = self.directories.unsettled();
                logs.iter().try_for_each(|directory| directory.sync_owners(&*self.store))?;
            }
            self.store.sync_all()
        };
        self.run("sync a pool", sync).inspect_err(|_| {
            self.failed_syncs.fetch_add(1, Ordering::AcqRel);
        })
    }

    /// Removes what nobody took and notes a clean end, if there is nothing left to look at.
    pub fn close(&self) -> FsResult<()> {
        self.ensure()?;
        let mut left = self.remove_unwanted();
        while let Some(object) = self.ready.pop_newest() {
            let removed = self.remove(object.sequence);
            left = left.and(removed);
        }
        self.sweep(true);
        left?;
        if !self.numbers.is_in_order() {
            return Ok(());
        }
        failpoint("placement.close.emptied");
        self.run("note a clean end", || self.numbers.close(&*self.store))
    }
}

pub fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

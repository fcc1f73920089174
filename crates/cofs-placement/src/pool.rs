//! One pool: its objects from creation to removal.
//!
//! Orders (each arrow has a failpoint; a crash at any leaves an object that nobody names, never a name
//! without its object):
//!
//! - create: number reserved durably -> file created -> ready list;
//! - take: off the ready list -> tagged with its owner -> handed out (the caller's commit follows);
//! - remove: (the caller's commit came before) -> unlinked -> its directory removed once that is used up
//!   and empty.

mod creating;
mod emptied;
pub mod recovery;
mod removing;
mod state;
mod taking;

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

use cofs_types::{FsError, FsResult, ObjectId, failpoint};
use parking_lot::Mutex;
use rustix::io::Errno;
use uuid::Uuid;

use self::{emptied::Emptied, recovery::LeftBehind};
use crate::{
    ObjectFile, PoolConfig,
    damage::Damage,
    era::Era,
    filler::Signal,
    free_space::FreeSpace,
    health::{Health, Look, suspicious},
    numbers::Numbers,
    object_directory::Directories,
    object_file::{Unsettled, errno_of},
    path::{self, DirectoryNumber},
    ready::Ready,
    store::{At, BackingStore, OpenMode},
    takes::Takes,
};

pub struct Pool {
    pub config: PoolConfig,
    pub store: Arc<dyn BackingStore>,
    pub numbers: Numbers,
    pub directories: Directories,
    pub ready: Ready,
    health: Health,
    era: Era,
    /// Set once the file system below said that it has no extended attributes.
    sidecar: AtomicBool,
    free: FreeSpace,
    takes: Takes,
    /// The last time an object could not be had; others are asked first for a while.
    refused: Mutex<Option<Instant>>,
    /// Objects that were given back and could not be removed.
    unwanted: Mutex<BTreeSet<u64>>,
    emptied: Emptied,
    /// Objects that a crashed process had handed out.
    left_behind: Mutex<Vec<LeftBehind>>,
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
        let era = Era::default();
        Ok(Self {
            config,
            free: FreeSpace::new(Arc::clone(&store))
                .map_err(|error| FsError::from_io("start a thread that asks a pool for its space", error))?,
            store,
            numbers: Numbers::new(boot, era.clone()),
            directories: Directories::new(era.clone()),
            ready: Ready::default(),
            health,
            era,
            sidecar: AtomicBool::new(false),
            takes: Takes::default(),
            refused: Mutex::new(None),
            unwanted: Mutex::default(),
            emptied: Emptied::default(),
            left_behind: Mutex::default(),
            signal,
            syncing: Mutex::new(()),
            failed_syncs: AtomicU64::new(0),
        })
    }

    /// Fails if the pool is not there. Looks again at most once in the probe interval.
    pub fn ensure(&self) -> FsResult<()> {
        if self.health.is_failed() { self.look_again() } else { Ok(()) }
    }

    #[cold]
    fn look_again(&self) -> FsResult<()> {
        match self.health.look(false) {
            Look::Failed => return Err(self.health.error()),
            Look::Refused => return Err(FsError::from_io("look at a pool", Errno::AGAIN.into())),
            Look::Reattached => self.reattached(),
            Look::Same => {}
        }
        Ok(())
    }

    /// What was opened below the root before is of no use.
    fn reattached(&self) {
        self.era.end();
        self.free.forget();
        self.begin_run_if_another();
    }

    /// Whether the file system below was mounted anew, after it had failed perhaps, without what was not synced: then a crash would find none of
    /// what is ready, and looks at nothing of before.
    fn begin_run_if_another(&self) -> bool {
        let another = self.numbers.is_of_another_run(&*self.store);
        if another {
            // First: what gets a number of this run is made in this run.
            self.era.end();
            self.numbers.begin_run(&*self.store);
            while let Some(object) = self.ready.pop_newest() {
                self.remove_later(object.sequence);
            }
        }
        another
    }

    /// Makes `call`, an operation below, and once more where it meets what is of no use any more (see [`Era`]), which is opened anew then.
    pub fn run<T>(&self, context: &'static str, mut call: impl FnMut() -> io::Result<T>) -> FsResult<T> {
        match self.once(context, &mut call) {
            Err(error) if errno_of(&error) == Some(Errno::STALE) => self.once(context, call),
            other => other,
        }
    }

    /// Makes `call`, an operation below that must not be made twice; an error that looks as if the pool were gone makes it be looked at.
    pub fn once<T>(&self, context: &'static str, call: impl FnOnce() -> io::Result<T>) -> FsResult<T> {
        self.ensure()?;
        self.era.judge(call).map_err(|error| {
            if suspicious(&error)
                && let Err(failed) = self.look_again()
            {
                return failed;
            }
            match error.kind() {
                // Nothing stands below what is no directory.
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FsError::NotFound,
                io::ErrorKind::InvalidData => FsError::corrupt(error.to_string()),
                _ => FsError::from_io(context, error),
            }
        })
    }

    /// Runs `read`, which reads the reservations; where they are gone or illegible the error names the file.
    pub fn read_reservations<T>(&self, read: impl FnMut() -> io::Result<T>) -> FsResult<T> {
        self.run("read the reservations of a pool", read).map_err(|error| self.explained(error))
    }

    /// `error`, or what the pool lacks, if that may be why.
    pub fn explained(&self, error: FsError) -> FsError {
        let perhaps = match &error {
            FsError::NotFound | FsError::Corrupt(_) => true,
            FsError::Backing { source, .. } => source.kind() == io::ErrorKind::IsADirectory,
            _ => false,
        };
        let damage = if perhaps { Damage::look(&*self.store) } else { None };
        damage.map_or(error, |damage| damage.error(&self.config.directory))
    }

    pub fn object_id(&self, sequence: u64) -> FsResult<ObjectId> {
        ObjectId::from_parts(self.config.id, sequence)
            .ok_or(FsError::LimitReached("object numbers of a pool"))
    }

    pub fn open_object(&self, id: ObjectId, write: bool) -> FsResult<ObjectFile> {
        let mode = if write { OpenMode::ReadWrite } else { OpenMode::Read };
        self.run("open an object", || {
            let since = self.era.now();
            let (file, unsettled) = self.open_below(id.sequence(), mode)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an object is no regular file"));
            }
            Ok(ObjectFile::new(id, write, file, Arc::clone(&self.store), unsettled, since))
        })
    }

    fn open_below(&self, sequence: u64, mode: OpenMode) -> io::Result<(File, Option<Unsettled>)> {
        let number = DirectoryNumber::of(sequence);
        if let Some(directory) = self.directories.cached(number) {
            let file = directory.open_object(&*self.store, sequence, mode)?;
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

    /// The logs of owners, which alone know what is lost of them, and syncfs for all else, their directories too. An error is told
    /// to everyone who asked before it was known, because the kernel tells it once.
    pub fn sync(&self) -> FsResult<()> {
        let before = self.failed_syncs.load(Ordering::Acquire);
        let _alone = self.syncing.lock();
        if self.failed_syncs.load(Ordering::Acquire) != before {
            let source = Arc::new(io::Error::from(Errno::IO));
            return Err(FsError::Backing { context: "sync a pool".into(), source });
        }
        let sync = || {
            if self.sidecar.load(Ordering::Relaxed) {
                let logs = self.directories.unsettled();
                logs.iter().try_for_each(|directory| directory.sync_owners(&*self.store))?;
            }
            self.store.sync_all()
        };
        self.once("sync a pool", sync).inspect_err(|_| {
            self.failed_syncs.fetch_add(1, Ordering::AcqRel);
        })
    }

    /// Removes what nobody took and notes a clean end, if there is nothing left to look at. Errors: the pool is not there, whether that was known or not.
    pub fn close(&self) -> FsResult<()> {
        match self.health.look(true) {
            Look::Failed => return Err(self.health.error()),
            Look::Reattached => self.reattached(),
            Look::Same | Look::Refused => {}
        }
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

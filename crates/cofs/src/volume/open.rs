//! Opening a volume that exists: configuration, lock, engine, name space, pools.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_engine::Engine;
use cofs_metadata::{LocalDriver, OpenInodes};
use cofs_placement::Placement;
use serde_json::Value;

use super::{
    config::Config,
    locality::Below,
    lock::{Purpose, StoreLock, hold_directory},
    parts::{open_engine, open_engine_to_look, open_placement, open_placement_to_look, refuse_foreign},
};
use crate::{
    failure::{Done, Failure, Within},
    mount::{
        live,
        mountinfo::{self, Mount},
    },
    output::shell_word,
};

/// How long a mount waits for the one before it to be closed.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// A store found sound: where it really is, and what it says.
pub struct Found {
    pub store: PathBuf,
    pub config: Config,
}

/// A store whose lock we hold.
pub struct Locked {
    pub store: PathBuf,
    pub config: Config,
    purpose: Purpose,
    /// The directory of the metadata, locked; the pools lock their own.
    _metadata: Option<File>,
    /// Given up when this goes: it is to be dropped last.
    lock: StoreLock,
}

/// Finds the volume in `store`.
pub fn find(store: &Path) -> Done<Found> {
    let config = Config::read(store)?;
    let store = store.canonicalize().map_err(|error| Failure::io("cannot reach", store, &error))?;
    Ok(Found { store, config })
}

impl Found {
    /// The directories that are the volume's own, and what each is.
    pub fn parts(&self) -> impl Iterator<Item = (PathBuf, &'static str)> {
        let pools = self.config.pools.iter().map(|pool| (self.store.join(&pool.directory), "a pool"));
        let metadata = (self.config.meta_directory(&self.store), "the metadata");
        pools.chain([(self.store.clone(), "the store"), metadata])
    }

    /// Takes the store's lock. Where the volume is mounted the failure says where.
    pub fn lock(self, purpose: Purpose) -> Done<Locked> {
        let Self { store, config } = self;
        // A dead mount remains when its process was killed: it holds no lock and does not matter here.
        if let Some(mount) = mountinfo::of_store(&store)?
            && (StoreLock::is_held(&store, purpose) || has_lost_lock(&mount, &store, &config))
        {
            let shown = mount.point.display();
            return Err(Failure::new(format!("{} is already mounted on {shown}", store.display())).next(
                format!("use it there, or unmount it first (cofs umount {})", shell_word(&mount.point)),
            ));
        }
        let lock = StoreLock::take(&store, purpose)?;
        Self { store, config }.locked(purpose, lock)
    }

    fn locked(self, purpose: Purpose, lock: StoreLock) -> Done<Locked> {
        let Self { store, config } = self;
        let _metadata = hold_directory(&config.meta_directory(&store), purpose)?;
        Ok(Locked { store, config, purpose, _metadata, lock })
    }

    /// Goes on with the lock of a process that has ended.
    pub fn take_over(self, lock: OwnedFd, purpose: Purpose) -> Done<Locked> {
        let lock = StoreLock::take_over(&self.store, lock, purpose)?;
        self.locked(purpose, lock)
    }

    /// The same, but a volume that has just been unmounted may take its time to close: umount(8), unlike
    /// `cofs umount`, does not wait for that.
    pub fn lock_when_closed(self, purpose: Purpose) -> Done<Locked> {
        let begun = Instant::now();
        while begun.elapsed() < CLOSE_TIME_MAX
            && mountinfo::of_store(&self.store)?.is_none()
            && StoreLock::is_held(&self.store, purpose)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.lock(purpose)
    }
}

/// Whether `mount` lives and is of this volume although nobody has the lock: somebody has removed its file.
fn has_lost_lock(mount: &Mount, store: &Path, config: &Config) -> bool {
    let is_ours = |status: Value| status["uuid"] == config.uuid.to_string();
    !StoreLock::is_held(store, Purpose::Change) && !mount.is_dead() && live::status(mount).is_ok_and(is_ours)
}

/// The two drivers of an open volume.
pub struct Drivers {
    pub metadata: LocalDriver,
    pub placement: Arc<Placement>,
}

impl Locked {
    /// What another process needs to hold the lock, too, and to hand it on ([`Found::take_over`]).
    pub fn lock(&self) -> io::Result<OwnedFd> {
        self.lock.descriptor()
    }

    /// The volume could not be closed in order: whoever waits for that is told, and who opens it next.
    pub fn closes_with(&mut self, failure: &Failure) {
        self.lock.leave_last_words(&failure.to_string());
    }

    /// Whether nothing of the volume is to be changed.
    pub fn is_to_look(&self) -> bool {
        self.purpose == Purpose::Look
    }

    /// Opens the volume; `opens` tells which inodes are open. To look, whatever is changed stays in memory, and the pools take no change.
    pub fn open(&self, opens: Arc<dyn OpenInodes>) -> Done<Drivers> {
        let engine: Arc<dyn Engine> = match self.purpose {
            Purpose::Change => Arc::new(open_engine(&self.store, &self.config)?),
            Purpose::Look => Arc::new(open_engine_to_look(&self.store, &self.config)?),
        };
        self.open_with(engine, opens)
    }

    /// The same on an engine that is open already.
    pub fn open_with(&self, engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>) -> Done<Drivers> {
        refuse_foreign(&*engine, &self.config).within(self.metadata())?;
        let metadata = LocalDriver::open(engine, opens).within(self.metadata())?;
        let open = match self.purpose {
            Purpose::Change => open_placement,
            Purpose::Look => open_placement_to_look,
        };
        let placement = Arc::new(open(&self.store, &self.config).within("pools")?);
        Ok(Drivers { metadata, placement })
    }

    /// What is meant by an error of the metadata.
    pub fn metadata(&self) -> String {
        format!("metadata in {}", self.config.meta_directory(&self.store).display())
    }

    /// Whether a read of the metadata may have to wait for a network.
    pub fn is_metadata_remote(&self) -> bool {
        Below::of([self.config.meta_directory(&self.store)]).remote
    }

    /// What the pools lie on.
    pub fn below(&self) -> Below {
        Below::of(self.config.pools.iter().map(|pool| self.store.join(&pool.directory)))
    }
}

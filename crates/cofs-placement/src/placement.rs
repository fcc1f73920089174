//! The placement driver's front: the pools of one volume, and which of them gets the next object.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use cofs_types::{FsError, FsResult, InodeId, ObjectId, PoolEnd, PoolId, limits::POOLS_MAX};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::{
    DirectoryStore, LeftBehind, ObjectFile, PoolHealth, PoolSpace,
    boot::boot_id,
    filler::{self, Signal},
    format,
    health::Health,
    in_time::Underway,
    path::{self, DirectoryNumber},
    pool::Pool,
    read_only_store::ReadOnlyStore,
    scan::{self, FoundObject},
    store::{BackingStore, OpenMode},
};

/// What a pool's medium is good at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Flash,
    #[default]
    Disk,
}

/// A pool as the volume's configuration names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    pub id: PoolId,
    pub name: String,
    pub directory: PathBuf,
    pub tier: Tier,
}

/// An object handed out to an inode, open for reading and writing; empty, and with the present as its times.
pub struct Taken {
    pub id: ObjectId,
    pub file: Arc<ObjectFile>,
}

/// The pools of one volume.
pub struct Placement {
    pools: Vec<Pool>,
    signal: Arc<Signal>,
    filler: Mutex<Option<JoinHandle<()>>>,
    /// Spreads objects over pools.
    turn: AtomicU64,
    /// Takes that do not keep anybody waiting.
    pub(crate) underway: Underway,
    /// Told when it is known what a crash left in a pool.
    on_looked_through: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Placement {
    /// Makes a directory (made itself, if only its last component is missing) a pool of `volume`.
    ///
    /// [`FsError::Exists`] if it is a pool already, [`FsError::NotEmpty`] if anything else is in it
    /// (but `lost+found`); then nothing is changed.
    pub fn format_pool(config: &PoolConfig, volume: Uuid) -> FsResult<()> {
        match std::fs::create_dir(&config.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(FsError::from_io("make the directory of a pool", error));
            }
            _ => {}
        }
        format::format(&directory(config), config, volume)
    }

    /// Takes back [`format_pool`](Self::format_pool), also one that was cut short; anything else in the directory stays.
    /// `NotEmpty`, and nothing is changed, where there are objects.
    pub fn unformat_pool(config: &PoolConfig) -> FsResult<()> {
        format::unformat(&directory(config))
    }

    /// Whether a directory holds this pool of `volume`, in a format that this program reads; nothing is changed.
    pub fn look_at_pool(config: &PoolConfig, volume: Uuid) -> PoolHealth {
        let store: Arc<dyn BackingStore> = Arc::new(ReadOnlyStore::new(directory(config)));
        let health = Health::new(store, config, volume);
        health.look(true);
        health.report()
    }

    /// Opens the pools of `volume`. A pool that is not there opens as failed, and heals when it is.
    ///
    /// An error only for what no waiting heals: [`FsError::Corrupt`] for an identity that this program
    /// cannot read, one that another driver has open to change it ([`FsError::Backing`]), and nonsensical configurations.
    pub fn open(pools: &[PoolConfig], volume: Uuid) -> FsResult<Self> {
        let store = |config: &PoolConfig| -> Arc<dyn BackingStore> {
            Arc::new(DirectoryStore::alone(&config.directory))
        };
        let pools = pools.iter().map(|config| (config.clone(), store(config))).collect();
        Self::open_with(pools, volume, boot_id())
    }

    /// As [`open`](Self::open), for reading, also beside others who do: nothing below is changed, and need not be changeable. What would
    /// change something fails with [`FsError::ReadOnly`].
    pub fn open_for_reading(pools: &[PoolConfig], volume: Uuid) -> FsResult<Self> {
        let store = |config: &PoolConfig| -> Arc<dyn BackingStore> {
            Arc::new(ReadOnlyStore::new(Arc::new(DirectoryStore::shared(&config.directory))))
        };
        let pools = pools.iter().map(|config| (config.clone(), store(config))).collect();
        Self::open_with(pools, volume, boot_id())
    }

    /// As [`open`](Self::open), over any stores, in the run `boot` of the machine.
    pub fn open_with(
        pools: Vec<(PoolConfig, Arc<dyn BackingStore>)>,
        volume: Uuid,
        boot: Uuid,
    ) -> FsResult<Self> {
        if pools.is_empty() || pools.len() > POOLS_MAX {
            return Err(FsError::InvalidArgument("a volume has 1 to 64 pools"));
        }
        let mut ids = HashSet::new();
        if !pools.iter().all(|(config, _)| ids.insert(config.id)) {
            return Err(FsError::InvalidArgument("two pools have one id"));
        }
        let signal = Arc::new(Signal::default());
        let open = |(config, store)| Pool::open(config, store, volume, boot, Arc::clone(&signal));
        let pools = pools.into_iter().map(open).collect::<FsResult<_>>()?;
        Ok(Self {
            pools,
            signal,
            filler: Mutex::new(None),
            turn: AtomicU64::new(0),
            underway: Underway::default(),
            on_looked_through: OnceLock::new(),
        })
    }

    /// The metadata have noted how far numbers were given out: no object below that will be made, whatever the pools say.
    /// To be called before anything else is asked for. A pool that is not there is told when it comes.
    pub fn noted(&self, ends: &[PoolEnd]) {
        for noted in ends {
            if let Ok(pool) = self.pool(noted.pool) {
                pool.numbers.noted(*noted);
            }
        }
        for pool in &self.pools {
            if let Err(error) = pool.read_reservations(|| pool.numbers.load(&*pool.store)) {
                tracing::debug!(pool = pool.config.id.0, %error, "its numbers are not known yet");
            }
        }
    }

    pub fn pool_ids(&self) -> impl Iterator<Item = PoolId> {
        self.pools.iter().map(|pool| pool.config.id)
    }

    /// How far numbers may have been given out by now, of the pools of which that is known.
    pub fn ends(&self) -> Vec<PoolEnd> {
        let end_of = |pool: &Pool| {
            pool.numbers.end().map(|(end, generation)| PoolEnd { pool: pool.config.id, end, generation })
        };
        self.pools.iter().filter_map(end_of).collect()
    }

    /// Starts the background thread that creates objects ahead of need, once.
    ///
    /// Without it everything works, but each object is created when it is taken. It ends with
    /// [`close`](Self::close), or when the driver is dropped.
    pub fn start_filler(self: &Arc<Self>) {
        let mut filler = self.filler.lock();
        if filler.is_none() {
            match filler::spawn(self, Arc::clone(&self.signal)) {
                Ok(thread) => *filler = Some(thread),
                Err(error) => tracing::warn!(%error, "no filler: objects are created when they are needed"),
            }
        }
    }

    /// What a process that crashed had handed out, as far as it was looked at; most of it is in use. Nothing in
    /// it was, or will be, handed out by this driver.
    pub fn left_behind(&self) -> Vec<LeftBehind> {
        self.pools.iter().flat_map(Pool::left_behind).collect()
    }

    /// What was left behind in `pool` is in order: those that were nobody's are removed.
    pub fn judged(&self, pool: PoolId) {
        if let Ok(pool) = self.pool(pool) {
            pool.judged();
        }
    }

    /// Whether nothing that a crash left is still to be found or judged, in any pool.
    pub fn is_in_order(&self) -> bool {
        self.pools.iter().all(|pool| pool.numbers.is_in_order())
    }

    /// `tell` is called when the filler has looked through a pool for what a crash left (see
    /// [`left_behind`](Self::left_behind)), but perhaps not for one that it had looked through before this call. Only the first
    /// call counts.
    pub fn when_looked_through(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_looked_through.set(Box::new(tell));
    }

    pub(crate) fn tell_looked_through(&self) {
        if let Some(tell) = self.on_looked_through.get() {
            tell();
        }
    }

    /// Whatever a crash of the process has left in the pools is not to be touched: the metadata are not those
    /// that it worked with. A scan finds all of it.
    pub fn disown_left_behind(&self) -> FsResult<()> {
        let disown = |pool: &Pool| {
            pool.read_reservations(|| pool.numbers.load(&*pool.store))?;
            pool.run("note a clean end", || pool.numbers.close(&*pool.store))
        };
        self.pools.iter().map(disown).fold(Ok(()), Result::and)
    }

    /// Creates `count` objects ahead of need, now; how many are ready then.
    pub fn fill_now(&self, pool: PoolId, count: usize) -> FsResult<usize> {
        let pool = self.pool(pool)?;
        filler::burst(pool, count)?;
        Ok(pool.ready.len())
    }

    /// An object for `ino`, tagged with it, from the pool that suits best: see [`take_on`](Self::take_on).
    pub fn take(&self, ino: InodeId) -> FsResult<Taken> {
        self.take_on(ino, None)
    }

    /// An object for `ino`, preferably on `tier`.
    ///
    /// Pools that refused or failed within the last second, or do not answer now, come last, those of another tier after those
    /// of the right one; among equals the chance is proportional to the free space. If none has an object
    /// the error is that of the pool asked first: `NoSpace`, `ReadOnly`, `Backing` with the errno below.
    pub fn take_on(&self, ino: InodeId, tier: Option<Tier>) -> FsResult<Taken> {
        if let [pool] = self.pools.as_slice() {
            return pool.take(ino);
        }
        let mut left: Vec<&Pool> = self.pools.iter().collect();
        let mut first = None;
        while let Some(pool) = self.choose(&mut left, tier) {
            match pool.take(ino) {
                Ok(taken) => return Ok(taken),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or(FsError::NoSpace))
    }

    /// As [`take`](Self::take), with what `prepare` makes of its file; if that fails it is given back.
    pub fn take_prepared<T>(
        &self,
        ino: InodeId,
        prepare: impl FnOnce(&ObjectFile) -> FsResult<T>,
    ) -> FsResult<(Taken, T)> {
        let taken = self.take(ino)?;
        match prepare(&taken.file) {
            Ok(prepared) => Ok((taken, prepared)),
            Err(error) => {
                self.give_back(taken);
                Err(error)
            }
        }
    }

    /// Removes the pool to be asked next from `left`.
    fn choose<'a>(&self, left: &mut Vec<&'a Pool>, tier: Option<Tier>) -> Option<&'a Pool> {
        let rank = |pool: &Pool| (pool.is_refusing(), tier.is_some_and(|tier| tier != pool.config.tier));
        let ranks: Vec<_> = left.iter().map(|pool| rank(pool)).collect();
        let best = ranks.iter().min()?;
        let weight =
            |pool: &Pool| u128::from(pool.known_space().map_or(0, |space| space.available_bytes)) + 1;
        let equals: Vec<(usize, u128)> = left
            .iter()
            .zip(&ranks)
            .enumerate()
            .filter(|(_, (_, rank))| *rank == best)
            .map(|(at, (pool, _))| (at, weight(pool)))
            .collect();
        let total: u128 = equals.iter().map(|(_, weight)| weight).sum();
        // The golden ratio's multiples spread evenly over the unit interval (Weyl's sequence).
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // total < 2^71, so the shift keeps the product within 128 bits.
        let mut point = (u128::from(turn >> 8) * total) >> 56;
        for &(at, weight) in &equals {
            if point < weight {
                return Some(left.swap_remove(at));
            }
            point -= weight;
        }
        None
    }

    /// Takes back an object whose commit did not happen. Never fails: at worst it leaves an orphan.
    pub fn give_back(&self, taken: Taken) {
        if let Ok(pool) = self.pool(taken.id.pool()) {
            pool.give_back(taken);
        }
    }

    /// Opens an object for reading, and with `write` for writing.
    ///
    /// [`FsError::NotFound`] if it is not there in a pool that is; other errors as they are below.
    pub fn open_object(&self, id: ObjectId, write: bool) -> FsResult<Arc<ObjectFile>> {
        self.pool(id.pool())?.open_object(id, write).map(Arc::new)
    }

    /// Removes an object. One that is not there is removed.
    pub fn remove(&self, id: ObjectId) -> FsResult<()> {
        self.pool(id.pool())?.remove(id.sequence())
    }

    /// What the volume calls a pool; `None` if it has no such pool.
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool(id).ok().map(|pool| pool.config.name.as_str())
    }

    /// A pool's directory; `None` if the volume has no such pool.
    pub fn pool_path(&self, id: PoolId) -> Option<&Path> {
        self.pool(id).ok().map(|pool| pool.config.directory.as_path())
    }

    /// Every pool's space and health, at most a second old. Waits at most [`POOL_PATIENCE`](cofs_types::limits::POOL_PATIENCE) for
    /// each pool that is not failed.
    pub fn space(&self) -> Vec<PoolSpace> {
        self.pools.iter().map(Pool::report).collect()
    }

    /// Whether any pool answers, as far as that is known: one that did within the last second may hang all the same. Waits at most
    /// [`POOL_PATIENCE`](cofs_types::limits::POOL_PATIENCE) for each.
    pub fn answers(&self) -> bool {
        self.pools.iter().any(Pool::answers)
    }

    /// The run of the machine and of a pool's file system in which what was written there is not lost, though no sync has covered it; 0,
    /// which equals nothing, where it is not known.
    pub fn run_of(&self, id: PoolId) -> u64 {
        self.pool(id).map_or(0, |pool| pool.numbers.run(&*pool.store))
    }

    /// Makes everything in a pool durable.
    pub fn sync_pool(&self, id: PoolId) -> FsResult<()> {
        self.pool(id)?.sync()
    }

    /// Makes everything in all pools durable. All are tried; the first error is returned.
    pub fn sync(&self) -> FsResult<()> {
        self.pools.iter().map(Pool::sync).fold(Ok(()), Result::and)
    }

    /// Visits everything in a pool, in the order of the numbers; an error of `visit` ends it.
    pub fn scan(&self, pool: PoolId, visit: &mut dyn FnMut(FoundObject) -> FsResult<()>) -> FsResult<()> {
        scan::scan(self.pool(pool)?, visit)
    }

    /// Notes whose an object is: for repair.
    pub fn set_owner(&self, id: ObjectId, owner: InodeId) -> FsResult<()> {
        let pool = self.pool(id.pool())?;
        let sequence = id.sequence();
        pool.run("tag an object", || {
            let directory = pool.directories.open(&*pool.store, DirectoryNumber::of(sequence))?;
            let file = directory.open_object(&*pool.store, sequence, OpenMode::ReadWrite)?;
            pool.tag(&directory, &file, sequence, Some(owner)).map(drop)
        })
    }

    /// Where an object stands (or would); `None` if the volume has no such pool.
    pub fn object_path(&self, id: ObjectId) -> Option<PathBuf> {
        let pool = self.pool(id.pool()).ok()?;
        Some(pool.store.path().join(path::of_object(id.sequence())))
    }

    /// Ends the background thread. What it has found by then is all that [`left_behind`](Self::left_behind) will tell of.
    pub fn stop_filler(&self) {
        self.signal.stop();
        if let Some(filler) = self.filler.lock().take()
            && filler.thread().id() != std::thread::current().id()
        {
            // A filler that panicked has said so.
            let _ = filler.join();
        }
    }

    /// Stops the filler, removes what is ready but unused, and notes a clean end in each pool. All are
    /// tried; the first error is returned, and means that the next start looks at the last reservation.
    pub fn close(&self) -> FsResult<()> {
        self.stop_filler();
        self.underway.wait_for_all();
        self.pools.iter().map(Pool::close).fold(Ok(()), Result::and)
    }

    pub(crate) fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The pool `id`. Ids are positions in the configuration, almost always.
    fn pool(&self, id: PoolId) -> FsResult<&Pool> {
        self.pools
            .get(usize::from(id.0))
            .filter(|pool| pool.config.id == id)
            .or_else(|| self.pools.iter().find(|pool| pool.config.id == id))
            .ok_or_else(|| FsError::corrupt(format!("the volume has no pool {}", id.0)))
    }
}

fn directory(config: &PoolConfig) -> Arc<dyn BackingStore> {
    Arc::new(DirectoryStore::new(&config.directory))
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.signal.stop();
    }
}

//! A volume of pools in a scratch directory (`TMPDIR` says where), each behind a store that fails as told.
#![allow(dead_code, reason = "each test binary uses its part of it")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_placement::{
    BackingStore, DirectoryStore, Fault, FaultyStore, FoundObject, Operation, Placement, PoolConfig, Tier,
};
use cofs_types::{InodeId, ObjectId, PoolId};
use uuid::Uuid;

pub const VOLUME: Uuid = Uuid::from_u128(0xc0f5);
pub const BOOT: Uuid = Uuid::from_u128(0xb007);
pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const EBUSY: i32 = 16;
pub const EMFILE: i32 = 24;
pub const ENOSPC: i32 = 28;
pub const EROFS: i32 = 30;
pub const EOPNOTSUPP: i32 = 95;
pub const ESTALE: i32 = 116;
pub const EDQUOT: i32 = 122;
pub const POOL: PoolId = PoolId(0);

pub struct World {
    pub scratch: tempfile::TempDir,
    pub configs: Vec<PoolConfig>,
    pub stores: Vec<Arc<FaultyStore>>,
    pub boot: Uuid,
}

impl World {
    /// Formats `pools` pools.
    pub fn new(pools: u16) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let configs: Vec<PoolConfig> = (0..pools)
            .map(|number| PoolConfig {
                id: PoolId(number),
                name: format!("pool{number}"),
                directory: scratch.path().join(format!("pool{number}")),
                tier: if number == 0 { Tier::Flash } else { Tier::Disk },
            })
            .collect();
        for config in &configs {
            Placement::format_pool(config, VOLUME).unwrap();
        }
        let stores = configs.iter().map(store).collect();
        Self { scratch, configs, stores, boot: BOOT }
    }

    /// A pool whose file system has no extended attributes.
    pub fn without_xattrs() -> Self {
        let world = Self::new(1);
        world.faulty().inject(no_xattrs());
        world
    }

    /// Opens the volume; dropping what is returned without `close` is a crash.
    pub fn open(&self) -> Arc<Placement> {
        let pools = self.configs.iter().cloned().zip(self.stores.iter().map(dynamic)).collect();
        Arc::new(Placement::open_with(pools, VOLUME, self.boot).unwrap())
    }

    /// As [`open`](Self::open) in a process that has not seen the pools before.
    pub fn open_anew(&mut self) -> Arc<Placement> {
        self.stores = self.configs.iter().map(store).collect();
        self.open()
    }

    pub fn faulty(&self) -> &FaultyStore {
        &self.stores[0]
    }

    pub fn directory(&self) -> &Path {
        &self.configs[0].directory
    }
}

fn store(config: &PoolConfig) -> Arc<FaultyStore> {
    Arc::new(FaultyStore::new(Arc::new(DirectoryStore::new(&config.directory))))
}

fn dynamic(store: &Arc<FaultyStore>) -> Arc<dyn BackingStore> {
    Arc::clone(store) as Arc<dyn BackingStore>
}

/// Ends a driver as `kill -9` would: at some point between two of its operations.
pub fn crash(placement: Arc<Placement>) {
    let rest = Arc::downgrade(&placement);
    drop(placement);
    eventually("the filler ends", || rest.strong_count() == 0);
}

pub fn no_xattrs() -> Fault {
    Fault::new(&[Operation::Tag, Operation::ReadTag], EOPNOTSUPP)
}

pub fn ino(number: u64) -> InodeId {
    InodeId::new(number).unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub owner: Option<InodeId>,
    pub size_bytes: u64,
    pub ready: bool,
}

/// Everything in pool 0, and what is foreign in it.
pub fn scan(placement: &Placement) -> (BTreeMap<u64, Seen>, Vec<PathBuf>) {
    let (mut objects, mut foreign) = (BTreeMap::new(), Vec::new());
    placement
        .scan(POOL, &mut |found| {
            match found {
                FoundObject::Object { id, owner, size_bytes, ready, .. } => {
                    let before = objects.insert(id.sequence(), Seen { owner, size_bytes, ready });
                    assert_eq!(before, None, "met twice: {id}");
                }
                FoundObject::Foreign { path } => foreign.push(path),
            }
            Ok(())
        })
        .unwrap();
    (objects, foreign)
}

pub fn id(sequence: u64) -> ObjectId {
    ObjectId::from_parts(POOL, sequence).unwrap()
}

/// Waits until `done`, which a background thread brings about; fails after a time that no machine needs.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The errno below that an error carries.
pub fn errno(error: &cofs_types::FsError) -> Option<i32> {
    match error {
        cofs_types::FsError::Backing { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

/// How many objects each object directory of a pool holds.
pub fn entries_per_directory(pool: &Path) -> Vec<usize> {
    let list = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let middles = list(&pool.join("objects")).into_iter().flat_map(|top| list(&top));
    let is_object = |path: &PathBuf| path.file_name().is_some_and(|name| name != "owners");
    middles.map(|middle| list(&middle).iter().filter(|path| is_object(path)).count()).collect()
}

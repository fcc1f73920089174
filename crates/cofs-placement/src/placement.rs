//! The placement driver's front: pools, and the objects in them.

use std::{path::PathBuf, sync::Arc};

use cofs_types::{FsError, FsResult, InodeId, ObjectId, PoolId};
use uuid::Uuid;

use crate::{ObjectFile, PoolSpace, scan::FoundObject};

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

/// An object handed out to an inode, open for reading and writing.
pub struct Taken {
    pub id: ObjectId,
    pub file: Arc<ObjectFile>,
}

/// The pools of one volume.
pub struct Placement {}

impl Placement {
    pub fn format_pool(_config: &PoolConfig, _volume: Uuid) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn open(_pools: &[PoolConfig], _volume: Uuid) -> FsResult<Self> {
        Err(FsError::NotImplemented)
    }
    pub fn start_filler(self: &Arc<Self>) {}
    pub fn fill_now(&self, _pool: PoolId, _count: usize) -> FsResult<usize> {
        Err(FsError::NotImplemented)
    }
    pub fn take(&self, _ino: InodeId) -> FsResult<Taken> {
        Err(FsError::NotImplemented)
    }
    pub fn give_back(&self, _taken: Taken) {}
    pub fn open_object(&self, _id: ObjectId, _write: bool) -> FsResult<Arc<ObjectFile>> {
        Err(FsError::NotImplemented)
    }
    pub fn remove(&self, _id: ObjectId) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn space(&self) -> Vec<PoolSpace> {
        Vec::new()
    }
    pub fn sync(&self) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn scan(&self, _pool: PoolId, _visit: &mut dyn FnMut(FoundObject) -> FsResult<()>) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn set_owner(&self, _id: ObjectId, _owner: InodeId) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
    pub fn object_path(&self, _id: ObjectId) -> Option<PathBuf> {
        None
    }
    pub fn close(&self) -> FsResult<()> {
        Err(FsError::NotImplemented)
    }
}

//! Making and opening the parts of a volume: the engine, the name space, the pools.

use std::{fs, path::Path};

use cofs_placement::{Placement, PoolConfig};
use cofs_types::{FsResult, PoolId};
use uuid::Uuid;

use super::config::{Config, Pool, Tier};
use crate::failure::Done;

fn pool_config(store: &Path, pool: &Pool) -> PoolConfig {
    PoolConfig {
        id: PoolId(pool.id),
        name: pool.name.clone(),
        directory: store.join(&pool.directory),
        tier: match pool.tier {
            Tier::Flash => cofs_placement::Tier::Flash,
            Tier::Disk => cofs_placement::Tier::Disk,
        },
    }
}

/// Makes one pool of a new volume in its (empty) directory.
pub fn format_pool(store: &Path, config: &Config, pool: &Pool) -> FsResult<()> {
    Placement::format_pool(&pool_config(store, pool), config.uuid)
}

/// Takes back [`format_pool`], if the directory holds a pool of this very volume: removes what is empty.
pub fn unformat_pool(directory: &Path, volume: Uuid) {
    const MARK: &str = "cofs-pool.toml";
    let mark = directory.join(MARK);
    if fs::read_to_string(&mark).is_ok_and(|text| text.contains(&volume.to_string())) {
        let _ = fs::remove_dir(directory.join("objects"));
        let _ = fs::remove_file(mark);
    }
}

/// Writes the metadata of a new, empty volume.
pub fn format_metadata(_store: &Path, _config: &Config) -> Done {
    Ok(())
}

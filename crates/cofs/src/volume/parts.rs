//! Making and opening the parts of a volume: the engine, the name space, the pools.

use std::{fs, io, path::Path, sync::Arc, time::UNIX_EPOCH};

use cofs_engine::{EmbeddedEngine, EmbeddedOptions, Engine, EngineError, OverlayEngine, read_small};
use cofs_namespace::{Namespace, VolumeOptions, check::Checker};
use cofs_placement::{Placement, PoolConfig, PoolHealth};
use cofs_types::{FsResult, PoolId, Timestamp, limits};
use rustix::{
    io::Errno,
    process::{getegid, geteuid},
};
use uuid::Uuid;

use super::config::{Config, Pool, Tier};
use crate::failure::{Done, Failure, remedy};

/// What tells a pool's directory, and whose it is.
pub const POOL_MARK: &str = "cofs-pool.toml";

/// A pool in the words of the placement driver.
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

/// Takes back [`format_pool`], if the directory holds a pool of this very volume. Objects stay: there are none
/// in a pool that was never used.
pub fn unformat_pool(directory: &Path, volume: Uuid) {
    if !is_pool_of(directory, volume) {
        return;
    }
    let _ = fs::remove_dir(directory.join("objects"));
    remove_files(directory);
}

/// Whether a directory holds a pool of this very volume.
pub fn is_pool_of(directory: &Path, volume: Uuid) -> bool {
    read_small(&directory.join(POOL_MARK), limits::POOL_IDENTITY_BYTES_MAX)
        .is_ok_and(|text| text.contains(&volume.to_string()))
}

/// Removes the regular files in `directory`, and nothing below it.
pub fn remove_files(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What puts the first records into a new engine.
pub type Fill<'a> = &'a mut dyn FnMut(&Arc<dyn Engine>) -> Done;

/// Makes the volume's engine in its (missing or empty) directory, has it filled, and puts it on stable storage.
pub fn make_metadata(store: &Path, config: &Config, fill: Fill<'_>) -> Done {
    let engine: Arc<dyn Engine> = Arc::new(create_engine(store, config)?);
    fill(&engine)?;
    engine.sync().map_err(engine_failure)
}

/// The records of an empty volume, whose root belongs to who makes it.
pub fn fill_empty(engine: &Arc<dyn Engine>, config: &Config) -> Done {
    let options = VolumeOptions { inline_bytes_max: config.inline_max, hash_key: config.hash_key.0 };
    let root = (geteuid().as_raw(), getegid().as_raw(), 0o755);
    Ok(Namespace::format(&**engine, &options, root, now())?)
}

/// Refuses metadata that belong to another volume, or to a load of another's dump: to these pools they would be a list of
/// what may go. Where the header cannot be read, others say so.
pub fn refuse_foreign(engine: &dyn Engine, config: &Config) -> Done {
    match Checker::new(engine).options() {
        Ok(options) if options.hash_key != config.hash_key.0 => Err(foreign_metadata()
            .next("name this volume's own (cofs config STORE meta=DIR), or move these away and load a dump of it (cofs load STORE FILE)")),
        _ => Ok(()),
    }
}

/// Refuses a directory that is not this pool of the volume `uuid`, or that this program cannot read.
pub fn refuse_foreign_pool(store: &Path, uuid: Uuid, pool: &Pool) -> Done {
    let config = pool_config(store, pool);
    let PoolHealth::Failed { errno, why, advice } = Placement::look_at_pool(&config, uuid) else {
        return Ok(());
    };
    let shown = config.directory.display();
    let advice = advice.unwrap_or(match Errno::from_raw_os_error(errno) {
        Errno::ACCESS | Errno::PERM => "do it as its owner or as root",
        _ => "name the directory that was moved",
    });
    Err(Failure::new(format!("cannot take {shown} for the pool {}: {why}", pool.name)).next(advice))
}

/// Their key was drawn when a volume was formatted, and stands in its configuration and in its metadata.
pub fn foreign_metadata() -> Failure {
    Failure::new("these are another volume's: their hash_key is not that of cofs.toml")
}

/// Whether a directory is missing or holds nothing.
pub fn is_empty(directory: &Path) -> Done<bool> {
    match fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Failure::io("cannot read", directory, &error)),
    }
}

fn engine_options(store: &Path, config: &Config) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new(config.meta_directory(store), limits::ENGINE_MEMORY_BYTES);
    options.keys = cofs_namespace::KEY_SHAPE;
    options
}

/// A new engine in the volume's (empty) directory for it.
fn create_engine(store: &Path, config: &Config) -> Done<EmbeddedEngine> {
    let mut options = engine_options(store, config);
    options.create = true;
    EmbeddedEngine::open(&options).map_err(engine_failure)
}

/// The volume's engine.
pub fn open_engine(store: &Path, config: &Config) -> Done<EmbeddedEngine> {
    EmbeddedEngine::open(&engine_options(store, config)).map_err(engine_failure)
}

/// The volume's engine, as it is now; nothing below is changed.
pub fn open_engine_read_only(store: &Path, config: &Config) -> Done<EmbeddedEngine> {
    let mut options = engine_options(store, config);
    options.read_only = true;
    EmbeddedEngine::open(&options).map_err(engine_failure)
}

/// The same, for those who open a volume as if they might change it: their changes stay in memory.
pub fn open_engine_to_look(store: &Path, config: &Config) -> Done<OverlayEngine> {
    let engine = open_engine_read_only(store, config)?;
    Ok(OverlayEngine::new(Arc::new(engine), limits::OVERLAY_BYTES_MAX))
}

fn pool_configs(store: &Path, config: &Config) -> Vec<PoolConfig> {
    config.pools.iter().map(|pool| pool_config(store, pool)).collect()
}

/// The volume's pools.
pub fn open_placement(store: &Path, config: &Config) -> FsResult<Placement> {
    Placement::open(&pool_configs(store, config), config.uuid)
}

/// The volume's pools, as they are; nothing below is changed.
pub fn open_placement_to_look(store: &Path, config: &Config) -> FsResult<Placement> {
    Placement::open_for_reading(&pool_configs(store, config), config.uuid)
}

/// The engine's words, which name its directory, and its advice; where it has none, what the errno suggests.
fn engine_failure(error: EngineError) -> Failure {
    let next = error.advice.or(match error.errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR) => Some(
            "if they were moved say so (cofs config STORE meta=DIR), if they are lost load a dump (cofs load STORE FILE)",
        ),
        Some(Errno::UCLEAN | Errno::ISDIR) => {
            Some("restore that directory from a copy, or move it away and load a dump (cofs load STORE FILE)")
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            Some("all in that directory must be yours: have its owner or root do this, or chown it")
        }
        Some(Errno::ROFS) => Some("who only wants to look needs no writing: cofs mount -o ro"),
        Some(errno) => remedy(&errno.into()),
        None => None,
    });
    let failure = Failure::new(&*error.what);
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// The time of day, for what the tools change.
pub fn now() -> Timestamp {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

//! Making a volume.
//!
//! Order: the lock is taken; everything is checked; the plan is written down as `STORE/formatting.toml`;
//! pools and metadata are made; the plan becomes `STORE/cofs.toml` by a rename. So a store is a volume, or
//! is recognisably half made (the next `format` clears it away), or is untouched. A `format` that fails
//! takes back what it made.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use cofs_engine::{Engine, read_small};

use cofs_types::{failpoint, limits};
use rustix::fs::{Access, access};
use uuid::Uuid;

use super::{
    config::{self, Config, FORMAT_VERSION, HashKey, Pool, Tier, relative_to_store},
    lock::{self, Purpose, StoreLock},
    parts,
};
use crate::failure::{Done, Failure, Within};

/// The plan, as long as it is being carried out.
const PLAN: &str = "formatting.toml";
/// Where the metadata goes unless told otherwise.
const META_DEFAULT: &str = "meta";
/// The pool of a volume formatted without `--pool`.
const POOL_DEFAULT: &str = "pool";

/// A pool asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolPlan {
    pub name: String,
    pub directory: PathBuf,
    pub tier: Tier,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Plan {
    pub store: PathBuf,
    pub meta: Option<PathBuf>,
    pub pools: Vec<PoolPlan>,
    pub inline_max: u32,
}

/// Whether an interrupted `format` left `store` half made.
pub fn is_half_written(store: &Path) -> bool {
    store.join(PLAN).exists() && !store.join(config::FILE_NAME).exists()
}

/// What fills the metadata of a new volume; it may correct the configuration.
pub type Fill<'a> = &'a mut dyn FnMut(&Arc<dyn Engine>, &mut Config) -> Done;

/// Makes an empty volume; its store is returned as an absolute path.
pub fn format(plan: &Plan) -> Done<(PathBuf, Config)> {
    format_with(plan, &mut |engine, config| parts::fill_empty(engine, config))
}

/// Makes a volume that `fill` gives its metadata.
pub fn format_with(plan: &Plan, fill: Fill<'_>) -> Done<(PathBuf, Config)> {
    let made_store = make_directory(&plan.store)?;
    let store =
        plan.store.canonicalize().map_err(|error| Failure::io("cannot reach", &plan.store, &error))?;
    let outcome = format_store(plan, &store, fill);
    if outcome.is_err() && made_store {
        let _ = fs::remove_file(store.join(lock::FILE_NAME));
        let _ = fs::remove_dir(&store);
    }
    outcome.map(|config| (store, config))
}

fn format_store(plan: &Plan, store: &Path, fill: Fill<'_>) -> Done<Config> {
    refuse_formatted(store)?;
    refuse_foreign(store)?;
    access(store, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| Failure::io("cannot make a volume in", store, &errno.into()))?;
    let _lock = StoreLock::take(store, Purpose::Change)?;
    refuse_formatted(store)?;
    clear_half_written(store)?;
    let mut config = lay_out(plan, store)?;
    config.check()?;
    config.write(store, PLAN)?;
    failpoint("cofs.format.planned");
    let mut made = Vec::new();
    let built = build(store, &mut config, fill, &mut made);
    let finish = built.and_then(|()| config.write(store, PLAN)).and_then(|()| {
        failpoint("cofs.format.made");
        let end = store.join(config::FILE_NAME);
        fs::rename(store.join(PLAN), &end)
            .and_then(|()| config::sync_parent(&end))
            .map_err(|error| Failure::io("cannot write", &end, &error))
    });
    if finish.is_err() {
        take_back(store, &config);
        // Of what lies outside the store, only this.
        made.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
    finish.map(|()| config)
}

fn refuse_formatted(store: &Path) -> Done {
    if !store.join(config::FILE_NAME).exists() {
        return Ok(());
    }
    let shown = store.display();
    Err(Failure::new(format!("{shown} is already a volume"))
        .next(format!("mount it (cofs mount {shown} DIR), or remove it first if all of it may go")))
}

/// A store starts empty: what lies there already would be neither seen nor safe.
pub fn refuse_foreign(store: &Path) -> Done {
    if is_half_written(store) {
        return Ok(());
    }
    // A format that was killed while it wrote its plan had not made anything yet.
    let unfinished = config::temporary(Path::new(PLAN));
    match first_entry(store, &[unfinished.as_os_str()])? {
        None => Ok(()),
        Some(found) => Err(Failure::new(format!("{} is not empty: it holds {found}", store.display()))
            .next("name a directory that is empty or does not exist")),
    }
}

/// The first entry of a directory that is neither the lock nor the file system's own, nor among `known`.
fn first_entry(directory: &Path, known: &[&OsStr]) -> Done<Option<String>> {
    let entries = fs::read_dir(directory).map_err(|error| Failure::io("cannot read", directory, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| Failure::io("cannot read", directory, &error))?.file_name();
        if name != lock::FILE_NAME && name != "lost+found" && !known.contains(&name.as_os_str()) {
            return Ok(Some(crate::output::printable(&name.to_string_lossy())));
        }
    }
    Ok(None)
}

fn clear_half_written(store: &Path) -> Done {
    let path = store.join(PLAN);
    let text = match read_small(&path, limits::CONFIG_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::io("cannot read", &path, &error)),
    };
    // Written whole or not at all, so what does not parse was not written by us.
    let plan = Config::parse(&text).within(path.display())?;
    tracing::info!(store = %store.display(), "clearing away what an interrupted format left");
    take_back(store, &plan);
    Ok(())
}

/// Removes what [`build`] made of `config`: nothing that was there before, as directories start empty.
fn take_back(store: &Path, config: &Config) {
    let meta = config.meta_directory(store);
    parts::remove_files(&meta);
    remove_if_ours(store, &meta);
    for pool in &config.pools {
        let directory = store.join(&pool.directory);
        parts::unformat_pool(&directory, config.uuid);
        remove_if_ours(store, &directory);
    }
    let _ = fs::remove_file(store.join(PLAN));
}

/// Directories inside the store were made by us; others may have been there before.
fn remove_if_ours(store: &Path, directory: &Path) {
    if directory.starts_with(store) {
        let _ = fs::remove_dir(directory);
    }
}

fn lay_out(plan: &Plan, store: &Path) -> Done<Config> {
    let meta = match &plan.meta {
        Some(meta) => absolute(meta)?,
        None => store.join(META_DEFAULT),
    };
    let mut pools = Vec::new();
    for (at, pool) in plan.pools.iter().enumerate() {
        let id = u16::try_from(at).map_err(|_| Failure::usage("too many pools"))?;
        let directory = absolute(&pool.directory)?;
        pools.push(Pool { id, name: pool.name.clone(), directory, tier: pool.tier });
    }
    if pools.is_empty() {
        let directory = store.join(POOL_DEFAULT);
        pools.push(Pool { id: 0, name: "default".to_owned(), directory, tier: Tier::default() });
    }
    refuse_nested(store, &meta, &pools)?;
    for directory in pools.iter().map(|pool| &pool.directory).chain([&meta]) {
        refuse_used(directory)?;
    }
    for pool in &mut pools {
        pool.directory = relative_to_store(store, &pool.directory);
    }
    Ok(Config {
        format_version: FORMAT_VERSION,
        uuid: Uuid::new_v4(),
        inline_max: plan.inline_max,
        hash_key: HashKey(Uuid::new_v4().into_bytes()),
        meta: relative_to_store(store, &meta),
        pools,
    })
}

/// The absolute path of a directory whose last part need not exist yet.
fn absolute(path: &Path) -> Done<PathBuf> {
    let reach = |path: &Path| path.canonicalize().map_err(|error| Failure::io("cannot reach", path, &error));
    if path.exists() {
        return reach(path);
    }
    let whole = std::path::absolute(path).map_err(|error| Failure::io("cannot reach", path, &error))?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(reach(parent)?.join(name)),
        _ => Ok(whole),
    }
}

/// The parts of a volume must not lie in one another (but may lie in the store).
fn refuse_nested(store: &Path, meta: &Path, pools: &[Pool]) -> Done {
    let mut seen: Vec<(&Path, &str)> = vec![(meta, "the metadata")];
    seen.extend(pools.iter().map(|pool| (pool.directory.as_path(), pool.name.as_str())));
    if let Some((path, name)) = seen.iter().find(|(path, _)| store.starts_with(path)) {
        return Err(Failure::new(format!("{} ({name}) contains the store", path.display()))
            .next("give it a directory of its own"));
    }
    for (at, (path, name)) in seen.iter().enumerate() {
        let other =
            seen.iter().skip(at + 1).find(|(other, _)| other.starts_with(path) || path.starts_with(other));
        if let Some((other, other_name)) = other {
            return Err(Failure::new(format!(
                "{} ({name}) and {} ({other_name}) lie in one another",
                path.display(),
                other.display()
            ))
            .next("give each a directory of its own"));
        }
    }
    Ok(())
}

fn refuse_used(directory: &Path) -> Done {
    if !directory.exists() {
        return Ok(());
    }
    if !directory.is_dir() {
        return Err(no_directory(directory));
    }
    match first_entry(directory, &[])? {
        None => Ok(()),
        Some(found) => Err(Failure::new(format!("{} is not empty: it holds {found}", directory.display()))
            .next("name a directory that is empty or does not exist")),
    }
}

/// Makes one directory, for us alone; `false` if it was there.
fn make_directory(path: &Path) -> Done<bool> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(no_directory(path)),
        Err(error) => Err(Failure::io("cannot make the directory", path, &error)),
    }
}

fn no_directory(path: &Path) -> Failure {
    Failure::new(format!("{} is not a directory", path.display()))
        .next("name a directory that is empty or does not exist")
}

/// `made` gets the directories that were not there.
fn build(store: &Path, config: &mut Config, fill: Fill<'_>, made: &mut Vec<PathBuf>) -> Done {
    let mut make = |directory: &Path| {
        let new = make_directory(directory)?;
        made.extend(new.then(|| directory.to_owned()));
        Done::Ok(())
    };
    for pool in &config.pools {
        let directory = store.join(&pool.directory);
        make(&directory)?;
        parts::format_pool(store, config, pool).within(format!(
            "pool `{}` in {}",
            pool.name,
            directory.display()
        ))?;
    }
    failpoint("cofs.format.pools");
    let meta = config.meta_directory(store);
    make(&meta)?;
    let before = config.clone();
    parts::make_metadata(store, &before, &mut |engine| fill(engine, config))
        .within(format!("metadata in {}", meta.display()))
}

//! Making a volume.
//!
//! Order: the lock is taken; everything is checked; the store is [claimed](super::claim), and the plan written down as
//! `STORE/formatting.toml`; the directories of the metadata and the pools are claimed; they are made; the plan becomes `STORE/cofs.toml` by
//! a rename; the claims go. So a store is a volume, or is recognisably half made (the next `format` clears it away, by its claims), or is
//! untouched. A `format` that fails takes back what it made.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cofs_engine::{Engine, read_small};

use cofs_types::{CLAIM, failpoint, limits};
use rustix::fs::{Access, access};
use uuid::Uuid;

use super::{
    claim::{Claim, Work, make_directory, no_directory, refuse_used},
    config::{self, Config, FORMAT_VERSION, HashKey, INLINE_MAX_DEFAULT, Pool, Tier, relative_to_store},
    lock::{self, Purpose, StoreLock},
    parts,
};
use crate::{
    failure::{Done, Failure, Within},
    output::shell_word,
};

/// The plan, as long as it is being carried out.
const PLAN: &str = "formatting.toml";
/// What a store may hold that is to be formatted: the lock, a claim, and a plan that was not written to its end, when nothing had been made yet.
const KNOWN: [&str; 3] = [lock::FILE_NAME, CLAIM, "formatting.new"];
/// Where the metadata goes unless told otherwise.
const META_DEFAULT: &str = "meta";
/// The pool of a volume formatted without `--pool`, and where it goes.
const POOL_NAME_DEFAULT: &str = "default";
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

/// The line that begins anew what was interrupted, with the parts that were asked for.
pub fn again(store: &Path) -> String {
    let mut line = format!("cofs format {}", shell_word(store));
    let text = read_small(&store.join(PLAN), limits::CONFIG_BYTES_MAX);
    let plan = text.ok().and_then(|text| Config::parse(&text).ok());
    let Some(Config { inline_max, meta, pools, .. }) = plan else { return line };
    let mut add = |option: &str, value: OsString| {
        line += &format!(" {option} {}", shell_word(Path::new(&value)));
    };
    for Pool { name, directory, tier, .. } in pools {
        if directory != Path::new(POOL_DEFAULT) {
            let mut value = OsString::from(format!("{name}="));
            value.push(store.join(directory));
            if tier == Tier::Flash {
                value.push(",tier=flash");
            }
            add("--pool", value);
        }
    }
    if meta != Path::new(META_DEFAULT) {
        add("--meta", store.join(meta).into());
    }
    if inline_max != INLINE_MAX_DEFAULT {
        add("--inline-max", inline_max.to_string().into());
    }
    line
}

/// What fills the metadata of a new volume; it may correct the configuration.
pub type Fill<'a> = &'a mut dyn FnMut(&Arc<dyn Engine>, &mut Config) -> Done;

/// Makes an empty volume; its store is returned as an absolute path.
pub fn format(plan: &Plan) -> Done<(PathBuf, Config)> {
    format_with(plan, &mut |engine, config| parts::fill_empty(engine, config))
}

/// Makes a volume that `fill` gives its metadata.
pub fn format_with(plan: &Plan, fill: Fill<'_>) -> Done<(PathBuf, Config)> {
    let store = absolute(&plan.store)?;
    refuse_inside(&store, &store)?;
    let made_store = make_directory(&store)?;
    let outcome = format_store(plan, &store, fill);
    if outcome.is_err() && made_store {
        let _ = fs::remove_dir(&store);
    }
    outcome.map(|config| (store, config))
}

fn format_store(plan: &Plan, store: &Path, fill: Fill<'_>) -> Done<Config> {
    refuse_formatted(store)?;
    refuse_foreign(store)?;
    access(store, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| Failure::io("cannot make a volume in", store, &errno.into()))?;
    let had_lock = store.join(lock::FILE_NAME).exists();
    let lock = StoreLock::take(store, Purpose::Change)?;
    let outcome = format_locked(plan, store, fill);
    // That of a volume which another has made meanwhile stays.
    if outcome.is_err() && !had_lock && refuse_formatted(store).is_ok() {
        lock.remove(store);
    }
    outcome
}

fn format_locked(plan: &Plan, store: &Path, fill: Fill<'_>) -> Done<Config> {
    refuse_formatted(store)?;
    let former = clear_half_written(store)?;
    let mut config = lay_out(plan, store)?;
    config.check()?;
    if let Some(claim) = former {
        claim.release().map_err(|error| Failure::io("cannot change", store, &error))?;
    }
    let outcome = carry_out(store, &mut config, fill);
    // What cannot be taken back is half made, and told to be so.
    if outcome.is_ok() || take_back(store, &config).is_ok() {
        let _ = fs::remove_file(store.join(PLAN));
        // One that stays does not matter any more.
        directories(store, &config).filter_map(|at| claim_of(&at, config.uuid)).for_each(|claim| {
            let _ = claim.release();
        });
    }
    outcome.map(|()| config)
}

fn carry_out(store: &Path, config: &mut Config, fill: Fill<'_>) -> Done {
    Claim::stake(store, Work::Format, config.uuid, store, &[&KNOWN[..], &[PLAN]].concat())?;
    failpoint("cofs.format.begun");
    config.write(store, PLAN)?;
    failpoint("cofs.format.planned");
    for directory in directories(store, config).filter(|directory| directory != store) {
        Claim::stake(&directory, Work::Format, config.uuid, store, &[CLAIM])?;
    }
    failpoint("cofs.format.claimed");
    build(store, config, fill)?;
    config.write(store, PLAN)?;
    failpoint("cofs.format.made");
    let (plan, end) = (store.join(PLAN), store.join(config::FILE_NAME));
    fs::rename(&plan, &end)
        // What is taken back must not be a volume before that.
        .and_then(|()| config::sync_parent(&end).inspect_err(|_| drop(fs::rename(&end, &plan))))
        .map_err(|error| Failure::io("cannot write", &end, &error))?;
    failpoint("cofs.format.named");
    Ok(())
}

/// All that are claimed: those of the pools and of the metadata, and the store.
fn directories(store: &Path, config: &Config) -> impl Iterator<Item = PathBuf> {
    let pools = config.pools.iter().map(|pool| store.join(&pool.directory));
    pools.chain([config.meta_directory(store), store.to_owned()]).collect::<Vec<_>>().into_iter()
}

/// The claim of a `format` of this very volume.
fn claim_of(directory: &Path, volume: Uuid) -> Option<Claim> {
    Claim::find(directory).filter(|claim| claim.work == Work::Format && claim.volume == volume)
}

fn refuse_formatted(store: &Path) -> Done {
    if !store.join(config::FILE_NAME).exists() {
        return Ok(());
    }
    let word = shell_word(store);
    Err(Failure::new(format!("{} is already a volume", store.display()))
        .next(format!("mount it (cofs mount {word} DIR), or remove it first if all of it may go")))
}

/// A store starts empty: what lies there already would be neither seen nor safe.
pub fn refuse_foreign(store: &Path) -> Done {
    if is_half_written(store) { Ok(()) } else { refuse_used(store, &KNOWN) }
}

/// Clears away what an interrupted `format` has made in other places than the store, whose plan and claim stay until the next ones take
/// their place; the claim is returned.
fn clear_half_written(store: &Path) -> Done<Option<Claim>> {
    let path = store.join(PLAN);
    let plan = match read_small(&path, limits::CONFIG_BYTES_MAX) {
        // Written whole or not at all, so what does not parse was not written by us.
        Ok(text) => Some(Config::parse(&text).within(path.display())?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::io("cannot read", &path, &error)),
    };
    if let Some(plan) = &plan {
        tracing::info!(store = %store.display(), "clearing away what an interrupted format left");
        take_back(store, plan)?;
    }
    // Without a plan it is ours if it was staked here: we have the lock.
    let is_ours =
        |claim: &Claim| claim.store == store || plan.as_ref().is_some_and(|plan| plan.uuid == claim.volume);
    Ok(Claim::find(store).filter(is_ours))
}

/// Removes the parts that were made of `config`, which is what stands beside a claim of its own.
fn take_back(store: &Path, config: &Config) -> Done {
    let clear = |directory: &Path, remove: &dyn Fn() -> Done| match claim_of(directory, config.uuid) {
        Some(claim) => {
            if claim.is_held_for(Work::Format) {
                remove()?;
            }
            claim.withdraw().map_err(|error| Failure::io("cannot change", directory, &error))
        }
        None => Ok(()),
    };
    for pool in &config.pools {
        let directory = store.join(&pool.directory);
        clear(&directory, &|| {
            parts::unformat_pool(store, pool)
                .within(directory.display())
                .map_err(|failure| failure.next("move away what is in it"))
        })?;
    }
    let meta = config.meta_directory(store);
    clear(&meta, &|| parts::remove_metadata(&meta))?;
    // One in the store that was made, and not claimed yet.
    let inside = |directory: &PathBuf| directory != store && directory.starts_with(store);
    directories(store, config).filter(inside).for_each(|directory| drop(fs::remove_dir(directory)));
    Ok(())
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
        pools.push(Pool { id: 0, name: POOL_NAME_DEFAULT.to_owned(), directory, tier: Tier::default() });
    }
    for pool in &mut pools {
        pool.directory = relative_to_store(store, &pool.directory);
    }
    let config = Config {
        format_version: FORMAT_VERSION,
        uuid: Uuid::new_v4(),
        inline_max: plan.inline_max,
        hash_key: HashKey(Uuid::new_v4().into_bytes()),
        meta: relative_to_store(store, &meta),
        pools,
    };
    config.refuse_nested(store)?;
    for directory in directories(store, &config).filter(|directory| directory != store) {
        refuse_inside(store, &directory)?;
        refuse_unfit(&directory)?;
    }
    Ok(config)
}

/// The real path of a directory whose last part need not exist yet.
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

/// A volume's directories must not lie in another's.
fn refuse_inside(store: &Path, directory: &Path) -> Done {
    let mut above = directory.ancestors().skip(1).filter(|above| *above != store);
    match above.find_map(|above| Some((above, parts::part_in(above)?))) {
        None => Ok(()),
        Some((above, what)) => {
            Err(Failure::new(format!("{} lies in {}, which is {what}", directory.display(), above.display()))
                .next("name a directory outside of that"))
        }
    }
}

/// Refuses what a part cannot be made of, before anything is changed.
fn refuse_unfit(directory: &Path) -> Done {
    match directory.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) if !directory.is_dir() => Err(no_directory(directory)),
        Ok(_) => refuse_used(directory, &[]),
    }
}

fn build(store: &Path, config: &mut Config, fill: Fill<'_>) -> Done {
    for pool in &config.pools {
        let directory = store.join(&pool.directory);
        parts::format_pool(store, config, pool).within(format!(
            "pool `{}` in {}",
            pool.name,
            directory.display()
        ))?;
    }
    failpoint("cofs.format.pools");
    let meta = config.meta_directory(store);
    let before = config.clone();
    parts::make_metadata(store, &before, &mut |engine| fill(engine, config))
        .within(format!("metadata in {}", meta.display()))
}

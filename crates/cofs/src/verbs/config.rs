//! `cofs config`: shows a volume's configuration, and changes what may change.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{
    failure::{Done, Failure, Within},
    output::{self, Format},
    volume::{
        config::{self, Config, Pool, Tier},
        lock::Purpose,
        open::find,
        parts::{POOL_MARK, open_engine_read_only, refuse_foreign, refuse_foreign_pool},
    },
};

/// Show or change a volume's configuration.
///
/// Without KEY all of it is shown. What may change, while the volume is not mounted: `meta`,
/// `pool.NAME.directory` and `pool.NAME.tier` (after you have moved the directory). The rest is fixed when
/// the volume is formatted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// What to show, or to change.
    #[arg(value_name = "KEY[=VALUE]")]
    pub setting: Option<String>,
}

pub fn run(args: &Args, form: Format) -> Done {
    match args.setting.as_deref().map(|setting| setting.split_once('=').ok_or(setting)) {
        None => show(&Config::read(&args.store)?, None, form),
        Some(Err(key)) => show(&Config::read(&args.store)?, Some(key), form),
        Some(Ok((key, value))) => change(&args.store, key, value),
    }
}

fn show(config: &Config, key: Option<&str>, form: Format) -> Done {
    let all = settings(config);
    let Some(key) = key else {
        return Ok(output::document(form, &Value::Object(all))?);
    };
    let value = all.get(key).ok_or_else(|| unknown(key, config))?;
    match (form, value) {
        (Format::Table, Value::String(text)) => output::print(&format!("{text}\n"))?,
        (Format::Csv, _) => output::document(form, &json!({ key: value }))?,
        _ => output::print(&format!("{value}\n"))?,
    }
    Ok(())
}

/// Every setting by its key.
fn settings(config: &Config) -> Map<String, Value> {
    let mut all = Map::new();
    let mut set = |key: String, value: Value| all.insert(key, value);
    set("format_version".into(), json!(config.format_version));
    set("uuid".into(), json!(config.uuid));
    set("inline_max".into(), json!(config.inline_max));
    set("meta".into(), json!(config.meta));
    for pool in &config.pools {
        set(format!("pool.{}.directory", pool.name), json!(pool.directory));
        set(format!("pool.{}.tier", pool.name), json!(pool.tier));
    }
    all
}

fn unknown(key: &str, config: &Config) -> Failure {
    let keys: Vec<_> = settings(config).into_iter().map(|(key, _)| key).collect();
    Failure::usage(format!("there is no setting `{key}`")).next(format!("there are {}", keys.join(", ")))
}

fn change(store: &Path, key: &str, value: &str) -> Done {
    let locked = find(store)?.lock(Purpose::Change)?;
    let mut config = locked.config.clone();
    apply(&mut config, &locked.store, key, value)?;
    config.check()?;
    config.with_real_paths(&locked.store).refuse_nested(&locked.store)?;
    config.rewrite(&locked.store)
}

fn apply(config: &mut Config, store: &Path, key: &str, value: &str) -> Done {
    if key == "meta" {
        let found = directory(store, value, "CURRENT", "the metadata of a volume")?;
        let moved = Config { meta: found, ..config.clone() };
        let shown = moved.meta_directory(store);
        let engine = open_engine_read_only(store, &moved)?;
        refuse_foreign(&engine, &moved)
            .within(format!("metadata in {}", shown.display()))
            .map_err(|failure| failure.next("name the directory that was moved"))?;
        *config = moved;
        return Ok(());
    }
    if !settings(config).contains_key(key) {
        return Err(unknown(key, config));
    }
    let parts = key.strip_prefix("pool.").and_then(|rest| rest.rsplit_once('.'));
    let pool = parts
        .and_then(|(name, field)| Some((config.pools.iter_mut().find(|pool| pool.name == name)?, field)));
    match pool {
        Some((pool, "directory")) => {
            let directory = directory(store, value, POOL_MARK, "a pool")?;
            let moved = Pool { directory, ..pool.clone() };
            refuse_foreign_pool(store, config.uuid, &moved, "name the directory that was moved")?;
            *pool = moved;
        }
        Some((pool, "tier")) => {
            pool.tier = <Tier as clap::ValueEnum>::from_str(value, false).map_err(|_| {
                Failure::usage(format!("tier `{value}` is neither flash nor disk")).next("write one of them")
            })?;
        }
        _ => {
            return Err(Failure::new(format!("`{key}` is fixed when a volume is formatted"))
                .next("to have it otherwise make a new volume (cofs format) and copy the files"));
        }
    }
    Ok(())
}

/// A directory that was moved: it must hold what it held before.
fn directory(store: &Path, value: &str, mark: &str, what: &str) -> Done<PathBuf> {
    let path = store.join(value);
    let path = path.canonicalize().map_err(|error| Failure::io("cannot reach", &path, &error))?;
    if !path.join(mark).exists() {
        return Err(Failure::new(format!("{} does not hold {what}: there is no {mark}", path.display()))
            .next("move the directory first, then say where it is"));
    }
    Ok(config::relative_to_store(store, &path))
}

//! `cofs format`: makes a volume.

use std::path::PathBuf;

use cofs_types::{
    limits,
    size::{parse_size, show_size},
};
use serde_json::json;

use crate::{
    failure::{Done, Failure},
    output::{self, Format},
    volume::{
        config::{Config, INLINE_MAX_DEFAULT, Tier},
        format::{Plan, PoolPlan, format},
    },
};

/// Make a volume.
///
/// STORE is an existing empty directory, or a name for a new one. It keeps the volume's configuration and,
/// unless told otherwise, its metadata and one pool. Nothing that exists is overwritten.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// A directory of any file system that keeps the bytes of files; may be given several times.
    #[arg(long = "pool", value_name = "NAME=DIR[,tier=flash|disk]", value_parser = parse_pool)]
    pub pools: Vec<PoolPlan>,

    /// Keep the metadata in this directory (for instance on a local NVMe) instead of in STORE.
    #[arg(long, value_name = "DIR")]
    pub meta: Option<PathBuf>,

    /// Files up to this size are kept with the metadata.
    #[arg(long, value_name = "SIZE", value_parser = parse_inline_max, default_value_t = InlineMax(INLINE_MAX_DEFAULT))]
    pub inline_max: InlineMax,
}

/// A size that inline data may be limited to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineMax(pub u32);

impl std::fmt::Display for InlineMax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            whole if whole % 1024 == 0 && whole > 0 => write!(f, "{}KiB", whole / 1024),
            bytes => write!(f, "{bytes}"),
        }
    }
}

pub fn run(args: &Args, form: Format) -> Done {
    let plan = Plan {
        store: args.store.clone(),
        meta: args.meta.clone(),
        pools: args.pools.clone(),
        inline_max: args.inline_max.0,
    };
    let (store, config) = format(&plan)?;
    output::document(form, &describe(&store, &config)).map_err(|error| {
        let shown = args.store.display();
        Failure::from(error)
            .within(format!("{shown} is formatted, but that cannot be told"))
            .next(format!("cofs config {} shows it", output::shell_word(&args.store)))
    })?;
    if form == Format::Table {
        output::say(format_args!(
            "Formatted. Mount it: cofs mount -d {} DIR",
            output::shell_word(&args.store)
        ));
    }
    Ok(())
}

fn describe(store: &std::path::Path, config: &Config) -> serde_json::Value {
    let pools: Vec<_> = config
        .pools
        .iter()
        .map(|pool| {
            let directory = store.join(&pool.directory);
            json!({ "name": pool.name, "directory": directory.to_string_lossy(), "tier": pool.tier })
        })
        .collect();
    json!({
        "store": store.to_string_lossy(),
        "uuid": config.uuid,
        "format_version": config.format_version,
        "inline_max": config.inline_max,
        "meta": config.meta_directory(store).to_string_lossy(),
        "pools": pools,
    })
}

fn parse_inline_max(text: &str) -> Result<InlineMax, String> {
    let size = parse_size(text)?;
    u32::try_from(size).ok().filter(|size| *size <= limits::INLINE_BYTES_LIMIT).map(InlineMax).ok_or_else(
        || {
            format!(
                "at most {} can be kept with the metadata",
                show_size(u64::from(limits::INLINE_BYTES_LIMIT))
            )
        },
    )
}

fn parse_pool(text: &str) -> Result<PoolPlan, String> {
    let (name, rest) = text.split_once('=').ok_or("write NAME=DIR or NAME=DIR,tier=flash")?;
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(sound) {
        return Err("a pool's name has 1 to 64 letters, digits, - and _".to_owned());
    }
    let (directory, tier) = match rest.rsplit_once(",tier=") {
        Some((directory, tier)) => (directory, parse_tier(tier)?),
        None => (rest, Tier::default()),
    };
    if directory.is_empty() {
        return Err("the pool's directory is missing".to_owned());
    }
    if let Some((_, word)) = directory.rsplit_once(',') {
        return Err(match word.starts_with("tier=") {
            true => "its tier is given twice".to_owned(),
            false => format!("`{word}` is no property of a pool: there is tier=flash|disk"),
        });
    }
    Ok(PoolPlan { name: name.to_owned(), directory: directory.into(), tier })
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    <Tier as clap::ValueEnum>::from_str(text, false)
        .map_err(|_| format!("tier `{text}` is neither flash nor disk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_parsed() {
        let pool = |directory: &str, tier| PoolPlan { name: "a".into(), directory: directory.into(), tier };
        assert_eq!(parse_pool("a=/x"), Ok(pool("/x", Tier::Disk)));
        assert_eq!(parse_pool("a=/x=y,tier=flash"), Ok(pool("/x=y", Tier::Flash)));
    }

    #[test]
    fn malformed_pools_are_refused() {
        for text in
            ["a", "=/x", "a=", "a=,tier=disk", "a=/x,tier=tape", "a=/x,size=1", "a b=/x", "a=/x,tier="]
        {
            assert!(parse_pool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_inline_limit_has_a_limit() {
        assert_eq!(parse_inline_max("64K"), Ok(InlineMax(65_536)));
        assert!(parse_inline_max("64.1K").is_err() && parse_inline_max("65K").is_err());
    }
}

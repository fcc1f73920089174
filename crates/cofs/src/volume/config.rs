//! `STORE/cofs.toml`: what a volume is made of.
//!
//! Invariants: the file appears last when a volume is formatted, so a store without it is no volume; it
//! is replaced as a whole (temporary file, fsync, rename, fsync of the directory); a file of a newer
//! format is refused before anything else in it is believed, and so is a field this version does not know.
//!
//! `inline_max` and `hash_key` also stand in the header of the metadata, which is what counts at run time;
//! here they are what lost metadata would be made again with (`cofs load`).

use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::{MetadataExt, fchown},
    path::{Component, Path, PathBuf},
};

use cofs_engine::read_small;
use cofs_types::limits;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    failure::{Done, Failure, Within},
    mount::mountinfo,
    output::shell_word,
};

/// The version this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Files up to this size are kept with the metadata unless `format` is told otherwise.
pub const INLINE_MAX_DEFAULT: u32 = 16 << 10;
/// The volume's configuration in its store.
pub const FILE_NAME: &str = "cofs.toml";

/// Where a pool's directory lies: how fast it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Flash,
    #[default]
    Disk,
}

/// One pool, as configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its number in object ids: never changed, never used again.
    pub id: u16,
    pub name: String,
    /// Absolute, or relative to the store.
    pub directory: PathBuf,
    #[serde(default)]
    pub tier: Tier,
}

/// The whole file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub format_version: u32,
    pub uuid: Uuid,
    /// Files up to this many bytes are kept with the metadata.
    pub inline_max: u32,
    /// Key of the entry hash, 32 hexadecimal digits.
    pub hash_key: HashKey,
    /// The metadata's directory: absolute, or relative to the store.
    pub meta: PathBuf,
    #[serde(rename = "pool")]
    pub pools: Vec<Pool>,
}

/// The key of the entry hash (SipHash-1-3), drawn when the volume is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HashKey(pub [u8; 16]);

impl From<HashKey> for String {
    fn from(key: HashKey) -> String {
        Uuid::from_bytes(key.0).simple().to_string()
    }
}

impl TryFrom<String> for HashKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |_| "hash_key is not 32 hexadecimal digits".to_owned();
        if text.len() != 32 {
            return Err("hash_key is not 32 hexadecimal digits".to_owned());
        }
        u128::from_str_radix(&text, 16).map(|key| Self(key.to_be_bytes())).map_err(wrong)
    }
}

/// The one field that is read before it is known what the others mean.
#[derive(Deserialize)]
struct VersionOnly {
    format_version: i64,
}

impl Config {
    /// Reads the configuration of `store`.
    pub fn read(store: &Path) -> Done<Self> {
        let path = store.join(FILE_NAME);
        let text =
            read_small(&path, limits::CONFIG_BYTES_MAX).map_err(|error| absent(store, &path, &error))?;
        let whole = std::path::absolute(store).map_err(|error| Failure::io("cannot reach", store, &error))?;
        Self::parse(&text)
            .and_then(|config| config.refuse_nested(&whole).map(|()| config))
            .within(path.display())
    }

    /// Parses the text of a `cofs.toml` and checks what it says.
    pub fn parse(text: &str) -> Done<Self> {
        let malformed = |error: toml::de::Error| {
            Failure::new(format!("malformed: {}", error.message())).next(match error.span() {
                Some(span) => {
                    format!("look at line {}", text[..span.start.min(text.len())].lines().count().max(1))
                }
                None => "restore it from a copy".to_owned(),
            })
        };
        let version = toml::from_str::<VersionOnly>(text).map_err(malformed)?.format_version;
        if version > i64::from(FORMAT_VERSION) {
            return Err(Failure::new(format!(
                "format version {version} is newer than this cofs understands ({FORMAT_VERSION})"
            ))
            .next("use a newer cofs"));
        }
        let config: Self = toml::from_str(text).map_err(malformed)?;
        config.check()?;
        Ok(config)
    }

    /// What types alone cannot say.
    pub fn check(&self) -> Done {
        if self.format_version == 0 {
            return Err(Failure::new("format version 0 does not exist").next("restore cofs.toml from a copy"));
        }
        if self.inline_max > limits::INLINE_BYTES_LIMIT {
            return Err(Failure::new(format!(
                "inline_max {} is above the limit of {}",
                self.inline_max,
                limits::INLINE_BYTES_LIMIT
            ))
            .next("restore cofs.toml from a copy"));
        }
        if self.pools.is_empty() || self.pools.len() > limits::POOLS_MAX {
            let most = limits::POOLS_MAX;
            return Err(Failure::new(format!(
                "{} pools are named: a volume has 1 to {most}",
                self.pools.len()
            ))
            .next(if self.pools.is_empty() {
                "restore cofs.toml from a copy"
            } else {
                "name fewer"
            }));
        }
        for (at, pool) in self.pools.iter().enumerate() {
            let earlier = self.pools.get(..at).unwrap_or_default();
            if earlier.iter().any(|other| other.id == pool.id || other.name == pool.name) {
                return Err(Failure::new(format!("pool `{}` is configured twice", pool.name))
                    .next("give each pool a name and a number of its own"));
            }
        }
        let pools = self.pools.iter().map(|pool| pool.directory.as_path());
        pools.chain([self.meta.as_path()]).try_for_each(refuse_no_text)
    }

    /// Refuses parts that lie in one another or around the store, as far as their names tell: they may lie in the store.
    pub fn refuse_nested(&self, store: &Path) -> Done {
        let pools = self.pools.iter().map(|pool| (store.join(&pool.directory), pool.name.as_str()));
        let parts: Vec<_> =
            std::iter::once((self.meta_directory(store), "the metadata")).chain(pools).collect();
        if let Some((path, name)) = parts.iter().find(|(path, _)| store.starts_with(path)) {
            return Err(Failure::new(format!("{} ({name}) contains the store", path.display()))
                .next("give it a directory of its own"));
        }
        for (at, (path, name)) in parts.iter().enumerate() {
            let other = parts
                .iter()
                .skip(at + 1)
                .find(|(other, _)| other.starts_with(path) || path.starts_with(other));
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

    /// The same with the links on the way to its parts followed, where they are there.
    pub fn with_real_paths(&self, store: &Path) -> Self {
        let real =
            |directory: &Path| store.join(directory).canonicalize().unwrap_or_else(|_| store.join(directory));
        let pools = self.pools.iter().map(|pool| Pool { directory: real(&pool.directory), ..pool.clone() });
        Self { meta: real(&self.meta), pools: pools.collect(), ..self.clone() }
    }

    /// Replaces `STORE/NAME` as a whole and durably.
    pub fn write(&self, store: &Path, name: &str) -> Done {
        self.write_to(&store.join(name))
    }

    /// The same with the configuration that was read from `store`: where a link led there, what it leads to.
    pub fn rewrite(&self, store: &Path) -> Done {
        let path = store.join(FILE_NAME);
        let real = path.canonicalize().map_err(|error| Failure::io("cannot reach", &path, &error))?;
        self.write_to(&real)
    }

    fn write_to(&self, path: &Path) -> Done {
        let text = toml::to_string_pretty(self)
            .map_err(|error| Failure::new(format!("the configuration cannot be written down: {error}")))?;
        replace(path, &text).map_err(|error| Failure::io("cannot write", path, &error))
    }

    /// The metadata's directory.
    pub fn meta_directory(&self, store: &Path) -> PathBuf {
        store.join(&self.meta)
    }
}

/// A configuration is text, and so is what a supervisor keeps.
pub fn refuse_no_text(path: &Path) -> Done {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("{} is no UTF-8", path.display()))
            .next("rename that directory, or name another")),
    }
}

/// Whether `directory` is, or was meant to be, a volume's store; it may be one if we may not look.
pub fn is_store(directory: &Path) -> bool {
    match directory.join(FILE_NAME).symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => super::format::is_half_written(directory),
        _ => true,
    }
}

/// `directory` as it is written down: relative when it lies inside the store, so that a store can be moved.
pub fn relative_to_store(store: &Path, directory: &Path) -> PathBuf {
    match directory.strip_prefix(store) {
        Ok(inside) if inside.components().all(|part| matches!(part, Component::Normal(_))) => {
            inside.to_owned()
        }
        _ => directory.to_owned(),
    }
}

fn absent(store: &Path, path: &Path, error: &io::Error) -> Failure {
    let shown = store.display();
    match error.kind() {
        io::ErrorKind::NotFound => {}
        io::ErrorKind::NotADirectory => {
            return Failure::new(format!("{shown} is not a directory"))
                .next("name the directory of a volume");
        }
        io::ErrorKind::InvalidData => {
            return Failure::new(format!("{}: malformed: {error}", path.display()))
                .next("restore it from a copy");
        }
        _ => return Failure::io("cannot read", path, error),
    }
    if !store.exists() {
        return Failure::new(format!("{shown} does not exist"))
            .next(format!("make a volume there: cofs format {}", shell_word(store)));
    }
    if let Some(mounted) = store.canonicalize().ok().and_then(|point| mountinfo::at(&point).ok()?) {
        return Failure::new(format!("{shown} is no store: {} is mounted there", mounted.source.display()))
            .next(format!("unmount it (cofs umount {}) and name its store", shell_word(store)));
    }
    if super::format::is_half_written(store) {
        return Failure::new(format!(
            "{shown} is only half formatted: an earlier cofs format was interrupted"
        ))
        .next(format!("run it again: {}", super::format::again(store)));
    }
    if let Some(whole) = volume_around(store) {
        return Failure::new(format!("{shown} lies in a volume's store"))
            .next(format!("name that: {}", whole.display()));
    }
    Failure::new(format!("{shown} is not a volume: it has no {FILE_NAME}")).next(
        match super::format::refuse_foreign(store) {
            Ok(()) => format!("make one there: cofs format {}", shell_word(store)),
            Err(_) => "restore that from a copy if it was one, or name the directory of a volume".to_owned(),
        },
    )
}

fn volume_around(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    directory.ancestors().find(|above| above.join(FILE_NAME).exists()).map(Path::to_owned)
}

/// What stands beside `path` while it is written.
pub fn temporary(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// The file keeps its mode, and its owner where we may give it away.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let before = fs::symlink_metadata(path).ok();
    let temporary = temporary(path);
    // What an interrupted change has left; a link there must not lead us to write another file.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written =
        write_durably(&temporary, text, before.as_ref()).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_parent(path)
}

fn write_durably(path: &Path, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    if let Some(like) = like {
        let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
        file.set_permissions(like.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the names in `path`'s directory durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Config {
        Config {
            format_version: FORMAT_VERSION,
            uuid: Uuid::from_u128(7),
            inline_max: 16_384,
            hash_key: HashKey([9; 16]),
            meta: "meta".into(),
            pools: vec![Pool { id: 0, name: "default".into(), directory: "pool".into(), tier: Tier::Disk }],
        }
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_beside() {
        let store = tempfile::tempdir().unwrap();
        fs::create_dir(store.path().join(FILE_NAME)).unwrap();
        let said = sample().write(store.path(), FILE_NAME).unwrap_err().to_string();
        assert!(said.contains(FILE_NAME), "{said}");
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let store = tempfile::tempdir().unwrap();
        sample().write(store.path(), FILE_NAME).unwrap();
        assert_eq!(Config::read(store.path()).unwrap(), sample());
        assert!(!store.path().join("cofs.new").exists());
    }

    #[test]
    fn bad_configurations_are_refused_with_their_reason() {
        let good = toml::to_string(&sample()).unwrap();
        for (from, to, expect) in [
            ("format_version = 1", "format_version = 2", "newer than this cofs"),
            ("format_version = 1", "format_version = 0", "does not exist"),
            ("format_version = 1", "format_version = 1\nsurprise = 1", "surprise"),
            ("format_version = 1", "", "format_version"),
            ("inline_max = 16384", "inline_max = 65537", "above the limit"),
            ("hash_key = \"09", "hash_key = \"zz", "hexadecimal"),
            ("tier = \"disk\"", "tier = \"tape\"", "tape"),
            ("id = 0", "id = -1", "malformed"),
            ("uuid", "uuid uuid", "malformed"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from} is not in the sample");
            let said = Config::parse(&bad).unwrap_err().to_string();
            assert!(said.contains(expect), "{said} lacks {expect}");
        }
    }

    #[test]
    fn a_configuration_without_pools_is_no_matter_of_fewer() {
        let said = Config { pools: Vec::new(), ..sample() }.check().unwrap_err().to_string();
        assert!(said.contains("0 pools") && said.contains("restore"), "{said}");
    }

    #[test]
    fn a_newer_version_is_refused_before_its_fields_are_read() {
        let said = Config::parse("format_version = 99\nnews = 1").unwrap_err().to_string();
        assert!(said.contains("99 is newer"), "{said}");
    }

    #[test]
    fn directories_inside_the_store_are_kept_relative() {
        let store = Path::new("/a/store");
        assert_eq!(relative_to_store(store, Path::new("/a/store/pool")), Path::new("pool"));
        assert_eq!(relative_to_store(store, Path::new("/b")), Path::new("/b"));
    }
}

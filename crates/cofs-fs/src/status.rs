//! What `cofs.info` and `cofs.status` tell: JSON, for the command line.

use std::path::Path;

use bytes::Bytes;
use cofs_metadata::{EngineHealth, EngineStats, MetadataDriver};
use cofs_placement::{PoolHealth, PoolSpace};
use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout};
use serde_json::{Value, json};

use crate::{Cofs, blocking, open_inode::State};

impl<M: MetadataDriver> Cofs<M> {
    /// One inode: what it is and where its bytes are.
    pub(crate) async fn info(&self, ino: InodeId) -> FsResult<Bytes> {
        let answer = self.metadata.node(ino).await?;
        let node = answer.value;
        let (attributes, _) = self.attributes_of(answer).await?;
        let mut info = json!({
            "inode": ino.get(),
            "kind": kind_name(attributes.kind),
            "size_bytes": attributes.size_bytes,
            "blocks_512": attributes.blocks_512,
            "layout": if node.layout == Layout::Inline { "inline" } else { "object" },
            "inline_bytes": if node.layout == Layout::Inline { attributes.size_bytes } else { 0 },
            "writing": node.writing,
        });
        if let (Some(fields), Layout::Object(id)) = (info.as_object_mut(), node.layout) {
            fields.insert("object".into(), json!(id.to_string()));
            fields.insert("object_number".into(), json!(id.get()));
            fields.insert("pool".into(), json!(id.pool().0));
            fields.insert("pool_name".into(), json!(self.pool_name(id.pool())));
            let path = self.placement.object_path(id);
            fields.insert("object_path".into(), json!(path.as_ref().map(|path| path.to_string_lossy())));
        }
        let open = match self.opens.get(ino) {
            Some(inode) => open_state(&*inode.shared().await, inode.poisoned()),
            None => Value::Null,
        };
        if let Some(fields) = info.as_object_mut() {
            fields.insert("open".into(), open);
        }
        to_bytes(&info)
    }

    fn pool_name(&self, id: cofs_types::PoolId) -> Option<String> {
        self.placement.pool_name(id).map(str::to_owned)
    }

    /// The whole volume, as it is served now.
    pub(crate) async fn status(&self) -> FsResult<Bytes> {
        // The pools are asked for their space.
        blocking().await;
        let engine = self.metadata.engine_stats();
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "volume": self.options.volume,
            "uptime_secs": self.started.elapsed().as_secs(),
            "read_only": self.options.read_only,
            "files": self.metadata.files(),
            "inline_bytes_max": self.inline_max,
            "open_files": self.opens.len(),
            "inherited_files": self.inherited.len(),
            "mount": *self.report.lock(),
            "pools": self.placement.space().iter().map(|pool| self.pool_status(pool)).collect::<Vec<_>>(),
            "engine": engine_status(&engine),
            "caches": {
                "idle_objects": self.idle.len(),
                "ghosts": self.ghosts.len(),
                "learned_directories": self.learned.len(),
            },
            "objects_removed": self.collector.removed(),
            "recovered": self.recovered,
        });
        to_bytes(&status)
    }

    /// Pools that cannot be used at present, and why, each in a line. Waits a second at most for each.
    pub fn pools_away(&self) -> Vec<String> {
        let pools = self.placement.space();
        let away = pools
            .iter()
            .filter(|pool| matches!(pool.health, PoolHealth::Failed { .. }) || pool.silent.is_some());
        away.map(|pool| {
            let status = self.pool_status(pool);
            format!("{}: {}", pool.name, status["why"].as_str().unwrap_or_default())
        })
        .collect()
    }

    fn pool_status(&self, pool: &PoolSpace) -> Value {
        pool_status(pool, self.placement.pool_path(pool.id).unwrap_or(Path::new("")))
    }
}

fn engine_status(engine: &EngineStats) -> Value {
    let (health, why) = match &engine.health {
        EngineHealth::Healthy => ("healthy", None),
        EngineHealth::Full(why) => {
            ("full", Some(format!("{}; make room there, or remove files here", why.what)))
        }
        EngineHealth::Stuck(why) => ("stuck", Some(why.to_string())),
        EngineHealth::Failed(why) => {
            ("failed", Some(format!("{}; unmount the volume, and mount it when that works again", why.what)))
        }
    };
    json!({
        "name": engine.name,
        "health": health,
        "why": why,
        "disk_bytes": engine.disk_bytes,
        "memory_bytes": engine.memory_bytes,
        "keys_estimate": engine.keys_estimate,
        "cache_hits": engine.cache_hits,
        "cache_misses": engine.cache_misses,
    })
}

fn pool_status(pool: &PoolSpace, directory: &Path) -> Value {
    let (health, why) = match (&pool.health, pool.silent, &pool.damage) {
        (PoolHealth::Failed { why, advice, .. }, ..) => {
            const AGAIN: &str = "mend that, or mount its file system there: it is tried again by itself";
            ("failed", Some(format!("{}: {why}; {}", directory.display(), advice.unwrap_or(AGAIN))))
        }
        (_, Some(silent), _) => ("silent", Some(format!("has not answered for {} s", silent.as_secs()))),
        (.., Some(damage)) => ("damaged", Some(damage.clone())),
        _ => ("healthy", None),
    };
    json!({
        "id": pool.id.0,
        "name": pool.name,
        "tier": pool.tier,
        "health": health,
        "why": why,
        "total_bytes": pool.space.total_bytes,
        "free_bytes": pool.space.free_bytes,
        "available_bytes": pool.space.available_bytes,
        "objects_ready": pool.ready,
    })
}

fn open_state(state: &State, poisoned: bool) -> Value {
    json!({
        "opens": state.opens,
        "writers": state.writers,
        "data_path": if state.passthrough { "passthrough" } else { "daemon" },
        "writing": state.writing.is_some(),
        "poisoned": poisoned,
    })
}

const fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

fn to_bytes(value: &Value) -> FsResult<Bytes> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| FsError::corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use cofs_placement::{Space, Tier};
    use cofs_types::PoolId;

    use super::*;

    #[test]
    fn a_failed_pool_is_told_with_its_directory_and_what_to_do() {
        let told = |advice| {
            let why = "cofs-pool.toml is not there (not mounted?)".to_owned();
            let pool = PoolSpace {
                id: PoolId(1),
                name: "disk".to_owned(),
                tier: Tier::Disk,
                health: PoolHealth::Failed { errno: 5, why, advice },
                silent: None,
                damage: None,
                space: Space::default(),
                ready: 0,
            };
            pool_status(&pool, Path::new("/mnt/disk"))["why"].as_str().map(str::to_owned).unwrap()
        };
        let what = "/mnt/disk: cofs-pool.toml is not there (not mounted?); ";
        assert_eq!(told(Some("do this")), format!("{what}do this"));
        assert!(told(None).starts_with(what) && told(None).contains("mount its file system there"));
    }
}

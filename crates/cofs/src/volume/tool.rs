//! A volume opened by a tool, without a mount: nobody has a file open.

use std::sync::Arc;

use cofs_engine::Engine;
use cofs_fs::{Cofs, FileSystem, FsOptions, OpenTable, VolumeParts};
use cofs_metadata::{Leave, LocalDriver, Settled};
use cofs_namespace::Namespace;
use cofs_placement::Placement;
use cofs_types::{Credentials, FsResult, InodeId, ObjectId, XattrName};
use serde_json::Value;

use super::open::{Drivers, Locked};
use crate::failure::{Done, Failure};

/// A file system that is served to nobody.
pub struct Tool {
    fs: Cofs<LocalDriver>,
    placement: Arc<Placement>,
}

impl Tool {
    /// Opens the volume as a mount would, so that what a crash left is put right first (in memory, where it was locked to look).
    pub fn open(locked: &Locked) -> Done<Self> {
        Self::open_on(locked, |opens| locked.open(opens))
    }

    /// The same on an engine that is open already.
    pub fn open_with(locked: &Locked, engine: Arc<dyn Engine>) -> Done<Self> {
        Self::open_on(locked, |opens| locked.open_with(engine, opens))
    }

    fn open_on(locked: &Locked, open: impl FnOnce(Arc<OpenTable>) -> Done<Drivers>) -> Done<Self> {
        let opens = Arc::new(OpenTable::default());
        let Drivers { metadata, placement } = open(Arc::clone(&opens))?;
        let options = FsOptions {
            read_only: locked.is_to_look(),
            volume: locked.config.uuid.to_string(),
            // Of a file system on a network the worst is that a mount settles what was open.
            open_elsewhere: Some(cofs_fuse::is_open_elsewhere),
            ..FsOptions::default()
        };
        let parts = VolumeParts { metadata, placement: Arc::clone(&placement), opens, options };
        Ok(Self { fs: Cofs::open(parts)?, placement })
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    pub fn namespace(&self) -> &Namespace {
        self.fs.metadata().namespace()
    }

    /// Takes size and times of a file from its object.
    pub fn settle(&self, ino: InodeId, object: ObjectId) -> FsResult<()> {
        let stat = self.placement.open_object(object, false)?.stat()?;
        let settled = Settled {
            size_bytes: stat.size_bytes,
            blocks_512: stat.blocks_512,
            mtime: Some(stat.mtime),
            ..Settled::default()
        };
        self.namespace().settle(ino, &settled, Leave::Synced).map(drop)
    }

    /// What `cofs.status` tells of a live volume.
    pub fn status(&self) -> Done<Value> {
        let name = XattrName::new(b"cofs.status")?;
        let context = cofs_fs::Context { credentials: Credentials::ROOT, pid: 0 };
        let answer = cofs_fs::run(self.fs.getxattr(&context, InodeId::ROOT, name))?;
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::new(format!("the status is no JSON: {error}")))
    }

    /// Deletes what is on the reclaim list.
    pub fn collect(&self) -> Done {
        Ok(self.fs.collect().map(drop)?)
    }

    /// Closes the volume in order.
    pub fn close(self) -> Done {
        Ok(cofs_fs::run(self.fs.detach())?)
    }
}

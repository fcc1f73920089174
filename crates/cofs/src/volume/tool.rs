//! A volume opened by a tool, without a mount: nobody has a file open.

use std::sync::Arc;

use cofs_fs::{Cofs, FileSystem, FsOptions, OpenTable, VolumeParts};
use cofs_metadata::LocalDriver;
use cofs_types::{Credentials, InodeId, XattrName};
use serde_json::Value;

use super::open::Locked;
use crate::failure::{Done, Failure};

/// A file system that is served to nobody.
pub struct Tool {
    fs: Cofs<LocalDriver>,
}

impl Tool {
    /// Opens the volume as a mount would, so that what a crash left is put right first.
    pub fn open(locked: &Locked) -> Done<Self> {
        let opens = Arc::new(OpenTable::default());
        let drivers = locked.open(opens.clone())?;
        let options = FsOptions { volume: locked.config.uuid.to_string(), ..FsOptions::default() };
        let parts = VolumeParts { metadata: drivers.metadata, placement: drivers.placement, opens, options };
        Ok(Self { fs: Cofs::open(parts)? })
    }

    /// What `cofs.status` tells of a live volume.
    pub fn status(&self) -> Done<Value> {
        let name = XattrName::new(b"cofs.status").map_err(Failure::from)?;
        let context = cofs_fs::Context { credentials: Credentials::ROOT, pid: 0 };
        let answer = cofs_fs::run(self.fs.getxattr(&context, InodeId::ROOT, name))?;
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::new(format!("the status is no JSON: {error}")))
    }

    /// Deletes what is on the reclaim list.
    pub fn collect(&self) -> Done {
        self.fs.collect().map(drop).map_err(Failure::from)
    }

    /// Closes the volume in order.
    pub fn close(self) -> Done {
        cofs_fs::run(self.fs.detach()).map_err(Failure::from)
    }
}

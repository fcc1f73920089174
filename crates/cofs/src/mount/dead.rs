//! Mounts whose process has ended: they fail everybody, and only keep others from the directory.

use std::path::Path;

use cofs_fuse::{Unmount, unmount};

use super::mountinfo;
use crate::failure::{Done, Failure};

/// Takes every dead mount away that lies on top of `dir`; what lives, or is another's, stays.
pub fn take_away(dir: &Path) -> Done {
    let point = mountinfo::absolute(dir).map_err(|error| Failure::io("cannot reach", dir, &error))?;
    while mountinfo::at(&point)?.is_some_and(|mount| mount.is_dead()) {
        unmount(&point, Unmount::Lazily).map_err(|error| Failure::io("cannot unmount", &point, &error))?;
    }
    Ok(())
}

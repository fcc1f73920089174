//! Objects of inodes that are lost: the pools are looked through for their tags.

use std::path::Path;

use cofs_namespace::check::Salvage;
use cofs_placement::{FoundObject, Placement};
use cofs_types::{FsError, FsResult, InodeId};

use super::{compare::unread_pool, config::Config, parts::open_placement_to_look};
use crate::progress::Progress;

/// Finds what is tagged with one of `owners` (ascending). Errors: a pool that cannot be read, as it may hold the bytes of any of
/// them.
pub fn find_objects(
    store: &Path,
    config: &Config,
    owners: &[InodeId],
    progress: Progress,
) -> FsResult<Vec<Salvage>> {
    let placement = open_placement_to_look(store, config)?;
    let sign = progress.count("looking for objects of lost inodes");
    let mut found = Vec::new();
    for pool in placement.space() {
        let walked = placement.scan(pool.id, &mut |one| {
            sign.inc(1);
            found.extend(salvage(&one).filter(|one| owners.binary_search(&one.owner).is_ok()));
            Ok(())
        });
        walked.map_err(|error| needed(&placement, pool.id, &error))?;
    }
    Ok(found)
}

fn needed(placement: &Placement, pool: cofs_types::PoolId, error: &FsError) -> FsError {
    let unread = unread_pool(placement, pool, error);
    FsError::corrupt(format!(
        "inodes of files are lost, whose bytes are looked for in the pools, and {unread}"
    ))
}

/// An object that carries a tag.
pub fn salvage(found: &FoundObject) -> Option<Salvage> {
    match *found {
        FoundObject::Object { id: object, owner: Some(owner), size_bytes, blocks_512, mtime, .. } => {
            Some(Salvage { owner, object, size_bytes, blocks_512, mtime })
        }
        _ => None,
    }
}

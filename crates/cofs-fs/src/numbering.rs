//! How far the pools' object numbers are given out, as the metadata have it noted.
//!
//! Invariant: no commit names an object whose number is not below the noted end of its pool, so that a pool which was put back
//! from an older copy can be told, and gives no number out again. Pools reserve numbers by the thousand: nearly always a
//! compare is all.

use std::sync::atomic::{AtomicU64, Ordering};

use cofs_metadata::MetadataDriver;
use cofs_placement::Placement;
use cofs_types::{FsResult, ObjectId, PoolEnd, PoolId};

use crate::Cofs;

/// The noted end of each pool, 0 if nothing is known.
pub(crate) struct Numbering(Vec<(PoolId, AtomicU64)>);

impl Numbering {
    /// Tells the pools what is noted, before they give out a number; with `look` nothing will be given out.
    pub(crate) fn open<M: MetadataDriver>(metadata: &M, placement: &Placement, look: bool) -> Self {
        let numbering = Self(placement.pool_ids().map(|pool| (pool, AtomicU64::new(0))).collect());
        if !look {
            let noted = metadata.pool_ends();
            placement.noted(&noted);
            numbering.raise(&noted);
        }
        numbering
    }

    fn end(&self, pool: PoolId) -> Option<&AtomicU64> {
        let at = self.0.get(usize::from(pool.0)).filter(|(id, _)| *id == pool);
        at.or_else(|| self.0.iter().find(|(id, _)| *id == pool)).map(|(_, end)| end)
    }

    fn covers(&self, object: ObjectId) -> bool {
        self.end(object.pool()).is_some_and(|end| object.sequence() < end.load(Ordering::Acquire))
    }

    fn raise(&self, ends: &[PoolEnd]) {
        for noted in ends {
            if let Some(end) = self.end(noted.pool) {
                end.fetch_max(noted.end, Ordering::AcqRel);
            }
        }
    }
}

impl<M: MetadataDriver> Cofs<M> {
    /// To be called before a commit that names `object`.
    pub(crate) async fn note_number(&self, object: ObjectId) -> FsResult<()> {
        if self.numbering.covers(object) {
            return Ok(());
        }
        let ends = self.placement.ends();
        self.metadata.note_pool_ends(&ends).await?;
        self.numbering.raise(&ends);
        Ok(())
    }
}

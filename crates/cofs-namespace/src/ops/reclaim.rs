//! The list of objects whose files are gone.

use cofs_engine::Change;
use cofs_types::{FsResult, ObjectId, limits};

use crate::{
    Namespace,
    schema::{Key, key, ranges},
    tables::sets,
    tx::verb,
};

impl Namespace {
    /// At most `max` objects that are to be deleted.
    pub fn reclaim_list(&self, max: usize) -> FsResult<Vec<ObjectId>> {
        self.store.set(&ranges::reclaim(), max, |key| match key {
            Key::Reclaim(object) => Some(object),
            _ => None,
        })
    }

    /// These have been deleted.
    pub fn reclaimed(&self, objects: &[ObjectId]) -> FsResult<()> {
        self.change_reclaim(objects, |&object| Change::delete(key::reclaim(object)))
    }

    /// These belong to no file and are to be deleted.
    pub fn reclaim_put(&self, objects: &[ObjectId]) -> FsResult<()> {
        self.change_reclaim(objects, |&object| sets::reclaim(object))
    }

    fn change_reclaim(&self, objects: &[ObjectId], change: impl Fn(&ObjectId) -> Change) -> FsResult<()> {
        objects.chunks(limits::RECLAIM_BATCH).try_for_each(|batch| {
            self.store.commit_alone(&verb!("reclaim"), batch.iter().map(&change).collect())
        })
    }
}

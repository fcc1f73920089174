//! Objects kept open after the last close of their files, so that reopening costs no call below.
//!
//! Bounded by [`limits::IDLE_OBJECTS_MAX`] and by a quarter of the descriptors that the process may have. An
//! entry is moved out when its file is opened, and dropped when it is unlinked.

use std::sync::Arc;

use cofs_types::{InodeId, ObjectId, limits};
use quick_cache::sync::Cache;
use rustix::process::{Resource, getrlimit};

use crate::open_object::OpenObject;

pub(crate) struct IdleObjects {
    cache: Cache<InodeId, Arc<OpenObject>>,
}

impl IdleObjects {
    pub(crate) fn new() -> Self {
        Self { cache: Cache::new(capacity(getrlimit(Resource::Nofile).current)) }
    }

    pub(crate) fn put(&self, ino: InodeId, object: Arc<OpenObject>) {
        self.cache.insert(ino, object);
    }

    /// The open object of `ino`, if it is still `object`, and of use.
    pub(crate) fn take(&self, ino: InodeId, object: ObjectId) -> Option<Arc<OpenObject>> {
        let open = self.cache.remove(&ino).map(|(_, open)| open);
        open.filter(|open| open.file.id() == object && !open.file.is_outlived())
    }

    /// Whatever is kept for `ino`. Dropping it closes a file below, which may wait for what was written there.
    pub(crate) fn take_any(&self, ino: InodeId) -> Option<Arc<OpenObject>> {
        self.cache.remove(&ino).map(|(_, open)| open)
    }

    pub(crate) fn clear(&self) {
        self.cache.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }
}

/// How many descriptors may be spent on what nobody uses; `None` is no limit.
fn capacity(descriptors_max: Option<u64>) -> usize {
    let quarter = descriptors_max.map_or(usize::MAX, |max| usize::try_from(max / 4).unwrap_or(usize::MAX));
    quarter.clamp(1, limits::IDLE_OBJECTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_objects_leave_descriptors_for_others() {
        assert_eq!(capacity(Some(1024)), 256);
        assert_eq!(capacity(Some(0)), 1);
        assert_eq!(capacity(None), limits::IDLE_OBJECTS_MAX);
    }
}

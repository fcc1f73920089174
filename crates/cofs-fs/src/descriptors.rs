//! How many descriptors open objects may have: the metadata, and whoever closes something, need some as well.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, limits};
use rustix::process::{Resource, getrlimit};

use crate::Cofs;

#[derive(Debug)]
pub(crate) struct Descriptors {
    taken: AtomicUsize,
    max: usize,
}

/// One of them, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Descriptor(Arc<Descriptors>);

impl Descriptors {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    fn of(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max: most(limit) })
    }

    fn take(self: &Arc<Self>) -> Option<Descriptor> {
        let less_than_all = |taken| (taken < self.max).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_than_all);
        taken.ok().map(|_| Descriptor(Arc::clone(self)))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of all that the process may have; `None` is no limit.
fn most(limit: Option<u64>) -> usize {
    let all = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    all - limits::DESCRIPTORS_KEPT.min(all / 2)
}

impl<M: MetadataDriver> Cofs<M> {
    /// For one more object; those that nobody uses are closed for it. Errors: `TooManyOpenFiles`.
    pub(crate) fn descriptor(&self) -> FsResult<Descriptor> {
        self.descriptors.take().map_or_else(
            || {
                self.idle.clear();
                self.descriptors.take().ok_or(FsError::TooManyOpenFiles)
            },
            Ok,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_for_others() {
        assert_eq!(most(Some(1 << 20)), (1 << 20) - limits::DESCRIPTORS_KEPT);
        assert_eq!(most(Some(1000)), 500);
        assert_eq!(most(None), usize::MAX - limits::DESCRIPTORS_KEPT);
    }

    #[test]
    fn no_more_are_taken_than_there_are_and_each_comes_back() {
        let descriptors = Descriptors::of(Some(4));
        let both = [descriptors.take().unwrap(), descriptors.take().unwrap()];
        assert!(descriptors.take().is_none());
        drop(both);
        assert!(descriptors.take().is_some());
    }
}

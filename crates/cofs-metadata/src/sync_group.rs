//! Syncs that come together share one.
//!
//! A caller is served by the first sync that *starts* after it asked: one that already runs may have missed
//! its changes. Whoever finds none running leads the next one; the others wait for it and take its result.

use std::sync::atomic::{AtomicU64, Ordering};

use cofs_types::FsResult;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct SyncGroup {
    /// Syncs begun and ended so far. Written under the lock below, read without.
    started: AtomicU64,
    done: AtomicU64,
    /// How the last one that ended, ended.
    result: Mutex<Option<FsResult<()>>>,
    ended: Condvar,
}

impl SyncGroup {
    /// Syncs begun so far.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    pub(crate) fn running(&self) -> bool {
        // `done` first: it never passes what `started` was before.
        let done = self.done.load(Ordering::SeqCst);
        self.started() != done
    }

    /// Waits for the sync that runs, if one does.
    pub(crate) fn wait(&self) {
        let mut result = self.result.lock();
        let wanted = self.started();
        while self.done.load(Ordering::SeqCst) < wanted {
            self.ended.wait(&mut result);
        }
    }

    /// Returns when a sync that began after this call has ended, with its result or a later one's.
    pub(crate) fn sync(&self, mut run: impl FnMut() -> FsResult<()>) -> FsResult<()> {
        let mut result = self.result.lock();
        let wanted = self.started() + 1;
        while self.done.load(Ordering::SeqCst) < wanted {
            if self.running() {
                self.ended.wait(&mut result);
                continue;
            }
            self.started.fetch_add(1, Ordering::SeqCst);
            drop(result);
            let outcome = run();
            result = self.result.lock();
            *result = Some(outcome);
            self.done.fetch_add(1, Ordering::SeqCst);
            self.ended.notify_all();
        }
        result.clone().unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use cofs_types::FsError;

    use super::*;

    #[test]
    fn a_crowd_shares_few_syncs_and_everyone_is_covered() {
        let group = Arc::new(SyncGroup::default());
        let (written, synced, runs) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        group
                            .sync(|| {
                                let seen = written.load(Ordering::SeqCst);
                                std::thread::sleep(Duration::from_micros(200));
                                runs.fetch_add(1, Ordering::SeqCst);
                                synced.fetch_max(seen, Ordering::SeqCst);
                                Ok(())
                            })
                            .unwrap();
                        assert!(synced.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(runs.load(Ordering::SeqCst) < 160, "nothing was shared");
    }

    #[test]
    fn a_failure_reaches_the_caller() {
        let group = SyncGroup::default();
        assert!(group.sync(|| Err(FsError::NoSpace)).is_err());
        assert!(group.sync(|| Ok(())).is_ok());
    }
}

//! What must happen each second though nobody asks.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use cofs_types::{FsError, FsResult, limits};
use parking_lot::{Condvar, Mutex};

struct Shared {
    stopped: Mutex<bool>,
    wake: Condvar,
}

pub(crate) const THREAD: &str = "cofs-ticker";

/// Runs its work, which is told the tick's number, once per [`limits::GATHERED_TIMES_LAG`] until it is dropped. Dropping it does no work, so
/// that a test can end a driver as a crash would.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(mut work: impl FnMut(u32) -> FsResult<()> + Send + 'static) -> FsResult<Self> {
        let shared = Arc::new(Shared { stopped: Mutex::new(false), wake: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || {
                let mut failing = false;
                let mut number: u32 = 0;
                while theirs.sleep() {
                    number = number.wrapping_add(1);
                    match work(number) {
                        Ok(()) => failing = false,
                        // Told once: the same error would come each second.
                        Err(error) if !failing => {
                            failing = true;
                            tracing::warn!(%error, "what waits in memory cannot be put on the disk");
                        }
                        Err(_) => {}
                    }
                }
            })
            .map_err(|error| FsError::from_io("start the metadata ticker", error))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Shared {
    /// Sleeps until the next tick; `false` when the ticker is stopped.
    fn sleep(&self) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, limits::GATHERED_TIMES_LAG);
        }
        !*stopped
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.stopped.lock() = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata ticker panicked");
        }
    }
}

//! An object for one who cannot wait long: who makes a file has its directory locked.
//!
//! A call below that hangs cannot be left, so a thread of its own makes it, and who wants the object waits for the thread no longer than
//! [`OBJECT_PATIENCE`]. What comes later goes back to its pool. Invariants:
//! - an object is either handed out or given back, however close its coming and the end of patience are: it is handed from one thread to
//!   the other, or not at all;
//! - pools of which somebody has waited that long for an object, or lately did, are not asked: so there are about as many of these threads
//!   as there were who waited when a pool began to hang;
//! - the pools are not closed before the last of them has ended.

use std::{
    sync::{
        Arc,
        mpsc::{SendError, SyncSender, sync_channel},
    },
    thread,
};

use cofs_types::{FsError, FsResult, InodeId, limits::OBJECT_PATIENCE};
use parking_lot::{Condvar, Mutex};

use crate::{ObjectFile, Placement, Taken, pool::Pool};

const THREAD: &str = "cofs-object";

type Outcome<T> = FsResult<(Taken, T)>;

/// How many of the threads there are.
#[derive(Default)]
pub struct Underway {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Underway {
    pub fn wait_for_all(&self) {
        self.ended.wait_while(&mut self.count.lock(), |count| *count > 0);
    }
}

/// What one of the threads holds of the driver.
struct Holds(Arc<Placement>);

impl Holds {
    fn new(driver: &Arc<Placement>) -> Self {
        *driver.underway.count.lock() += 1;
        Self(Arc::clone(driver))
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        *self.0.underway.count.lock() -= 1;
        self.0.underway.ended.notify_all();
    }
}

impl Placement {
    /// As [`take_prepared`](Self::take_prepared), for one who does not wait longer than [`OBJECT_PATIENCE`]; `None` if there is no object by
    /// then, or no pool that could be expected to give one.
    pub fn take_in_time<T: Send + 'static>(
        self: &Arc<Self>,
        ino: InodeId,
        prepare: impl FnOnce(&ObjectFile) -> FsResult<T> + Send + 'static,
    ) -> FsResult<Option<(Taken, T)>> {
        if !self.pools().iter().any(Pool::is_prompt) {
            return Ok(None);
        }
        // Without room: what is sent has been received, or comes back.
        let (give, given) = sync_channel(0);
        let holds = Holds::new(self);
        thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || hand_over(&holds.0, holds.0.take_prepared(ino, prepare), &give))
            .map_err(|error| FsError::from_io("start a thread that takes an object", error))?;
        // A thread that panicked brings nothing, either.
        let given = given.recv_timeout(OBJECT_PATIENCE).ok();
        if given.is_none() {
            self.pools().iter().for_each(Pool::given_up);
        }
        given.transpose()
    }
}

fn hand_over<T>(driver: &Placement, outcome: Outcome<T>, give: &SyncSender<Outcome<T>>) {
    if let Err(SendError(Ok((taken, _)))) = give.send(outcome) {
        tracing::debug!(object = %taken.id, "came too late, and goes back");
        driver.give_back(taken);
    }
}

//! The thread that moves layers below, one at a time. As long as there is room for more of them, building their tables gives way to whoever commits: what
//! comes in a burst is moved when that is over.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::{Builder, JoinHandle},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::{Intake, Layer, drain::Failure};
use crate::{
    EngineError,
    embedded::{
        below::Below,
        error::{from_errno, from_io},
        priority::Patience,
    },
};

pub(in crate::embedded) const THREAD: &str = "cofs-drain";

struct Order {
    layer: Arc<Layer>,
    /// Space is.
    short: bool,
}

/// Ended by dropping it, when it has done what it was told.
pub(super) struct Mover {
    below: Arc<Mutex<Below>>,
    patience: Arc<Patience>,
    orders: Option<Sender<Order>>,
    moved: Mutex<Receiver<Result<(), Failure>>>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Whoever waits for a change of `intake` hears when a layer has been moved.
    pub(super) fn start(intake: Arc<Intake>, below: Below) -> Result<Self, EngineError> {
        let (orders, wanted) = mpsc::channel::<Order>();
        let (tell, moved) = mpsc::channel();
        let (below, patience) = (Arc::new(Mutex::new(below)), Arc::<Patience>::default());
        let (of_thread, patience_of_thread) = (Arc::clone(&below), Arc::clone(&patience));
        let life = move || {
            for Order { layer, short } in wanted {
                let done = move_below(&layer, &mut of_thread.lock(), short, &patience_of_thread);
                if tell.send(done).is_err() {
                    return;
                }
                intake.has_changed();
            }
        };
        let thread = Builder::new().name(THREAD.into()).spawn(life);
        let thread = thread.map_err(|error| from_io("starting a thread of the metadata engine", &error))?;
        Ok(Self { below, patience, orders: Some(orders), moved: Mutex::new(moved), thread: Some(thread) })
    }

    /// While no layer is being moved.
    pub(super) fn below(&self) -> MutexGuard<'_, Below> {
        self.below.lock()
    }

    /// Begins to move `layer`; patiently, until somebody is in a [hurry](Self::hurry).
    pub(super) fn begin(&self, layer: Arc<Layer>, short: bool) {
        self.patience.renew();
        if let Some(orders) = &self.orders {
            // Where it has ended that is said instead of the outcome.
            let _ = orders.send(Order { layer, short });
        }
    }

    /// The layer that is being moved is waited for.
    pub(super) fn hurry(&self) {
        self.patience.end();
    }

    #[cfg(test)]
    pub(super) fn hurries(&self) -> bool {
        self.patience.is_over()
    }

    /// How moving the layer has gone; `None`: not yet.
    pub(super) fn outcome(&self) -> Option<Result<(), Failure>> {
        match self.moved.lock().try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let what = "the thread that moves the metadata's journal below has ended";
                Some(Err(Failure::Lasting(from_errno(what, Errno::IO))))
            }
        }
    }

    /// Moves one here and now, while none is being moved.
    pub(super) fn move_at_once(&self, layer: &Layer, short: bool) -> Result<(), Failure> {
        self.hurry();
        move_below(layer, &mut self.below(), short, &self.patience)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.orders = None;
        self.hurry();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves a layer into tables below, and syncs them.
fn move_below(layer: &Layer, below: &mut Below, short: bool, patience: &Patience) -> Result<(), Failure> {
    // What a failed sync left in the kernel's cache can't be known.
    let synced = layer.segment.sync_ended();
    synced.map_err(|error| Failure::Lasting(from_io("syncing the metadata's journal", &error)))?;
    below.take(&layer.memtable, short, patience).map_err(Failure::Passing)
}

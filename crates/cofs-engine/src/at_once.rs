//! Reads that do not wait for what lies below the engine's memory.
//!
//! Where the store is on a network a read of it takes as long as the network wants, and who serves others meanwhile first asks whether
//! it has to be. Not an argument of each read: who asks is several rooms above, and all that it calls on its way down is to be asked.

use std::{cell::Cell, marker::PhantomData};

use rustix::io::Errno;

use crate::EngineError;

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread's reads of an embedded engine end with an error that [`would_wait`](EngineError::would_wait) where the engine
/// has not got the answer in its memory.
#[derive(Debug)]
pub struct AtOnce {
    before: bool,
    _not_send: PhantomData<*const ()>,
}

impl AtOnce {
    pub fn enter() -> Self {
        Self { before: AT_ONCE.replace(true), _not_send: PhantomData }
    }

    /// Whether one lives on this thread.
    pub fn is_wanted() -> bool {
        AT_ONCE.get()
    }
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        AT_ONCE.set(self.before);
    }
}

impl EngineError {
    /// The answer is not in memory, and was wanted [at once](AtOnce).
    pub fn would_wait(&self) -> bool {
        self.errno == Some(Errno::WOULDBLOCK.raw_os_error())
    }
}

//! Whether a pool is there.
//!
//! A pool is failed while its identity cannot be read through the directory that is held; then nothing
//! below is touched, and every operation fails with the errno of the cause. It is looked at again when
//! somebody asks, at most once in [`POOL_PROBE_INTERVAL`], and heals by itself. Who must not wait is refused a look and asks again where
//! he may: what he could not read without waiting would say nothing of the pool.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use cofs_types::{FsError, FsResult, limits::POOL_PROBE_INTERVAL};
use parking_lot::Mutex;
use rustix::io::Errno;
use uuid::Uuid;

use crate::{
    PoolConfig,
    identity::{Identity, Mismatch},
    space::PoolHealth,
    store::{BackingStore, errno},
};

struct State {
    failure: Option<Mismatch>,
    /// When the identity was last read, whatever came out.
    looked: Option<Instant>,
}

pub struct Health {
    store: Arc<dyn BackingStore>,
    identity: Identity,
    /// Mirrors `state.failure`, so that the usual case costs one load.
    failed: AtomicBool,
    state: Mutex<State>,
    /// Held by who looks, which may take long. Nobody waits for him: what was known before must do.
    looking: Mutex<()>,
}

/// What a look at the pool found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Same,
    /// The root was opened anew: what was opened below the one before is of no use.
    Reattached,
    Failed,
    /// Nothing: who asked is impatient.
    Refused,
}

impl Health {
    pub fn new(store: Arc<dyn BackingStore>, config: &PoolConfig, volume: Uuid) -> Self {
        Self {
            store,
            identity: Identity::new(config, volume),
            failed: AtomicBool::new(true),
            state: Mutex::new(State { failure: Some(Mismatch::Absent), looked: None }),
            looking: Mutex::new(()),
        }
    }

    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Looks at the identity unless that was done within the interval (and `force` is not set).
    pub fn look(&self, force: bool) -> Look {
        let recent = self.state.lock().looked.is_some_and(|looked| looked.elapsed() < POOL_PROBE_INTERVAL);
        let alone = if recent && !force { None } else { self.looking.try_lock() };
        if alone.is_none() {
            return if self.is_failed() { Look::Failed } else { Look::Same };
        }
        // Nothing is noted: whoever is patient may look at once.
        if cofs_wait::is_impatient() {
            cofs_wait::refuse();
            return Look::Refused;
        }
        let (look, failure) = match self.probe() {
            Ok(look) => (look, None),
            Err(mismatch) => (Look::Failed, Some(mismatch)),
        };
        self.failed.store(failure.is_some(), Ordering::Release);
        *self.state.lock() = State { failure, looked: Some(Instant::now()) };
        look
    }

    /// Through the root that is held; if that is no longer the pool, through its path.
    fn probe(&self) -> Result<Look, Mismatch> {
        if self.identity.check(&*self.store, None).is_ok() {
            return Ok(Look::Same);
        }
        let mut mismatch = None;
        let attached = self.store.attach(&mut |root| {
            self.identity.check(&*self.store, Some(root)).map_err(|found| {
                let errno = found.errno();
                mismatch = Some(found);
                io::Error::from_raw_os_error(errno)
            })
        });
        match (attached, mismatch) {
            (Ok(()), _) => Ok(Look::Reattached),
            (Err(_), Some(mismatch)) => Err(mismatch),
            (Err(error), None) if error.kind() == io::ErrorKind::NotFound => Err(Mismatch::Absent),
            (Err(error), None) if error.kind() == io::ErrorKind::WouldBlock => Err(Mismatch::InUse),
            (Err(error), None) => Err(Mismatch::Unreadable(error)),
        }
    }

    /// Why nothing can be done with the pool now.
    pub fn error(&self) -> FsError {
        let state = self.state.lock();
        let errno = state.failure.as_ref().map_or(Errno::IO.raw_os_error(), Mismatch::errno);
        let source = Arc::new(io::Error::from_raw_os_error(errno));
        let using = self.using();
        let context = match &state.failure {
            // Whose words are those of the error.
            None | Some(Mismatch::Unreadable(_)) => using,
            Some(mismatch) => format!("{using} ({mismatch})"),
        };
        FsError::Backing { context: context.into(), source }
    }

    fn using(&self) -> String {
        format!("use pool {} in {}", self.identity.name(), self.store.path().display())
    }

    /// An error if the pool can never be used by this program as it stands, or not beside another that uses it.
    pub fn refusal(&self) -> FsResult<()> {
        let state = self.state.lock();
        match &state.failure {
            Some(mismatch @ (Mismatch::Newer(_) | Mismatch::InUse)) => {
                let source = Arc::new(io::Error::other(mismatch.told()));
                Err(FsError::Backing { context: self.using().into(), source })
            }
            Some(mismatch @ Mismatch::Malformed(_)) => {
                Err(FsError::corrupt(format!("pool {}: {}", self.store.path().display(), mismatch.told())))
            }
            _ => Ok(()),
        }
    }

    pub fn report(&self) -> PoolHealth {
        match &self.state.lock().failure {
            None => PoolHealth::Healthy,
            Some(mismatch) => PoolHealth::Failed {
                errno: mismatch.errno(),
                why: mismatch.to_string(),
                advice: mismatch.advice(),
            },
        }
    }
}

/// Whether an error may mean that the whole pool is gone, so that its identity should be read.
pub fn suspicious(error: &io::Error) -> bool {
    matches!(
        errno(error),
        Some(
            Errno::IO
                | Errno::STALE
                | Errno::NODEV
                | Errno::NXIO
                | Errno::NOENT
                | Errno::NOTCONN
                | Errno::SHUTDOWN
                | Errno::HOSTDOWN
                | Errno::TIMEDOUT
        )
    )
}

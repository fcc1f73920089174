//! What RocksDB fails at in the background is tried again.
//!
//! After an error of the disk in a compaction, or in a write of its manifest, RocksDB takes nothing more until it is opened anew: it heals
//! by itself where there was no space, and otherwise leaves it to the program to say that the cause is gone (`DB::Resume`, which its C
//! interface lacks, and which refuses after EIO). But before it stops it tells its listeners, and who takes the error back there (a
//! documented use, `OnBackgroundError`) has it go on. Then
//! - a compaction that failed has changed nothing: what it made is removed, and it is begun again;
//! - a manifest that could not be written is not written to again: the next change begins another, with all that RocksDB knows. What the
//!   failed one may name besides stays until then (tables of compaction by RocksDB's care, ours by that of [`doubt`](super::doubt)).
//!
//! So an error is taken back, where the disk had it (`IO error`) and RocksDB does not heal by itself (no space). Damage is not: nothing is
//! merged any more with what cannot be read right, and the drain is told. Nor is what concerns RocksDB's memtables and log, which are
//! empty: a flush that fails and is not told so would never end.
//!
//! RocksDB begins a compaction anew after a second, for ever. One that fails because of a bad place may have written much by then; so the
//! pauses grow to some seconds.

#![allow(unsafe_code, reason = "functions of RocksDB's C interface")]

use std::{
    ffi::{CStr, c_char, c_void},
    sync::Arc,
    time::{Duration, Instant},
};

use librocksdb_sys as ffi;
use parking_lot::{Condvar, Mutex};
use rocksdb::{AsRawPtr, Options};
use rustix::io::Errno;

use super::{error::errno_in, priority::Priority};
use crate::EngineError;

/// RocksDB's reasons (`BackgroundErrorReason`, whose numbers its C interface hands on).
const COMPACTION: u32 = 1;
const MANIFEST_WRITE: u32 = 4;

/// Between compactions that fail, at most; besides the second that RocksDB waits.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// What is known of the compactions of one RocksDB.
#[derive(Default)]
pub(super) struct Background {
    state: Mutex<State>,
    changed: Condvar,
    /// Of compactions.
    pub(super) priority: Priority,
}

#[derive(Default)]
struct State {
    /// Why the last compaction failed, if none went well since.
    failing: Option<EngineError>,
    /// Before the next one.
    pause: Duration,
    /// So many wait for RocksDB's thread, which is not to pause then.
    hurried: usize,
}

/// Somebody waits for RocksDB's thread.
pub(super) struct Hurry<'a>(&'a Background);

/// The end of a RocksDB, when it goes: what it has in the background does not pause any more.
pub(super) struct Ending(pub(super) Arc<Background>);

impl Background {
    /// Is told of the background work of the RocksDB that is opened with these options, and keeps it going.
    pub(super) fn of(options: &mut Options) -> Arc<Self> {
        let background = Arc::<Self>::default();
        let state = Arc::into_raw(Arc::clone(&background)).cast_mut().cast::<c_void>();
        // SAFETY: the state is what all of these functions take it for; it is given up by the last of them, `forget`. The options, which
        // live, get the listener for their own.
        unsafe {
            let listener = ffi::rocksdb_eventlistener_create(
                state,
                Some(forget),
                Some(ignore_flush),
                Some(ignore_flush),
                Some(compaction_begun),
                Some(compaction_ended),
                Some(ignore_part),
                Some(ignore_part),
                Some(ignore_ingestion),
                Some(background_failed),
                Some(ignore_stall),
                Some(ignore_memtable),
            );
            ffi::rocksdb_options_add_eventlistener(options.as_raw_ptr(), listener);
        }
        background
    }

    /// Why the last compaction failed, if none went well since.
    pub(super) fn failing(&self) -> Option<EngineError> {
        self.state.lock().failing.clone()
    }

    /// As long as the answer lives there are no pauses, and compaction gets its share of the processors.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        self.priority.waited_for();
        self.state.lock().hurried += 1;
        self.changed.notify_all();
        Hurry(self)
    }

    /// Whether the error is to be taken back. Pauses, if it is that of a compaction.
    fn failed(&self, reason: u32, status: &str) -> bool {
        if reason == COMPACTION {
            self.compaction_failed(status);
        }
        is_to_be_tried_again(reason, status)
    }

    fn compaction_failed(&self, status: &str) {
        let what = format!("merging tables of the metadata: {status}").into();
        let errno = errno_in(status).unwrap_or(if is_of_disk(status) { Errno::IO } else { Errno::UCLEAN });
        let mut state = self.state.lock();
        state.failing = Some(EngineError { what, errno: Some(errno.raw_os_error()), advice: None });
        let until = Instant::now() + state.pause;
        state.pause = (state.pause * 2).clamp(Duration::from_secs(1), PAUSE_MAX);
        while state.hurried == 0 && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    fn compaction_went_well(&self) {
        let mut state = self.state.lock();
        (state.failing, state.pause) = (None, Duration::ZERO);
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.priority.not_waited_for();
        self.0.state.lock().hurried -= 1;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        std::mem::forget(self.0.hurry());
    }
}

fn is_of_disk(status: &str) -> bool {
    status.starts_with("IO error")
}

fn is_to_be_tried_again(reason: u32, status: &str) -> bool {
    let heals_by_itself = errno_in(status) == Some(Errno::NOSPC);
    matches!(reason, COMPACTION | MANIFEST_WRITE) && is_of_disk(status) && !heals_by_itself
}

/// What `ask` tells of a status; `None`: that all is well.
///
/// # Safety
///
/// `ask` puts nothing, or a string of malloc(3), to the place that it gets.
unsafe fn told(ask: impl FnOnce(*mut *mut c_char)) -> Option<String> {
    let mut text: *mut c_char = std::ptr::null_mut();
    ask(&raw mut text);
    if text.is_null() {
        return None;
    }
    // SAFETY: a string, by the caller's promise, which is this function's own and not used after it is freed.
    unsafe {
        let told = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        Some(told)
    }
}

/// # Safety
///
/// As for all functions here: called by RocksDB, with the state that it was given, and the things of the call.
unsafe extern "C" fn background_failed(
    state: *mut c_void,
    reason: u32,
    status: *mut ffi::rocksdb_status_ptr_t,
) {
    // SAFETY: see above; the status is there during the call.
    unsafe {
        let background = &*state.cast::<Background>();
        let text = told(|text| ffi::rocksdb_status_ptr_get_error(status, text));
        if text.is_some_and(|text| background.failed(reason, &text)) {
            ffi::rocksdb_reset_status(status);
        }
    }
}

unsafe extern "C" fn compaction_begun(
    state: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_compactionjobinfo_t,
) {
    // SAFETY: see above.
    let background = unsafe { &*state.cast::<Background>() };
    background.priority.begun();
}

unsafe extern "C" fn compaction_ended(
    state: *mut c_void,
    _: *mut ffi::rocksdb_t,
    compaction: *const ffi::rocksdb_compactionjobinfo_t,
) {
    // SAFETY: see above; the compaction is there during the call.
    unsafe {
        let background = &*state.cast::<Background>();
        background.priority.ended();
        if told(|text| ffi::rocksdb_compactionjobinfo_status(compaction, text)).is_none() {
            background.compaction_went_well();
        }
    }
}

unsafe extern "C" fn forget(state: *mut c_void) {
    // SAFETY: what `Background::of` gave away; nothing is called after this.
    drop(unsafe { Arc::from_raw(state.cast::<Background>()) });
}

extern "C" fn ignore_flush(_: *mut c_void, _: *mut ffi::rocksdb_t, _: *const ffi::rocksdb_flushjobinfo_t) {}

extern "C" fn ignore_part(_: *mut c_void, _: *const ffi::rocksdb_subcompactionjobinfo_t) {}

extern "C" fn ignore_ingestion(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_externalfileingestioninfo_t,
) {
}

extern "C" fn ignore_stall(_: *mut c_void, _: *const ffi::rocksdb_writestallinfo_t) {}

extern "C" fn ignore_memtable(_: *mut c_void, _: *const ffi::rocksdb_memtableinfo_t) {}

#[cfg(test)]
mod tests {
    use super::*;

    const EIO: &str = "IO error: While appending to file: /store/000021.sst: Input/output error";

    #[test]
    fn what_the_disk_had_is_tried_again_and_damage_is_not() {
        const FLUSH: u32 = 0;
        let again = is_to_be_tried_again;
        assert!(again(COMPACTION, EIO) && again(MANIFEST_WRITE, EIO));
        assert!(again(COMPACTION, "IO error: While open a file: Read-only file system"));
        assert!(again(COMPACTION, "IO error: Stale file handle"));
        assert!(!again(FLUSH, EIO));
        assert!(!again(COMPACTION, "IO error: No space left on device: While appending to file"));
        assert!(!again(COMPACTION, "Corruption: block checksum mismatch in /store/000021.sst"));
    }

    #[test]
    fn a_compaction_that_fails_is_told_until_one_goes_well() {
        let background = Background::default();
        assert!(background.failing().is_none());
        assert!(background.failed(COMPACTION, EIO));
        let told = |background: &Background| background.failing().and_then(|error| error.errno);
        assert_eq!(told(&background), Some(Errno::IO.raw_os_error()));
        assert!(!background.failed(COMPACTION, "Corruption: bad block"), "after a pause");
        assert_eq!(told(&background), Some(Errno::UCLEAN.raw_os_error()));
        background.compaction_went_well();
        assert!(background.failing().is_none());
        // It takes no time where somebody waits.
        let hurry = background.hurry();
        let begin = Instant::now();
        assert!((0..10).all(|_| background.failed(COMPACTION, EIO)));
        assert!(begin.elapsed() < PAUSE_MAX);
        drop(hurry);
        assert_eq!(background.state.lock().hurried, 0);
    }
}

//! Failpoints: named places where a crash test ends the process.
//!
//! They stand at every arrow of the table of orders (`docs/design/orders.md`) and are always compiled in,
//! so that the binary under test is the one that people run; unarmed, one costs a relaxed load.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

struct Armed {
    name: String,
    /// How many more times the place is passed before the process ends.
    left: AtomicU64,
}

static ANY: AtomicBool = AtomicBool::new(false);
static ARMED: OnceLock<Armed> = OnceLock::new();

/// Arms the failpoint `name`: the process aborts when it is reached for the `nth` time (from 1). Once per
/// process; `false` if one was armed before.
pub fn arm(name: &str, nth: u64) -> bool {
    let armed = ARMED.set(Armed { name: name.to_owned(), left: AtomicU64::new(nth.max(1)) }).is_ok();
    ANY.store(true, Ordering::Release);
    armed
}

/// Ends the process here, as `kill -9` would, if this failpoint is armed and its time has come.
#[inline]
pub fn failpoint(name: &'static str) {
    if ANY.load(Ordering::Relaxed) {
        reached(name);
    }
}

#[cold]
fn reached(name: &'static str) {
    let Some(armed) = ARMED.get() else { return };
    if armed.name == name && armed.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        std::process::abort();
    }
}

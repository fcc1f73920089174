//! Failpoints: named places where a crash test ends the process, or stops it.
//!
//! They stand at every arrow of the table of orders (`docs/design/orders.md`) and are always compiled in,
//! so that the binary under test is the one that people run; unarmed, one costs a relaxed load.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

struct Armed {
    name: String,
    /// How many more times the place is passed before it happens.
    left: AtomicU64,
    act: fn(),
}

static ANY: AtomicBool = AtomicBool::new(false);
static ARMED: OnceLock<Armed> = OnceLock::new();

/// Arms the failpoint `name`: when it is reached for the `nth` time (from 1) the process does `act`, which mostly is [`std::process::abort`]. Once
/// per process; `false` if one was armed before.
pub fn arm(name: &str, nth: u64, act: fn()) -> bool {
    let armed = ARMED.set(Armed { name: name.to_owned(), left: AtomicU64::new(nth.max(1)), act }).is_ok();
    ANY.store(true, Ordering::Release);
    armed
}

/// Ends the process here, as `kill -9` would, or stops it, if this failpoint is armed and its time has come.
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
        (armed.act)();
    }
}

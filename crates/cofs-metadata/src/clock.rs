//! The wall clock of the local driver.

use cofs_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Now, by the kernel's coarse real-time clock.
///
/// Coarse on purpose: it is what the kernel stamps the objects below with, so that the times of an inline
/// file and of one in an object can be compared (make(1) does), and it never runs ahead of them.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { secs: time.tv_sec, nanos: u32::try_from(time.tv_nsec).unwrap_or(0) }
}

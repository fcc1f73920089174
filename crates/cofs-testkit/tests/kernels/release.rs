//! What is known of the kernels that a volume is tried on.

use cofs_testkit::machine::{Release, running};

/// FUSE passthrough.
pub const PASSTHROUGH: Release = (6, 9);
/// Requests that were in hand when the process that served died come again (`FUSE_NOTIFY_RESEND`).
pub const RESEND: Release = (6, 9);

/// The FUSE protocols of kernels that are booted here, at least: what is mended later may bring a newer one.
const PROTOCOLS: [(Release, u32); 3] = [((5, 10), 32), ((6, 1), 37), ((6, 12), 41)];

/// The least that this kernel's FUSE protocol, 7.x, may be.
pub fn protocol_min() -> u32 {
    PROTOCOLS.iter().rfind(|(release, _)| *release <= running()).map_or(31, |(_, minor)| *minor)
}

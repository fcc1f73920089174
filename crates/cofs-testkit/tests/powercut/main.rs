//! Power cuts for real: a machine (user-mode Linux) with a mounted volume is killed, and its disk looked at from
//! outside. `./test powercut` runs it.
//!
//! What is checked (`docs/design/orders.md`): everything before the last successful fsync is there, and the rest is
//! a prefix of what was done; bytes of large files that were not synced are either there or zeros or missing. What
//! the machine had in memory is lost with it; what its disk had acknowledged is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

mod machine;
mod plan;
mod rounds;

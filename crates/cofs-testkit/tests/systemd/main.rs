//! cofs under systemd: a machine (user-mode Linux) boots with systemd as its first process, and what
//! `contrib/cofs@.service` and lines of fstab promise is tried there. `./test systemd` runs it.
//!
//! The machine runs this same program for its cases (`cases`), boots twice, and its disk is looked at from outside after each
//! time (`boots`): whatever was mounted when it was told to switch off has been closed in order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

mod boots;
mod cases;
mod manager;

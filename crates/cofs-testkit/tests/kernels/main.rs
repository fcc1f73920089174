//! cofs on other kernels than this machine's: each is booted as a machine of its own (user-mode Linux), in which volumes are
//! mounted, worked on, killed and checked. `./test kernels` runs it for each kernel that can be had.
//!
//! The machine runs this same program for its cases (`cases`); `boots` boots it and looks at its disk afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod boots;
mod cases;
mod entropy;
mod programs;
mod release;
mod volume;

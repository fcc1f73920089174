//! A volume whose pool is on NFS, the server of which is out of reach for a while: a machine of its own (user-mode Linux) has the
//! kernel's client and its server (NFS 4.1), and takes the network between them down, or the server. `./test hanging` runs it.
//!
//! The machine runs this same program for its cases (`cases`); `boots` boots it and looks at its disk afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod boots;
mod callers;
mod cases;
mod export;

//! A volume on disk: its configuration, its lock, how it is made and how its parts are opened.
//!
//! `STORE/cofs.toml` says what it is made of; `STORE/lock` keeps others out; the metadata and the pools lie
//! in the store or where the configuration says.

pub mod claim;
pub mod compare;
pub mod config;
pub mod format;
pub mod locality;
pub mod lock;
pub mod open;
pub mod parts;
pub mod salvage;
pub mod sessions;
pub mod tool;

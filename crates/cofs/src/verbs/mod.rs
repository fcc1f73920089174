//! The verbs, one a file: each has its arguments (`Args`) and a `run`.

pub mod bench;
pub mod completions;
pub mod config;
pub mod dump;
pub mod format;
pub mod fsck;
pub mod gc;
pub mod helper;
pub mod info;
pub mod load;
pub mod man;
pub mod mount;
pub mod status;
pub mod umount;

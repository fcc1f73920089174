//! What is to be measured.

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How a worker process is started: it must call [`crate::work`].
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

/// One run of one suite.
#[derive(Clone, Debug)]
pub struct Options {
    pub suite: String,
    /// Where to measure. A directory of its own is made in it, and removed.
    pub directory: PathBuf,
    /// Measured in turns with `directory`.
    pub versus: Option<PathBuf>,
    pub repeats: usize,
    /// Phases with cold caches too; they drop the caches of the whole machine, and need root.
    pub cold: bool,
    pub load: Load,
    pub launcher: Launcher,
}

/// How much work a suite does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Files of all processes together.
    pub files: u64,
    pub processes: usize,
    /// Each process works in a directory of its own; else all share one.
    pub own_directories: bool,
    /// Files in one directory of a tree.
    pub per_directory: u64,
    /// Bytes of each small file that is written.
    pub small_bytes: usize,
    /// Bytes of the large file of each process.
    pub large_bytes: u64,
    /// Random reads and writes of each process.
    pub random_operations: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            files: 10_000,
            processes: 1,
            own_directories: false,
            per_directory: 1000,
            small_bytes: 4096,
            large_bytes: 256 << 20,
            random_operations: 20_000,
        }
    }
}

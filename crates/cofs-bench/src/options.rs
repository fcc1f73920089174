//! What is to be measured, apart from what the suite itself is told.

use std::{ffi::OsString, path::PathBuf};

use crate::Kind;

/// How a worker process is started: it must call [`crate::work`].
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

/// One run of one suite.
#[derive(Clone, Debug)]
pub struct Options {
    /// The suite, with its own options.
    pub suite: Kind,
    /// Where to measure. A directory of its own is made in it, and removed.
    pub directory: PathBuf,
    /// Measured in turns with `directory`.
    pub versus: Option<PathBuf>,
    pub processes: usize,
    pub repeats: usize,
    /// Phases with cold caches too; they drop the caches of the whole machine, and need root.
    pub cold: bool,
    /// The directories may hold other things, which are left alone.
    pub beside: bool,
    pub launcher: Launcher,
}

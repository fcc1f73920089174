//! What is to be measured, apart from what the suite itself is told.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{Kind, Place};

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
    /// Other mounts of the file system of `directory`; workers take them in turn, and so stand for nodes.
    pub mounts: Vec<PathBuf>,
    /// Measured in turns with `directory`.
    pub versus: Option<PathBuf>,
    pub versus_mounts: Vec<PathBuf>,
    pub processes: usize,
    /// Which of the processes this one is, where a launcher started all of them.
    pub place: Option<Place>,
    /// Rounds before those that count.
    pub warm_ups: usize,
    pub repeats: usize,
    /// No phase begins an operation after this time; counts hold as well, whichever is reached first.
    pub seconds: Option<f64>,
    /// Before each phase the file system writes what is dirty.
    pub sync: bool,
    /// Before each phase the kernel forgets what it has cached.
    pub drop_caches: bool,
    /// Phases with cold caches too; they drop the caches of the whole machine, and need root.
    pub cold: bool,
    /// The directories may hold other things, which are left alone.
    pub beside: bool,
    /// How the directory, and the one that it is compared with, are called on a page; else by their file systems.
    pub names: Vec<String>,
    /// What the run belongs to: a page makes a chapter of the results of a group.
    pub group: Option<String>,
    pub launcher: Launcher,
}

impl Options {
    /// One process, once, here; what starts workers is this program.
    pub fn new(suite: Kind) -> Self {
        Self {
            suite,
            directory: ".".into(),
            mounts: Vec::new(),
            versus: None,
            versus_mounts: Vec::new(),
            processes: 1,
            place: None,
            warm_ups: 0,
            repeats: 1,
            seconds: None,
            sync: false,
            drop_caches: false,
            cold: false,
            beside: false,
            names: Vec::new(),
            group: None,
            launcher: Launcher {
                program: std::env::current_exe().unwrap_or_default(),
                arguments: Vec::new(),
            },
        }
    }

    /// The directory of the worker of this rank, and the one that it is compared with.
    pub fn targets(&self, rank: usize) -> Vec<PathBuf> {
        let of = |first: &Path, others: &[PathBuf]| match rank % (others.len() + 1) {
            0 => first.to_owned(),
            turn => others.get(turn - 1).map_or_else(|| first.to_owned(), Clone::clone),
        };
        let versus = self.versus.as_ref().map(|versus| of(versus, &self.versus_mounts));
        [Some(of(&self.directory, &self.mounts)), versus].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_the_mounts_in_turn() {
        let options = Options {
            directory: "/a".into(),
            mounts: vec!["/b".into(), "/c".into()],
            versus: Some("/v".into()),
            ..Options::new(crate::Metarates::new(1).into())
        };
        let firsts: Vec<PathBuf> = (0..5).map(|rank| options.targets(rank).remove(0)).collect();
        assert_eq!(firsts, ["/a", "/b", "/c", "/a", "/b"].map(PathBuf::from));
        assert_eq!(options.targets(4).remove(1), PathBuf::from("/v"));
    }
}

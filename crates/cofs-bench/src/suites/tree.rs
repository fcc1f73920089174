//! What people do with trees: list, search, sum up and remove them, with the tools that they use (`ls`, `find`,
//! `du`, `rm`), with cold caches and warm.

use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::programs;
use crate::{Need, Observer, Phase, Seat, Suite, Unit};

/// List, search, sum up and remove a tree of empty files with ls -lR, find, du and rm -rf.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Tree {
    /// Files of the tree.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,

    /// Files in each directory.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,

    /// Only these tools; else all, in this order.
    #[arg(long, value_enum, value_name = "TOOL,...", value_delimiter = ',')]
    pub tools: Vec<Tool>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    Ls,
    Find,
    Du,
    Rm,
}

const fn timed(name: &'static str) -> Phase {
    Phase::new(name, Unit::Seconds)
}

const MAKE: &str = "make";
const MAKE_AGAIN: &str = "make again";

impl Tool {
    const ALL: [Self; 4] = [Self::Ls, Self::Find, Self::Du, Self::Rm];

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Ls => &["ls", "-lR", "tree"],
            Self::Find => &["find", "tree"],
            Self::Du => &["du", "-s", "tree"],
            Self::Rm => &["rm", "-rf", "tree"],
        }
    }

    /// Cold, then warm.
    fn phases(self) -> Vec<Phase> {
        match self {
            Self::Ls => vec![timed("ls -lR cold").cold(), timed("ls -lR")],
            Self::Find => vec![timed("find cold").cold(), timed("find")],
            Self::Du => vec![timed("du cold").cold(), timed("du")],
            Self::Rm => {
                vec![timed("rm -rf cold").cold().needed(), timed(MAKE_AGAIN).silent(), timed("rm -rf")]
            }
        }
    }
}

impl Tree {
    fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory.max(1))
    }

    /// What find(1) names: its files, its directories, and its top.
    pub(crate) fn things(&self) -> u64 {
        self.files.saturating_add(self.directories()).saturating_add(1)
    }

    fn wanted(&self) -> impl Iterator<Item = Tool> {
        Tool::ALL.into_iter().filter(|tool| self.tools.is_empty() || self.tools.contains(tool))
    }
}

impl Suite for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn phases(&self) -> Vec<Phase> {
        [timed(MAKE)].into_iter().chain(self.wanted().flat_map(Tool::phases)).collect()
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        let programs: Vec<&str> = self.wanted().filter_map(|tool| tool.words().first().copied()).collect();
        programs::needed(self.name(), &programs)
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("--files does")
    }

    fn need(&self, _processes: usize) -> Need {
        Need { bytes: 0, inodes: self.things() }
    }

    fn processes_max(&self) -> usize {
        1
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let tool = Tool::ALL.into_iter().find(|tool| tool.phases().iter().any(|of| of.name == phase));
        observer.operation(&mut || match tool {
            Some(tool) if phase != MAKE_AGAIN => programs::run(&seat.root, tool.words()),
            _ => make(self, seat),
        })
    }
}

fn make(tree: &Tree, seat: &Seat) -> io::Result<()> {
    let top = seat.root.join("tree");
    let mut directory = top.clone();
    fs::create_dir(&top)?;
    for number in 0..tree.files {
        if number.is_multiple_of(tree.per_directory.max(1)) {
            directory = top.join(format!("d{number}"));
            fs::create_dir(&directory)?;
        }
        fs::File::create_new(seat.file(&directory, number))?;
    }
    Ok(())
}

//! mdtest: what a file system does with many files and directories, in a tree of any shape.
//!
//! Follows mdtest 4.0 of the IOR repository (src/mdtest.c): its letters, its phases in their order, its names of
//! files, its tree, its table. What differs stands in docs/bench.md.

mod items;
mod phases;
mod shape;
mod summary;

use std::io;

use cofs_types::size::parse_size;
use serde::{Deserialize, Serialize};

use self::{items::Kind, shape::Shape};
use crate::{Need, Observer, Phase, Report, Seat, Suite, Unit};

/// mdtest: create, stat, read, rename and remove files and directories in a tree.
///
/// The letters are mdtest's. Without -F and -D both files and directories are measured; without -C, -T, -E, -U and -r all
/// phases. With -C and without -r the files stay, and a later run with -T, -E, -U or -r finds them in DIR.
#[derive(clap::Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mdtest {
    /// Items (files, and directories) of each process. A tree takes so many of them that each directory has
    /// equally many.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    pub items: u64,

    /// Items of each process in each directory of the tree. With -n as well: so many trees that each process
    /// has N/I of them.
    #[arg(short = 'I', long, value_name = "N", default_value_t = 0)]
    pub items_per_directory: u64,

    /// Depth of the tree.
    #[arg(short = 'z', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub depth: u32,

    /// Directories in each directory of the tree.
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1)]
    pub branch: u64,

    /// Only the leaves of the tree have items.
    #[arg(short = 'L', long)]
    pub leaves_only: bool,

    /// Each process has a tree of its own.
    #[arg(short = 'u', long)]
    pub unique: bool,

    /// Files only.
    #[arg(short = 'F', long)]
    pub files_only: bool,

    /// Directories only.
    #[arg(short = 'D', long)]
    pub directories_only: bool,

    /// The create phases.
    #[arg(short = 'C', long)]
    pub create: bool,

    /// The stat phases.
    #[arg(short = 'T', long)]
    pub stat: bool,

    /// The read phase.
    #[arg(short = 'E', long)]
    pub read: bool,

    /// The phase that renames directories, where each process has more than one.
    #[arg(short = 'U', long)]
    pub rename: bool,

    /// The remove phases.
    #[arg(short = 'r', long)]
    pub remove: bool,

    /// Bytes written to each file.
    #[arg(short = 'w', long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub write_bytes: u64,

    /// Bytes read from each file.
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub read_bytes: u64,

    /// Sync each file after it is written.
    #[arg(short = 'y', long)]
    pub sync_file: bool,

    /// Call sync(2) at the end of each phase, in its time.
    #[arg(short = 'Y', long)]
    pub call_sync: bool,

    /// Compare every byte that is read.
    #[arg(short = 'X', long)]
    pub verify_read: bool,

    /// Each phase works on what the N-th next process made: 1 avoids a client's own cache.
    #[arg(short = 'N', long, value_name = "N", default_value_t = 0)]
    pub stride: usize,

    /// Stat and read in random order.
    #[arg(short = 'R', long)]
    pub random: bool,

    /// What the random order begins from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub random_seed: u64,

    /// Create files for so many seconds; then all processes go on to what the fastest has.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value_t = 0)]
    pub stonewall: u64,

    /// Taken for mdtest's sake: the time of a process's own directory is always within the times here.
    #[arg(short = 't', long, hide = true)]
    pub time_unique: bool,

    /// Print times, not rates.
    #[arg(short = 'Z', long)]
    pub print_time: bool,

    /// Print rates and times.
    #[arg(short = 'P', long)]
    pub print_both: bool,

    /// The hard form of IO500: -F -t -w 3901 -e 3901 in one directory.
    #[arg(long, conflicts_with_all = ["write_bytes", "read_bytes", "depth", "unique", "directories_only"])]
    pub hard: bool,

    /// Files that each process has after a stonewall.
    #[arg(skip)]
    #[serde(skip)]
    reached: Option<u64>,
}

/// Bytes of a file of the hard form.
const HARD_BYTES: u64 = 3901;
/// A file is written and read in one piece, which is held in memory.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The paths of a tree's directories are held in memory.
const DIRECTORIES_MAX: u64 = 1 << 20;

const TOP_CREATION: &str = "test directory creation";
const TOP_REMOVAL: &str = "test directory removal";
const TREE_CREATION: &str = "tree creation";
const TREE_REMOVAL: &str = "tree removal";

/// One of the things done to items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Stat,
    Read,
    Rename,
    Remove,
}

/// In mdtest's order, with the names of what is done to directories and to files.
const STEPS: [(Step, [&str; 2]); 5] = [
    (Step::Create, ["directory creation", "file creation"]),
    (Step::Stat, ["directory stat", "file stat"]),
    (Step::Read, ["", "file read"]),
    (Step::Rename, ["directory rename", ""]),
    (Step::Remove, ["directory removal", "file removal"]),
];

impl Mdtest {
    fn does(&self, step: Step) -> bool {
        let all = !(self.create || self.stat || self.read || self.rename || self.remove);
        let told = match step {
            Step::Create => self.create,
            Step::Stat => self.stat,
            Step::Read => self.read,
            // One directory goes nowhere, as in mdtest.
            Step::Rename => return (all || self.rename) && self.shape().is_ok_and(|shape| shape.items > 1),
            Step::Remove => self.remove,
        };
        all || told
    }

    fn does_kind(&self, kind: Kind) -> bool {
        match kind {
            Kind::File => self.files_only || !self.directories_only,
            Kind::Directory => self.directories_only || !self.files_only,
        }
    }

    fn shape(&self) -> Result<Shape, String> {
        let shape =
            Shape::new(self.items, self.items_per_directory, self.depth, self.branch, self.leaves_only)?;
        match shape.directories <= DIRECTORIES_MAX {
            true => Ok(shape),
            false => Err(format!("a tree of {} directories is too large", shape.directories)),
        }
    }

    fn wrong(&self, shape: &Shape, processes: usize) -> Option<&'static str> {
        let twice = self.items > 0 && self.items_per_directory > 0;
        Some(match () {
            () if self.branch < 1 && self.depth > 0 => "-b must be at least 1",
            () if twice && self.unique => "with -u, give -n or -I, not both",
            () if twice && !self.items.is_multiple_of(self.items_per_directory) => {
                "-n must be a multiple of -I"
            }
            () if self.write_bytes.max(self.read_bytes) > FILE_BYTES_MAX => "-w and -e are at most 1G",
            () if self.verify_read && self.read_bytes == 0 => "-X needs -e",
            () if self.verify_read && !(self.does(Step::Read)) => "-X needs the read phase",
            () if self.does(Step::Create) && self.does(Step::Read) && self.read_bytes > self.write_bytes => {
                "-e cannot be more than -w"
            }
            () if self.stonewall > 0 && (self.depth > 0 || shape.trees > 1) => {
                "-W works in one directory only: without -z, and not with both -n and -I"
            }
            () if self.stonewall > 0 && !self.does(Step::Create) => "-W needs the create phase",
            () if self.rename && !self.does_kind(Kind::Directory) => "-U renames directories: leave out -F",
            () if self.rename && shape.items < 2 => "-U needs two directories of each process or more",
            () if self.stride >= processes.max(2) => "-N must be less than the number of processes",
            () => return None,
        })
    }
}

impl Suite for Mdtest {
    fn name(&self) -> &'static str {
        "mdtest"
    }

    fn spell_out(&mut self) {
        if self.hard {
            self.files_only = true;
            (self.write_bytes, self.read_bytes) = (HARD_BYTES, HARD_BYTES);
        }
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |name| Phase::new(name, Unit::OperationsPerSecond);
        let mut phases = Vec::new();
        if self.does(Step::Create) {
            phases.extend([phase(TOP_CREATION).silent(), phase(TREE_CREATION)]);
        }
        for kind in [Kind::Directory, Kind::File].into_iter().filter(|kind| self.does_kind(*kind)) {
            let steps = STEPS.iter().filter(|(step, _)| self.does(*step));
            let names = steps.map(|(_, names)| names[kind as usize]).filter(|name| !name.is_empty());
            phases.extend(names.map(phase));
        }
        if self.does(Step::Remove) {
            phases.extend([phase(TREE_REMOVAL), phase(TOP_REMOVAL).silent()]);
        }
        phases
    }

    fn check(&self, processes: usize) -> Result<(), String> {
        let shape = self.shape()?;
        self.wrong(&shape, processes).map_or(Ok(()), |wrong| Err(wrong.to_owned()))
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("it has -W, as mdtest has")
    }

    fn need(&self, processes: usize) -> Need {
        // With a stonewall nobody knows.
        let shape = match self.shape() {
            Ok(shape) if self.stonewall == 0 => shape,
            _ => return Need::default(),
        };
        let items = shape.items.saturating_mul(shape.trees).saturating_mul(processes as u64);
        let trees = shape.trees.saturating_mul(if self.unique { processes as u64 } else { 1 });
        Need {
            bytes: items.saturating_mul(self.write_bytes),
            inodes: items.saturating_add(trees.saturating_mul(shape.directories + 1)),
        }
    }

    fn leaves(&self) -> bool {
        !self.does(Step::Remove)
    }

    fn finds(&self) -> bool {
        !self.does(Step::Create)
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let named = STEPS.iter().find_map(|(step, names)| {
            let kind = names.iter().position(|name| *name == phase)?;
            Some((*step, [Kind::Directory, Kind::File][kind]))
        });
        match (named, phase) {
            (Some((step, kind)), _) => self.step(step, kind, seat, observer)?,
            (None, TREE_CREATION | TREE_REMOVAL) => self.trees(phase == TREE_CREATION, seat, observer)?,
            (None, _) => return self.tops(phase == TOP_CREATION, seat),
        }
        if self.call_sync {
            rustix::fs::sync();
        }
        Ok(())
    }

    fn original(&self, report: &Report, target: usize) -> String {
        summary::tables(self, report, target)
    }
}

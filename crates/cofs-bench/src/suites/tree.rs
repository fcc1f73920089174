//! What people do with trees: list, search, sum up and remove them, with the tools that they use (`ls`, `find`,
//! `du`, `rm`), with cold caches and warm.

use std::{
    fs, io,
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};

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
}

const fn timed(name: &'static str) -> Phase {
    Phase::new(name, Unit::Seconds)
}

const PHASES: &[Phase] = &[
    timed("make"),
    timed("ls -lR cold").cold(),
    timed("ls -lR"),
    timed("find cold").cold(),
    timed("find"),
    timed("du cold").cold(),
    timed("du"),
    timed("rm -rf cold").cold().needed(),
    timed("make again").silent(),
    timed("rm -rf"),
];

impl Suite for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn phases(&self) -> Vec<Phase> {
        PHASES.to_vec()
    }

    fn need(&self, _processes: usize) -> Need {
        let directories = self.files.div_ceil(self.per_directory.max(1));
        Need { bytes: 0, inodes: self.files.saturating_add(directories) }
    }

    fn processes_max(&self) -> usize {
        1
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let tree = seat.root.join("tree");
        let words: &[&str] = match phase {
            "make" | "make again" => return observer.operation(&mut || make(self, seat)),
            "ls -lR" | "ls -lR cold" => &["ls", "-lR"],
            "find" | "find cold" => &["find"],
            "du" | "du cold" => &["du", "-s"],
            _ => &["rm", "-rf"],
        };
        observer.operation(&mut || {
            let Some((program, arguments)) = words.split_first() else { return Ok(()) };
            let mut command = Command::new(program);
            let status = command.args(arguments).arg(&tree).stdout(Stdio::null()).status()?;
            if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
        })
    }
}

fn make(tree: &Tree, seat: &Seat) -> io::Result<()> {
    let mut directory = seat.root.join("tree");
    fs::create_dir(&directory)?;
    for number in 0..tree.files {
        if number.is_multiple_of(tree.per_directory.max(1)) {
            directory = seat.root.join("tree").join(format!("d{number}"));
            fs::create_dir(&directory)?;
        }
        fs::File::create_new(seat.file(&directory, number))?;
    }
    Ok(())
}

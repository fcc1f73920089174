//! What people do with trees: list, search, sum up and remove them, with the tools that they use (`ls`, `find`,
//! `du`, `rm`), with cold caches and warm.

use std::{
    fs, io,
    process::{Command, Stdio},
};

use crate::{
    Suite, Unit,
    options::Load,
    suite::{Observer, Phase},
    worker::Seat,
};

pub struct Tree;

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

    fn about(&self) -> &'static str {
        "ls -lR, find, du and rm -rf of a tree of empty files"
    }

    fn phases(&self) -> &'static [Phase] {
        PHASES
    }

    fn processes_max(&self) -> usize {
        1
    }

    fn work(&self, phase: &str, load: &Load, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let tree = seat.root.join("tree");
        let words: &[&str] = match phase {
            "make" | "make again" => return observer.operation(&mut || make(load, seat)),
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

fn make(load: &Load, seat: &Seat) -> io::Result<()> {
    let mut directory = seat.root.join("tree");
    fs::create_dir(&directory)?;
    for number in 0..load.files {
        if number.is_multiple_of(load.per_directory.max(1)) {
            directory = seat.root.join("tree").join(format!("d{number}"));
            fs::create_dir(&directory)?;
        }
        fs::File::create_new(seat.file(&directory, number))?;
    }
    Ok(())
}

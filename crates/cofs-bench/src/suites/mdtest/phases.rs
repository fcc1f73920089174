//! What one process does in each phase.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    Mdtest, Step,
    items::{Data, Kind},
    shape::Shape,
};
use crate::{Observer, Seat};

impl Mdtest {
    /// Where tree number `tree` of `trees` lies, as the process `owner` uses it.
    fn base(&self, seat: &Seat, tree: u64, owner: usize) -> (PathBuf, String) {
        let name = match self.unique {
            true => format!("mdtest_tree.{owner}"),
            false => "mdtest_tree".to_owned(),
        };
        (seat.root.join(format!("test-dir.0-{tree}")), name)
    }

    /// Makes (or removes) the directories that the trees lie in, which no figure counts.
    pub(super) fn tops(&self, make: bool, seat: &Seat) -> io::Result<()> {
        let trees = self.shape().map_err(io::Error::other)?.trees;
        let mut tops = (0..trees).filter(|_| seat.index == 0).map(|tree| self.base(seat, tree, 0).0);
        tops.try_for_each(|top| if make { fs::create_dir(top) } else { fs::remove_dir(top) })
    }

    /// Makes (or removes) the trees: the first process those that all share, else each its own.
    pub(super) fn trees(&self, make: bool, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let shape = self.shape().map_err(io::Error::other)?;
        let trees = if seat.index == 0 || self.unique { shape.trees } else { 0 };
        for tree in 0..trees {
            let (top, name) = self.base(seat, tree, seat.index);
            for directory in shape.tree(make).map(|number| shape.path(&top, &name, number)) {
                observer.operation(&mut || match make {
                    true => fs::create_dir(&directory),
                    false => fs::remove_dir(&directory),
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn step(
        &mut self,
        step: Step,
        kind: Kind,
        seat: &Seat,
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        let mut shape = self.shape().map_err(io::Error::other)?;
        if let (Some(reached), Kind::File) = (self.reached, kind) {
            shape = shape.with_items(reached);
        }
        let shift = match step {
            Step::Create => 0,
            Step::Stat | Step::Rename => self.stride,
            Step::Read => 2 * self.stride,
            Step::Remove => 3 * self.stride,
        };
        // The tree of the next but `stride` process, as mdtest has it.
        let owner = (seat.index + shift) % seat.size;
        let neighbour = (owner + self.stride) % seat.size;
        let mut data = Data::new(self.write_bytes.max(self.read_bytes) as usize);
        for tree in 0..shape.trees {
            let (top, name) = self.base(seat, tree, neighbour);
            let mut paths = Paths { shape: &shape, top, name, kind, owner, here: None };
            let numbers = match step {
                Step::Create if kind == Kind::File && self.stonewall > 0 => {
                    return self.until_stonewall(shape.items, &mut paths, &mut data, observer);
                }
                Step::Rename => {
                    rename_in_a_circle(&shape.in_order(), &mut paths, observer)?;
                    continue;
                }
                Step::Create | Step::Remove => shape.by_directory(),
                Step::Stat | Step::Read if self.random => {
                    shape.at_random(self.random_seed + seat.index as u64)
                }
                Step::Stat | Step::Read => shape.in_order(),
            };
            for item in numbers {
                self.one(step, kind, &paths.of(item), item, &mut data, observer)?;
            }
        }
        Ok(())
    }

    fn one(
        &self,
        step: Step,
        kind: Kind,
        path: &Path,
        item: u64,
        data: &mut Data,
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        let mut wrong = false;
        observer.operation(&mut || match (step, kind) {
            (Step::Create, Kind::Directory) => fs::create_dir(path),
            (Step::Create, Kind::File) => data.create(path, item, self.write_bytes, self.sync_file),
            (Step::Stat, _) => fs::metadata(path).map(drop),
            (Step::Read, _) => {
                wrong = !data.read(path, item, self.read_bytes, self.verify_read)?;
                Ok(())
            }
            (Step::Remove, Kind::Directory) => fs::remove_dir(path),
            (Step::Remove, Kind::File) => fs::remove_file(path),
            // They go in a circle.
            (Step::Rename, _) => Err(io::ErrorKind::Unsupported.into()),
        })?;
        observer.bytes(match (step, kind) {
            (Step::Create, Kind::File) => self.write_bytes,
            (Step::Read, _) => self.read_bytes,
            _ => 0,
        });
        if wrong {
            observer.count("verification errors", 1);
        }
        Ok(())
    }

    /// Creates files until the time is over, and then as many as the process that had made most.
    fn until_stonewall(
        &mut self,
        items: u64,
        paths: &mut Paths,
        data: &mut Data,
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        let begin = Instant::now();
        let mut done = 0;
        let mut most = 0;
        observer.span("stonewall", &mut |observer| {
            while done < items && begin.elapsed().as_secs() < self.stonewall {
                self.one(Step::Create, Kind::File, &paths.of(done), done, data, observer)?;
                done += 1;
            }
            most = observer.agree(done)?.into_iter().max().unwrap_or(done);
            Ok(())
        })?;
        observer.count("stonewall items", done);
        for item in done..most {
            self.one(Step::Create, Kind::File, &paths.of(item), item, data, observer)?;
        }
        self.reached = Some(most);
        Ok(())
    }
}

/// Where the items of one process lie in a tree.
struct Paths<'a> {
    shape: &'a Shape,
    top: PathBuf,
    name: String,
    kind: Kind,
    owner: usize,
    /// Items that follow each other mostly lie in one directory, whose path is made once.
    here: Option<(u64, PathBuf)>,
}

impl Paths<'_> {
    fn of(&mut self, item: u64) -> PathBuf {
        let number = self.shape.directory_of(item);
        let known = self.here.take().filter(|(directory, _)| *directory == number);
        let (_, directory) = self
            .here
            .insert(known.unwrap_or_else(|| (number, self.shape.path(&self.top, &self.name, number))));
        self.kind.name(directory, self.owner, item)
    }
}

/// As mdtest renames: the first gets a name of its own, each further one the name of the one before it, and the first at
/// last that of the last but one. As many renames as items, and all names are there as before.
fn rename_in_a_circle(items: &[u64], paths: &mut Paths, observer: &mut dyn Observer) -> io::Result<()> {
    let [first, between @ .., _] = items else { return Ok(()) };
    let mut free = paths.of(*first);
    let aside = PathBuf::from([free.as_os_str(), "-XX".as_ref()].join("".as_ref()));
    observer.operation(&mut || fs::rename(&free, &aside))?;
    for item in between {
        let next = paths.of(*item);
        observer.operation(&mut || fs::rename(&next, &free))?;
        free = next;
    }
    observer.operation(&mut || fs::rename(&aside, &free))
}

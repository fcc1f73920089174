//! The work: operations drawn from a seed, and the tree after each of them. Each is one commit of the metadata, but for a write that
//! begins within a page and goes beyond it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileExt, symlink},
    path::Path,
};

use cofs_testkit::kernel::first_request_end;
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Files and names at one time, about.
const NAMES_MAX: usize = 250;
/// Below the inline maximum, and above it.
const SMALL_BYTES: usize = 9_000;
const LARGE_BYTES: usize = 150_000;

#[derive(Clone, Debug)]
pub enum Op {
    Mkdir(String),
    Create(String),
    /// Adds to the end.
    Append(String, usize),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Unlink(String),
    /// fsync(2) of a file, or of the root.
    Sync(Option<String>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory,
    Symlink(String),
    File(usize),
}

#[derive(Clone, Debug, Default)]
pub struct File {
    pub len: usize,
    /// Has an object, once it has outgrown.
    pub large: bool,
    /// Its first bytes, that a sync has covered.
    pub synced: usize,
}

/// The tree after some operations, and the draw of the next.
pub struct Plan {
    random: SmallRng,
    /// Operations so far.
    pub count: usize,
    pub names: BTreeMap<String, Node>,
    pub files: Vec<File>,
}

/// Byte `at` of file `id`; never 0.
pub fn byte(id: usize, at: usize) -> u8 {
    ((id * 31 + at * 7 + at / 251) % 255) as u8 + 1
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), count: 0, names: BTreeMap::new(), files: Vec::new() }
    }

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let names: Vec<&String> =
            self.names.iter().filter(|(_, node)| wanted(node)).map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| names[self.random.random_range(0..names.len())].clone())
    }

    fn fresh(&mut self) -> String {
        let name = format!("n{}", self.count);
        match self.any(|node| *node == Node::Directory) {
            Some(directory) if self.random.random_bool(0.7) => format!("{directory}/{name}"),
            _ => name,
        }
    }

    /// Draws the next operation and does it here. Appends follow their creation, so that many files have bytes.
    pub fn next(&mut self) -> Op {
        let op = self.draw();
        self.count += 1;
        self.apply(&op);
        op
    }

    fn draw(&mut self) -> Op {
        let file = |node: &Node| matches!(node, Node::File(_));
        let leaf = |node: &Node| *node != Node::Directory;
        let crowded = self.names.len() > NAMES_MAX;
        let path = self.fresh();
        let (some_file, some_leaf) = (self.any(file), self.any(leaf));
        match (self.random.random_range(0..100), some_file, some_leaf) {
            (0..3, ..) if !crowded => Op::Mkdir(path),
            (3..25, Some(_), Some(leaf)) if crowded => Op::Unlink(leaf),
            (25..45, Some(file), _) => Op::Append(file, self.random.random_range(1..SMALL_BYTES)),
            (45..55, Some(file), _) => Op::Append(file, self.random.random_range(20_000..LARGE_BYTES)),
            (55..62, _, Some(leaf)) => Op::Rename(leaf, path),
            (62..67, Some(file), _) => Op::Link(file, path),
            (67..70, Some(file), _) => Op::Symlink(file, path),
            (70..80, _, Some(leaf)) => Op::Unlink(leaf),
            (80, file, _) => Op::Sync(file),
            _ => Op::Create(path),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Mkdir(path) => drop(self.names.insert(path.clone(), Node::Directory)),
            Op::Create(path) => {
                self.names.insert(path.clone(), Node::File(self.files.len()));
                self.files.push(File::default());
            }
            Op::Append(path, len) => {
                let file = self.file_mut(path);
                file.len += len;
                file.large |= file.len > 16 << 10;
            }
            Op::Rename(from, to) => {
                let node = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), node);
            }
            Op::Link(from, to) => drop(self.names.insert(to.clone(), self.names[from].clone())),
            Op::Symlink(target, path) => {
                self.names.insert(path.clone(), Node::Symlink(target.clone()));
            }
            Op::Unlink(path) => drop(self.names.remove(path)),
            Op::Sync(_) => {}
        }
    }

    fn file_mut(&mut self, path: &str) -> &mut File {
        let Node::File(id) = self.names[path] else { panic!("{path} is no file") };
        &mut self.files[id]
    }

    /// Of an operation that was done, the file, and its length where the power went between the two requests that it was.
    pub fn half(&self, op: &Op) -> Option<(usize, usize)> {
        let Op::Append(path, len) = op else { return None };
        let Node::File(id) = self.names[path] else { panic!("{path} is no file") };
        let end = self.files[id].len;
        first_request_end(end - len, end).map(|len| (id, len))
    }

    /// The operation was a sync, and has succeeded: inline bytes of all files are safe, and all of its own.
    pub fn synced(&mut self, op: &Op) {
        let Op::Sync(path) = op else { return };
        for file in self.files.iter_mut().filter(|file| !file.large) {
            file.synced = file.len;
        }
        if let Some(path) = path {
            let file = self.file_mut(path);
            file.synced = file.len;
        }
    }

    /// Does the operation, which was drawn last, on a real tree.
    pub fn perform(&self, top: &Path, op: &Op) -> io::Result<()> {
        let at = |path: &String| top.join(path);
        match op {
            Op::Mkdir(path) => fs::create_dir(at(path)),
            Op::Create(path) => fs::File::create_new(at(path)).map(drop),
            Op::Append(path, len) => {
                let Node::File(id) = self.names[path] else { panic!("{path} is no file") };
                let from = self.files[id].len - len;
                let bytes: Vec<u8> = (from..from + len).map(|at| byte(id, at)).collect();
                fs::File::options().write(true).open(at(path))?.write_all_at(&bytes, from as u64)
            }
            Op::Rename(from, to) => fs::rename(at(from), at(to)),
            Op::Link(from, to) => fs::hard_link(at(from), at(to)),
            Op::Symlink(target, path) => symlink(target, at(path)),
            Op::Unlink(path) => fs::remove_file(at(path)),
            Op::Sync(Some(path)) => fs::File::open(at(path))?.sync_all(),
            Op::Sync(None) => fs::File::open(top)?.sync_all(),
        }
    }
}

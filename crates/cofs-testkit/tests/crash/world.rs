//! What a worker's directory must hold: a pure model, changed by the operations that were acknowledged.

use std::collections::BTreeMap;

/// A file's number in the model; not its inode number.
pub type FileId = u64;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct File {
    pub data: Vec<u8>,
    pub mode: u32,
    pub attribute: Option<Vec<u8>>,
    /// Known only from when it was set until the next change of the data.
    pub mtime: Option<(i64, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    File(FileId),
    Directory,
    Symlink(String),
}

/// Paths are relative to the worker's directory; there is one level of directories below it.
#[derive(Clone, Default, Debug)]
pub struct World {
    pub files: BTreeMap<FileId, File>,
    pub names: BTreeMap<String, Node>,
}

/// One operation: one system call that changes something, or a few of which only the last shows.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        path: String,
        id: FileId,
        mode: u32,
    },
    /// An unnamed file, written, then linked.
    Appear {
        path: String,
        id: FileId,
        seed: u64,
        len: usize,
    },
    Write {
        id: FileId,
        offset: usize,
        seed: u64,
        len: usize,
    },
    Truncate {
        id: FileId,
        len: usize,
    },
    Punch {
        id: FileId,
        offset: usize,
        len: usize,
    },
    Allocate {
        id: FileId,
        len: usize,
    },
    Copy {
        from: FileId,
        to: FileId,
        len: usize,
    },
    Unlink {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
    Link {
        from: String,
        to: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    SetAttribute {
        path: String,
        value: Vec<u8>,
    },
    RemoveAttribute {
        path: String,
    },
    SetTime {
        path: String,
        mtime: (i64, u32),
    },
    Sync {
        id: FileId,
    },
    SyncAll,
    /// Lets go of the descriptor that the worker holds.
    Close {
        id: FileId,
    },
}

/// The bytes that an operation of this seed writes.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8 | 1 // never the zero of a hole
        })
        .collect()
}

impl World {
    pub fn links(&self, id: FileId) -> u64 {
        self.names.values().filter(|node| **node == Node::File(id)).count() as u64
    }

    pub fn id(&self, path: &str) -> FileId {
        match self.names[path] {
            Node::File(id) => id,
            ref other => panic!("{path} is {other:?}"),
        }
    }

    /// One of the file's names.
    pub fn name(&self, id: FileId) -> Option<&str> {
        let (name, _) = self.names.iter().find(|(_, node)| **node == Node::File(id))?;
        Some(name)
    }

    /// What a crash leaves that comes when these operations are done.
    pub fn after_crash<'a>(&self, done: impl IntoIterator<Item = &'a Op>) -> Self {
        let mut world = self.clone();
        done.into_iter().for_each(|op| world.apply(op));
        world.forget_unnamed();
        world
    }

    /// Which file's bytes an operation changes.
    pub fn touches(op: &Op) -> Option<FileId> {
        match op {
            Op::Write { id, .. }
            | Op::Truncate { id, .. }
            | Op::Punch { id, .. }
            | Op::Allocate { id, .. } => Some(*id),
            Op::Copy { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// Files that no name leads to are gone after a crash.
    fn forget_unnamed(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.files.retain(|id, _| names.values().any(|node| *node == Node::File(*id)));
        self.names = names;
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { path, id, mode } => {
                self.files.insert(*id, File { mode: *mode, ..File::default() });
                self.names.insert(path.clone(), Node::File(*id));
            }
            Op::Appear { path, id, seed, len } => {
                self.files.insert(*id, File { mode: 0o600, data: bytes(*seed, *len), ..File::default() });
                self.names.insert(path.clone(), Node::File(*id));
            }
            Op::Unlink { path } | Op::Rmdir { path } => drop(self.names.remove(path)),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Exchange { one, other } => {
                let (a, b) = (self.names[one].clone(), self.names[other].clone());
                self.names.insert(one.clone(), b);
                self.names.insert(other.clone(), a);
            }
            Op::Link { from, to } => drop(self.names.insert(to.clone(), self.names[from].clone())),
            Op::Mkdir { path } => drop(self.names.insert(path.clone(), Node::Directory)),
            Op::Symlink { path, target } => {
                self.names.insert(path.clone(), Node::Symlink(target.clone()));
            }
            Op::Chmod { path, mode } => self.file_at(path).mode = *mode,
            Op::SetAttribute { path, value } => self.file_at(path).attribute = Some(value.clone()),
            Op::RemoveAttribute { path } => self.file_at(path).attribute = None,
            Op::SetTime { path, mtime } => self.file_at(path).mtime = Some(*mtime),
            Op::Sync { .. } | Op::SyncAll | Op::Close { .. } => {}
            data => self.apply_data(data),
        }
    }

    fn apply_data(&mut self, op: &Op) {
        let copied = match op {
            Op::Copy { from, len, .. } => {
                let data = &self.files[from].data;
                data[..data.len().min(*len)].to_vec()
            }
            _ => Vec::new(),
        };
        let Some(file) = World::touches(op).and_then(|id| self.files.get_mut(&id)) else { return };
        file.mtime = None;
        match op {
            Op::Write { offset, seed, len, .. } => put(&mut file.data, *offset, &bytes(*seed, *len)),
            Op::Copy { .. } => put(&mut file.data, 0, &copied),
            Op::Truncate { len, .. } => file.data.resize(*len, 0),
            Op::Allocate { len, .. } => file.data.resize(file.data.len().max(*len), 0),
            Op::Punch { offset, len, .. } => {
                let end = file.data.len().min(offset + len);
                file.data[(*offset).min(end)..end].fill(0);
            }
            _ => {}
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let node = self.names.remove(from).unwrap();
        if node == Node::Directory {
            let inside = format!("{from}/");
            let moved: Vec<String> =
                self.names.keys().filter(|name| name.starts_with(&inside)).cloned().collect();
            for name in moved {
                let node = self.names.remove(&name).unwrap();
                self.names.insert(format!("{to}/{}", &name[inside.len()..]), node);
            }
        }
        self.names.insert(to.to_owned(), node);
    }

    fn file_at(&mut self, path: &str) -> &mut File {
        let id = self.id(path);
        self.files.get_mut(&id).unwrap()
    }
}

fn put(data: &mut Vec<u8>, offset: usize, new: &[u8]) {
    if new.is_empty() {
        return;
    }
    data.resize(data.len().max(offset + new.len()), 0);
    data[offset..offset + new.len()].copy_from_slice(new);
}

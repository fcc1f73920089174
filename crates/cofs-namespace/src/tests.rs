//! Tests of the verbs, over the memory engine. Each ends with an audit of the whole store.

mod attributes;
mod audit;
mod concurrency;
mod crash;
mod data;
mod listing;
mod names;
mod permissions;
mod renames;
mod volume;
mod xattrs;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use cofs_engine::MemoryEngine;
use cofs_types::{
    Credentials, FileKind, FsError, FsResult, InodeId, Name, NewInode, ObjectId, Timestamp, XattrName,
};
use parking_lot::Mutex;

use crate::{Namespace, Node, OpenInodes, VolumeOptions, WithNodes, schema::NameHasher};

pub const ROOT: InodeId = InodeId::ROOT;
pub const C: Credentials<'static> = Credentials::ROOT;
pub const INLINE_MAX: u32 = 16 * 1024;

#[derive(Default)]
pub struct Opens(pub Mutex<HashSet<InodeId>>);

impl OpenInodes for Opens {
    fn is_open(&self, ino: InodeId) -> bool {
        self.0.lock().contains(&ino)
    }
}

/// A volume in memory, with a clock that goes on by a second with each look.
pub struct World {
    pub ns: Namespace,
    pub engine: Arc<MemoryEngine>,
    pub opens: Arc<Opens>,
    clock: AtomicI64,
}

pub fn name(name: &str) -> &Name {
    Name::new(name.as_bytes()).unwrap()
}

pub fn xname(name: &str) -> &XattrName {
    XattrName::new(name.as_bytes()).unwrap()
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 0).unwrap()
}

pub fn object(number: u64) -> ObjectId {
    ObjectId::from_raw(number)
}

pub fn new(kind: FileKind, permissions: u16) -> NewInode<'static> {
    NewInode { kind, permissions, umask: 0, rdev: 0, target: &[] }
}

pub fn user(uid: u32, gid: u32) -> Credentials<'static> {
    Credentials { uid, gid, groups: &[], authority: cofs_types::Authority::Unchecked }
}

#[track_caller]
pub fn fails<T>(result: FsResult<T>, expected: FsError) {
    match result {
        Ok(_) => panic!("succeeded, expected: {expected:?}"),
        Err(error) => {
            assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&expected), "{error:?}");
        }
    }
}

impl World {
    pub fn new() -> Self {
        let engine = Arc::new(MemoryEngine::new());
        let options = VolumeOptions { inline_bytes_max: INLINE_MAX, hash_key: [7; 16] };
        Namespace::format(&*engine, &options, (0, 0, 0o755), at(1)).unwrap();
        Self::over(engine)
    }

    /// Opens a store that is there.
    pub fn over(engine: Arc<MemoryEngine>) -> Self {
        let opens = Arc::new(Opens::default());
        let ns = Namespace::open(engine.clone(), opens.clone()).unwrap();
        Self { ns, engine, opens, clock: AtomicI64::new(1000) }
    }

    pub fn with_hash(hash: fn(&[u8; 16], &[u8]) -> u64) -> Self {
        let mut world = Self::new();
        world.ns.hasher = NameHasher::weak(hash);
        world
    }

    pub fn now(&self) -> Timestamp {
        at(self.clock.fetch_add(1, Ordering::Relaxed))
    }

    pub fn make(&self, parent: InodeId, n: &str, kind: FileKind, permissions: u16) -> Node {
        self.ns.create(&C, self.now(), parent, name(n), &new(kind, permissions)).unwrap()
    }

    pub fn file(&self, parent: InodeId, n: &str) -> InodeId {
        self.make(parent, n, FileKind::Regular, 0o644).attributes.ino
    }

    pub fn dir(&self, parent: InodeId, n: &str) -> InodeId {
        self.make(parent, n, FileKind::Directory, 0o755).attributes.ino
    }

    pub fn stat(&self, ino: InodeId) -> cofs_types::Attributes {
        self.ns.node(ino).unwrap().attributes
    }

    pub fn find(&self, parent: InodeId, n: &str) -> FsResult<InodeId> {
        Ok(self.ns.lookup(&C, parent, name(n))?.attributes.ino)
    }

    pub fn open(&self, ino: InodeId) {
        self.opens.0.lock().insert(ino);
    }

    pub fn close(&self, ino: InodeId) {
        self.opens.0.lock().remove(&ino);
        self.ns.release_unlinked(self.now(), ino).unwrap();
    }

    pub fn names(&self, dir: InodeId) -> Vec<String> {
        let mut names = Vec::new();
        self.ns
            .list(dir, 0, WithNodes::None, usize::MAX, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
                true
            })
            .unwrap();
        names.sort();
        names
    }

    /// unlink or rmdir, whichever it takes.
    pub fn remove(&self, dir: InodeId, n: &str) {
        let removed = self.ns.unlink(&C, self.now(), dir, name(n));
        removed.or_else(|_| self.ns.rmdir(&C, self.now(), dir, name(n))).unwrap();
    }

    pub fn audit(&self) {
        audit::audit(&*self.engine, self.ns.files());
    }
}

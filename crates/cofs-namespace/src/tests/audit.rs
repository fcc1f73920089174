//! The whole store, held against its own rules.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use cofs_engine::Engine;
use cofs_types::{FileKind, InodeId, Layout, limits::INLINE_CHUNK_BYTES};

use crate::schema::{EntryRecord, Inode, Key, Shard, Writing, ranges};

#[derive(Default)]
struct Seen {
    names: u32,
    subdirectories: u32,
    parent: Option<InodeId>,
    kind: Option<FileKind>,
    chunks: u64,
    xattrs: u32,
    counted: u32,
    writing: bool,
    closed: bool,
    unlinked: bool,
}

/// Panics unless every record is there for a reason and says what the others say, and the inodes are `files`.
pub fn audit(engine: &dyn Engine, files: u64) {
    assert_eq!(files, audit_records(engine), "files()");
}

/// As [`audit`]; tells how many inodes there are.
pub fn audit_records(engine: &dyn Engine) -> u64 {
    let mut inodes: BTreeMap<InodeId, Inode> = BTreeMap::new();
    let mut seen: BTreeMap<InodeId, Seen> = BTreeMap::new();
    let everything = ranges::everything();
    engine
        .scan(&everything.start, &everything.end, &mut |key, value| {
            match Key::parse(key).unwrap() {
                Key::Entry { dir, slot } => {
                    assert!(slot > 2 && slot < 1 << 63);
                    let Some(occupant) = EntryRecord::decode(value).unwrap().occupant else {
                        seen.entry(dir).or_default();
                        return ControlFlow::Continue(());
                    };
                    let child = seen.entry(occupant.ino).or_default();
                    child.names += 1;
                    child.parent = Some(dir);
                    assert!(child.kind.is_none_or(|kind| kind == occupant.kind));
                    child.kind = Some(occupant.kind);
                    let dir = seen.entry(dir).or_default();
                    dir.subdirectories += u32::from(occupant.kind == FileKind::Directory);
                }
                Key::Inode(ino) => {
                    inodes.insert(ino, Inode::decode(&Bytes::copy_from_slice(value)).unwrap());
                }
                Key::Inline { ino, chunk } => {
                    let last = u64::from(chunk) * INLINE_CHUNK_BYTES as u64 + value.len() as u64 - 1;
                    let chunks = &mut seen.entry(ino).or_default().chunks;
                    *chunks = last.max(*chunks);
                }
                Key::Xattr { ino, .. } => seen.entry(ino).or_default().xattrs += 1,
                Key::Shard { dir, .. } => {
                    seen.entry(dir).or_default().counted = Shard::decode(value).unwrap().subdirectories;
                }
                Key::Writing(ino) => match Writing::decode(value).unwrap() {
                    Writing::Open => seen.entry(ino).or_default().writing = true,
                    Writing::Closed(_) => seen.entry(ino).or_default().closed = true,
                },
                Key::Unlinked(ino) => seen.entry(ino).or_default().unlinked = true,
                Key::Reclaim(_) | Key::Header(_) => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    for ino in seen.keys() {
        assert!(inodes.contains_key(ino), "records of {ino}, which is not there");
    }
    for (ino, inode) in &inodes {
        audit_inode(*ino, inode, seen.get(ino).unwrap_or(&Seen::default()));
    }
    inodes.len() as u64
}

fn audit_inode(ino: InodeId, inode: &Inode, seen: &Seen) {
    let directory = inode.kind == FileKind::Directory;
    if ino == InodeId::ROOT {
        assert_eq!((inode.parent, seen.names), (Some(ino), 0));
    } else if directory {
        assert_eq!(seen.names, u32::from(inode.nlink == 2), "names of directory {ino}");
        assert!(inode.nlink == 0 || seen.parent == inode.parent, "parent of {ino}");
    } else {
        assert_eq!(seen.names, inode.nlink, "names of {ino}");
    }
    assert!(seen.kind.is_none_or(|kind| kind == inode.kind));
    assert_eq!(seen.unlinked, inode.nlink == 0, "{ino} in U");
    assert_eq!(seen.writing, inode.writing, "{ino} in W");
    assert!(!seen.closed || inode.layout != Layout::Inline, "{ino} has no object and is marked in W");
    assert_eq!(seen.counted, seen.subdirectories, "subdirectories of {ino}");
    assert_eq!(seen.xattrs, inode.large_xattrs, "large attributes of {ino}");
    let inline = inode.layout == Layout::Inline && inode.kind == FileKind::Regular;
    assert!(seen.chunks == 0 || inline && seen.chunks <= inode.size_bytes, "chunks of {ino}");
}

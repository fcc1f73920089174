//! Inodes, and what `stat` shows of them.

use cofs_types::{Attributes, FileKind, FsError, FsResult, InodeId, Layout};

use super::directories;
use crate::{
    Node,
    schema::{Inode, Shard, Times, key},
    tx::{Store, Tx},
};

/// What a directory's `st_size` says, whatever it holds.
const DIRECTORY_BYTES: u64 = 4096;

/// An inode with all that its attributes come from.
pub struct Loaded {
    pub ino: InodeId,
    pub inode: Inode,
    /// Of a directory.
    extra: Option<Extra>,
}

#[derive(Clone, Copy)]
struct Extra {
    shard: Shard,
    gathered: Option<Times>,
}

impl Extra {
    fn times(&self) -> Option<Times> {
        match (self.shard.times, self.gathered) {
            (Some(committed), Some(gathered)) => Some(committed.later(gathered)),
            (committed, gathered) => committed.or(gathered),
        }
    }
}

pub fn corrupt(ino: InodeId, what: &str) -> FsError {
    FsError::corrupt(format!("inode {ino}: {what}"))
}

/// What `stat` shows of an inode that is no directory, or of a directory whose times are folded.
pub fn node(ino: InodeId, inode: &Inode, subdirectories: u32) -> Node {
    let (size_bytes, blocks_512) = match inode.kind {
        FileKind::Directory => (DIRECTORY_BYTES, DIRECTORY_BYTES / 512),
        FileKind::Symlink => (inode.target.len() as u64, 0),
        FileKind::Regular => match inode.layout {
            Layout::Inline => (inode.size_bytes, inode.size_bytes.div_ceil(512)),
            Layout::Object(_) => (inode.size_bytes, inode.blocks_512),
        },
        _ => (0, 0),
    };
    let attributes = Attributes {
        ino,
        kind: inode.kind,
        permissions: inode.permissions,
        nlink: if inode.nlink == 0 { 0 } else { inode.nlink.saturating_add(subdirectories) },
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size_bytes,
        blocks_512,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
    };
    Node { attributes, layout: inode.layout, writing: inode.writing }
}

impl Loaded {
    fn of(ino: InodeId, inode: Inode) -> Self {
        Self { ino, inode, extra: None }
    }

    pub fn node(&self) -> Node {
        let mut node = node(self.ino, &self.inode, self.extra.map_or(0, |extra| extra.shard.subdirectories));
        if let Some(times) = self.extra.and_then(|extra| extra.times()) {
            (node.attributes.mtime, node.attributes.ctime) = (times.mtime, times.ctime);
        }
        node
    }

    /// With what a directory has besides. Its inode has been read in this transaction.
    fn complete(&mut self, tx: &mut Tx<'_>) -> FsResult<()> {
        if self.inode.kind == FileKind::Directory {
            let shard = directories::shard(tx, self.ino)?;
            self.extra = Some(Extra { shard, gathered: tx.store.gathered.get(self.ino) });
        }
        Ok(())
    }

    /// To be changed and saved: a directory's times are folded into its inode.
    fn prepare(&mut self, tx: &mut Tx<'_>) -> FsResult<()> {
        self.complete(tx)?;
        let Some(extra) = &mut self.extra else { return Ok(()) };
        if let Some(times) = extra.times() {
            (self.inode.mtime, self.inode.ctime) = (times.mtime, times.ctime);
        }
        if extra.shard.times.take().is_some() {
            directories::put_shard(tx, self.ino, &extra.shard);
        }
        tx.fold(self.ino, extra.gathered.take());
        Ok(())
    }
}

/// Reads the inode alone into its place: of a directory, its times may be elsewhere. `false` if there is none.
fn read_into(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode, to_change: bool) -> FsResult<bool> {
    let decode = |value: Option<&[u8]>| match value {
        Some(value) => inode.decode_into(value).map(|()| true),
        None => Ok(false),
    };
    let key = key::inode(ino);
    let there = if to_change { tx.see_to_change(&key, decode) } else { tx.see(&key, decode) }?;
    if there {
        // Behind the record: a flush commits that first, and the change would be seen.
        inode.atime = tx.access_time(ino).unwrap_or(inode.atime);
    }
    Ok(there)
}

/// As [`read_into`]. `Stale` if there is none.
fn expect_into(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode, to_change: bool) -> FsResult<()> {
    if read_into(tx, ino, inode, to_change)? { Ok(()) } else { Err(FsError::Stale) }
}

/// The inode alone: of a directory, its times may be elsewhere.
pub fn bare(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Option<Inode>> {
    let mut inode = Inode::blank();
    Ok(read_into(tx, ino, &mut inode, false)?.then_some(inode))
}

/// The inode alone. `Stale` if there is none.
pub fn expect(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Inode> {
    let mut inode = Inode::blank();
    expect_into(tx, ino, &mut inode, false)?;
    Ok(inode)
}

pub fn put(tx: &mut Tx<'_>, ino: InodeId, inode: &Inode) {
    tx.put(&key::inode(ino), inode.encode());
    tx.fold_access(ino);
}

/// The inode of a number that nobody has had.
pub fn insert(tx: &mut Tx<'_>, ino: InodeId, inode: &Inode) {
    tx.insert(&key::inode(ino), inode.encode());
}

/// A directory that can take and lose entries. `NotDirectory`, `NotFound` if it is removed, `Stale`.
pub fn directory(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Inode> {
    let mut inode = Inode::blank();
    expect_into(tx, ino, &mut inode, false)?;
    match inode.kind {
        FileKind::Directory if inode.nlink == 0 => Err(FsError::NotFound),
        FileKind::Directory => Ok(inode),
        _ => Err(FsError::NotDirectory),
    }
}

pub fn load(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Option<Loaded>> {
    let mut loaded = Loaded::of(ino, Inode::blank());
    if !read_into(tx, ino, &mut loaded.inode, false)? {
        return Ok(None);
    }
    loaded.complete(tx)?;
    Ok(Some(loaded))
}

/// To be changed and saved: a directory's times are folded into its inode. `Stale` if there is none.
pub fn load_to_change(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Loaded> {
    let mut loaded = Loaded::of(ino, Inode::blank());
    expect_into(tx, ino, &mut loaded.inode, true)?;
    loaded.prepare(tx)?;
    Ok(loaded)
}

/// As [`load_to_change`], of an inode read before in this transaction.
pub fn to_change(tx: &mut Tx<'_>, ino: InodeId, inode: Inode) -> FsResult<Loaded> {
    let mut loaded = Loaded::of(ino, inode);
    loaded.prepare(tx)?;
    Ok(loaded)
}

/// Writes what [`load_to_change`] gave.
pub fn save(tx: &mut Tx<'_>, loaded: &Loaded) {
    put(tx, loaded.ino, &loaded.inode);
}

impl Store {
    /// The inode by its number, as of one state. `Stale` if there is none.
    pub fn node(&self, ino: InodeId) -> FsResult<Node> {
        // Also waits for a removal under way, which may not have seen that the caller opened the inode.
        self.read(|tx| load(tx, ino)?.map(|loaded| loaded.node()).ok_or(FsError::Stale))
    }
}

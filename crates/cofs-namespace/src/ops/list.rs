//! Listing a directory.

use std::{collections::HashMap, ops::ControlFlow};

use bytes::Bytes;
use cofs_types::{FileKind, FsError, FsResult, InodeId, NameBuf, Timestamp, limits};

use crate::{
    ListedEntry, Namespace, Node,
    schema::{EntryRecord, Inode, Key, key, ranges},
    tables::inodes,
};

/// An entry, read ahead.
struct Read {
    name: NameBuf,
    ino: InodeId,
    kind: FileKind,
    cookie: u64,
}

impl Namespace {
    /// Visits the entries behind `cookie` (0: from the start), without `.` and `..`, until `visit` says that
    /// one did not fit. An entry's cookie is above 2, below 2^63, its own as long as it stands; they ascend. An
    /// entry that stands all the while is visited once, whatever comes and goes meanwhile. `with_nodes`: with
    /// each entry its inode; entries whose inode has just gone are left out. Nothing is locked while `visit`
    /// runs. Errors: `NotDirectory`, `Stale`.
    pub fn list(
        &self,
        ino: InodeId,
        cookie: u64,
        with_nodes: bool,
        visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let kind = self.store.read(|tx| Ok(inodes::expect(tx, ino)?.kind))?;
        if kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        let mut cookie = cookie;
        let mut max = limits::LIST_BATCH_MIN;
        loop {
            let batch = self.read_entries(ino, cookie.saturating_add(1), max)?;
            let nodes = if with_nodes { self.nodes(&batch)? } else { Vec::new() };
            for (at, entry) in batch.iter().enumerate() {
                let node = nodes.get(at).copied().flatten();
                if with_nodes && node.is_none() {
                    continue;
                }
                let Read { name, ino, kind, cookie } = entry;
                if !visit(&ListedEntry { name, ino: *ino, kind: *kind, cookie: *cookie, node }) {
                    return Ok(());
                }
            }
            match batch.last() {
                Some(last) if batch.len() == max => cookie = last.cookie,
                _ => return Ok(()),
            }
            max = (max * 2).min(limits::LIST_BATCH_MAX);
        }
    }

    fn read_entries(&self, dir: InodeId, slot: u64, max: usize) -> FsResult<Vec<Read>> {
        let mut batch = Vec::with_capacity(max);
        self.store.scan(&ranges::entries(dir, slot), &mut |key, value| {
            let Key::Entry { slot: cookie, .. } = Key::parse(key)? else {
                return Err(FsError::corrupt("a key outside of its range"));
            };
            if let Some(occupant) = EntryRecord::decode(value)?.occupant {
                let name = occupant.name.to_owned();
                batch.push(Read { name, ino: occupant.ino, kind: occupant.kind, cookie });
            }
            Ok(if batch.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(batch)
    }

    /// The inodes of the entries, in their order. Directories are read one by one, as their attributes come
    /// from several records; the rest, in the order of their numbers, which lie together.
    fn nodes(&self, batch: &[Read]) -> FsResult<Vec<Option<Node>>> {
        let mut files: Vec<([u8; 11], InodeId)> = batch
            .iter()
            .filter(|entry| entry.kind != FileKind::Directory)
            .map(|entry| (key::inode(entry.ino), entry.ino))
            .collect();
        files.sort_unstable();
        // Before the records: what a flush takes away from here stands in them then.
        let accesses = self.store.accesses.of(files.iter().map(|(_, ino)| *ino));
        let keys: Vec<&[u8]> = files.iter().map(|(key, _)| &key[..]).collect();
        let values = self.store.multi_get(&keys)?;
        let found: HashMap<InodeId, Bytes> =
            files.iter().zip(values).filter_map(|((_, ino), value)| Some((*ino, value?))).collect();
        batch.iter().map(|entry| self.entry_node(entry, &found, &accesses)).collect()
    }

    fn entry_node(
        &self,
        entry: &Read,
        files: &HashMap<InodeId, Bytes>,
        accesses: &HashMap<InodeId, Timestamp>,
    ) -> FsResult<Option<Node>> {
        if entry.kind != FileKind::Directory {
            let Some(value) = files.get(&entry.ino) else { return Ok(None) };
            let mut inode = Inode::decode(value)?;
            inode.atime = accesses.get(&entry.ino).copied().unwrap_or(inode.atime);
            return Ok(Some(inodes::node(entry.ino, &inode, 0)));
        }
        match self.store.node(entry.ino) {
            Ok(node) => Ok(Some(node)),
            Err(FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

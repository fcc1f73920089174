//! Listing a directory.

use std::ops::ControlFlow;

use cofs_types::{FileKind, FsError, FsResult, InodeId, NameBuf, limits};

use crate::{
    ListedEntry, Namespace, Node, WithNodes,
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
    /// one did not fit, or `entries_max` have been visited; no more than these are read ahead. An entry's
    /// cookie is above 2, below 2^63, its own as long as it stands; they ascend. An entry that stands all the while is
    /// visited once, whatever comes and goes meanwhile. Entries that are to come with their nodes and whose inode has
    /// just gone are left out. Nothing is locked while `visit` runs. Errors: `NotDirectory`, `Stale`.
    pub fn list(
        &self,
        ino: InodeId,
        cookie: u64,
        with_nodes: WithNodes,
        entries_max: usize,
        visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let kind = self.store.read(|tx| Ok(inodes::expect(tx, ino)?.kind))?;
        if kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        let (mut cookie, mut rest) = (cookie, entries_max);
        while rest > 0 {
            let max = rest.min(limits::LIST_BATCH_MAX);
            let batch = self.read_entries(ino, cookie.saturating_add(1), max)?;
            let nodes = self.nodes(&batch, with_nodes)?;
            for (entry, node) in batch.iter().zip(nodes) {
                if node.is_none() && with_nodes.of(entry.kind) {
                    continue;
                }
                rest -= 1;
                let Read { name, ino, kind, cookie } = entry;
                if !visit(&ListedEntry { name, ino: *ino, kind: *kind, cookie: *cookie, node }) {
                    return Ok(());
                }
            }
            match batch.last() {
                Some(last) if batch.len() == max => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
        Ok(())
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

    /// The inodes of the entries that are to come with them, in the order of the entries. Directories are read one by
    /// one, as their attributes come from several records; the rest, in the order of their numbers, which lie together.
    fn nodes(&self, batch: &[Read], with_nodes: WithNodes) -> FsResult<Vec<Option<Node>>> {
        let mut nodes = vec![None; batch.len()];
        if with_nodes != WithNodes::None {
            for (node, entry) in nodes.iter_mut().zip(batch) {
                if entry.kind == FileKind::Directory {
                    *node = self.node_if_there(entry.ino)?;
                }
            }
        }
        if with_nodes == WithNodes::All {
            self.file_nodes(batch, &mut nodes)?;
        }
        Ok(nodes)
    }

    fn file_nodes(&self, batch: &[Read], nodes: &mut [Option<Node>]) -> FsResult<()> {
        let mut files: Vec<([u8; 11], InodeId, &mut Option<Node>)> = batch
            .iter()
            .zip(nodes)
            .filter(|(entry, _)| entry.kind != FileKind::Directory)
            .map(|(entry, node)| (key::inode(entry.ino), entry.ino, node))
            .collect();
        files.sort_unstable_by_key(|(key, ..)| *key);
        // Before the records: what a flush takes away from here stands in them then.
        let accesses = self.store.accesses.of(files.iter().map(|(_, ino, _)| *ino));
        let keys: Vec<&[u8]> = files.iter().map(|(key, ..)| &key[..]).collect();
        let values = self.store.multi_get(&keys)?;
        for ((_, ino, node), value) in files.iter_mut().zip(values) {
            let Some(value) = value else { continue };
            let mut inode = Inode::decode(&value)?;
            inode.atime = accesses.get(ino).copied().unwrap_or(inode.atime);
            **node = Some(inodes::node(*ino, &inode, 0));
        }
        Ok(())
    }

    fn node_if_there(&self, ino: InodeId) -> FsResult<Option<Node>> {
        match self.store.node(ino) {
            Ok(node) => Ok(Some(node)),
            Err(FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

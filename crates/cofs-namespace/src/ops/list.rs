//! Listing a directory.

use std::ops::ControlFlow;

use cofs_types::{FileKind, FsError, FsResult, InodeId, NameBuf, limits};

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
        let mut nodes = vec![None; batch.len()];
        let mut files: Vec<(usize, [u8; 11])> = Vec::with_capacity(batch.len());
        for (at, entry) in batch.iter().enumerate() {
            if entry.kind != FileKind::Directory {
                files.push((at, key::inode(entry.ino)));
                continue;
            }
            nodes[at] = match self.store.node(entry.ino) {
                Ok(node) => Some(node),
                Err(FsError::Stale) => None,
                Err(error) => return Err(error),
            };
        }
        files.sort_unstable_by_key(|(_, key)| *key);
        let keys: Vec<&[u8]> = files.iter().map(|(_, key)| &key[..]).collect();
        for ((at, _), value) in files.iter().zip(self.store.multi_get(&keys)?) {
            let inode = value.map(|value| Inode::decode(&value)).transpose()?;
            nodes[*at] = inode.map(|inode| inodes::node(batch[*at].ino, &inode, 0));
        }
        Ok(nodes)
    }
}

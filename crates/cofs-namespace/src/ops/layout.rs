//! Where a file's bytes are: between inline data and an object, and the set of files open for writing.

use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, ObjectId, Timestamp, limits};

use super::{inline::inline_file, setattr::content_changed};
use crate::{
    Leave, Namespace, Node, Settled, Unsynced,
    schema::{Inode, key},
    tables::{inline, inodes, sets},
    tx::{Tx, verb},
};

/// A regular file whose bytes are in an object. `InvalidArgument` if they are not, or no longer.
fn object_file(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<(Inode, ObjectId)> {
    let inode = inodes::expect(tx, ino)?;
    match (inode.kind, inode.layout) {
        (FileKind::Regular, Layout::Object(object)) => Ok((inode, object)),
        _ => Err(FsError::InvalidArgument("not in an object")),
    }
}

impl Namespace {
    /// The file's bytes, which the caller has put into `object` under the inode's write lock, are there from now
    /// on; the inline ones go, and the file stands in `W`. No time stamp changes. Errors: `InvalidArgument` if
    /// the file is not inline, `Stale`.
    pub fn outgrow(&self, _now: Timestamp, ino: InodeId, object: ObjectId) -> FsResult<Node> {
        self.commit(&verb!("outgrow"), |tx| {
            let mut inode = inline_file(tx, ino)?;
            inline::cut(tx, ino, 0, inode.size_bytes)?;
            inode.layout = Layout::Object(object);
            inode.blocks_512 = inode.size_bytes.div_ceil(512);
            sets::enter_writing(tx, ino, &mut inode);
            inodes::put(tx, ino, &inode);
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// The file has ended small: its bytes, `data`, are inline from now on, its object goes to the reclaim list,
    /// and it leaves `W`. `times`: mtime and ctime as the object has them. Errors: `FileTooLarge`,
    /// `InvalidArgument` if the file is not in an object, `Stale`.
    pub fn inlay(
        &self,
        _now: Timestamp,
        ino: InodeId,
        data: &[u8],
        times: Option<(Timestamp, Timestamp)>,
    ) -> FsResult<Node> {
        if data.len() as u64 > u64::from(self.options.inline_bytes_max) {
            return Err(FsError::FileTooLarge);
        }
        self.commit(&verb!("inlay", grows), |tx| {
            let (mut inode, object) = object_file(tx, ino)?;
            tx.change_covered(sets::reclaim(object));
            inline::write(tx, ino, 0, data, 0)?;
            (inode.layout, inode.size_bytes, inode.blocks_512) = (Layout::Inline, data.len() as u64, 0);
            if let Some((mtime, ctime)) = times {
                (inode.mtime, inode.ctime) = (mtime, ctime);
            }
            sets::leave_writing(tx, ino, &mut inode, Leave::Synced)?;
            inodes::put(tx, ino, &inode);
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// The file, in an object, is about to be written: it stands in `W`, so that a crash finds it. Nothing is
    /// committed if it does already. Errors: `InvalidArgument` if it is not in an object, `Stale`.
    pub fn begin_writing(&self, ino: InodeId) -> FsResult<()> {
        self.commit(&verb!("begin_writing"), |tx| {
            let (mut inode, _) = object_file(tx, ino)?;
            if !inode.writing {
                sets::enter_writing(tx, ino, &mut inode);
                inodes::put(tx, ino, &inode);
            }
            Ok(())
        })
    }

    /// Takes over size, blocks and times from the file's object. Nothing is committed if
    /// nothing differs. Errors: `InvalidArgument` if it is not in an object, `FileTooLarge`, `Stale`.
    pub fn settle(&self, ino: InodeId, settled: &Settled, leave: Leave) -> FsResult<Node> {
        if settled.size_bytes > limits::FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        self.commit(&verb!("settle"), |tx| {
            let (before, _) = object_file(tx, ino)?;
            let mut inode = before.clone();
            (inode.size_bytes, inode.blocks_512) = (settled.size_bytes, settled.blocks_512);
            inode.atime = settled.atime.unwrap_or(inode.atime);
            inode.mtime = settled.mtime.unwrap_or(inode.mtime);
            inode.ctime = settled.ctime.unwrap_or(inode.ctime);
            if settled.kill_set_id || settled.drop_capability {
                content_changed(tx, ino, &mut inode, settled.kill_set_id)?;
            }
            sets::leave_writing(tx, ino, &mut inode, leave)?;
            if inode != before {
                inodes::put(tx, ino, &inode);
            }
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// What the objects of these have is on stable storage: their marks go, where they are still those. Files that were written since
    /// have others.
    pub fn synced(&self, closed: &[(InodeId, Unsynced)]) -> FsResult<()> {
        closed.iter().try_for_each(|&(ino, unsynced)| {
            self.commit(&verb!("synced"), |tx| {
                // For its stripe, which stands for that of the mark.
                inodes::bare(tx, ino)?;
                if sets::marked_closed(tx, ino)? == Some(unsynced) {
                    tx.writes_inode(ino);
                    tx.delete_covered(&key::writing(ino));
                }
                Ok(())
            })
        })
    }
}

//! Reading and writing inline files. A write is acknowledged when its commit is.

use cofs_types::{FileKind, FsError, FsResult, InodeId, Kills, Layout, Timestamp};

use super::setattr::content_changed;
use crate::{
    Namespace, Node,
    schema::Inode,
    tables::{inline, inodes},
    tx::{Tx, verb},
};

/// A regular file whose bytes are inline. `InvalidArgument` if it is not, or no longer.
pub fn inline_file(tx: &mut Tx<'_>, ino: InodeId) -> FsResult<Inode> {
    let inode = inodes::expect(tx, ino)?;
    match (inode.kind, inode.layout) {
        (FileKind::Regular, Layout::Inline) => Ok(inode),
        _ => Err(FsError::InvalidArgument("not inline")),
    }
}

impl Namespace {
    /// Fills `into` from `offset`; returns how many bytes, fewer only at the end of the file, and the inode as it was then. Errors:
    /// `InvalidArgument` if the file's bytes are not, or no longer, inline; `Stale`.
    pub fn inline_read(&self, ino: InodeId, offset: u64, into: &mut [u8]) -> FsResult<(usize, Node)> {
        self.store.read(|tx| {
            let inode = inline_file(tx, ino)?;
            let left = inode.size_bytes.saturating_sub(offset);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
            if let Some(into) = into.get_mut(..len) {
                inline::read(tx, ino, offset, into)?;
            }
            Ok((len, inodes::node(ino, &inode, 0)))
        })
    }

    /// Writes all of `data` at `offset`: one commit. Errors: `FileTooLarge` if it ends beyond the volume's inline
    /// maximum (the caller must [`outgrow`](Self::outgrow) first), `InvalidArgument` if the file is not, or no
    /// longer, inline; `Stale`.
    pub fn inline_write(
        &self,
        now: Timestamp,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        kills: Kills,
    ) -> FsResult<Node> {
        self.commit(&verb!("inline_write", grows), |tx| {
            let mut inode = inline_file(tx, ino)?;
            if !data.is_empty() {
                let end = self.inline_end(offset, data.len() as u64)?;
                inline::write(tx, ino, offset, data, inode.size_bytes)?;
                inode.size_bytes = inode.size_bytes.max(end);
                (inode.mtime, inode.ctime) = (now, now);
                if kills != Kills::Nothing {
                    content_changed(tx, ino, &mut inode, kills == Kills::SetIdToo)?;
                }
                inodes::put(tx, ino, &inode);
            }
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// Lets `len` bytes from `offset` read as zeros, as far as the file goes, and extends it to `new_size` if that
    /// is more than it has (fallocate(2)). Errors: as [`inline_write`](Self::inline_write).
    pub fn inline_zero(
        &self,
        now: Timestamp,
        ino: InodeId,
        offset: u64,
        len: u64,
        new_size: Option<u64>,
    ) -> FsResult<Node> {
        self.commit(&verb!("inline_zero", grows), |tx| {
            let mut inode = inline_file(tx, ino)?;
            let end = offset.saturating_add(len).min(inode.size_bytes);
            inline::zero(tx, ino, offset.min(end)..end)?;
            if let Some(size_bytes) = new_size {
                inode.size_bytes = inode.size_bytes.max(self.inline_end(size_bytes, 0)?);
            }
            (inode.mtime, inode.ctime) = (now, now);
            content_changed(tx, ino, &mut inode, false)?;
            inodes::put(tx, ino, &inode);
            Ok(inodes::node(ino, &inode, 0))
        })
    }

    /// `offset + len`, if a file that ends there may be inline.
    fn inline_end(&self, offset: u64, len: u64) -> FsResult<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= u64::from(self.options.inline_bytes_max));
        end.ok_or(FsError::FileTooLarge)
    }
}

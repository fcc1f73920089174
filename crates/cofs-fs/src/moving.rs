//! Files that move: from the metadata into an object when they outgrow it, and back when they ended small.

use std::{os::fd::AsFd, sync::Arc};

use cofs_metadata::{MetadataDriver, Node};
use cofs_placement::{ObjectFile, ObjectStat, Taken};
use cofs_types::{Attributes, FsError, FsResult, InodeId, Layout, OpenFlags, Timestamp, failpoint};

use crate::{
    Cofs,
    descriptors::Descriptor,
    open_inode::{OpenInode, State, Writing},
    open_object::OpenObject,
};

impl<M: MetadataDriver> Cofs<M> {
    /// Moves an inline file into an object, with `fill`'s change of its bytes made to the object before anyone can see it.
    /// If anything fails the file is inline as before, and the object given back.
    ///
    /// The caller holds the inode's lock exclusively, on a thread that may wait.
    pub(crate) async fn outgrow(
        &self,
        ino: InodeId,
        state: &mut State,
        fill: impl FnOnce(&ObjectFile) -> FsResult<()> + Send,
    ) -> FsResult<Node> {
        let record = self.metadata.node(ino).await?.value.attributes;
        let size = usize::try_from(record.size_bytes).map_err(|_| FsError::FileTooLarge)?;
        if record.size_bytes > self.inline_max {
            return Err(FsError::corrupt(format!(
                "inode {ino}: {size} bytes inline, above the volume's maximum"
            )));
        }
        let mut bytes = vec![0; size];
        let (count, _) = self.metadata.inline_read(ino, 0, &mut bytes).await?.value;
        bytes.truncate(count);
        let must_sync = count > 0 && self.may_be_durable(state);
        // Whoever asks for its size next must be able to learn it.
        let filled =
            |file: &ObjectFile| fill_object(file, &bytes, must_sync, fill).and_then(|()| file.stat());
        let descriptor = self.descriptor()?;
        let (taken, _) = self.placement.take_prepared(ino, filled)?;
        self.commit_outgrow(ino, (taken, descriptor), None, state).await
    }

    /// Whether one who may map a file now joins others who only write it, past the page cache. (A mapping of theirs would keep the kernel from passthrough.)
    pub(crate) fn is_to_be_shared(&self, state: &State, flags: &OpenFlags) -> bool {
        state.opens > 0 && state.direct && !state.read && flags.access.reads() && self.has_passthrough()
    }

    /// Has both meet in the object: the writes that go past the page cache and what a mapping changes in the same page are not kept together by the
    /// kernel, and are by passthrough. Where that cannot be had the file stays as it is.
    ///
    /// The caller is on a thread that may wait.
    pub(crate) async fn share_by_object(&self, inode: &OpenInode, state: &mut State) {
        let shared = async {
            if state.layout == Layout::Inline {
                self.outgrow(inode.ino, state, |_| Ok(())).await?;
            }
            let record = self.metadata.node(inode.ino).await?.value.attributes;
            self.choose_path(state, &record)
        };
        if let Err(error) = shared.await {
            tracing::debug!(%error, ino = %inode.ino, "a file that is written past the page cache stays so for who may map it");
        }
        state.direct = !state.passthrough;
    }

    /// Moves an empty newborn, whose record this is, into an object, as [`outgrow`](Self::outgrow) does. `false` if that cannot be done soon:
    /// where a pool may hang for long, the object is taken by somebody else, who is not waited for then.
    pub(crate) async fn begin_in_object(&self, record: &Attributes, state: &mut State) -> FsResult<bool> {
        let Attributes { ino, mtime, .. } = *record;
        let descriptor = self.descriptor()?;
        let filled = move |file: &ObjectFile| age_object(file, mtime);
        let taken = if self.options.remote_below {
            self.placement.take_in_time(ino, filled)?
        } else if self.placement.answers() {
            Some(self.placement.take_prepared(ino, filled)?)
        } else {
            None
        };
        let Some((taken, stat)) = taken else { return Ok(false) };
        self.commit_outgrow(ino, (taken, descriptor), Some(stat), state).await?;
        Ok(true)
    }

    /// `before`: the object, if its data is what the record tells of.
    async fn commit_outgrow(
        &self,
        ino: InodeId,
        (taken, descriptor): (Taken, Descriptor),
        before: Option<ObjectStat>,
        state: &mut State,
    ) -> FsResult<Node> {
        if let Err(error) = self.note_number(taken.id).await {
            self.placement.give_back(taken);
            return Err(error);
        }
        let node = match self.metadata.outgrow(ino, taken.id).await {
            Ok(answer) => answer.value,
            // It may be the file's by now: left for fsck, never reused.
            Err(error @ FsError::Unknown(_)) => return Err(error),
            Err(error) => {
                self.placement.give_back(taken);
                return Err(error);
            }
        };
        failpoint("fs.outgrow.committed");
        state.layout = Layout::Object(taken.id);
        state.object = Some(Arc::new(OpenObject::new(taken.file, descriptor)));
        state.writing = Some(Writing { before });
        state.wrote = true;
        Ok(node)
    }

    /// Whether the inline bytes may be on stable storage already: then they must be in the object too, before
    /// the metadata says that they are.
    fn may_be_durable(&self, state: &State) -> bool {
        state.born.is_none_or(|born| born.syncs != self.metadata.syncs_started())
    }

    /// At the last close: moves a small file from its object into the metadata. `false` if it stays.
    pub(crate) async fn inlay(&self, inode: &OpenInode, state: &mut State) -> FsResult<bool> {
        let object = Arc::clone(state.object()?);
        if state.preallocated || inode.poisoned() {
            return Ok(false);
        }
        let record = self.metadata.node(inode.ino).await?.value.attributes;
        let merged = self.merge(state, &record)?;
        let now = merged.attributes;
        if now.size_bytes > self.inline_max {
            return Ok(false);
        }
        if let Some(kernel) = self.passthrough()
            && (kernel.is_open_elsewhere(object.file.as_fd()) || !self.stale_pages.note(inode.ino))
        {
            // A mapping of the object outlives the close, and what is written through it would be lost.
            return Ok(false);
        }
        // What the move does not carry comes first.
        if merged.atime_changed {
            self.metadata.touch_atime(inode.ino, now.atime).await?;
        }
        let mut bytes = vec![0; usize::try_from(now.size_bytes).unwrap_or(0)];
        let count = object.file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        failpoint("fs.inlay.read");
        self.metadata.inlay(inode.ino, &bytes, Some((now.mtime, now.ctime))).await?;
        failpoint("fs.inlay.committed");
        state.layout = Layout::Inline;
        state.object = None;
        state.writing = None;
        self.collector.wake();
        Ok(true)
    }
}

/// Gives the object the age of its file.
fn age_object(file: &ObjectFile, mtime: Timestamp) -> FsResult<ObjectStat> {
    failpoint("fs.outgrow.taken");
    file.set_times(None, Some(mtime))?;
    file.stat()
}

fn fill_object(
    file: &ObjectFile,
    bytes: &[u8],
    must_sync: bool,
    fill: impl FnOnce(&ObjectFile) -> FsResult<()>,
) -> FsResult<()> {
    failpoint("fs.outgrow.taken");
    if !bytes.is_empty() {
        file.write_all_at(bytes, 0)?;
    }
    fill(file)?;
    failpoint("fs.outgrow.copied");
    if must_sync {
        file.sync(true)?;
        failpoint("fs.outgrow.synced");
    }
    Ok(())
}

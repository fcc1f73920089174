//! From an inode's first open to its last close.
//!
//! Every open, and every operation that changes bytes without one (truncate(2) of a path), is a session:
//! claim the inode, join those who have it, leave, give the claim back. The first to join chooses the data path
//! and opens the object; the last to leave settles.

use std::sync::Arc;

use cofs_metadata::{MetadataDriver, Node};
use cofs_placement::ObjectFile;
use cofs_types::{Attributes, FsError, FsResult, InodeId, Layout, ObjectId, Timestamp, failpoint};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, blocking,
    cofs::check_regular,
    learned::Ending,
    open_inode::{Born, OpenInode, State, Writing},
    open_object::OpenObject,
    open_table::Unclaimed,
    recovery,
};

pub(crate) const SET_ID_BITS: u16 = 0o6000;

impl<M: MetadataDriver> Cofs<M> {
    /// Gives back a claim on the [table](crate::OpenTable); the last one of an unlinked inode releases it.
    pub(crate) async fn unclaim(&self, ino: InodeId) -> FsResult<()> {
        if self.opens.unclaim(ino) == Unclaimed::LastOfUnlinked {
            self.release_unlinked(ino).await?;
        }
        Ok(())
    }

    /// The last close of an inode without a name.
    pub(crate) async fn release_unlinked(&self, ino: InodeId) -> FsResult<()> {
        self.close_idle(ino);
        // What was set since the unlink; where the object told more, the last to leave has noted that.
        if self.ghosts.get(ino).is_some()
            && let Ok(node) = here_or_waiting!(self.metadata.node(ino))
            && !node.value.writing
        {
            self.ghosts.change(&node.value.attributes);
        }
        while !here_or_waiting!(self.metadata.release_unlinked(ino))?.value {
            // Somebody has opened it again, without the mark, and may have closed it meanwhile.
            if self.opens.mark_unlinked(ino) {
                return Ok(());
            }
        }
        failpoint("fs.release.unlinked");
        self.collector.wake();
        Ok(())
    }

    /// As [`close_idle`](Self::close_idle), for a file that has just been removed: nobody waits.
    pub(crate) fn close_idle_later(&self, ino: InodeId) {
        if let Some(object) = self.idle.take_any(ino)
            && self.options.remote_below
        {
            self.collector.close_later(object);
        }
    }

    /// Closes the object that is kept for a file nobody has open.
    pub(crate) fn close_idle(&self, ino: InodeId) {
        drop(self.idle.take_any(ino));
    }

    /// Joins the opens of an inode, whose lock the caller holds. Errors: `Stale` if it is gone.
    pub(crate) async fn join(&self, inode: &OpenInode, state: &mut State, writer: bool) -> FsResult<Node> {
        let node = self.metadata.node(inode.ino).await?.value;
        check_regular(&node)?;
        if node.attributes.nlink == 0 {
            // By its handle, after a crash: nobody else knows.
            self.opens.mark_unlinked(inode.ino);
        }
        let joined = self.join_node(inode.ino, state, &node, writer).await;
        if joined.is_err() && state.opens == 0 {
            self.park(inode, state);
        }
        joined.map(|()| node)
    }

    async fn join_node(&self, ino: InodeId, state: &mut State, node: &Node, writer: bool) -> FsResult<()> {
        if state.opens == 0 {
            self.load(ino, state, node)?;
        } else if state.is_outlived()
            && let Layout::Object(id) = state.layout
        {
            state.object = Some(self.open_object(ino, id)?);
        }
        if writer && state.layout != Layout::Inline {
            if !state.object()?.file.writable() {
                return Err(FsError::ReadOnly);
            }
            if state.passthrough {
                // The kernel may write from now on, and will not ask.
                self.enter_writing(ino, state, &node.attributes).await?;
            }
        }
        state.writers += u32::from(writer);
        state.opens += 1;
        Ok(())
    }

    /// The first open: what the node says, its object opened, and the data path chosen.
    fn load(&self, ino: InodeId, state: &mut State, node: &Node) -> FsResult<()> {
        *state = State {
            layout: node.layout,
            set_id: node.attributes.permissions & SET_ID_BITS != 0,
            // Left by a close that could not be settled: its data counts as changed.
            writing: node.writing.then_some(Writing { before: None }),
            wrote: node.writing,
            ..State::default()
        };
        if let Layout::Object(id) = node.layout {
            state.object = Some(self.open_object(ino, id)?);
            self.choose_path(state, &node.attributes)?;
        }
        Ok(())
    }

    /// Passthrough, if the kernel takes the object.
    pub(crate) fn choose_path(&self, state: &mut State, record: &Attributes) -> FsResult<()> {
        let object = Arc::clone(state.object()?);
        let pool = object.file.id().pool();
        let Some(kernel) = self.passthrough_of(pool) else { return Ok(()) };
        match object.register(kernel) {
            Ok(_) => {
                state.atime_before = Some(self.access_time_below(&object.file, record)?);
                state.passthrough = true;
            }
            Err(error) => {
                tracing::warn!(%error, pool = pool.0, "no passthrough for this pool: its data goes through the daemon");
                self.refuse_passthrough(pool);
            }
        }
        Ok(())
    }

    /// The access time from which the file system below goes on when the kernel reads there. What is due by the
    /// record must be due there too: the object may have been read since the record's time was set.
    fn access_time_below(&self, file: &ObjectFile, record: &Attributes) -> FsResult<Timestamp> {
        let stat = file.stat()?;
        let now = self.metadata.now();
        let due_below = stat.atime.relatime_due(stat.mtime, stat.ctime, now);
        if due_below || self.options.read_only || !self.options.atime.due(record, now) || !file.writable() {
            return Ok(stat.atime);
        }
        file.set_times(Some(record.atime), None)?;
        Ok(file.stat()?.atime)
    }

    fn open_object(&self, ino: InodeId, id: ObjectId) -> FsResult<Arc<OpenObject>> {
        if let Some(open) = self.idle.take(ino, id) {
            return Ok(open);
        }
        let descriptor = self.descriptor()?;
        // For writing too, so that one descriptor serves all opens.
        let file = match self.open_below(id, true) {
            Err(FsError::ReadOnly | FsError::PermissionDenied | FsError::NotPermitted) => {
                self.open_below(id, false)
            }
            other => other,
        };
        let file = file.map_err(|error| match recovery::is_missing(&error) {
            // Not "no such file": the file is there, its bytes are not.
            true => FsError::corrupt(format!("inode {ino}: its object {id} is missing")),
            false => error,
        })?;
        Ok(Arc::new(OpenObject::new(file, descriptor)))
    }

    fn open_below(&self, id: ObjectId, write: bool) -> FsResult<Arc<ObjectFile>> {
        match self.placement.open_object(id, write) {
            Err(error) if out_of_descriptors(&error) && self.idle.len() > 0 => {
                self.idle.clear();
                self.placement.open_object(id, write)
            }
            other => other,
        }
    }

    /// Leaves. The last writer's leave settles size and times; the last leave moves a small file inline, or
    /// keeps its object at hand. The inode is left in order even if that fails: what could not be settled
    /// stays in the open-for-writing set, and the next open or start settles it.
    pub(crate) async fn leave(&self, inode: &OpenInode, state: &mut State, writer: bool) -> FsResult<()> {
        state.writers = state.writers.saturating_sub(u32::from(writer));
        state.opens = state.opens.saturating_sub(1);
        let last = state.opens == 0;
        let unlinked = last && self.opens.is_unlinked(inode.ino);
        let settled = match unlinked {
            true => self.leave_unlinked(inode.ino, state).await,
            false => self.settle_leaving(inode, state, writer).await,
        };
        if last {
            self.learn(state).await;
            inode.is_unmapped();
            self.park(inode, state);
        }
        settled
    }

    /// Settles a file that stands in the open-for-writing set though nobody has it open: its last close could not, or took it for one that has no name. A no-op for
    /// one that somebody has open, who will. What cannot be settled yet is later.
    pub(crate) async fn settle_left(&self, ino: InodeId) {
        blocking().await;
        let settled = async {
            let inode = self.opens.claim(ino)?;
            let settled = self.settle_left_claimed(&inode).await;
            self.unclaim(ino).await.and(settled)
        };
        if let Err(error) = settled.await {
            tracing::debug!(%error, %ino, "its object does not tell its size yet");
        }
    }

    async fn settle_left_claimed(&self, inode: &OpenInode) -> FsResult<()> {
        let mut state = inode.exclusive().await;
        if state.opens > 0 {
            return Ok(());
        }
        self.join(inode, &mut state, true).await?;
        self.leave(inode, &mut state, true).await
    }

    /// Nobody opens it again, unless it is held: then its size and times go the way of all. Else no commit is due, and
    /// those that the object tells are for who has it in another way (`O_PATH`).
    async fn leave_unlinked(&self, ino: InodeId, state: &mut State) -> FsResult<()> {
        let inherited = self.inherited.has(ino);
        if state.writing.is_some() && (inherited || self.lingering.has(ino)) {
            return self.settle(ino, state, !inherited).await;
        }
        if state.object_tells()
            && self.ghosts.get(ino).is_some()
            && let Ok(record) = self.metadata.node(ino).await
            && let Ok(merged) = self.merge(state, &record.value.attributes)
        {
            self.ghosts.change(&merged.attributes);
        }
        Ok(())
    }

    async fn settle_leaving(&self, inode: &OpenInode, state: &mut State, writer: bool) -> FsResult<()> {
        if state.writers > 0 || state.object.is_none() {
            return Ok(());
        }
        let stranger = self.has_stranger(inode.ino, state) || self.may_stay_mapped(inode.ino, state);
        // A writer that wrote nothing may find a small file that a crash has left in its object.
        if !stranger && state.opens == 0 && (state.wrote || writer) && self.inlay(inode, state).await? {
            return Ok(());
        }
        if state.writing.is_some() {
            // Who has it open since an earlier life counts as no writer, and may be one: his bytes may be on their way to the object.
            let leave = !stranger && (state.opens == 0 || !self.inherited.has(inode.ino));
            return self.settle(inode.ino, state, leave).await;
        }
        if state.opens == 0 {
            return self.record_access(inode.ino, state).await;
        }
        Ok(())
    }

    /// Whether a file that is created in `directory` now should start in an object, by what was learned there.
    pub(crate) async fn starts_large(&self, directory: InodeId) -> bool {
        if let Some(known) = self.learned.starts_large(directory) {
            return known;
        }
        match here_or_waiting!(self.metadata.parent(directory)) {
            Ok(parent) => self.learned.inherit(directory, parent.value.attributes.ino),
            Err(_) => false,
        }
    }

    /// Remembers how a file that was born in these opens has ended. A guess is made from it, so what cannot be learned is
    /// not missed.
    async fn learn(&self, state: &State) {
        let Some(Born { directory: Some(directory), guessed_large, .. }) = state.born else { return };
        let stat = state.object.as_ref().filter(|_| state.layout != Layout::Inline).map(|o| o.file.stat());
        let ending = match stat {
            None => Ending::Small,
            Some(Ok(stat)) => Ending::of_object(stat.size_bytes, self.inline_max),
            Some(Err(_)) => return,
        };
        let mut parent = None;
        if ending != Ending::Small && self.learned.wants_parent(directory) {
            parent = self.metadata.parent(directory).await.ok().map(|node| node.value.attributes.ino);
        }
        self.learned.ended(directory, ending, guessed_large, parent);
    }

    /// Nobody has it open any more: the object goes to those kept at hand.
    fn park(&self, inode: &OpenInode, state: &mut State) {
        let state = std::mem::take(state);
        if let Some(object) = state.object
            && !inode.poisoned()
            // One that could not be opened for writing serves readers only: the next open may do better.
            && (object.file.writable() || self.options.read_only)
            && !self.opens.is_unlinked(inode.ino)
        {
            self.idle.put(inode.ino, object);
        }
    }
}

fn out_of_descriptors(error: &FsError) -> bool {
    use rustix::io::Errno;
    match error {
        FsError::TooManyOpenFiles => true,
        FsError::Backing { source, .. } => source.raw_os_error().is_some_and(|errno| {
            errno == Errno::MFILE.raw_os_error() || errno == Errno::NFILE.raw_os_error()
        }),
        _ => false,
    }
}

//! A new regular file, open.

use cofs_metadata::{Answer, MetadataDriver, Node};
use cofs_types::{Attributes, FsError, FsResult, InodeId, Layout, Name, NewInode, OpenFlags, failpoint};
use cofs_wait::here_or_waiting;

use crate::{
    Cofs, Context, DataPath, Entry, Opened, blocking,
    handle::Handle,
    open_inode::{Born, Mapped, OpenInode, State},
};

impl<M: MetadataDriver> Cofs<M> {
    /// `open(O_CREAT)`: one commit, and nothing below, for a file that starts inline.
    pub(crate) async fn do_create(
        &self,
        ctx: &Context<'_>,
        parent: InodeId,
        name: &Name,
        new: &NewInode<'_>,
        flags: &OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.check_writable()?;
        let syncs = self.metadata.syncs_started();
        let answer = match here_or_waiting!(self.metadata.create(&ctx.credentials, parent, name, new)) {
            Err(FsError::Exists) if !flags.exclusive => {
                return self.open_existing(ctx, parent, name, flags).await;
            }
            other => other?,
        };
        failpoint("fs.create.committed");
        let guessed_large = self.starts_large(parent).await;
        let born = Born { directory: Some(parent), syncs, guessed_large };
        let opened = self.open_newborn(answer, born, guessed_large || flags.direct, flags).await;
        if opened.is_err() {
            // The name is there, whatever the kernel is told.
            self.recall_entry(parent, name);
        }
        opened
    }

    /// `open(O_TMPFILE)`.
    pub(crate) async fn do_tmpfile(
        &self,
        ctx: &Context<'_>,
        parent: InodeId,
        new: &NewInode<'_>,
        flags: &OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.check_writable()?;
        let syncs = self.metadata.syncs_started();
        let linkable = !flags.exclusive;
        let answer =
            here_or_waiting!(self.metadata.create_unlinked(&ctx.credentials, parent, new, linkable))?;
        failpoint("fs.tmpfile.committed");
        let born = Born { directory: None, syncs, guessed_large: false };
        self.open_newborn(answer, born, flags.direct, flags).await
    }

    async fn open_existing(
        &self,
        ctx: &Context<'_>,
        parent: InodeId,
        name: &Name,
        flags: &OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let ino =
            here_or_waiting!(self.metadata.lookup(&ctx.credentials, parent, name))?.value.attributes.ino;
        let opened = self.do_open(ctx, ino, flags).await?;
        // After the open, which may have truncated it.
        match self.do_lookup_self(ino).await {
            Ok(entry) => Ok((entry, opened)),
            Err(error) => {
                self.do_release(ino, opened.handle).await?;
                Err(error)
            }
        }
    }

    /// Opens a file that has just been created. The kernel's lock on the directory keeps others from it meanwhile;
    /// a face without such a lock joins those who were faster, and gets `Stale` if they have removed it.
    async fn open_newborn(
        &self,
        answer: Answer<Node>,
        born: Born,
        start_large: bool,
        flags: &OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let ino = answer.value.attributes.ino;
        let inode = self.opens.claim(ino)?;
        if answer.value.attributes.nlink == 0 {
            self.opens.mark_unlinked(ino);
        }
        let opened = self.open_newborn_claimed(&inode, born, start_large, flags).await;
        if opened.is_err() {
            self.unclaim(ino).await?;
        }
        let opened = opened?;
        match self.newborn_entry(answer, flags).await {
            Ok(entry) => Ok((entry, opened)),
            Err(error) => {
                self.do_release(ino, opened.handle).await?;
                Err(error)
            }
        }
    }

    async fn newborn_entry(&self, answer: Answer<Node>, flags: &OpenFlags) -> FsResult<Entry> {
        if flags.sync || flags.data_sync {
            self.sync_metadata().await?;
        }
        self.entry_of(answer).await
    }

    async fn open_newborn_claimed(
        &self,
        inode: &OpenInode,
        born: Born,
        start_large: bool,
        flags: &OpenFlags,
    ) -> FsResult<Opened> {
        if start_large {
            blocking().await;
        }
        let mut state = inode.exclusive().await;
        let node = self.join(inode, &mut state, flags.access.writes()).await?;
        inode.set_atime_due(true);
        if state.opens == 1 && state.layout == Layout::Inline && node.attributes.size_bytes == 0 {
            state.born = Some(born);
            if start_large {
                self.start_in_object(&mut state, &node.attributes).await;
            }
            self.choose_direct(inode, &mut state, flags, true);
        }
        state.is_opened(flags);
        Ok(self.opened(inode, &state, &node, flags))
    }

    /// Moves an empty newborn into an object, so that its bytes never pass through the daemon. A file that
    /// cannot have one soon starts inline, and is told when it outgrows that: the kernel holds the directory's lock meanwhile.
    async fn start_in_object(&self, state: &mut State, record: &Attributes) {
        let ino = record.ino;
        match self.begin_in_object(record, state).await {
            Ok(true) => {
                if let Err(error) = self.choose_path(state, record) {
                    tracing::warn!(%error, %ino, "a new object cannot be looked at");
                }
            }
            Ok(false) => tracing::debug!(%ino, "starts inline: no pool answers in time"),
            Err(error) => tracing::debug!(%error, %ino, "starts inline: no object to be had"),
        }
    }

    /// Whether one who has just opened a file that is not passed through, and `is_empty` for certain, goes past the page cache. Who writes does:
    /// - where the kernel may lose what he appends through its pages (Linux 6.17 and later, ADR-0012). Those who only read and were there before keep
    ///   theirs, of which each write has them let go;
    /// - and the first, if the file is empty and he only writes. Its pages would be read by nobody: the next open must see its read (relatime), and drops them.
    ///   Without them each write is one copy less, and the kernel does not ask for the file's capabilities before the first
    ///   ([`Cofs::drop_capabilities`]). Where no read is to be seen (noatime), the pages stay and answer the first one.
    pub(crate) fn choose_direct(
        &self,
        inode: &OpenInode,
        state: &mut State,
        flags: &OpenFlags,
        is_empty: bool,
    ) {
        if !flags.access.writes() || state.direct || state.passthrough || !self.maps_direct() {
            return;
        }
        let only_fills = is_empty && !flags.access.reads();
        if state.opens == 1 {
            state.direct = if only_fills { self.options.atime.sees_reads() } else { self.loses_appended() };
        } else if state.writers == 1 && self.loses_appended() {
            state.direct = true;
            inode.may_be_mapped(Mapped::ForStores);
        }
        if state.direct && !is_empty {
            // It may have had some before.
            inode.set_capable(true);
        }
    }

    /// What the face is told of an open file.
    pub(crate) fn opened(&self, inode: &OpenInode, state: &State, node: &Node, flags: &OpenFlags) -> Opened {
        let mut handle = Handle::new(flags, self.options.life);
        let data_path = match state.object.as_ref().filter(|_| state.passthrough).and_then(|o| o.backing()) {
            Some(backing) => DataPath::Passthrough(backing),
            None => {
                let keep_cache = self.keep_cache(inode, state, node, flags);
                if state.direct {
                    self.opened_direct(inode, state, flags)
                } else {
                    if !keep_cache {
                        handle = handle.in_place(inode.dropping.tell());
                    }
                    DataPath::Cached { keep_cache }
                }
            }
        };
        Opened { handle: handle.id(), data_path, no_flush: true }
    }

    /// Who may read it may map the file, and so bring pages into the cache, of which [reads](Cofs::do_read) tell; a page that is brought just while it is
    /// written would stay as it was. So each write from then on is followed by a recall, and the next open drops the pages. What a mapping changes in them
    /// meanwhile is [merged](crate::page_merge) with the write.
    fn opened_direct(&self, inode: &OpenInode, state: &State, flags: &OpenFlags) -> DataPath {
        if state.opens == 1 {
            inode.is_unmapped();
        } else if inode.perhaps_mapped(Mapped::ForReads) {
            self.stale_pages.note_for_certain(inode.ino);
            if flags.access.reads() && flags.access.writes() {
                inode.may_be_mapped(Mapped::ForStores);
            }
        }
        DataPath::Direct
    }

    /// Whether the kernel keeps its pages of this file: they are good, and a read need not be seen; or another may be writing through them. He
    /// changes a page first, and sends what he wrote then: were the page dropped in between, and brought back by a read, it would stay as it was
    /// before, and hide what was written. (The first of those who have it open has dropped pages that were not good. A read that the pages
    /// answer then does not move the access time.)
    fn keep_cache(&self, inode: &OpenInode, state: &State, node: &Node, flags: &OpenFlags) -> bool {
        let others_write = state.writers > u32::from(flags.access.writes());
        let stale = !others_write
            && (self.stale_pages.take(inode.ino)
                || (state.layout != Layout::Inline && state.opens == 1 && self.has_passthrough()));
        if flags.no_atime {
            return !stale;
        }
        let due = !self.options.read_only && self.options.atime.due(&node.attributes, self.metadata.now());
        inode.set_atime_due(due);
        let must_see_read = due && flags.access.reads() && !others_write;
        !stale && !must_see_read
    }
}

//! Directories listed.

use cofs_metadata::{ListedEntry, MetadataDriver, Node, WithNodes};
use cofs_types::{FileKind, FsError, FsResult, InodeId, Layout, OpenFlags};
use cofs_wait::{here_or_waiting, unless_it_waits, waiting};

use crate::{
    Cofs, Context, DirEntry, DirSink, Entry, HandleId, ListOf, OpenedDirectory, Validity,
    handle::Handle,
    listers::{Bring, Brought},
};

/// Cookies behind `.` and `..`; those of entries are above.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_opendir(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        flags: OpenFlags,
    ) -> FsResult<OpenedDirectory> {
        let handle = Handle::new(&flags, self.options.life).id();
        let node = match here_or_waiting!(self.metadata.node(ino)) {
            // Somebody's current directory, say, that was removed. It has no entries, which the kernel knows without asking.
            Err(FsError::Stale)
                if self.ghosts.get(ino).is_some_and(|ghost| ghost.kind == FileKind::Directory) =>
            {
                return Ok(OpenedDirectory { handle, cache: false, keep_cache: false });
            }
            node => node?.value,
        };
        if node.attributes.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        self.listers.opens(ctx.pid, ino);
        let due = !flags.no_atime && self.access_due(&node);
        Ok(OpenedDirectory { handle, cache: true, keep_cache: !due })
    }

    pub(crate) async fn do_readdir(
        &self,
        ctx: &Context<'_>,
        ino: InodeId,
        handle: HandleId,
        of: ListOf,
        sink: &mut DirSink<'_>,
    ) -> FsResult<()> {
        let ListOf { cookie, with_attributes, entries_max } = of;
        if cookie == 0 && !Handle::from_id(handle).no_atime() {
            self.touch_directory(ino).await;
        }
        if cookie < COOKIE_DOT && !sink(dot(b".", ino, COOKIE_DOT)) {
            return Ok(());
        }
        if cookie < COOKIE_DOT_DOT {
            let parent = here_or_waiting!(self.metadata.parent(ino))?.value.attributes.ino;
            if !sink(dot(b"..", parent, COOKIE_DOT_DOT)) {
                return Ok(());
            }
        }
        // `valid_for` of a listing is told when it ends; a local driver's is unlimited, and a remote one's
        // entries must not be believed longer than the directory is held.
        let valid_for = here_or_waiting!(self.metadata.node(ino))?.valid_for;
        let mut brings = Brings::new(with_attributes.then(|| self.listers.bring(ctx.pid, ino)));
        let with_nodes = brings.with_nodes();
        let mut visit = |listed: &ListedEntry<'_>| {
            let node = listed.node.filter(|_| brings.attributes_of(listed.kind));
            let entry = node.and_then(|node| self.listed_entry(&node, valid_for));
            let name = listed.name.as_bytes();
            let taken =
                sink(DirEntry { ino: listed.ino, kind: listed.kind, name, cookie: listed.cookie, entry });
            brings.count(listed.kind, entry.is_some(), taken);
            taken
        };
        let from = cookie.max(COOKIE_DOT_DOT);
        let (mut last, mut given) = (from, 0);
        let mut visit_counting = |listed: &ListedEntry<'_>| {
            (last, given) = (listed.cookie, given + 1);
            visit(listed)
        };
        let listing = self.metadata.list(ino, from, with_nodes, entries_max, &mut visit_counting);
        match unless_it_waits(listing).await {
            Some(listed) => listed?,
            None => {
                // What was visited is in the answer.
                waiting().await;
                self.metadata.list(ino, last, with_nodes, entries_max - given, &mut visit).await?
            }
        };
        if with_attributes {
            self.listers.brought(ctx.pid, ino, brings.brought);
        }
        Ok(())
    }

    /// An entry with the node that the listing read. A file whose object knows better gets attributes that
    /// are asked for again, and none where they cannot be had without waiting: the record's size may be old, and the kernel would
    /// believe it.
    fn listed_entry(&self, node: &Node, valid_for: std::time::Duration) -> Option<Entry> {
        let told_by_object =
            node.writing || (node.layout != Layout::Inline && self.opens.get(node.attributes.ino).is_some());
        if !told_by_object {
            let validity = Validity { entry: valid_for, attributes: valid_for };
            return Some(Entry { attributes: node.attributes, validity });
        }
        let attributes = self.look_at_open(node)?;
        Some(Entry { attributes, validity: Validity { entry: valid_for, ..Validity::NEVER } })
    }

    /// The present attributes of an open file, if nobody holds its lock and its object need not be asked over a network. None where its
    /// last writer has gone since the node was read: that has the size from before, which the kernel would take for the file's at once, and append there.
    fn look_at_open(&self, node: &Node) -> Option<cofs_types::Attributes> {
        let inode = self.opens.get(node.attributes.ino)?;
        let state = inode.try_shared().filter(|state| state.opens > 0)?;
        if node.writing && state.writing.is_none() {
            return None;
        }
        if state.object_tells() && self.options.remote_below {
            return None;
        }
        self.present(&state, &node.attributes).ok()
    }

    fn access_due(&self, node: &Node) -> bool {
        !self.options.read_only && self.options.atime.due(&node.attributes, self.metadata.now())
    }

    /// Records that a directory, or a symlink, was read. That it cannot be is no reason to fail the reader.
    pub(crate) async fn touch_directory(&self, ino: InodeId) {
        let touched = async {
            let node = here_or_waiting!(self.metadata.node(ino))?.value;
            if self.access_due(&node) {
                self.metadata.touch_atime(ino, self.metadata.now()).await?;
            }
            FsResult::Ok(())
        };
        if let Err(error) = touched.await {
            tracing::debug!(%error, %ino, "access time not recorded");
        }
    }
}

/// What one answer to a listing brings, and has brought.
struct Brings {
    /// `None`: there is no room for attributes.
    plan: Option<Bring>,
    brought: Brought,
}

impl Brings {
    fn new(plan: Option<Bring>) -> Self {
        Self { plan, brought: Brought { ended: true, ..Brought::default() } }
    }

    fn with_nodes(&self) -> WithNodes {
        match self.plan {
            None => WithNodes::None,
            Some(Bring::Names) => WithNodes::Directories,
            Some(Bring::Attributes | Bring::Question) => WithNodes::All,
        }
    }

    fn attributes_of(&self, kind: FileKind) -> bool {
        self.plan != Some(Bring::Question) || self.brought.withheld || kind == FileKind::Directory
    }

    fn count(&mut self, kind: FileKind, with_attributes: bool, taken: bool) {
        self.brought.ended = false; // an end is an answer without entries
        self.brought.given += usize::from(taken && with_attributes);
        self.brought.withheld |= taken && !with_attributes && kind != FileKind::Directory;
    }
}

fn dot(name: &'static [u8], ino: InodeId, cookie: u64) -> DirEntry<'static> {
    DirEntry { ino, kind: FileKind::Directory, name, cookie, entry: None }
}

//! A volume being served: the two drivers, and what is remembered between operations.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cofs_metadata::{Answer, MetadataDriver, Node};
use cofs_placement::Placement;
use cofs_types::{Attributes, FileKind, FsError, FsResult, InodeId, Layout, Name, PoolId, limits};
use cofs_wait::{here_or_waiting, waiting};
use parking_lot::Mutex;

use crate::{
    Entry, FaceAbilities, FsOptions, OpenTable, Passthrough, Recovered, Validity, blocking,
    closed::{Closed, ClosedFiles},
    collector::Collector,
    descriptors::Descriptors,
    ghosts::Ghosts,
    idle::IdleObjects,
    inherited::Inherited,
    learned::LearnedLayouts,
    lingering::Lingering,
    listers::Listers,
    numbering::Numbering,
    pace::Pace,
    recovery,
    recovery::Before,
    stale_pages::StalePages,
    strangers::Strangers,
};

/// What a volume is put together from.
pub struct VolumeParts<M: MetadataDriver> {
    pub metadata: M,
    pub placement: Arc<Placement>,
    /// The table that `metadata` was opened with.
    pub opens: Arc<OpenTable>,
    pub options: FsOptions,
}

/// The file system: answers [`crate::FileSystem`].
pub struct Cofs<M: MetadataDriver> {
    pub(crate) metadata: Arc<M>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) opens: Arc<OpenTable>,
    pub(crate) options: FsOptions,
    pub(crate) inline_max: u64,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) idle: IdleObjects,
    pub(crate) ghosts: Ghosts,
    pub(crate) inherited: Inherited,
    pub(crate) lingering: Lingering,
    pub(crate) listers: Listers,
    pub(crate) numbering: Numbering,
    pub(crate) learned: LearnedLayouts,
    pub(crate) stale_pages: StalePages,
    pub(crate) pace: Pace,
    pub(crate) collector: Collector,
    pub(crate) closed: ClosedFiles,
    pub(crate) strangers: Strangers,
    pub(crate) recovered: Recovered,
    pub(crate) started: Instant,
    /// How the mount stands, in the words of the mount command.
    pub(crate) report: Mutex<String>,
    face: OnceLock<FaceAbilities>,
    /// Pools (one bit each) whose files the kernel did not take for passthrough.
    refused_pools: AtomicU64,
}

impl<M: MetadataDriver> Cofs<M> {
    /// Repairs what a crash left of files that were open, and starts the collector.
    ///
    /// The work is bounded by the number of files that were open. Errors: those of the metadata; an object
    /// that cannot be reached leaves its file as it is, for the next start or `fsck`.
    ///
    /// Read-only, nothing is collected, and what a crash left unlinked waits for a start that may write. The metadata must take
    /// commits all the same: they may stay in memory.
    pub fn open(parts: VolumeParts<M>) -> FsResult<Self> {
        let metadata = Arc::new(parts.metadata);
        let numbering = Numbering::open(metadata.as_ref(), &parts.placement, parts.options.read_only);
        let (closed, strangers) = (Closed::default(), Strangers::default());
        let before =
            Before { closed: &closed, strangers: &strangers, open_elsewhere: parts.options.open_elsewhere };
        let (mut recovered, mut unlinked) = recovery::recover(metadata.as_ref(), &parts.placement, before)?;
        let inherited = Inherited::default();
        if parts.options.life > 0 {
            // Somebody may have them open: the kernel will tell when nobody does.
            inherited.hold_unlinked(&parts.opens, std::mem::take(&mut unlinked))?;
            recovered.released = 0;
        }
        let collector = match parts.options.read_only {
            false => Collector::start(Arc::clone(&metadata), Arc::clone(&parts.placement), unlinked)?,
            true => {
                recovered.released = 0;
                Collector::at_rest()
            }
        };
        let closed = closed.serve(&metadata, &parts.placement, parts.options.read_only)?;
        Ok(Self {
            inline_max: metadata.options().inline_bytes_max.into(),
            metadata,
            placement: parts.placement,
            opens: parts.opens,
            options: parts.options,
            descriptors: Descriptors::new(),
            idle: IdleObjects::new(),
            ghosts: Ghosts::new(),
            inherited,
            lingering: Lingering::default(),
            listers: Listers::new(),
            numbering,
            learned: LearnedLayouts::new(),
            stale_pages: StalePages::default(),
            pace: Pace::new(),
            closed,
            strangers,
            collector,
            recovered,
            started: Instant::now(),
            report: Mutex::default(),
            face: OnceLock::new(),
            refused_pools: AtomicU64::new(0),
        })
    }

    /// Has the pools make objects ahead of need. Not before this: they must know first which numbers the metadata may name.
    pub fn start_filler(&self) {
        if !self.options.read_only {
            self.placement.start_filler();
        }
    }

    /// What was repaired when the volume was opened.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// Whatever programs have changed through mappings of open files is written by the kernel when this returns, for one who is about to cut
    /// them off: before it drops pages the kernel writes them, and waits for that (which for FUSE it does in no syncfs(2) any more).
    pub fn write_out(&self) {
        let Some(recall) = self.face.get().and_then(|face| face.recall.as_ref()) else { return };
        for some in self.opens.all().chunks(limits::FUSE_RECALLS_MAX / 2) {
            some.iter().for_each(|inode| recall.data(inode.ino));
            recall.carried_out(recall.said(), Duration::MAX);
        }
    }

    /// Sets the text that `cofs.status` shows of the mount (transport, options).
    pub fn set_report(&self, report: String) {
        *self.report.lock() = report;
    }

    pub fn metadata(&self) -> &M {
        &self.metadata
    }

    /// Removes what is on the reclaim list, now; returns how many objects went. Errors: `ReadOnly` on a read-only mount.
    pub fn collect(&self) -> FsResult<u64> {
        self.check_writable()?;
        self.collector.collect(self.metadata.as_ref(), &self.placement)
    }

    pub(crate) fn set_face(&self, face: FaceAbilities) {
        // Attached once; a second face would have to agree with the first.
        let _ = self.face.set(face);
    }

    /// Where the kernel may do the I/O of `pool`'s objects by itself.
    pub(crate) fn passthrough_of(&self, pool: PoolId) -> Option<&Arc<dyn Passthrough>> {
        let refused = self.refused_pools.load(Ordering::Relaxed) & pool_bit(pool) != 0;
        self.face.get()?.passthrough.as_ref().filter(|_| !refused)
    }

    /// Who may have read or written objects by itself.
    pub(crate) fn passthrough(&self) -> Option<&Arc<dyn Passthrough>> {
        self.face.get()?.passthrough.as_ref()
    }

    /// Whether the kernel may have read or written objects by itself.
    pub(crate) fn has_passthrough(&self) -> bool {
        self.passthrough().is_some()
    }

    /// Whether the kernel may lose what is appended through its pages.
    pub(crate) fn loses_appended(&self) -> bool {
        self.face.get().is_some_and(|face| face.loses_appended)
    }

    /// Whether a file may be open past the page cache, and mapped all the same.
    pub(crate) fn maps_direct(&self) -> bool {
        self.face.get().is_some_and(|face| face.maps_direct)
    }

    /// Whether a copy that is refused is made by reads and writes.
    pub(crate) fn copies(&self) -> bool {
        self.face.get().is_some_and(|face| face.copies)
    }

    /// The face forgets what it knows of a name, soon.
    pub(crate) fn recall_entry(&self, parent: InodeId, name: &Name) {
        if let Some(recall) = self.face.get().and_then(|face| face.recall.as_ref()) {
            recall.entry(parent, name);
        }
    }

    /// The face forgets what it holds of the file's bytes, soon: when [`is_recalled`](Self::is_recalled) says so of this number.
    pub(crate) fn recall_data(&self, ino: InodeId) -> u64 {
        let Some(recall) = self.face.get().and_then(|face| face.recall.as_ref()) else { return 0 };
        recall.data(ino);
        recall.said()
    }

    /// Whether it has; it is waited for `at_most` so long.
    pub(crate) fn is_recalled(&self, number: u64, at_most: Duration) -> bool {
        let recall = self.face.get().and_then(|face| face.recall.as_ref());
        recall.is_none_or(|recall| recall.carried_out(number, at_most))
    }

    pub(crate) fn refuse_passthrough(&self, pool: PoolId) {
        self.refused_pools.fetch_or(pool_bit(pool), Ordering::Relaxed);
    }

    /// Errors: `ReadOnly` on a read-only mount.
    pub(crate) fn check_writable(&self) -> FsResult<()> {
        if self.options.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Before the metadata are changed, with nothing held: a moment's rest where they are changed faster than the engine can work off, and where
    /// a commit may wait, a thread that may. Others who ask on this CPU need not wait for that.
    pub(crate) async fn hold_back(&self) {
        let Some(pause) = self.metadata.pause() else { return };
        waiting().await;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }

    /// The attributes of a node as they stand now, and how long they may be believed.
    pub(crate) async fn attributes_of(&self, answer: Answer<Node>) -> FsResult<(Attributes, Duration)> {
        let Answer { value: node, valid_for } = answer;
        if node.attributes.kind != FileKind::Regular || node.layout == Layout::Inline {
            return Ok((node.attributes, valid_for));
        }
        here_or_waiting!(self.attributes_of_object(node.attributes.ino, valid_for))
    }

    async fn attributes_of_object(
        &self,
        ino: InodeId,
        valid_for: Duration,
    ) -> FsResult<(Attributes, Duration)> {
        if let Some(inode) = self.opens.get(ino) {
            let mut state = inode.shared().await;
            if state.object_tells() && self.options.remote_below {
                // From there whoever is killed can be let go.
                drop(state);
                blocking().await;
                state = inode.shared().await;
            }
            if state.opens > 0 {
                // Again, because the node may be older than what the lock guards.
                let node = self.metadata.node(ino).await?.value;
                let valid_for = if state.writing.is_some() { Duration::ZERO } else { valid_for };
                return Ok((self.present(&state, &node.attributes)?, valid_for));
            }
        }
        // Again, because its last close may have brought size and times since the node was read: a face
        // that keeps this answer for ever must not be given one from before.
        let mut again = self.metadata.node(ino).await?.value;
        if again.writing && !self.options.read_only {
            // Its last close could not be settled; the size is one from before, and who appends goes by what he is told here. As long as its
            // object cannot be had nobody writes.
            self.settle_left(ino).await;
            again = self.metadata.node(ino).await?.value;
        }
        let valid_for = if again.writing { Duration::ZERO } else { valid_for };
        Ok((again.attributes, valid_for))
    }

    pub(crate) async fn entry_of(&self, answer: Answer<Node>) -> FsResult<Entry> {
        let entry = answer.valid_for;
        let (attributes, valid_for) = self.attributes_of(answer).await?;
        Ok(Entry { attributes, validity: Validity { entry, attributes: valid_for } })
    }
}

fn pool_bit(pool: PoolId) -> u64 {
    1u64.checked_shl(pool.0.into()).unwrap_or(0)
}

/// Errors: `IsDirectory`, or `InvalidArgument` for what has no bytes.
pub(crate) fn check_regular(node: &Node) -> FsResult<InodeId> {
    match node.attributes.kind {
        FileKind::Regular => Ok(node.attributes.ino),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::InvalidArgument("only regular files have bytes")),
    }
}

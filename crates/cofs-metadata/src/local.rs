//! The name space in this process: every answer holds until this process changes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cofs_engine::Engine;
use cofs_namespace::Namespace;
use cofs_types::{
    Credentials, FsResult, InodeId, Kills, Name, NewInode, ObjectId, PoolEnd, RenameMode, SetAttributes,
    Timestamp, XattrMode, XattrName, limits,
};
use parking_lot::Mutex;

use crate::{
    Answer, EngineStats, EntrySink, Leave, MetadataDriver, Node, OpenInodes, Removed, Renamed, Settled,
    Unsynced, VolumeOptions, WithNodes, clock::Clock, sync_group::SyncGroup, ticker::Ticker,
};

/// A name space, the clock, and the thread that commits directory times and syncs what nobody asks for.
pub struct LocalDriver {
    local: Arc<Local>,
    ticker: Mutex<Option<Ticker>>,
}

/// What the callers and the ticker share.
struct Local {
    namespace: Namespace,
    clock: Clock,
    /// Something was changed since the last sync began. Written only when it turns, so that the threads
    /// that change things share its cache line.
    dirty: AtomicBool,
    syncs: SyncGroup,
}

impl Local {
    fn sync(&self) -> FsResult<()> {
        if !self.dirty.load(Ordering::SeqCst) {
            // A sync that runs may be the one that covers the caller's changes, and it may fail.
            self.syncs.wait();
            if !self.dirty.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
        self.syncs.sync(|| self.sync_now())
    }

    fn sync_now(&self) -> FsResult<()> {
        // Before the sync: a change that is made while it runs turns the flag again.
        self.dirty.store(false, Ordering::SeqCst);
        self.namespace.sync(self.clock.now()).inspect_err(|_| self.dirty.store(true, Ordering::SeqCst))
    }

    /// The ticker's work: directory times are committed at each tick, and now and then everything is
    /// synced, as `commit=5` of ext4 does: syncfs(2) does not reach a FUSE daemon, and users expect a power
    /// cut to cost seconds, not hours.
    fn tick(&self, number: u32) -> FsResult<()> {
        self.namespace.tick();
        self.namespace.flush(self.clock.now())?;
        if number.is_multiple_of(limits::SYNC_TICKS) { self.sync() } else { Ok(()) }
    }
}

impl LocalDriver {
    /// Opens the volume in `engine`; `opens` is asked which inodes are open. Errors: those of
    /// `Namespace::open` (not formatted, a newer format, an engine that fails).
    pub fn open(engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>) -> FsResult<Self> {
        let local = Arc::new(Local {
            namespace: Namespace::open(engine, opens)?,
            clock: Clock::default(),
            // A crash may have left commits that no sync has covered.
            dirty: AtomicBool::new(true),
            syncs: SyncGroup::default(),
        });
        let ticking = Arc::clone(&local);
        let ticker = Ticker::start(move |number| ticking.tick(number))?;
        Ok(Self { local, ticker: Mutex::new(Some(ticker)) })
    }

    /// The name space itself, for the tools that check it.
    pub fn namespace(&self) -> &Namespace {
        &self.local.namespace
    }

    fn ask<T>(&self, question: impl FnOnce(&Namespace) -> FsResult<T>) -> FsResult<Answer<T>> {
        question(&self.local.namespace).map(Answer::forever)
    }

    fn change<T>(&self, change: impl FnOnce(&Namespace, Timestamp) -> FsResult<T>) -> FsResult<Answer<T>> {
        let result = change(&self.local.namespace, self.local.clock.now());
        // After the change and whatever its outcome: an unknown one may have happened.
        if !self.local.dirty.load(Ordering::SeqCst) {
            self.local.dirty.store(true, Ordering::SeqCst);
        }
        result.map(Answer::forever)
    }
}

#[rustfmt::skip]
impl MetadataDriver for LocalDriver {
    fn now(&self) -> Timestamp {
        self.local.clock.now()
    }
    fn witness(&self, stamp: Timestamp) {
        self.local.clock.witness(stamp);
    }
    fn options(&self) -> VolumeOptions {
        self.local.namespace.options()
    }

    async fn lookup(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> FsResult<Answer<Node>> {
        self.ask(|n| n.lookup(c, parent, name))
    }
    async fn node(&self, ino: InodeId) -> FsResult<Answer<Node>> {
        self.ask(|n| n.node(ino))
    }
    async fn parent(&self, ino: InodeId) -> FsResult<Answer<Node>> {
        self.ask(|n| n.parent(ino))
    }
    async fn create(&self, c: &Credentials<'_>, parent: InodeId, name: &Name, new: &NewInode<'_>) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.create(c, now, parent, name, new))
    }
    async fn create_unlinked(&self, c: &Credentials<'_>, parent: InodeId, new: &NewInode<'_>, linkable: bool) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.create_unlinked(c, now, parent, new, linkable))
    }
    async fn link(&self, c: &Credentials<'_>, ino: InodeId, parent: InodeId, name: &Name) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.link(c, now, ino, parent, name))
    }
    async fn unlink(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> FsResult<Answer<Removed>> {
        self.change(|n, now| n.unlink(c, now, parent, name))
    }
    async fn rmdir(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> FsResult<Answer<Removed>> {
        self.change(|n, now| n.rmdir(c, now, parent, name))
    }
    async fn rename(&self, c: &Credentials<'_>, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> FsResult<Answer<Renamed>> {
        self.change(|n, now| n.rename(c, now, from, to, mode))
    }
    async fn readlink(&self, ino: InodeId) -> FsResult<Answer<Bytes>> {
        self.ask(|n| n.readlink(ino))
    }
    async fn list(&self, ino: InodeId, cookie: u64, with_nodes: WithNodes, entries_max: usize, visit: &mut EntrySink<'_>) -> FsResult<Answer<()>> {
        self.ask(|n| n.list(ino, cookie, with_nodes, entries_max, &mut |entry| visit(entry)))
    }
    async fn release_unlinked(&self, ino: InodeId) -> FsResult<Answer<bool>> {
        self.change(|n, now| n.release_unlinked(now, ino))
    }

    async fn setattr(&self, c: &Credentials<'_>, ino: InodeId, change: &SetAttributes) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.setattr(c, now, ino, change))
    }
    async fn touch_atime(&self, ino: InodeId, atime: Timestamp) -> FsResult<Answer<()>> {
        self.change(|n, _| n.touch_atime(atime, ino))
    }
    async fn getxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> FsResult<Answer<Bytes>> {
        self.ask(|n| n.getxattr(c, ino, name))
    }
    async fn setxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName, value: &[u8], mode: XattrMode, kill_set_gid: bool) -> FsResult<Answer<()>> {
        self.change(|n, now| n.setxattr(c, now, ino, name, value, mode, kill_set_gid))
    }
    async fn listxattr(&self, ino: InodeId) -> FsResult<Answer<Bytes>> {
        self.ask(|n| n.listxattr(ino))
    }
    async fn removexattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> FsResult<Answer<()>> {
        self.change(|n, now| n.removexattr(c, now, ino, name))
    }
    async fn access(&self, c: &Credentials<'_>, ino: InodeId, mask: u32) -> FsResult<Answer<()>> {
        self.ask(|n| n.access(c, ino, mask))
    }

    async fn inline_read(&self, ino: InodeId, offset: u64, into: &mut [u8]) -> FsResult<Answer<(usize, Node)>> {
        self.ask(|n| n.inline_read(ino, offset, into))
    }
    async fn inline_write(&self, ino: InodeId, offset: u64, data: &[u8], kills: Kills) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.inline_write(now, ino, offset, data, kills))
    }
    async fn inline_zero(&self, ino: InodeId, offset: u64, len: u64, new_size: Option<u64>) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.inline_zero(now, ino, offset, len, new_size))
    }
    async fn outgrow(&self, ino: InodeId, object: ObjectId) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.outgrow(now, ino, object))
    }
    async fn inlay(&self, ino: InodeId, data: &[u8], times: Option<(Timestamp, Timestamp)>) -> FsResult<Answer<Node>> {
        self.change(|n, now| n.inlay(now, ino, data, times))
    }
    async fn begin_writing(&self, ino: InodeId) -> FsResult<Answer<()>> {
        self.change(|n, _| n.begin_writing(ino))
    }
    async fn settle(&self, ino: InodeId, settled: &Settled, leave: Leave) -> FsResult<Answer<Node>> {
        self.change(|n, _| n.settle(ino, settled, leave))
    }

    async fn writing_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Answer<Vec<InodeId>>> {
        self.ask(|n| n.writing_set(after, max))
    }
    async fn unsynced_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Answer<Vec<(InodeId, Unsynced)>>> {
        self.ask(|n| n.unsynced_set(after, max))
    }
    async fn synced(&self, closed: &[(InodeId, Unsynced)]) -> FsResult<Answer<()>> {
        self.change(|n, _| n.synced(closed))
    }
    async fn unlinked_set(&self, after: Option<InodeId>, max: usize) -> FsResult<Answer<Vec<InodeId>>> {
        self.ask(|n| n.unlinked_set(after, max))
    }
    async fn reclaim_list(&self, max: usize) -> FsResult<Answer<Vec<ObjectId>>> {
        self.ask(|n| n.reclaim_list(max))
    }
    async fn reclaimed(&self, objects: &[ObjectId]) -> FsResult<Answer<()>> {
        self.change(|n, _| n.reclaimed(objects))
    }
    fn pool_ends(&self) -> Vec<PoolEnd> {
        self.local.namespace.pool_ends()
    }
    async fn note_pool_ends(&self, ends: &[PoolEnd]) -> FsResult<Answer<()>> {
        self.change(|n, _| n.note_pool_ends(ends))
    }

    fn pause(&self) -> Option<Duration> {
        self.local.namespace.pause()
    }
    fn needs_sync(&self) -> bool {
        // In this order: a sync shows that it runs before it takes the flag back.
        self.local.dirty.load(Ordering::SeqCst) || self.local.syncs.running()
    }
    fn syncs_started(&self) -> u64 {
        self.local.syncs.started()
    }
    async fn sync(&self) -> FsResult<()> {
        self.local.sync()
    }
    async fn close(&self) -> FsResult<()> {
        drop(self.ticker.lock().take());
        self.local.namespace.close(self.local.clock.now())
    }
    fn files(&self) -> u64 {
        self.local.namespace.files()
    }
    fn takes_more(&self) -> bool {
        self.local.namespace.takes_more()
    }
    fn engine_stats(&self) -> EngineStats {
        self.local.namespace.engine_stats()
    }
}

//! The seam between the file-system operations and whoever holds the metadata.

use std::time::Duration;

use bytes::Bytes;
use cofs_types::{
    Credentials, FsResult, InodeId, Kills, Name, NewInode, ObjectId, PoolEnd, RenameMode, SetAttributes,
    Timestamp, XattrMode, XattrName,
};

use crate::{
    Answer, EngineStats, Leave, ListedEntry, Node, Removed, Renamed, Settled, Unsynced, VolumeOptions,
    WithNodes,
};

/// Takes a listing's entries; `false` means that this one did not fit and no more are wanted.
pub type EntrySink<'a> = dyn FnMut(&ListedEntry<'_>) -> bool + Send + 'a;

/// The metadata of one volume. The methods are those of `cofs_namespace::Namespace`, where their rules are
/// written, less the time, which is the driver's.
#[rustfmt::skip]
pub trait MetadataDriver: Send + Sync + 'static {
    /// The time that changes are stamped with.
    fn now(&self) -> Timestamp;
    /// An object below carries this time, given by the kernel: changes from now on are not stamped earlier.
    fn witness(&self, stamp: Timestamp);
    fn options(&self) -> VolumeOptions;

    // Names.
    fn lookup(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn node(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn parent(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn create(&self, c: &Credentials<'_>, parent: InodeId, name: &Name, new: &NewInode<'_>) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn create_unlinked(&self, c: &Credentials<'_>, parent: InodeId, new: &NewInode<'_>, linkable: bool) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn link(&self, c: &Credentials<'_>, ino: InodeId, parent: InodeId, name: &Name) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn unlink(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> impl Future<Output = FsResult<Answer<Removed>>> + Send;
    fn rmdir(&self, c: &Credentials<'_>, parent: InodeId, name: &Name) -> impl Future<Output = FsResult<Answer<Removed>>> + Send;
    fn rename(&self, c: &Credentials<'_>, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> impl Future<Output = FsResult<Answer<Renamed>>> + Send;
    fn readlink(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<Bytes>>> + Send;
    /// The validity is that of every entry and node of the listing.
    fn list(&self, ino: InodeId, cookie: u64, with_nodes: WithNodes, entries_max: usize, visit: &mut EntrySink<'_>) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn release_unlinked(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<bool>>> + Send;

    // Attributes.
    fn setattr(&self, c: &Credentials<'_>, ino: InodeId, change: &SetAttributes) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn touch_atime(&self, ino: InodeId, atime: Timestamp) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn getxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> impl Future<Output = FsResult<Answer<Bytes>>> + Send;
    fn setxattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName, value: &[u8], mode: XattrMode, kill_set_gid: bool) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn listxattr(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<Bytes>>> + Send;
    fn removexattr(&self, c: &Credentials<'_>, ino: InodeId, name: &XattrName) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn access(&self, c: &Credentials<'_>, ino: InodeId, mask: u32) -> impl Future<Output = FsResult<Answer<()>>> + Send;

    // Inline data and layouts.
    fn inline_read(&self, ino: InodeId, offset: u64, into: &mut [u8]) -> impl Future<Output = FsResult<Answer<(usize, Node)>>> + Send;
    fn inline_write(&self, ino: InodeId, offset: u64, data: &[u8], kills: Kills) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn inline_zero(&self, ino: InodeId, offset: u64, len: u64, new_size: Option<u64>) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn outgrow(&self, ino: InodeId, object: ObjectId) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn inlay(&self, ino: InodeId, data: &[u8], times: Option<(Timestamp, Timestamp)>) -> impl Future<Output = FsResult<Answer<Node>>> + Send;
    fn begin_writing(&self, ino: InodeId) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn settle(&self, ino: InodeId, settled: &Settled, leave: Leave) -> impl Future<Output = FsResult<Answer<Node>>> + Send;

    // What a crash, or an unlink, leaves to do.
    fn writing_set(&self, after: Option<InodeId>, max: usize) -> impl Future<Output = FsResult<Answer<Vec<InodeId>>>> + Send;
    fn unsynced_set(&self, after: Option<InodeId>, max: usize) -> impl Future<Output = FsResult<Answer<Vec<(InodeId, Unsynced)>>>> + Send;
    fn synced(&self, closed: &[(InodeId, Unsynced)]) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    fn unlinked_set(&self, after: Option<InodeId>, max: usize) -> impl Future<Output = FsResult<Answer<Vec<InodeId>>>> + Send;
    fn reclaim_list(&self, max: usize) -> impl Future<Output = FsResult<Answer<Vec<ObjectId>>>> + Send;
    fn reclaimed(&self, objects: &[ObjectId]) -> impl Future<Output = FsResult<Answer<()>>> + Send;
    /// How far the pools' object numbers were given out, as far as it was noted.
    fn pool_ends(&self) -> Vec<PoolEnd>;
    fn note_pool_ends(&self, ends: &[PoolEnd]) -> impl Future<Output = FsResult<Answer<()>>> + Send;

    // The whole.
    /// Whether to go where one may wait before something is changed, with nothing held that others want, and how long to wait there (changes come
    /// faster than they can be worked off).
    fn pause(&self) -> Option<Duration>;
    /// Whether anything was changed since the last successful sync began.
    fn needs_sync(&self) -> bool;
    /// Syncs begun so far: no sync lies between two looks at one number.
    fn syncs_started(&self) -> u64;
    /// Puts every acknowledged change on stable storage; returns at once if all of them are there.
    fn sync(&self) -> impl Future<Output = FsResult<()>> + Send;
    /// The last call: everything is committed and synced.
    fn close(&self) -> impl Future<Output = FsResult<()>> + Send;
    fn files(&self) -> u64;
    /// Whether there is space for what adds something; waits for nobody.
    fn takes_more(&self) -> bool;
    fn engine_stats(&self) -> EngineStats;
}

//! After a crash: the files that were open are looked at, and only those.
//!
//! A file in the open-for-writing set takes size and times from its object. That is idempotent, so a crash here only
//! repeats it. Those that were unlinked while open are released in the background, by the collector, and there the
//! reclaim list goes on, as always.

use std::{os::fd::AsFd, sync::Arc};

use cofs_metadata::{Leave, MetadataDriver, Node, Settled, Unsynced};
use cofs_placement::{ObjectFile, Placement};
use cofs_types::{FsError, FsResult, InodeId, Layout, ObjectId, failpoint, limits};

use crate::{OpenElsewhere, closed::Closed, run, strangers::Strangers};

/// What was repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Recovered {
    /// Files whose size and times were taken from their objects.
    pub settled: u64,
    /// Files cut to what their objects have, because a power cut took the rest before it was synced.
    pub shortened: u64,
    /// Files made empty, because a power cut took the object before anything in it was synced.
    pub emptied: u64,
    /// Files whose object could not be reached: they wait for the next start or `fsck`.
    pub unreachable: u64,
    /// Unlinked files that nobody holds any more: they go as soon as it is known what a crash left of them.
    pub released: u64,
}

/// What was repaired, and the inodes that are to be released: at most [`limits::UNLINKED_KEPT_MAX`], the others wait for the
/// next start.
pub(crate) fn recover<M: MetadataDriver>(
    metadata: &M,
    placement: &Arc<Placement>,
    before: Before<'_>,
) -> FsResult<(Recovered, Vec<InodeId>)> {
    let mut recovered = Recovered::default();
    let mut after = None;
    loop {
        let batch = run(metadata.writing_set(after, limits::RECOVERY_BATCH))?.value;
        for &ino in &batch {
            recovered.count(settle(metadata, placement, before, ino)?);
            failpoint("fs.recover.settled");
        }
        let Some(&last) = batch.last() else { break };
        after = Some(last);
    }
    shorten(metadata, placement, before.closed, &mut recovered)?;
    let unlinked = run(metadata.unlinked_set(None, limits::UNLINKED_KEPT_MAX))?.value;
    recovered.released = unlinked.len() as u64;
    if recovered != Recovered::default() {
        tracing::info!(?recovered, "files that were open at the last end of the service are in order again");
    }
    Ok((recovered, unlinked))
}

impl Recovered {
    fn count(&mut self, found: Found) {
        match found {
            Found::Whole => {}
            Found::Settled => self.settled += 1,
            Found::Shortened => self.shortened += 1,
            Found::Emptied => self.emptied += 1,
            Found::Unreachable => self.unreachable += 1,
        }
    }
}

/// The files that were closed and not synced, where a power cut, or the failure of a pool's file system, may have taken of their
/// bytes. After a crash of the process alone none is looked at: they wait for their sync as before.
fn shorten<M: MetadataDriver>(
    metadata: &M,
    placement: &Placement,
    closed: &Closed,
    recovered: &mut Recovered,
) -> FsResult<()> {
    let mut after = None;
    loop {
        let batch = run(metadata.unsynced_set(after, limits::RECOVERY_BATCH))?.value;
        for &(ino, unsynced) in &batch {
            recovered.count(look_at_closed(metadata, placement, closed, ino, unsynced)?);
            failpoint("fs.recover.settled");
        }
        let Some(&(last, _)) = batch.last() else { break };
        after = Some(last);
    }
    if recovered.shortened > 0 {
        let files = recovered.shortened;
        tracing::warn!(
            files,
            "closed files whose last bytes a power cut took are as long as what is left of them"
        );
    }
    Ok(())
}

fn look_at_closed<M: MetadataDriver>(
    metadata: &M,
    placement: &Placement,
    closed: &Closed,
    ino: InodeId,
    unsynced: Unsynced,
) -> FsResult<Found> {
    let node = match run(metadata.node(ino)) {
        Ok(answer) => answer.value,
        Err(FsError::Stale | FsError::NotFound) => return Ok(Found::Unreachable),
        Err(error) => return Err(error),
    };
    let Layout::Object(object) = node.layout else {
        run(metadata.synced(&[(ino, unsynced)]))?;
        return Ok(Found::Whole);
    };
    if closed.goes_on(placement, object.pool(), unsynced) {
        return Ok(Found::Whole);
    }
    match look_at(placement, object) {
        // Longer it is where it was written once more, and the power took that commit and not all of the bytes.
        Ok(found) if found.size_bytes != node.attributes.size_bytes => {
            let left = Settled {
                size_bytes: found.size_bytes,
                blocks_512: found.blocks_512,
                ctime: Some(metadata.now()),
                ..Settled::default()
            };
            run(metadata.settle(ino, &left, Leave::Synced))?;
            let is_shorter = found.size_bytes < node.attributes.size_bytes;
            Ok(if is_shorter { Found::Shortened } else { Found::Settled })
        }
        Ok(_) => {
            run(metadata.synced(&[(ino, unsynced)]))?;
            Ok(Found::Whole)
        }
        Err(error) if is_missing(&error) && is_newborn(&node) => empty(metadata, ino, object),
        Err(error) => {
            tracing::warn!(%ino, %object, %error, "its object cannot be looked at: bytes may be missing");
            Ok(Found::Unreachable)
        }
    }
}

/// What is told of what processes before this one have left, and how it is known.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    /// What waits for a sync.
    pub(crate) closed: &'a Closed,
    /// What may be written still.
    pub(crate) strangers: &'a Strangers,
    pub(crate) open_elsewhere: Option<OpenElsewhere>,
}

/// How a file that was open for writing was found.
enum Found {
    /// Nothing was to be done.
    Whole,
    Settled,
    Shortened,
    Emptied,
    Unreachable,
}

/// Takes size and times of one file from its object, if that can be reached.
fn settle<M: MetadataDriver>(
    metadata: &M,
    placement: &Placement,
    before: Before<'_>,
    ino: InodeId,
) -> FsResult<Found> {
    let node = match run(metadata.node(ino)) {
        Ok(answer) => answer.value,
        Err(FsError::Stale | FsError::NotFound) => {
            tracing::warn!(%ino, "open for writing, but there is no such inode: left to fsck");
            return Ok(Found::Unreachable);
        }
        Err(error) => return Err(error),
    };
    let Layout::Object(object) = node.layout else {
        tracing::warn!(%ino, "open for writing, but without an object: left to fsck");
        return Ok(Found::Unreachable);
    };
    let (written, settled) = match look_for_strangers(placement, object, before) {
        Ok(found) => found,
        Err(error) if is_missing(&error) && never_settled(metadata, &node) => {
            return empty(metadata, ino, object);
        }
        Err(error) => {
            tracing::warn!(%ino, %object, %error, "its object cannot be looked at: size and times may be old");
            return Ok(Found::Unreachable);
        }
    };
    let changed =
        settled.size_bytes != node.attributes.size_bytes || settled.mtime != Some(node.attributes.mtime);
    let ctime = settled.ctime.filter(|_| changed).map(|ctime| ctime.max(node.attributes.ctime));
    let leave = match written && before.strangers.note(ino) {
        true => Leave::Stays,
        false => before.closed.leave(placement, object.pool()),
    };
    run(metadata.settle(ino, &Settled { ctime, ..settled }, leave))?;
    Ok(Found::Settled)
}

fn empty<M: MetadataDriver>(metadata: &M, ino: InodeId, object: ObjectId) -> FsResult<Found> {
    tracing::warn!(%ino, %object, "its object was never synced and went with the power: the file is empty");
    run(metadata.inlay(ino, &[], None))?;
    Ok(Found::Emptied)
}

/// Whether a closed file that no sync has covered is too young for an earlier one to have covered it: an older one's object may have been synced before, and
/// where it is missing that is a loss that is not ours to tidy away.
fn is_newborn(node: &Node) -> bool {
    let age = node.attributes.ctime.secs.saturating_sub(node.attributes.btime.secs);
    age < 2 * limits::CLOSED_UNSYNCED.as_secs().cast_signed()
}

/// A size above the inline maximum has been settled from an object once, which may have been synced: then a
/// missing object is a loss that is not ours to tidy away. A file that has only ever outgrown has its old inline
/// size; had those bytes been durable, the object would have been made so before.
fn never_settled<M: MetadataDriver>(metadata: &M, node: &Node) -> bool {
    node.attributes.size_bytes <= metadata.options().inline_bytes_max.into()
}

/// Whether somebody writes the object perhaps, and what it tells: asked before, as nobody opens it by a dead mount again.
fn look_for_strangers(
    placement: &Placement,
    object: ObjectId,
    before: Before<'_>,
) -> FsResult<(bool, Settled)> {
    let file = placement.open_object(object, false)?;
    let written = before.open_elsewhere.is_some_and(|open| open(file.as_fd()));
    Ok((written, told_by(&file)?))
}

fn look_at(placement: &Placement, object: ObjectId) -> FsResult<Settled> {
    told_by(&*placement.open_object(object, false)?)
}

fn told_by(file: &ObjectFile) -> FsResult<Settled> {
    let stat = file.stat()?;
    Ok(Settled {
        size_bytes: stat.size_bytes,
        blocks_512: stat.blocks_512,
        mtime: Some(stat.mtime),
        atime: None,
        ctime: Some(stat.ctime),
        ..Settled::default()
    })
}

/// Whether the object is not there, in a pool that is.
pub(crate) fn is_missing(error: &FsError) -> bool {
    match error {
        FsError::NotFound => true,
        FsError::Backing { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

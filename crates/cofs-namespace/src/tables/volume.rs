//! The header: what a volume is, and its life from format over open to close.

use std::{ops::ControlFlow, sync::Arc};

use cofs_engine::{Batch, Change, Durability, Engine, Guard, Outcome};
use cofs_types::{FileKind, FsError, FsResult, InodeId, Timestamp, limits};

use super::{allocator::reservation, labels};
use crate::{
    OpenInodes, VolumeOptions,
    schema::{Counts, HeaderPart, Inode, Volume, decode_number, encode_number, key, ranges},
    tx::{Store, engine_failed},
};

fn put(part: HeaderPart, value: Vec<u8>) -> Change {
    Change::put(key::header(part), value)
}

pub fn counts(counts: Counts) -> Change {
    put(HeaderPart::Counts, counts.encode())
}

fn must_commit(engine: &dyn Engine, batch: &Batch<'_>) -> FsResult<()> {
    match engine.commit(batch).map_err(engine_failed)? {
        Outcome::Committed => Ok(()),
        Outcome::GuardFailed => Err(FsError::Engine("the volume is being opened by someone else".into())),
        Outcome::Unknown => Err(FsError::Unknown("a commit of the volume's header".into())),
    }
}

pub fn format(
    engine: &dyn Engine,
    options: &VolumeOptions,
    (uid, gid, permissions): (u32, u32, u16),
    now: Timestamp,
) -> FsResult<()> {
    if options.inline_bytes_max > limits::INLINE_BYTES_LIMIT {
        return Err(FsError::InvalidArgument("inline-max is at most 64 KiB"));
    }
    let mut empty = true;
    let everything = ranges::everything();
    let mut stop = |_: &[u8], _: &[u8]| {
        empty = false;
        ControlFlow::Break(())
    };
    engine.scan(&everything.start, &everything.end, &mut stop).map_err(engine_failed)?;
    if !empty {
        return Err(FsError::Exists);
    }
    let mut root = Inode::new(FileKind::Directory, permissions & 0o7777, (uid, gid), now);
    (root.nlink, root.parent) = (2, Some(InodeId::ROOT));
    let changes = vec![
        put(HeaderPart::Volume, Volume { options: *options }.encode()),
        put(HeaderPart::Epoch, encode_number(0)),
        labels::unlabelled(0),
        reservation(InodeId::ROOT.sequence() + 1),
        counts(Counts { files: 1, clean: true, exact: true }),
        Change::put(key::inode(InodeId::ROOT), root.encode()),
    ];
    must_commit(engine, &Batch { changes, durability: Durability::Synced, ..Batch::default() })
}

/// A volume as it was found.
pub struct Opened {
    pub store: Store,
    pub options: VolumeOptions,
    pub inodes_next: u64,
    pub was_clean: bool,
    pub files: u64,
    /// The number of files is right, and not only near.
    pub exact: bool,
    /// No inode has a security label.
    pub unlabelled: bool,
}

/// Reads the header and raises the epoch, so that whoever had the volume open before can no longer commit.
pub fn open(engine: Arc<dyn Engine>, opens: Arc<dyn OpenInodes>) -> FsResult<Opened> {
    let part = |part: HeaderPart| {
        let value = engine.get(&key::header(part)).map_err(engine_failed)?;
        value.ok_or_else(|| FsError::corrupt(format!("header: no part {part:?}; is this a cofs volume?")))
    };
    let volume = Volume::decode(&part(HeaderPart::Volume)?)?;
    let before = part(HeaderPart::Epoch)?;
    let epoch_before = decode_number(&before)?;
    let epoch = epoch_before + 1;
    let label = engine.get(&key::header(HeaderPart::Unlabelled)).map_err(engine_failed)?;
    let unlabelled = labels::is_unlabelled(label.as_deref(), epoch_before);
    let inodes_next = decode_number(&part(HeaderPart::Inodes)?)?;
    let found = Counts::decode(&part(HeaderPart::Counts)?)?;
    // What was counted after the last flush before a crash is lost.
    let exact = found.exact && found.clean;
    let opening = Counts { files: found.files, clean: false, exact };
    let key = key::header(HeaderPart::Epoch).to_vec();
    let mut changes = vec![put(HeaderPart::Epoch, encode_number(epoch)), counts(opening)];
    changes.extend(unlabelled.then(|| labels::unlabelled(epoch)));
    let guards = [Guard { key: key.clone(), value: Some(before.to_vec()) }];
    must_commit(&*engine, &Batch { guards: &guards, changes, durability: Durability::Synced, upkeep: true })?;
    let guard = Guard { key, value: Some(encode_number(epoch)) };
    let store = Store::new(engine, opens, guard, found.files);
    let (was_clean, files) = (found.clean, found.files);
    Ok(Opened { store, options: volume.options, inodes_next, was_clean, files, exact, unlabelled })
}

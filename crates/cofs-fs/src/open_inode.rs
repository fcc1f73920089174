//! What all opens of one inode share, under the inode's own lock.
//!
//! Invariants:
//! - the layout changes under the exclusive lock only, and a file in an object goes back inline only when
//!   nobody has it open: who holds a handle and has seen an object may use it without the lock;
//! - nobody yields to another thread while holding the lock: what may wait moves to a thread that may
//!   *before* it locks. So a thread that waits for the lock waits for one that runs;
//! - `writing` is set exactly while the inode stands in the open-for-writing set.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cofs_placement::ObjectStat;
use cofs_types::{Attributes, FsError, FsResult, InodeId, Layout, OpenFlags, Timestamp, limits};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{blocking, open_object::OpenObject, page_merge::PageMerge};

/// The inode stands in the open-for-writing set: its object tells size and times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// The object when its times were last made the inode's. `None`: its data is newer for certain.
    pub(crate) before: Option<ObjectStat>,
}

impl Writing {
    /// Whether data has changed since the record's times were set.
    fn changed(&self, now: &ObjectStat) -> bool {
        self.before.is_none_or(|before| before.mtime != now.mtime || before.size_bytes != now.size_bytes)
    }
}

/// The file was created by the open that still goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Born {
    pub(crate) directory: Option<InodeId>,
    /// Syncs begun when it was born: while there are no more, none of its bytes need be durable.
    pub(crate) syncs: u64,
    /// It was given an object before it had a byte, by a guess.
    pub(crate) guessed_large: bool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Opens that were answered; 0: nothing below is valid.
    pub(crate) opens: u32,
    pub(crate) writers: u32,
    /// Processes that run it.
    pub(crate) execs: u32,
    pub(crate) layout: Layout,
    /// The object, for a file that has one.
    pub(crate) object: Option<Arc<OpenObject>>,
    /// The data path of all present opens, chosen by the first.
    pub(crate) passthrough: bool,
    /// Through the daemon past the kernel's page cache. Never with `passthrough`.
    pub(crate) direct: bool,
    /// Somebody has had it open for reading since the first present open: he may have mapped it.
    pub(crate) read: bool,
    pub(crate) writing: Option<Writing>,
    /// It has been in the open-for-writing set since the first present open.
    pub(crate) wrote: bool,
    /// The object's access time when the record's was last taken from it, or set over it.
    pub(crate) atime_before: Option<Timestamp>,
    /// It has set-user-id or set-group-id.
    pub(crate) set_id: bool,
    pub(crate) born: Option<Born>,
    /// Somebody has had it open for reading and writing since the first present open: he may have mapped it for stores.
    pub(crate) both: bool,
    /// Space beyond the end was asked for: moving the file inline would lose it.
    pub(crate) preallocated: bool,
}

/// Size and times as the object tells them, laid over the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged {
    pub(crate) attributes: Attributes,
    pub(crate) data_changed: bool,
    pub(crate) atime_changed: bool,
    pub(crate) stat: ObjectStat,
}

impl State {
    /// By one more, whose path is chosen.
    pub(crate) fn is_opened(&mut self, flags: &OpenFlags) {
        self.both |= flags.access.writes() && flags.access.reads();
        self.read |= flags.access.reads();
        self.execs += u32::from(flags.exec);
    }

    /// The open object. Errors: `BadHandle` where there is none, which no open file of that layout meets.
    pub(crate) fn object(&self) -> FsResult<&Arc<OpenObject>> {
        self.object.as_ref().ok_or(FsError::BadHandle)
    }

    /// Whether the object may have been given up below, and all that it has to tell is known: nothing is lost if it is opened anew.
    pub(crate) fn is_outlived(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.file.is_outlived()) && !self.object_tells()
    }

    /// Whether the object knows something that the record does not.
    pub(crate) fn object_tells(&self) -> bool {
        self.object.is_some() && (self.writing.is_some() || self.passthrough)
    }

    pub(crate) fn merge(&self, record: &Attributes) -> FsResult<Merged> {
        let stat = self.object()?.file.stat()?;
        let mut attributes = *record;
        let data_changed = self.writing.is_some_and(|writing| writing.changed(&stat));
        if self.writing.is_some() {
            attributes.size_bytes = stat.size_bytes;
            attributes.blocks_512 = stat.blocks_512;
        }
        if data_changed {
            attributes.mtime = stat.mtime;
            // Not the object's mtime, which may have been set to any time: its ctime nobody sets.
            attributes.ctime = record.ctime.max(stat.ctime);
        }
        let atime_changed = self.passthrough && self.atime_before.is_some_and(|before| before != stat.atime);
        if atime_changed {
            attributes.atime = stat.atime;
        }
        Ok(Merged { attributes, data_changed, atime_changed, stat })
    }
}

/// Opens that were told to drop the kernel's pages: it does that a moment after it has the answer, and nobody tells when. Whoever reads, writes or closes
/// by such an open has come behind that. Each has a place here, which its handle tells.
pub(crate) struct Dropping {
    /// The places that opens have, a bit each.
    taken: AtomicU64,
    /// Of them, those that may be at it; and [`Self::NOWHERE`].
    at_it: AtomicU64,
    /// When the last one was told, in microseconds since this was made.
    told: AtomicU64,
    made: Instant,
}

impl Default for Dropping {
    fn default() -> Self {
        let [taken, at_it, told] = [0; 3].map(AtomicU64::new);
        Self { taken, at_it, told, made: Instant::now() }
    }
}

impl Dropping {
    /// One for whom there was no place.
    const NOWHERE: u64 = 1 << 63;

    /// One more is told; his place, or 0. The caller holds the inode's lock exclusively.
    pub(crate) fn tell(&self) -> u32 {
        if self.left_but(0).is_none() {
            self.at_it.store(0, Ordering::Release);
        }
        let free = !self.taken.load(Ordering::Relaxed) & !Self::NOWHERE;
        let bit = if free == 0 { Self::NOWHERE } else { 1 << free.trailing_zeros() };
        self.taken.fetch_or(bit & !Self::NOWHERE, Ordering::Relaxed);
        self.told.store(self.age_micros(), Ordering::Release);
        self.at_it.fetch_or(bit, Ordering::Release);
        if free == 0 { 0 } else { free.trailing_zeros() + 1 }
    }

    /// He in this place is heard of.
    pub(crate) fn done(&self, place: u32) {
        let bit = bit_of(place);
        if self.at_it.load(Ordering::Relaxed) & bit != 0 {
            self.at_it.fetch_and(!bit, Ordering::Release);
        }
    }

    /// He in this place closes.
    pub(crate) fn leave(&self, place: u32) {
        self.done(place);
        self.taken.fetch_and(!bit_of(place), Ordering::Relaxed);
    }

    /// How long at most until all of them, but him in this place, have done so, presumably. None if they have.
    pub(crate) fn left_but(&self, place: u32) -> Option<Duration> {
        if self.at_it.load(Ordering::Acquire) & !bit_of(place) == 0 {
            return None;
        }
        let since = self.age_micros().saturating_sub(self.told.load(Ordering::Acquire));
        let left = limits::PAGES_DROPPED.saturating_sub(Duration::from_micros(since));
        (!left.is_zero()).then_some(left)
    }

    fn age_micros(&self) -> u64 {
        self.made.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
    }
}

/// No bit for place 0.
fn bit_of(place: u32) -> u64 {
    place.checked_sub(1).map_or(0, |place| 1 << place)
}

/// What pages the kernel may have of a file that is open past the page cache: those that a mapping has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mapped {
    Never,
    ForReads,
    /// They may be changed there.
    ForStores,
}

pub(crate) struct OpenInode {
    pub(crate) ino: InodeId,
    state: RwLock<State>,
    /// The next read must be recorded as an access.
    atime_due: AtomicBool,
    /// A [`Mapped`].
    mapped: AtomicU8,
    pub(crate) page_merge: PageMerge,
    /// It may have capabilities (`security.capability`), and is open past the page cache: it has been given them while it was open, or had them.
    capable: AtomicBool,
    pub(crate) dropping: Dropping,
    /// A sync failed: nothing that was written may be called safe any more.
    poisoned: AtomicBool,
}

impl OpenInode {
    pub(crate) fn new(ino: InodeId) -> Self {
        Self {
            ino,
            state: RwLock::default(),
            atime_due: AtomicBool::new(false),
            mapped: AtomicU8::new(Mapped::Never as u8),
            page_merge: PageMerge::default(),
            capable: AtomicBool::new(false),
            dropping: Dropping::default(),
            poisoned: AtomicBool::new(false),
        }
    }

    /// The state, shared; where another holds it, on a thread that may wait.
    pub(crate) async fn shared(&self) -> RwLockReadGuard<'_, State> {
        if let Some(state) = self.state.try_read() {
            return state;
        }
        blocking().await;
        self.state.read()
    }

    /// The state, exclusively; where another holds it, on a thread that may wait.
    pub(crate) async fn exclusive(&self) -> RwLockWriteGuard<'_, State> {
        if let Some(state) = self.state.try_write() {
            return state;
        }
        blocking().await;
        self.state.write()
    }

    pub(crate) fn try_shared(&self) -> Option<RwLockReadGuard<'_, State>> {
        self.state.try_read()
    }

    pub(crate) fn set_atime_due(&self, due: bool) {
        if self.atime_due.load(Ordering::Relaxed) != due {
            self.atime_due.store(due, Ordering::Relaxed);
        }
    }

    pub(crate) fn atime_due(&self) -> bool {
        self.atime_due.load(Ordering::Relaxed)
    }

    /// Who says so reads the bytes afterwards, and who writes them asks afterwards: one of the two knows of the other.
    pub(crate) fn may_be_mapped(&self, how: Mapped) {
        self.mapped.fetch_max(how as u8, Ordering::SeqCst);
    }

    /// By nobody any more.
    pub(crate) fn is_unmapped(&self) {
        if self.mapped.swap(Mapped::Never as u8, Ordering::AcqRel) == Mapped::ForStores as u8 {
            self.page_merge.clear();
        }
    }

    /// Whether it may be mapped in that way, or one that allows more.
    pub(crate) fn perhaps_mapped(&self, how: Mapped) -> bool {
        self.mapped.load(Ordering::SeqCst) >= how as u8
    }

    pub(crate) fn set_capable(&self, capable: bool) {
        self.capable.store(capable, Ordering::Release);
    }

    pub(crate) fn capable(&self) -> bool {
        self.capable.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Errors: EIO once a sync of this file has failed.
    pub(crate) fn check_poison(&self) -> FsResult<()> {
        if self.poisoned() {
            let source = std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            return Err(FsError::from_io("a sync of this file failed before", source));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_drop_pages_is_waited_for_until_he_is_heard_of() {
        let dropping = Dropping::default();
        assert!(dropping.left_but(0).is_none());
        let (first, second) = (dropping.tell(), dropping.tell());
        assert_eq!((first, second), (1, 2));
        dropping.done(first);
        assert!(dropping.left_but(second).is_none(), "he need not wait for himself");
        assert!(dropping.left_but(0).is_some_and(|left| left <= limits::PAGES_DROPPED));
        dropping.done(second);
        dropping.done(0);
        assert!(dropping.left_but(0).is_none());
        assert_eq!(dropping.tell(), 3, "what they do later says nothing of others");
        dropping.leave(first);
        assert_eq!(dropping.tell(), 1);
        dropping.leave(1);
        dropping.leave(3);
        assert!(dropping.left_but(0).is_none());
    }

    #[test]
    fn for_whom_there_is_no_place_time_alone_tells() {
        let dropping = Dropping::default();
        (1..=63).for_each(|place| assert_eq!(dropping.tell(), place));
        assert_eq!(dropping.tell(), 0);
        (0..=63).for_each(|place| dropping.leave(place));
        assert!(dropping.left_but(0).is_some());
        std::thread::sleep(limits::PAGES_DROPPED);
        assert!(dropping.left_but(0).is_none());
        assert_eq!(dropping.tell(), 1);
        dropping.leave(1);
        assert!(dropping.left_but(0).is_none());
    }
}

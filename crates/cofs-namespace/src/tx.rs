//! Transactions: each operation reads, decides and commits as if it were alone.
//!
//! They are optimistic. Reads note the version of their key's stripe; the commit locks the stripes of
//! everything read (shared) and written (exclusive) in one order, sees that nothing read has changed, asks
//! what can only be asked then (is the directory still empty, is the inode open), commits to the engine and
//! raises the versions. A transaction that finds a change starts over; after `limits::CONFLICTS_MAX` it holds
//! all stripes and so cannot lose. An answer that changes nothing is validated too, errors included: each is
//! true of one state of the volume.
//!
//! Some records are *covered* by an inode's: `B`, `X`, `W`, `U` change only together with `I`, so that the
//! stripe of `I` stands for them.

mod lately;
mod store;
mod stripes;

use std::ops::ControlFlow;

use bytes::Bytes;
use cofs_engine::{Change, Show};
use cofs_types::{FsError, FsResult, InodeId, Timestamp, failpoint, limits};
use smallvec::SmallVec;

pub use self::store::{Store, engine_failed};
use self::stripes::{Held, Noted, StripeIndex};
use crate::{
    Fate,
    schema::{EntryRecord, Inode, MARK, Times, key, ranges},
};

/// An operation that commits, with its failpoints.
pub struct Verb {
    before_commit: &'static str,
    after_commit: &'static str,
    /// It adds to the volume: refused first where space is short.
    grows: bool,
}

impl Verb {
    pub const fn new(before_commit: &'static str, after_commit: &'static str) -> Self {
        Self { before_commit, after_commit, grows: false }
    }

    pub const fn that_grows(self) -> Self {
        Self { grows: true, ..self }
    }
}

/// The verb called `$name`, whose failpoints are `namespace.$name.before_commit` and `.after_commit`.
macro_rules! verb {
    ($name:literal, grows) => {
        $crate::tx::verb!($name).that_grows()
    };
    ($name:literal) => {
        $crate::tx::Verb::new(
            concat!("namespace.", $name, ".before_commit"),
            concat!("namespace.", $name, ".after_commit"),
        )
    };
}
pub(crate) use verb;

/// An inode that loses its last name: kept where it is open, else removed. Decided under the commit's locks.
struct Departing {
    ino: InodeId,
    /// As it is kept.
    inode: Inode,
    /// What goes with it otherwise.
    removal: Vec<Change>,
}

/// A gathered access time that stands in an inode as this transaction has read it.
struct SeenAccess {
    ino: InodeId,
    atime: Timestamp,
    /// The inode is written, and the time with it.
    folded: bool,
}

/// A transaction under way.
pub struct Tx<'a> {
    pub store: &'a Store,
    /// Every stripe is held already.
    alone: bool,
    notes: SmallVec<[Noted; 12]>,
    writes: SmallVec<[StripeIndex; 8]>,
    changes: Vec<Change>,
    touched: SmallVec<[(InodeId, Timestamp); 2]>,
    folded: SmallVec<[(InodeId, Times); 2]>,
    accesses: SmallVec<[SeenAccess; 2]>,
    must_be_empty: Option<InodeId>,
    departing: Option<Departing>,
    files_delta: i64,
}

/// Why an attempt came to nothing.
enum Failed {
    Conflict,
    Error(FsError),
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Self {
        Self::Error(error)
    }
}

impl<'a> Tx<'a> {
    fn new(store: &'a Store, alone: bool) -> Self {
        Self {
            store,
            alone,
            notes: SmallVec::new(),
            writes: SmallVec::new(),
            changes: Vec::new(),
            touched: SmallVec::new(),
            folded: SmallVec::new(),
            accesses: SmallVec::new(),
            must_be_empty: None,
            departing: None,
            files_delta: 0,
        }
    }

    /// The value of `key`, this transaction's own change included. The commit makes sure it is still so.
    pub fn get(&mut self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.see(key, |value| Ok(value.map(Bytes::copy_from_slice)))
    }

    /// As [`get`](Self::get): what `see` makes of the value, where it stands.
    pub fn see<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> FsResult<T>) -> FsResult<T> {
        self.look(key, false, || false, see)
    }

    /// As [`see`](Self::see); where the key is known to be `absent`, which is asked once its version is noted, nothing is read.
    pub fn see_unless<T>(
        &mut self,
        key: &[u8],
        absent: impl FnOnce() -> bool,
        see: impl FnOnce(Option<&[u8]>) -> FsResult<T>,
    ) -> FsResult<T> {
        self.look(key, false, absent, see)
    }

    /// As [`see`](Self::see), of what this transaction will change.
    pub fn see_to_change<T>(
        &mut self,
        key: &[u8],
        see: impl FnOnce(Option<&[u8]>) -> FsResult<T>,
    ) -> FsResult<T> {
        self.look(key, true, || false, see)
    }

    fn look<T>(
        &mut self,
        key: &[u8],
        to_change: bool,
        absent: impl FnOnce() -> bool,
        see: impl FnOnce(Option<&[u8]>) -> FsResult<T>,
    ) -> FsResult<T> {
        for change in self.changes.iter().rev() {
            match change {
                Change::Put { key: k, value, .. } if k.as_slice() == key => return see(Some(value)),
                Change::Delete { key: k } if k.as_slice() == key => return see(None),
                _ => {}
            }
        }
        if self.alone {
            return if absent() { see(None) } else { see(self.store.get(key)?.as_deref()) };
        }
        let noted = self.store.stripes.note(self.store.stripes.of(key));
        self.notes.push(noted);
        if absent() {
            return see(None);
        }
        lately::see(self.store.id, noted, key, to_change, |value| self.store.get_into(key, value), see)
    }

    /// The value of a key that is covered by an inode already read, or that nobody else changes.
    pub fn get_covered(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.store.get(key)
    }

    /// As [`get_covered`](Self::get_covered): calls `see` once with each value, where it stands, and its key's place.
    pub fn show_covered(&self, keys: &[&[u8]], see: Show<'_>) -> FsResult<()> {
        self.store.show(keys, see)
    }

    pub fn put(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.writes.push(self.store.stripes.of(key));
        self.put_covered(key, value);
    }

    /// As [`put`](Self::put), where the key has no value: this transaction has read that, or nobody has ever had the key.
    pub fn insert(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.writes.push(self.store.stripes.of(key));
        self.insert_covered(key, value);
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.writes.push(self.store.stripes.of(key));
        self.delete_covered(key);
    }

    pub fn put_covered(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.changes.push(Change::put(key, value));
    }

    pub fn insert_covered(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.changes.push(Change::insert(key, value));
    }

    pub fn delete_covered(&mut self, key: &[u8]) {
        self.changes.push(Change::delete(key));
    }

    pub fn change_covered(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The directory's times become `now`, in memory. Its inode must have been read.
    pub fn touch(&mut self, dir: InodeId, now: Timestamp) {
        self.touched.push((dir, now));
    }

    /// The gathered times `seen` are part of an inode that this transaction writes.
    pub fn fold(&mut self, dir: InodeId, seen: Option<Times>) {
        self.folded.extend(seen.map(|times| (dir, times)));
    }

    /// The gathered access time of an inode whose record has been read, unless that has it already.
    pub fn access_time(&mut self, ino: InodeId) -> Option<Timestamp> {
        if let Some(seen) = self.accesses.iter().find(|seen| seen.ino == ino) {
            return if seen.folded { None } else { Some(seen.atime) };
        }
        let atime = self.store.accesses.get(ino)?;
        self.accesses.push(SeenAccess { ino, atime, folded: false });
        Some(atime)
    }

    /// Whether [`access_time`](Self::access_time) has found one that is not yet part of a change.
    pub fn saw_access(&self, ino: InodeId) -> bool {
        self.accesses.iter().any(|seen| seen.ino == ino && !seen.folded)
    }

    /// The inode is written, and with it the access time that was seen; or it goes, and the time as well.
    pub fn fold_access(&mut self, ino: InodeId) {
        for seen in self.accesses.iter_mut().filter(|seen| seen.ino == ino) {
            seen.folded = true;
        }
    }

    /// The commit fails with `NotEmpty` unless `dir`, whose inode this transaction writes, has no entry.
    pub fn require_empty(&mut self, dir: InodeId) {
        self.must_be_empty = Some(dir);
    }

    /// What is covered by this inode's record changes, and the record does not.
    pub fn writes_inode(&mut self, ino: InodeId) {
        self.writes.push(self.store.stripes.of(&key::inode(ino)));
    }

    /// The inode has lost its last name: see [`Departing`]. One in a transaction.
    pub fn depart(&mut self, ino: InodeId, inode: Inode, removal: Vec<Change>) {
        debug_assert!(self.departing.is_none());
        self.writes.push(self.store.stripes.of(&key::inode(ino)));
        self.departing = Some(Departing { ino, inode, removal });
    }

    /// The volume will have so many inodes more. A departing inode counts by itself.
    pub fn count_files(&mut self, delta: i64) {
        self.files_delta += delta;
    }

    fn changes_nothing(&self) -> bool {
        self.changes.is_empty() && self.departing.is_none()
    }

    /// Locks what was read and what is to be written, in ascending order.
    fn lock(&self, held: &mut SmallVec<[Held<'a>; 12]>) {
        let reads = self.notes.iter().map(|noted| (noted.stripe, false));
        let writes = self.writes.iter().map(|&stripe| (stripe, true));
        let mut all = SmallVec::<[(StripeIndex, bool); 20]>::new();
        reads.chain(writes).for_each(|wish| all.push(wish));
        // The exclusive wish comes first, and the shared one of the same stripe falls away.
        all.sort_unstable_by_key(|&(stripe, exclusive)| (stripe, !exclusive));
        all.dedup_by_key(|(stripe, _)| *stripe);
        let stripes = &self.store.stripes;
        for &(stripe, exclusive) in &all {
            held.push(if exclusive { stripes.exclude(stripe) } else { stripes.share(stripe) });
        }
    }

    fn commit(&mut self, verb: &Verb) -> Result<Option<Fate>, Failed> {
        let mut held = SmallVec::new();
        if !self.alone {
            self.lock(&mut held);
        }
        if !self.store.stripes.unchanged(&self.notes) {
            return Err(Failed::Conflict);
        }
        begin(&held);
        self.check_empty()?;
        let fate = self.decide_departure();
        failpoint(verb.before_commit);
        self.store.commit(verb, std::mem::take(&mut self.changes))?;
        self.apply_in_memory();
        drop(held);
        failpoint(verb.after_commit);
        Ok(fate)
    }

    fn check_empty(&mut self) -> FsResult<()> {
        let Some(dir) = self.must_be_empty else { return Ok(()) };
        let mut occupied = false;
        let changes = &mut self.changes;
        self.store.scan(&ranges::entries(dir, 0), &mut |key, value| {
            occupied = EntryRecord::decode(value)?.occupant.is_some();
            if occupied {
                return Ok(ControlFlow::Break(()));
            }
            // A vacant slot goes with its directory.
            changes.push(Change::delete(key));
            Ok(ControlFlow::Continue(()))
        })?;
        if occupied { Err(FsError::NotEmpty) } else { Ok(()) }
    }

    fn decide_departure(&mut self) -> Option<Fate> {
        let Departing { ino, inode, removal } = self.departing.take()?;
        self.fold_access(ino);
        if self.store.opens.is_open(ino) {
            self.put_covered(&key::inode(ino), inode.encode());
            self.put_covered(&key::unlinked(ino), MARK);
            return Some(Fate::Kept);
        }
        self.changes.extend(removal);
        self.files_delta -= 1;
        Some(Fate::Gone)
    }

    /// Under the locks: so the times of a directory change in one order with its inode.
    fn apply_in_memory(&self) {
        for (dir, seen) in &self.folded {
            self.store.gathered.take(*dir, *seen);
        }
        for seen in self.accesses.iter().filter(|seen| seen.folded) {
            self.store.accesses.take(seen.ino, seen.atime);
        }
        for (dir, now) in &self.touched {
            let times = Times::both(*now);
            self.store.gathered.note(*dir, |before| before.map_or(times, |before| before.later(times)));
        }
        self.store.count_files(self.files_delta);
    }
}

/// Lets readers of what is held exclusively wait until it is let go.
fn begin(held: &[Held<'_>]) {
    for stripe in held {
        if let Held::Exclusive(changing) = stripe {
            changing.begin();
        }
    }
}

impl Store {
    /// Runs an operation to its end. `body` may run several times; only its last run counts. Tells besides
    /// what became of a departing inode.
    pub fn run<T>(
        &self,
        verb: &Verb,
        mut body: impl FnMut(&mut Tx<'_>) -> FsResult<T>,
    ) -> FsResult<(T, Option<Fate>)> {
        for attempt in 0..limits::CONFLICTS_MAX {
            match self.attempt(verb, false, &mut body) {
                Ok(done) => return Ok(done),
                Err(Failed::Error(error)) => return Err(error),
                Err(Failed::Conflict) if attempt < 4 => std::hint::spin_loop(),
                Err(Failed::Conflict) => std::thread::yield_now(),
            }
        }
        let all = self.stripes.exclude_all();
        begin(&all);
        self.attempt(verb, true, &mut body).map_err(|failed| match failed {
            Failed::Error(error) => error,
            Failed::Conflict => FsError::Engine("a transaction alone met another".into()),
        })
    }

    /// Runs what only reads: several records as of one state.
    pub fn read<T>(&self, body: impl FnMut(&mut Tx<'_>) -> FsResult<T>) -> FsResult<T> {
        const READ: Verb = verb!("read");
        Ok(self.run(&READ, body)?.0)
    }

    fn attempt<T>(
        &self,
        verb: &Verb,
        alone: bool,
        body: &mut impl FnMut(&mut Tx<'_>) -> FsResult<T>,
    ) -> Result<(T, Option<Fate>), Failed> {
        let mut tx = Tx::new(self, alone);
        let result = body(&mut tx);
        match result {
            Ok(value) if !tx.changes_nothing() => Ok((value, tx.commit(verb)?)),
            _ if !self.stripes.unchanged(&tx.notes) => Err(Failed::Conflict),
            Ok(value) => Ok((value, None)),
            Err(error) => Err(Failed::Error(error)),
        }
    }
}

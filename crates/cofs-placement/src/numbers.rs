//! The numbers that a pool's next objects get.
//!
//! Numbers below the reserved end are given out from memory; a further block is reserved durably before
//! its first number is used. The window that a crash leaves to look at is bounded: older objects that
//! were created and never handed out are then orphans, which a scan finds.

use std::{io, ops::Range};

use cofs_types::{
    PoolEnd,
    limits::{OBJECT_RESERVATION, OBJECTS_READY_MAX},
};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::{
    boot::run_id,
    era::{Era, Kept},
    reservation::{Reservation, ReservationFile},
    store::BackingStore,
};

/// Numbers between the beginning of the window and its end, at most.
pub const WINDOW_MAX: u64 = 2 * OBJECT_RESERVATION + OBJECTS_READY_MAX as u64;

#[derive(Clone, Default)]
struct State {
    /// The reservations were read: until then nothing is known of what a crash left.
    loaded: bool,
    next: u64,
    end: u64,
    look_from: u64,
    /// The run in which what is known here holds.
    run: Uuid,
    /// Tags of objects before may have been lost while this process lived, as the run changed: they are never looked at.
    looked_at_from: u64,
    /// What a crash of the process before left to look at.
    unsettled: Option<Range<u64>>,
    /// Objects from here on were looked at and may be nobody's: whether they are is not known yet.
    unjudged: Option<u64>,
    /// How far numbers were given out as the metadata know it, before the reservations were read.
    noted: Option<PoolEnd>,
    /// Of what stands in the file.
    generation: u64,
}

pub struct Numbers {
    boot: Uuid,
    /// Held over the durable write; taken before `state`.
    file: Mutex<Kept<ReservationFile>>,
    state: Mutex<State>,
}

impl Numbers {
    /// `boot` tells this boot of the machine from others: see [`unsettled`](Self::unsettled).
    pub fn new(boot: Uuid, era: Era) -> Self {
        Self { boot, file: Mutex::new(Kept::new(era)), state: Mutex::default() }
    }

    /// The metadata have noted this: to be told before the reservations are read.
    pub fn noted(&self, noted: PoolEnd) {
        self.state.lock().noted = Some(noted);
    }

    /// How far numbers may have been given out by now, and the generation of the reservations that say so; `None` until they are read.
    pub fn end(&self) -> Option<(u64, u64)> {
        Some(self.state.lock()).filter(|state| state.loaded).map(|state| (state.end, state.generation))
    }

    /// Reads the reservations, if that was not done.
    pub fn load(&self, store: &dyn BackingStore) -> io::Result<()> {
        self.opened(&mut self.file.lock(), store).map(|_| ())
    }

    /// The reservations, open. What they say counts the first time.
    fn opened<'a>(
        &self,
        file: &'a mut Kept<ReservationFile>,
        store: &dyn BackingStore,
    ) -> io::Result<&'a mut ReservationFile> {
        file.get(|| {
            let mut found = ReservationFile::open(store)?;
            let noted = Some(self.state.lock()).filter(|state| !state.loaded).and_then(|state| state.noted);
            if let Some(noted) = noted {
                raise(&mut found, noted, store)?;
            }
            let Reservation { look_from, end, run: written, clean } = found.current();
            let run = run_id(self.boot, store.mount());
            let mut state = self.state.lock();
            // Older ones may have been put back meanwhile.
            found.go_on_after(state.generation);
            let generation = found.generation();
            // After the pool was away for a while, what was reserved before holds.
            if !state.loaded {
                let unsettled =
                    (!clean && written == run && !run.is_nil() && look_from < end).then_some(look_from..end);
                *state = State {
                    loaded: true,
                    next: end,
                    end,
                    look_from,
                    run,
                    unsettled,
                    generation,
                    ..State::default()
                };
            }
            Ok(found)
        })
    }

    /// A number that was never given out before. `lowest` tells the lowest that is created and not handed out.
    pub fn take(&self, store: &dyn BackingStore, lowest: &dyn Fn() -> Option<u64>) -> io::Result<u64> {
        loop {
            {
                let mut state = self.state.lock();
                if state.next < state.end {
                    state.next += 1;
                    return Ok(state.next - 1);
                }
            }
            self.reserve(store, 0, lowest)?;
        }
    }

    /// Reserves a further block if no more than `left` numbers are.
    pub fn reserve(
        &self,
        store: &dyn BackingStore,
        left: u64,
        lowest: &dyn Fn() -> Option<u64>,
    ) -> io::Result<()> {
        let mut file = self.file.lock();
        let file = self.opened(&mut file, store)?;
        let State { next, end, unsettled, unjudged, run, looked_at_from, .. } = self.state.lock().clone();
        if end - next > left {
            return Ok(());
        }
        let end = end + OBJECT_RESERVATION;
        // A further crash must not hide what is still to be done after the last one.
        let unsettled = unsettled.map(|window| window.start).or(unjudged).unwrap_or(next);
        let look_from = lowest().unwrap_or(next).min(next).min(unsettled);
        let look_from = look_from.max(looked_at_from).max(end.saturating_sub(WINDOW_MAX));
        file.write(store, Reservation { look_from, end, run, clean: false })?;
        let mut state = self.state.lock();
        state.end = end;
        state.look_from = look_from.max(state.looked_at_from);
        state.generation = file.generation();
        Ok(())
    }

    /// Notes a clean end: nothing has to be looked at, and numbering goes on where it stopped.
    pub fn close(&self, store: &dyn BackingStore) -> io::Result<()> {
        let mut file = self.file.lock();
        let file = self.opened(&mut file, store)?;
        let mut state = self.state.lock();
        let next = state.next;
        let noted = file.current();
        if !noted.clean || noted.end != next {
            file.write(store, Reservation { look_from: next, end: next, run: state.run, clean: true })?;
        }
        state.end = next;
        state.look_from = next;
        state.generation = file.generation();
        Ok(())
    }

    /// The first number not given out yet.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// The beginning of the window that was last written down.
    pub fn look_from(&self) -> u64 {
        self.state.lock().look_from
    }

    /// The same, where the reservations may not have been read yet, and where they cannot be written.
    pub fn look_from_in(&self, store: &dyn BackingStore) -> io::Result<u64> {
        let known = Some(self.state.lock()).filter(|state| state.loaded).map(|state| state.look_from);
        known.map_or_else(|| ReservationFile::look(store).map(|found| found.look_from), Ok)
    }

    /// Where the window begins after the next reservation, at most: every start after a crash makes one, so that numbers go by
    /// without any object.
    pub fn look_from_at_most(&self) -> u64 {
        (self.state.lock().end + OBJECT_RESERVATION).saturating_sub(WINDOW_MAX)
    }

    /// The numbers among which objects may stand that were created and never handed out.
    ///
    /// Only after a crash of the process: after one of the machine, or of the file system below, an object's tag may be lost while the
    /// commit that names it survived, so that an untagged object may be somebody's. Those are left to `gc`.
    pub fn unsettled(&self) -> Option<Range<u64>> {
        self.state.lock().unsettled.clone()
    }

    /// The [run](crate::boot::run_id) in which the pool is open, folded; 0 where it is not known.
    pub fn run(&self, store: &dyn BackingStore) -> u64 {
        let known = Some(self.state.lock()).filter(|state| state.loaded).map(|state| state.run);
        let (high, low) = known.unwrap_or_else(|| run_id(self.boot, store.mount())).as_u64_pair();
        high ^ low
    }

    /// Whether the file system below was mounted anew since the reservations were read, or may have been.
    pub fn is_of_another_run(&self, store: &dyn BackingStore) -> bool {
        let run = run_id(self.boot, store.mount());
        let state = self.state.lock();
        state.loaded && (run != state.run || run.is_nil())
    }

    /// It was: numbering goes on in a block of this run, and what was made before is not looked at any more.
    pub fn begin_run(&self, store: &dyn BackingStore) {
        let run = run_id(self.boot, store.mount());
        let mut state = self.state.lock();
        let end = state.end;
        (state.next, state.look_from, state.looked_at_from) = (end, end, end);
        state.unsettled = None;
        state.run = run;
    }

    /// The window was looked at; `left`: there is something in it that may be nobody's.
    pub fn settled(&self, left: bool) {
        let mut state = self.state.lock();
        let window = state.unsettled.take();
        state.unjudged = window.filter(|_| left).map(|window| window.start);
    }

    /// What was left is in order.
    pub fn judged(&self) {
        self.state.lock().unjudged = None;
    }

    /// Whether it is known what a crash of the process before has left.
    pub fn is_looked_through(&self) -> bool {
        let state = self.state.lock();
        state.loaded && state.unsettled.is_none()
    }

    /// Whether a crash of the process before has left nothing more to do.
    pub fn is_in_order(&self) -> bool {
        let state = self.state.lock();
        state.loaded && state.unsettled.is_none() && state.unjudged.is_none()
    }
}

/// Brings reservations that are older than what the metadata have `noted` up to that.
fn raise(file: &mut ReservationFile, noted: PoolEnd, store: &dyn BackingStore) -> io::Result<()> {
    let found = file.current();
    if !file.is_older(noted) {
        return Ok(());
    }
    file.raise(store, noted)?;
    tracing::warn!(
        pool = noted.pool.0,
        found.end,
        noted.end,
        "the pool is older than the metadata, as if it was put back from a copy: new objects get numbers above those that \
         the metadata name; cofs fsck tells which files have lost their bytes"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DirectoryStore, FaultyStore, reservation};

    const BOOT: Uuid = Uuid::from_u128(0xb007 << 64);

    /// A store in a new directory, and the runs of its mount and of the next.
    fn scratch() -> (tempfile::TempDir, FaultyStore, [Uuid; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let store = FaultyStore::new(Arc::new(DirectoryStore::new(directory.path())));
        store.attach(&mut |_| Ok(())).unwrap();
        let mount = store.mount().unwrap();
        (directory, store, [mount, mount + 1].map(|mount| run_id(BOOT, Some(mount))))
    }

    /// Reservations that say that `run` has died, read in `boot`.
    fn after_a_death_in(run: Uuid, boot: Uuid, store: &FaultyStore) -> Numbers {
        let _ = store.remove_file(crate::At::root(reservation::FILE));
        ReservationFile::create(store, run).unwrap();
        let died = Reservation { look_from: 5, end: 9, run, clean: false };
        ReservationFile::open(store).unwrap().write(store, died).unwrap();
        let numbers = Numbers::new(boot, Era::default());
        assert!(!numbers.is_of_another_run(store), "nothing is known yet");
        numbers.load(store).unwrap();
        numbers
    }

    #[test]
    fn only_what_died_in_this_run_is_looked_at() {
        let (_directory, store, [here, next]) = scratch();
        let window = |written, boot| after_a_death_in(written, boot, &store).unsettled();
        // An earlier cofs noted the boot alone: it may be of another run.
        for (written, expected) in [(here, Some(5..9)), (next, None), (BOOT, None), (Uuid::nil(), None)] {
            assert_eq!(window(written, BOOT), expected, "{written}");
        }
        assert_eq!(window(Uuid::nil(), Uuid::nil()), None, "it is not known which run this is");
        store.mount_anew();
        assert_eq!((window(here, BOOT), window(next, BOOT)), (None, Some(5..9)));
    }

    #[test]
    fn what_was_made_before_the_run_changed_is_never_looked_at() {
        let (_directory, store, [here, next]) = scratch();
        let numbers = after_a_death_in(here, BOOT, &store);
        let take = || numbers.take(&store, &|| Some(6)).unwrap();
        assert_eq!(take(), 9);
        assert_eq!(ReservationFile::look(&store).unwrap().look_from, 5);
        assert!(!numbers.is_of_another_run(&store));
        store.mount_anew();
        assert!(numbers.is_of_another_run(&store));
        numbers.begin_run(&store);
        assert!(!numbers.is_of_another_run(&store) && numbers.unsettled().is_none());
        let first = take();
        assert!(first > 9);
        let found = ReservationFile::look(&store).unwrap();
        assert_eq!((found.look_from, found.run), (first, next));
    }

    #[test]
    fn no_number_is_given_out_twice_though_older_reservations_are_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path());
        store.attach(&mut |_| Ok(())).unwrap();
        ReservationFile::create(&store, Uuid::nil()).unwrap();
        let path = directory.path().join(reservation::FILE);
        let older = std::fs::read(&path).unwrap();
        let era = Era::default();
        let take = |numbers: &Numbers| numbers.take(&store, &|| None).unwrap();
        let numbers = Numbers::new(Uuid::nil(), era.clone());
        assert_eq!([take(&numbers), take(&numbers)], [1, 2]);
        std::fs::write(&path, older).unwrap();
        era.end();
        assert_eq!(take(&numbers), 3);
        let before = numbers.end().unwrap().1;
        numbers.close(&store).unwrap();
        assert!(
            numbers.end().unwrap().1 > before && ReservationFile::open(&store).unwrap().generation() > before
        );
        assert_eq!(take(&Numbers::new(Uuid::nil(), era)), 4);
    }
}

//! The thread that moves ended layers into RocksDB and makes the journal's next segment ready.

use std::{
    sync::{Arc, atomic::Ordering},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;

use super::{
    Free, Header, Intake, Layer, SLOTS, SLOTS_MIN, Segment, Work,
    lull::{LOOK, PAUSE},
    mapping::Mapping,
    segment,
};
use crate::{
    EngineError,
    embedded::{
        below::{Below, Drained},
        error::from_io,
        options::TABLE_BYTES,
        reserve,
    },
};

/// How long after a failure the drain tries again.
const AGAIN: Duration = Duration::from_millis(500);
/// Layers that are left at the end: so much the next life reads.
const LAYERS_LEFT_MAX: usize = 2;
/// How long it lets compaction work that has fallen behind.
const CATCHING_UP: Duration = Duration::from_millis(20);
/// The memory of ended segments' memtables that wait for a lull, in segments: then one after the other is drained until there is one, so that commits
/// find as much room as if none had waited.
const WAITING_SEGMENTS: u64 = 4;
/// What memtables had is kept for those to come: the next burst would have the kernel clear it first, which took 1.9 of the 73 µs of a small file (perf).
const MEMORY_KEPT: Duration = Duration::from_secs(30);
/// A pause of the commits that is long enough for removals to go down.
const SHORT_PAUSE: Duration = Duration::from_millis(200);
/// So much is merged at a time to make room: there is other work, too.
const MERGED_BYTES_MAX: u64 = 8 * TABLE_BYTES;
/// Removals that do not stay in memory when the commits pause: below stand the bytes that they set free.
const REMOVALS_MANY: usize = 4096;
pub(in crate::embedded) const THREAD: &str = "cofs-drain";

/// The drain of one intake; ended by dropping it.
pub(in crate::embedded) struct Drain {
    intake: Arc<Intake>,
    thread: Option<JoinHandle<()>>,
}

/// A file for the next segment.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// It is not there yet, so that nothing stands in it.
    pub(super) new: bool,
}

pub(super) enum Job {
    Prepare(Slot, Header),
    Drain(Arc<Layer>),
    /// Commits pause for a moment, and much of what they removed could come back.
    EndSegment,
    /// Commits pause, and what they removed while space was short is below.
    MakeRoom,
}

/// What a failure means for what comes after.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing has changed; it can be tried again.
    Passing(EngineError),
    /// Nothing may be written any more.
    Lasting(EngineError),
}

impl Drain {
    pub(in crate::embedded) fn start(intake: Arc<Intake>, mut below: Below) -> Result<Self, EngineError> {
        let working = Arc::clone(&intake);
        let work = move || {
            working.keep_newest_in_memory();
            while let Some(job) = working.next_job(|| below.has_room_to_make(Instant::now())) {
                match working.work_on(&job, &mut below) {
                    Ok(()) => {}
                    Err(Failure::Passing(error)) => working.stuck(error, job),
                    Err(Failure::Lasting(error)) => {
                        working.poison(error);
                        return;
                    }
                }
            }
            working.end(&mut below);
        };
        let thread = Builder::new().name(THREAD.into()).spawn(work);
        let thread = thread.map_err(|error| from_io("starting a thread of the metadata engine", &error))?;
        Ok(Self { intake, thread: Some(thread) })
    }
}

impl Drop for Drain {
    /// What is not drained stands in the journal, which does not get longer by that.
    fn drop(&mut self) {
        self.intake.work.lock().stopping = true;
        self.intake.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.intake.note_end();
    }
}

impl Intake {
    /// Waits for something to do; `None` at the end. `room_to_make`: whether there may be some, below.
    pub(super) fn next_job(&self, room_to_make: impl Fn() -> bool) -> Option<Job> {
        let mut work = self.work.lock();
        while !work.stopping {
            work.lull.look(self.committed.load(Ordering::Relaxed));
            let job = self.job_at_once(&mut work).or_else(|| self.giving_up_surplus(&mut work));
            if job.is_some() {
                return job;
            }
            let ended = self.layers.read().len() > 1;
            let time = if ended || self.is_much_removed(&work) { LOOK } else { PAUSE };
            let in_vain = self.changed.wait_for(&mut work, time).timed_out();
            // Compaction may have made room since.
            self.change_space(&mut work, |space| space.look_again(|bytes| self.take_back(bytes)));
            if !in_vain {
                continue;
            }
            work.lull.look(self.committed.load(Ordering::Relaxed));
            if work.lull.quiet() >= MEMORY_KEPT {
                self.pool.clear();
                // Of files that nobody writes to: they are mapped anew when they are made ready.
                work.mapped.clear();
            }
            if work.lull.quiet() >= SHORT_PAUSE && self.is_much_removed(&work) {
                return Some(Job::EndSegment);
            }
            if work.lull.is_pause() && room_to_make() {
                return Some(Job::MakeRoom);
            }
        }
        None
    }

    pub(super) fn job_at_once(&self, work: &mut Work) -> Option<Job> {
        let layers = self.layers.read();
        // First the segment that a commit may wait for.
        if work.spare.is_none()
            && let Some(slot) = work.free_slot()
        {
            let previous = work.newest;
            let oldest = layers.last().map_or(previous, |layer| layer.segment.header.generation);
            let header = Header { generation: previous + 1, previous, oldest, salt: None };
            return Some(Job::Prepare(slot, header));
        }
        match &layers[..] {
            [_, waiting @ .., oldest] if self.drains(work, waiting.iter().chain([oldest])) => {
                Some(Job::Drain(Arc::clone(oldest)))
            }
            _ => None,
        }
    }

    /// Whether one of the ended layers that are `waiting` is drained now.
    fn drains<'a>(&self, work: &mut Work, waiting: impl Iterator<Item = &'a Arc<Layer>>) -> bool {
        let lull = work.lull.is_now();
        let many = || {
            let bytes: usize = waiting.map(|layer| layer.memtable.bytes()).sum();
            bytes as u64 >= WAITING_SEGMENTS * self.segment_bytes
        };
        // Where there was no space for more files, or they were given up for it.
        let no_file_left = work.free.is_empty() && work.slots >= SLOTS;
        work.catching_up = !lull && (work.catching_up || no_file_left || many());
        lull || work.catching_up || work.space.is_short()
    }

    /// Whether the newest segment has so many removals that it is to be ended in a pause.
    fn is_much_removed(&self, work: &Work) -> bool {
        let removals = || self.layers.read().first().map_or(0, |layer| layer.memtable.removals());
        let enough = if work.space.is_short() { 1 } else { REMOVALS_MANY };
        work.spare.is_some() && removals() >= enough
    }

    /// The segment that this life begins with. Those after it are kept there before anybody has them.
    fn keep_newest_in_memory(&self) {
        let newest = self.layers.read().first().cloned();
        if let Some(layer) = newest {
            layer.segment.keep_in_memory();
        }
    }

    fn work_on(&self, job: &Job, below: &mut Below) -> Result<(), Failure> {
        match job {
            Job::Prepare(slot, header) => self.prepare(*slot, *header),
            Job::Drain(_) if self.is_behind(below).map_err(Failure::Passing)? => {
                if below.has_room_to_make(Instant::now()) {
                    // Which makes those tables fewer of which there are too many.
                    return below.make_room(MERGED_BYTES_MAX).map_err(Failure::Passing);
                }
                self.rest(&mut self.work.lock(), CATCHING_UP);
                Ok(())
            }
            Job::EndSegment => self.end_segment(),
            Job::MakeRoom => below.make_room(MERGED_BYTES_MAX).map_err(Failure::Passing),
            Job::Drain(layer) => {
                let short = self.short.load(Ordering::Relaxed);
                drain(layer, below, short).map(|()| self.drained(layer))
            }
        }
    }

    /// Whether what is below has fallen behind, which commits are then told. Where it fails they learn the cause, and are not held back.
    fn is_behind(&self, below: &mut Below) -> Result<bool, EngineError> {
        let is_behind = below.is_behind();
        self.pace.set_behind(matches!(is_behind, Ok(true)));
        is_behind
    }

    /// On a full file system the next life needs a reserve as much as this one did.
    fn end(&self, below: &mut Below) {
        if self.poison.get().is_some() {
            return; // Only a replay tells what is there.
        }
        self.leave_few_files(|layer| drain(layer, below, self.short.load(Ordering::Relaxed)).is_ok());
        reserve::keep_for_opening(&self.directory);
        if let Some(bytes) = self.work.lock().space.given_up_bytes() {
            reserve::take_back_most(&self.directory, bytes);
        }
    }

    /// Lives that are too short to drain anything, one after another, would leave a file more each. `drain` says whether it could.
    pub(super) fn leave_few_files(&self, mut drain: impl FnMut(&Layer) -> bool) {
        let surplus = || {
            let layers = self.layers.read();
            layers.last().filter(|_| layers.len() > LAYERS_LEFT_MAX).cloned()
        };
        while let Some(layer) = surplus()
            && drain(&layer)
        {
            self.drained(&layer);
        }
        let letting_go = self.letting_go_of_drained(&mut self.work.lock());
        if let Some(Job::Prepare(slot, header)) = letting_go {
            // If it fails they count still, and are drained once more.
            let _ = self.prepare(slot, header);
        }
    }

    /// Where space is short, and files that are not needed then still count in the newest header: there may be no other for long, as nothing is taken that
    /// grows.
    fn giving_up_surplus(&self, work: &mut Work) -> Option<Job> {
        let needed = work.slots_needed();
        let wanted = work.space.is_short() && work.free.iter().any(|free| free.slot >= needed);
        wanted.then(|| self.letting_go_of_drained(work)).flatten()
    }

    /// Saying in the newest header which segments count no longer, if it counts some of them. Nothing stands behind that one yet, so that
    /// nothing is lost if this is cut short.
    fn letting_go_of_drained(&self, work: &mut Work) -> Option<Job> {
        let (newest, oldest) = {
            let layers = self.layers.read();
            let header = |layer: &Arc<Layer>| layer.segment.header;
            (header(layers.first()?), header(layers.last()?).generation)
        };
        let newest = work.spare.as_ref().map_or(newest, |spare| spare.header);
        if newest.oldest == oldest {
            return None;
        }
        match work.spare.take() {
            Some(spare) => {
                // If it fails, the next attempt begins as this one did.
                work.newest = newest.previous;
                let slot = Slot { number: spare.slot, new: false };
                Some(Job::Prepare(slot, Header { oldest, ..newest }))
            }
            None => self.job_at_once(work),
        }
    }

    /// Lets the next segment begin, if one is ready.
    pub(super) fn end_segment(&self) -> Result<(), Failure> {
        // Who has it commits, and may wait for this thread: there is no pause any more.
        let Some(mut writer) = self.writer.try_lock() else { return Ok(()) };
        // While the writer is locked nobody else takes it.
        if self.work.lock().spare.is_none() {
            return Ok(());
        }
        self.next_segment(&mut writer, false).map_err(Failure::Lasting)
    }

    /// Until the drain is to end, the reserve is wanted, or `time` is over.
    fn rest(&self, work: &mut MutexGuard<'_, Work>, time: Duration) {
        let until = Instant::now() + time;
        let rests = |work: &Work| !work.stopping && !work.space.is_reserve_wanted();
        while rests(work) && !self.changed.wait_until(work, until).timed_out() {}
    }

    pub(super) fn prepare(&self, slot: Slot, header: Header) -> Result<(), Failure> {
        let mapped = self.work.lock().mapping_of(slot.number);
        let prepared =
            Segment::prepare(&self.directory, slot.number, header, self.segment_bytes, self.stores, mapped);
        if let Ok(segment) = &prepared
            && !self.work.lock().stopping
        {
            segment.keep_in_memory();
        }
        let mut work = self.work.lock();
        match prepared {
            Ok(segment) => {
                work.newest = header.generation;
                work.spare = Some(segment);
                self.got_on(&mut work);
                self.remove_surplus(&mut work, header.oldest);
            }
            // A file system without space for more files: the first two do. (One that was there stays: the newest
            // header may still count what stands in it.)
            Err(_) if slot.new && slot.number >= SLOTS_MIN && self.could_take_away(slot.number) => {
                work.slots = SLOTS
            }
            // Whatever of the header has reached the disk: it is written whole and synced by the next attempt, and nothing is
            // behind it before.
            Err(error) => return Err(Failure::Passing(self.failed("preparing", &error))),
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Takes a file away that could not be made ready. As long as it is there it may claim to be the segment that it was to be.
    fn could_take_away(&self, slot: u32) -> bool {
        match std::fs::remove_file(segment::path(&self.directory, slot)) {
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            Ok(()) => true,
        }
    }

    /// Processes that ended again and again before they had drained anything have made more files than are needed; and where space is short nothing waits for
    /// a lull. They go when the newest header no longer counts what stands in them.
    fn remove_surplus(&self, work: &mut Work, oldest: u64) {
        let needed = work.slots_needed();
        work.free.retain(|free| {
            let surplus = free.slot >= needed && free.generation < oldest;
            // One that cannot be removed is found again at the next start.
            !surplus || std::fs::remove_file(segment::path(&self.directory, free.slot)).is_err()
        });
        let Work { free, mapped, .. } = work;
        mapped.retain(|(slot, _)| free.iter().any(|free| free.slot == *slot));
    }

    /// RocksDB has all of the oldest layer.
    pub(super) fn drained(&self, layer: &Arc<Layer>) {
        let slot = layer.segment.slot;
        let mapping = layer.segment.done_with();
        let mut work = self.work.lock();
        self.layers.write().pop();
        work.free.push(Free { slot, generation: layer.segment.header.generation });
        work.mapped.extend(mapping.map(|mapping| (slot, mapping)));
        self.got_on(&mut work);
        self.changed.notify_all();
    }

    /// What could not be done will be tried again. Until it is, commits go on while the journal has room, and then fail with
    /// this error; if there is no space, those that would need more fail at once.
    fn stuck(&self, error: EngineError, job: Job) {
        let mut work = self.work.lock();
        if let Job::Prepare(slot, _) = job {
            // In the same file, or two might claim to be the same segment.
            work.again = Some(slot);
        }
        let removes = self.layers.read().iter().any(|layer| layer.memtable.removals() > 0);
        let release = || reserve::release(&self.directory);
        let at_once = self.change_space(&mut work, |space| space.failed(error, removes, release));
        self.changed.notify_all();
        if !at_once {
            self.rest(&mut work, AGAIN);
        }
    }

    fn got_on(&self, work: &mut Work) {
        reserve::keep_for_opening(&self.directory);
        self.change_space(work, |space| space.got_on(|bytes| self.take_back(bytes)));
        if !work.space.is_short() {
            reserve::restore(&self.directory);
        }
    }

    fn take_back(&self, bytes: u64) -> bool {
        reserve::take_back(&self.directory, bytes)
    }
}

impl Work {
    /// So many files, the first ones.
    fn slots_needed(&self) -> u32 {
        if self.space.is_short() { SLOTS - WAITING_SEGMENTS as u32 } else { SLOTS }
    }

    /// That of a file which is used again.
    fn mapping_of(&mut self, slot: u32) -> Option<Mapping> {
        let at = self.mapped.iter().position(|(mapped, _)| *mapped == slot)?;
        Some(self.mapped.swap_remove(at).1)
    }

    /// A file for the next segment; none while all are in use.
    fn free_slot(&mut self) -> Option<Slot> {
        if let Some(slot) = self.again.take() {
            return Some(slot);
        }
        // The lowest, so that surplus ones fall into disuse.
        if let Some(at) = (0..self.free.len()).min_by_key(|&at| self.free[at].slot) {
            return Some(Slot { number: self.free.swap_remove(at).slot, new: false });
        }
        let number = self.slots;
        (number < SLOTS).then(|| self.slots += 1).map(|()| Slot { number, new: true })
    }
}

/// Moves a layer into tables below, which are on stable storage then.
fn drain(layer: &Layer, below: &mut Below, short: bool) -> Result<(), Failure> {
    let Layer { segment, memtable } = layer;
    let sync = || segment.sync_ended().map_err(|error| from_io("syncing the metadata's journal", &error));
    let drained = Drained { generation: segment.header.generation, memtable, sync: &sync };
    below.take(&drained, short).map_err(|error| {
        // What a failed sync left in the kernel's cache can't be known.
        if segment.has_failed() { Failure::Lasting(error) } else { Failure::Passing(error) }
    })
}

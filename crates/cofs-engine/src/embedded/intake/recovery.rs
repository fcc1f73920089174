//! What the journal of an earlier process holds.
//!
//! The newest segment names the oldest that counted when it was made ready; what is below, the last one that it has. From there on they are read in order, up to the
//! first that was not ended: what stands behind it is either empty or what a power cut left behind a hole, and is not taken.
//!
//! Each life begins a segment: what a power cut left in the last one never follows what this life writes. Where there is no space for
//! another, it goes on in that one, from which it is cleared first.

use std::{
    fs::{self, File},
    io,
    num::NonZero,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, Builder, available_parallelism},
};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    Layer,
    end::End,
    memtable::Memtable,
    record::Record,
    segment::{self, Header, Replayed, Segment, Tail},
};
use crate::{
    EngineError, KeyShape,
    embedded::error::{from_errno, from_io},
};

/// A memtable is made for no larger one; it takes as many records as there are.
const SEGMENT_BYTES_EXPECTED: u64 = 128 << 20;
const THREAD: &str = "cofs-replay";

/// The journal as it was found.
#[derive(Default)]
pub(super) struct Found {
    /// What RocksDB may lack, oldest first.
    pub(super) layers: Vec<Arc<Layer>>,
    /// The newest segment of all, dead ones included; 0: none yet.
    pub(super) newest: u64,
    /// Segments that hold nothing that counts.
    void: Vec<u32>,
    /// The last layer's segment must be ended here before another follows.
    unended: Option<Tail>,
    /// Files that no segment uses.
    pub(super) free: Vec<u32>,
    /// Files that there are, or were: none has this number or a higher one.
    pub(super) slots: u32,
}

pub(super) fn failed(doing: &str, directory: &Path, error: &io::Error) -> EngineError {
    from_io(&format!("{doing} the metadata's journal in {}", directory.display()), error)
}

/// The segments in use, oldest first, and the files that are not.
fn segments(directory: &Path) -> Result<(Vec<(u32, Header)>, Vec<u32>), EngineError> {
    let (mut used, mut free) = (Vec::new(), Vec::new());
    for slot in segment::slots(directory).map_err(|error| failed("reading", directory, &error))? {
        let reading = |error| {
            from_io(
                &format!("reading the metadata's journal {}", segment::path(directory, slot).display()),
                &error,
            )
        };
        match segment::header(directory, slot).map_err(reading)? {
            Some(header) => used.push((slot, header)),
            None => free.push(slot),
        }
    }
    // Of two attempts to make one ready the later one says last.
    used.sort_unstable_by_key(|(_, header)| (header.generation, header.oldest));
    Ok((used, free))
}

/// Reads the journal behind the segment `drained_through`; changes nothing. Errors: those of reading; EUCLEAN where a segment is missing that the
/// next one follows, or records that were there when the store was closed.
pub(super) fn read(
    directory: &Path,
    write: bool,
    keys: KeyShape,
    drained_through: u64,
) -> Result<Found, EngineError> {
    let reading = |error: io::Error| failed("reading", directory, &error);
    let (mut used, mut free) = segments(directory)?;
    let slots = used.iter().map(|(slot, _)| slot).chain(&free).max().map_or(0, |slot| slot + 1);
    let Some((_, newest)) = used.last().copied() else {
        return Ok(Found { free, slots, ..Found::default() });
    };
    let oldest = newest.oldest.max(drained_through.saturating_add(1));
    let live = used.split_off(used.partition_point(|(_, header)| header.generation < oldest));
    free.extend(used.into_iter().map(|(slot, _)| slot));
    check_chain(directory, &live, oldest)?;
    let (live, void) = without_doubles(directory, &live)?;
    let mut found = Found { newest: newest.generation, void, free, slots, ..Found::default() };
    let end = End::noted(directory);
    let mut whole = true;
    let read = read_all(directory, &live, write, keys);
    for ((slot, header), read) in live.into_iter().zip(read) {
        if !whole {
            found.void.push(slot);
            continue;
        }
        let (segment, memtable, replayed) = read.map_err(reading)?;
        whole = replayed.ended;
        if end.is_some_and(|end| end.is_missed_in(header.generation, replayed.commits, replayed.ended)) {
            return Err(damaged(directory, slot, replayed.at));
        }
        found.unended = (!whole).then_some(Tail { at: replayed.at, records: replayed.commits });
        found.layers.push(Layer::new(segment, memtable));
    }
    Ok(found)
}

type Read = io::Result<(Segment, Memtable, Replayed)>;

/// Reads segments side by side, as many at a time as there are processors: whoever mounts after `kill -9` waits for this. Those that do not count, as
/// one before them was not ended, are read in vain.
fn read_all(directory: &Path, live: &[(u32, Header)], write: bool, keys: KeyShape) -> Vec<Read> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::with_capacity(live.len()));
    let work = || {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some((slot, header)) = live.get(at)
        {
            let read = read_one(directory, *slot, *header, write, keys);
            all.lock().push((at, read));
        }
    };
    let processors = available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 1..processors.min(live.len()) {
            // What has no thread is read by those that there are.
            let _ = Builder::new().name(THREAD.into()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut all = all.into_inner();
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, read)| read).collect()
}

fn read_one(directory: &Path, slot: u32, header: Header, write: bool, keys: KeyShape) -> Read {
    let segment = Segment::open(directory, slot, header, write)?;
    let bytes = fs::metadata(segment::path(directory, slot))?.len();
    // Whatever its length, which nobody has to have written.
    let memtable = Memtable::of_segment(bytes.min(SEGMENT_BYTES_EXPECTED), keys);
    let replayed = segment.replay(|changes| memtable.replay(changes))?;
    Ok((segment, memtable, replayed))
}

/// Of files that claim to be the same segment the one with records, or the last; and the others: of attempts to make it ready that were given up, and could not be
/// removed, or came back in a power cut.
fn without_doubles(
    directory: &Path,
    live: &[(u32, Header)],
) -> Result<(Vec<(u32, Header)>, Vec<u32>), EngineError> {
    let (mut single, mut others) = (Vec::new(), Vec::new());
    for same in live.chunk_by(|(_, one), (_, other)| one.generation == other.generation) {
        let mut kept = same.last().copied();
        if same.len() > 1 {
            let has_records = |&(slot, header): &(u32, Header)| {
                let replayed = Segment::open(directory, slot, header, false)?.replay(drop)?;
                Ok(replayed.ended || replayed.commits > 0)
            };
            let used: io::Result<Vec<bool>> = same.iter().map(has_records).collect();
            let used = used.map_err(|error| failed("reading", directory, &error))?;
            let mut used = same.iter().zip(used).filter_map(|(segment, used)| used.then_some(*segment));
            kept = used.next().or(kept);
            if used.next().is_some() {
                let text = format!(
                    "two files journal-N in {} claim to be the same part of the metadata's journal",
                    directory.display()
                );
                return Err(from_errno(text, Errno::UCLEAN)
                    .advise("remove the one that was copied there, or load a dump into a new volume"));
            }
        }
        single.extend(kept);
        others.extend(
            same.iter().map(|(slot, _)| *slot).filter(|slot| kept.is_none_or(|(kept, _)| kept != *slot)),
        );
    }
    Ok((single, others))
}

fn damaged(directory: &Path, slot: u32, at: u64) -> EngineError {
    let path = segment::path(directory, slot);
    let text = format!(
        "the metadata's journal {} is damaged at byte {at}: what stood there when it was closed is not whole",
        path.display()
    );
    from_errno(text, Errno::UCLEAN).advise("put a copy back, or load a dump into a new volume")
}

/// Every segment that counts must be there, from `oldest` on, and what each of them follows. The newest always counts.
fn check_chain(directory: &Path, live: &[(u32, Header)], oldest: u64) -> Result<(), EngineError> {
    let is_there = |generation: u64| {
        generation < oldest || live.iter().any(|(_, header)| header.generation == generation)
    };
    let newest = live.last();
    if newest.is_some_and(|(_, newest)| is_there(newest.oldest))
        && live.iter().all(|(_, header)| is_there(header.previous))
    {
        return Ok(());
    }
    let text = format!(
        "a part of the metadata's journal in {} is missing (a file journal-N was removed or damaged)",
        directory.display(),
    );
    Err(from_errno(text, Errno::UCLEAN).advise("put it back, or load a dump into a new volume"))
}

impl Found {
    /// Makes the journal fit to be gone on with in a new segment, whose header must be on stable storage by now:
    /// the last record that counts is followed by an end, and nothing behind it counts any more.
    pub(super) fn settle(&mut self, directory: &Path) -> Result<(), EngineError> {
        self.try_settle(directory).map_err(|error| failed("going on with", directory, &error))
    }

    fn try_settle(&mut self, directory: &Path) -> io::Result<()> {
        // First what must not count: behind an end it would.
        for slot in self.void.drain(..) {
            segment::void(directory, slot)?;
            self.free.push(slot);
        }
        if let (Some(mut tail), Some(last)) = (self.unended.take(), self.layers.last()) {
            last.segment.append_at(&mut Record::end(), &mut tail)?;
        }
        Ok(())
    }

    /// The header of the segment that goes on from here.
    pub(super) fn next(&self) -> Header {
        let generation = self.newest + 1;
        let generation_of = |layer: &Arc<Layer>| layer.segment.header.generation;
        Header {
            generation,
            previous: self.layers.last().map_or(0, generation_of),
            oldest: self.layers.first().map_or(generation, generation_of),
            salt: None,
        }
    }

    /// A file for the segment that goes on from here: nothing stands in it that counts, or that would if this one's header takes its place.
    pub(super) fn free_slot(&mut self) -> u32 {
        self.void.pop().or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    /// Where there is no space for a segment in the file `slot`: goes on in the last one, behind its records. `None` where that has to
    /// be followed by another, or where there would be nothing to drain: no file would become free.
    pub(super) fn go_on(&self, directory: &Path, slot: u32, bytes: u64, may_store: bool) -> Option<Tail> {
        let (tail, [_, .., last]) = (self.unended?, &self.layers[..]) else { return None };
        if last.segment.header.generation != self.newest {
            return None;
        }
        // It is new, or too short; and a header that may have got there must not stay.
        match fs::remove_file(segment::path(directory, slot)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return None,
            _ => File::open(directory).and_then(|directory| directory.sync_all()).ok()?,
        }
        last.segment.go_on(tail, bytes, may_store).ok().map(|()| tail)
    }
}

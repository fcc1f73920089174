//! A pool's free space, asked for where it may take for ever.
//!
//! statvfs(2) on a directory that hangs (an NFS server that is gone, a dead disk) does not return, and nobody who only wants to know how
//! a volume is should hang with it. So a thread asks, one at a time for each pool, and whoever wants to know waits for it no longer than
//! [`POOL_PATIENCE`]; then he gets what the pool said last.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cofs_types::limits::{POOL_PATIENCE, POOL_PROBE_INTERVAL};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::store::{BackingStore, Space};

const THREAD: &str = "cofs-space";

pub struct FreeSpace(Arc<Shared>);

struct Shared {
    store: Arc<dyn BackingStore>,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    last: Option<(Instant, Space)>,
    /// What the last answer was, if it was an error.
    error: Option<i32>,
    /// Since when somebody asks.
    asks: Option<Instant>,
    answers: u64,
}

impl FreeSpace {
    pub fn new(store: Arc<dyn BackingStore>) -> Self {
        Self(Arc::new(Shared { store, state: Mutex::default(), answered: Condvar::new() }))
    }

    /// At most [`POOL_PROBE_INTERVAL`] old, or what was said last if the pool does not answer; nothing if it never has. Errors: those of
    /// statvfs(2).
    pub fn get(&self) -> io::Result<Space> {
        let mut state = self.0.state.lock();
        if let Some(space) = state.fresh() {
            return Ok(space);
        }
        let asked = self.ask(&mut state)?;
        let answers = state.answers;
        while state.answers == answers {
            if self.0.answered.wait_until(&mut state, asked + POOL_PATIENCE).timed_out() {
                return Ok(state.known());
            }
        }
        state.error.map_or_else(|| Ok(state.known()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// What was said last, without waiting; asked anew, for the next, if that is old.
    pub fn known(&self) -> Option<Space> {
        let mut state = self.0.state.lock();
        if state.fresh().is_none() {
            let _ = self.ask(&mut state);
        }
        state.last.map(|(_, space)| space)
    }

    /// For how long the pool has owed an answer, if longer than anybody waits for it.
    pub fn silent(&self) -> Option<Duration> {
        self.0.state.lock().asks.map(|since| since.elapsed()).filter(|silent| *silent >= POOL_PATIENCE)
    }

    /// What was said was of another.
    pub fn forget(&self) {
        self.0.state.lock().last = None;
    }

    /// Since when somebody asks, which may be now. Errors: no thread.
    fn ask(&self, state: &mut State) -> io::Result<Instant> {
        if let Some(since) = state.asks {
            return Ok(since);
        }
        let shared = Arc::clone(&self.0);
        thread::Builder::new().name(THREAD.into()).spawn(move || shared.learn())?;
        Ok(*state.asks.insert(Instant::now()))
    }
}

impl Shared {
    fn learn(&self) {
        let answer = self.store.space();
        let mut state = self.state.lock();
        state.asks = None;
        state.answers += 1;
        state.error =
            answer.as_ref().err().map(|error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
        if let Ok(space) = answer {
            state.last = Some((Instant::now(), space));
        }
        drop(state);
        self.answered.notify_all();
    }
}

impl State {
    fn fresh(&self) -> Option<Space> {
        self.last.filter(|(when, _)| when.elapsed() < POOL_PROBE_INTERVAL).map(|(_, space)| space)
    }

    fn known(&self) -> Space {
        self.last.map(|(_, space)| space).unwrap_or_default()
    }
}
#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        path::Path,
        sync::mpsc::{Receiver, Sender, channel},
    };

    use super::*;
    use crate::store::{At, EntryKind, OpenMode, Operation};

    /// A store of which only the space can be asked; each answer is waited for.
    struct Slow(Mutex<Receiver<io::Result<u64>>>);

    impl BackingStore for Slow {
        fn path(&self) -> &Path {
            Path::new("/nowhere")
        }
        fn attach(&self, _: &mut dyn FnMut(&File) -> io::Result<()>) -> io::Result<()> {
            unreachable!()
        }
        fn admit(&self, _: Operation) -> io::Result<()> {
            unreachable!()
        }
        fn open(&self, _: At<'_>, _: OpenMode) -> io::Result<File> {
            unreachable!()
        }
        fn make_directory(&self, _: At<'_>) -> io::Result<()> {
            unreachable!()
        }
        fn remove_file(&self, _: At<'_>) -> io::Result<()> {
            unreachable!()
        }
        fn remove_directory(&self, _: At<'_>) -> io::Result<()> {
            unreachable!()
        }
        fn rename(&self, _: &str, _: &str) -> io::Result<()> {
            unreachable!()
        }
        fn list(&self, _: &File, _: &mut dyn FnMut(&[u8], EntryKind) -> io::Result<()>) -> io::Result<()> {
            unreachable!()
        }
        fn space(&self) -> io::Result<Space> {
            let free_bytes = self.0.lock().recv().unwrap()?;
            Ok(Space { free_bytes, ..Space::default() })
        }
        fn sync_all(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    fn slow() -> (FreeSpace, Sender<io::Result<u64>>) {
        let (answer, answers) = channel();
        (FreeSpace::new(Arc::new(Slow(Mutex::new(answers)))), answer)
    }

    fn age(free: &FreeSpace) {
        let mut state = free.0.state.lock();
        if let Some((when, _)) = &mut state.last {
            *when -= POOL_PROBE_INTERVAL;
        }
    }

    #[test]
    fn who_asks_a_pool_that_hangs_gets_what_it_said_last() {
        let (free, answer) = slow();
        answer.send(Ok(7)).unwrap();
        assert_eq!(free.get().unwrap().free_bytes, 7);
        assert_eq!(free.get().unwrap().free_bytes, 7, "it is not asked again so soon");
        age(&free);
        assert_eq!(free.silent(), None);
        assert_eq!(free.get().unwrap().free_bytes, 7);
        assert!(free.silent().is_some());
        assert_eq!(free.known().unwrap().free_bytes, 7);
        answer.send(Ok(8)).unwrap();
        while free.silent().is_some() {
            thread::yield_now();
        }
        assert_eq!(free.get().unwrap().free_bytes, 8);
    }

    #[test]
    fn errors_are_told_and_not_kept() {
        let (free, answer) = slow();
        answer.send(Err(Errno::IO.into())).unwrap();
        assert_eq!(free.get().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        answer.send(Ok(7)).unwrap();
        assert_eq!(free.get().unwrap().free_bytes, 7);
    }

    #[test]
    fn one_at_a_time_asks_and_who_must_not_wait_does_not() {
        let (free, answer) = slow();
        assert_eq!((free.known(), free.known()), (None, None));
        answer.send(Ok(7)).unwrap();
        assert_eq!(free.get().unwrap().free_bytes, 7);
        assert_eq!(free.0.state.lock().answers, 1);
    }
}

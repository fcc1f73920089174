//! A pool's free space, and what is lost of it, asked for where it may take for ever.
//!
//! statvfs(2) on a directory that hangs (an NFS server that is gone, a dead disk) does not return, and nobody who only wants to know how
//! a volume is should hang with it. So each pool has a thread that asks, and whoever wants to know waits for it no longer than
//! [`POOL_PATIENCE`]; then he gets what the pool said last. The thread is as old as the pool: a thread inherits the CPUs and the
//! scheduling policy of the one that starts it, and whoever wants to know may be bound to one CPU, or run after everybody else.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cofs_types::limits::{POOL_PATIENCE, POOL_PROBE_INTERVAL};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::{
    damage::Damage,
    store::{BackingStore, Space},
};

const THREAD: &str = "cofs-space";

pub struct FreeSpace {
    shared: Arc<Shared>,
    /// Until the end.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<dyn BackingStore>,
    state: Mutex<State>,
    asked: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    last: Option<(Instant, Space)>,
    /// What the last answer was, if it was an error.
    error: Option<i32>,
    /// What was lost of the pool when it answered last.
    damage: Option<Damage>,
    /// Since when the pool owes an answer.
    asks: Option<Instant>,
    answers: u64,
    /// Nobody will want to know any more.
    over: bool,
}

impl FreeSpace {
    /// Errors: no thread.
    pub fn new(store: Arc<dyn BackingStore>) -> io::Result<Self> {
        let (asked, answered) = Default::default();
        let shared = Arc::new(Shared { store, state: Mutex::default(), asked, answered });
        let asker = Arc::clone(&shared);
        let thread = thread::Builder::new().name(THREAD.into()).spawn(move || asker.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// At most [`POOL_PROBE_INTERVAL`] old, or what was said last if the pool does not answer; nothing if it never has. Errors: those of
    /// statvfs(2).
    pub fn get(&self) -> io::Result<Space> {
        let mut state = self.shared.state.lock();
        if let Some(space) = state.fresh() {
            return Ok(space);
        }
        let asked = self.shared.ask(&mut state);
        let answers = state.answers;
        while state.answers == answers {
            if self.shared.answered.wait_until(&mut state, asked + POOL_PATIENCE).timed_out() {
                return Ok(state.known());
            }
        }
        state.error.map_or_else(|| Ok(state.known()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// What was said last, without waiting; asked anew, for the next, if that is old.
    pub fn known(&self) -> Option<Space> {
        let mut state = self.shared.state.lock();
        if state.fresh().is_none() {
            self.shared.ask(&mut state);
        }
        state.last.map(|(_, space)| space)
    }

    /// For how long the pool has owed an answer, if longer than anybody waits for it.
    pub fn silent(&self) -> Option<Duration> {
        self.shared.state.lock().asks.map(|since| since.elapsed()).filter(|silent| *silent >= POOL_PATIENCE)
    }

    /// What was lost of the pool when its space was last asked for.
    pub fn damage(&self) -> Option<Damage> {
        self.shared.state.lock().damage
    }

    /// What was said was of another.
    pub fn forget(&self) {
        let mut state = self.shared.state.lock();
        (state.last, state.damage) = (None, None);
    }
}

impl Drop for FreeSpace {
    /// Waits for the thread, but not for a pool.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.over = true;
        let may_hang = state.asks.is_some();
        drop(state);
        self.shared.asked.notify_one();
        if let Some(thread) = self.thread.take().filter(|_| !may_hang) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Since when the pool owes an answer, which may be now.
    fn ask(&self, state: &mut State) -> Instant {
        *state.asks.get_or_insert_with(|| {
            self.asked.notify_one();
            Instant::now()
        })
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.over {
            if state.asks.is_none() {
                self.asked.wait(&mut state);
                continue;
            }
            let (answer, damage) = MutexGuard::unlocked(&mut state, || self.answer());
            state.learn(answer);
            state.damage = damage;
            self.answered.notify_all();
        }
    }

    fn answer(&self) -> (io::Result<Space>, Option<Damage>) {
        let space = self.store.space();
        let damage = if space.is_ok() { Damage::look(&*self.store) } else { None };
        (space, damage)
    }
}

impl State {
    fn learn(&mut self, answer: io::Result<Space>) {
        self.asks = None;
        self.answers += 1;
        self.error =
            answer.as_ref().err().map(|error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
        if let Ok(space) = answer {
            self.last = Some((Instant::now(), space));
        }
    }

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
        sync::mpsc::{Sender, channel},
    };

    use rustix::thread::CpuSet;

    use super::*;
    use crate::store::{At, EntryKind, OpenMode, Operation};

    /// A store of which only the space can be asked, and what is lost of it.
    struct Says<F>(F);

    impl<F: Fn() -> io::Result<u64> + Send + Sync + 'static> BackingStore for Says<F> {
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
            Err(Errno::NOENT.into())
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
            Ok(Space { free_bytes: self.0()?, ..Space::default() })
        }
        fn mount(&self) -> Option<u64> {
            None
        }
        fn sync_all(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    /// Each answer is waited for.
    fn slow() -> (FreeSpace, Sender<io::Result<u64>>) {
        let (answer, answers) = channel();
        let answers = Mutex::new(answers);
        (FreeSpace::new(Arc::new(Says(move || answers.lock().recv().unwrap()))).unwrap(), answer)
    }

    fn age(free: &FreeSpace) {
        let mut state = free.shared.state.lock();
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
        assert!(
            free.silent().is_some(),
            "who asks once more does not make it owe the answer for a shorter time"
        );
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
    fn whoever_wants_to_know_lends_the_asking_thread_nothing_of_his() {
        let cpus = || rustix::thread::sched_getaffinity(None);
        let free = FreeSpace::new(Arc::new(Says(move || Ok(u64::from(cpus()?.count()))))).unwrap();
        let all = cpus().unwrap();
        let one = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut pinned = CpuSet::new();
                pinned.set(one);
                rustix::thread::sched_setaffinity(None, &pinned).unwrap();
                assert_eq!(free.get().unwrap().free_bytes, u64::from(all.count()));
            });
        });
    }

    #[test]
    fn one_at_a_time_asks_and_who_must_not_wait_does_not() {
        let (free, answer) = slow();
        assert_eq!((free.known(), free.known()), (None, None));
        assert_eq!(free.silent(), None, "nobody has waited long");
        answer.send(Ok(7)).unwrap();
        while free.known().is_none() {
            thread::yield_now();
        }
        assert_eq!(free.get().unwrap().free_bytes, 7);
        assert_eq!(free.shared.state.lock().answers, 1);
    }

    #[test]
    fn what_was_said_of_another_pool_is_not_told() {
        let (free, answer) = slow();
        answer.send(Ok(7)).unwrap();
        assert_eq!(free.get().unwrap().free_bytes, 7);
        assert_eq!(free.damage(), Some(Damage::ReservationsGone));
        free.forget();
        assert_eq!((free.known(), free.damage()), (None, None));
        answer.send(Ok(8)).unwrap();
        assert_eq!(free.get().unwrap().free_bytes, 8);
    }
}

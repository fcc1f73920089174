//! Where operations run: on the worker that received them, or, when they must wait, in a pool.
//!
//! A [`Task`] is a future that lives as long as the mount: it owns its request buffer and serves one request
//! after the other, so that nothing is allocated or moved per request. A worker polls it. While operations
//! complete at once the task goes on; when one returns `Pending` the whole task stays where it stands, the
//! worker goes on with another, and the pool's threads, which may block, poll it once it is woken. There it
//! finishes its request, answers, and rests (gives itself back to its [`Home`]) instead of taking the next.
//!
//! Invariants: a task is polled by one thread at a time; it is in the pool's queue at most once, so the
//! queue is bounded by the number of tasks; a task woken while it is polled is polled again.
//!
//! What leaves to wait for a disk, and does little else, goes to threads on its worker's CPU, which need not be woken on another.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    fmt,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::JoinHandle,
    time::Duration,
};

use cofs_face::{BlockingThread, left_for_nearby};
use cofs_types::limits;
use parking_lot::{Condvar, Mutex};
use rustix::thread::CpuSet;

use crate::scheduling::Policy;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static WORKER: Cell<bool> = const { Cell::new(false) };
    /// A task that this thread of the pool goes on with itself.
    static NEXT: Cell<Option<Arc<Task>>> = const { Cell::new(None) };
    static KEEPS_WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// Wakes as the last act of a work that was [taken over](Pool::take_over): this thread goes on with who is woken. Waking another for him
/// costs as much as a whole request.
pub(crate) fn wake_last(waker: Waker) {
    KEEPS_WOKEN.set(true);
    waker.wake();
    KEEPS_WOKEN.set(false);
}

/// Marks this thread as one that takes requests.
pub(crate) fn become_worker() {
    WORKER.set(true);
}

/// Set by a task that has no request in hand; tells its poller why it is `Pending`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rest(Arc<AtomicBool>);

impl Rest {
    /// Completes on a worker; elsewhere the task rests until a worker polls it.
    pub async fn until_worker(&self) {
        poll_fn(|_| if WORKER.get() { Poll::Ready(()) } else { self.pending() }).await
    }

    /// Rests once: completes when the task is polled again.
    pub async fn until_polled(&self) {
        let mut rested = false;
        poll_fn(|_| if std::mem::replace(&mut rested, true) { Poll::Ready(()) } else { self.pending() }).await
    }

    fn pending(&self) -> Poll<()> {
        self.0.store(true, Ordering::Relaxed);
        Poll::Pending
    }

    fn take(&self) -> bool {
        let rests = self.0.load(Ordering::Relaxed);
        if rests {
            // Only whoever polls the task sets it, and takes it.
            self.0.store(false, Ordering::Relaxed);
        }
        rests
    }
}

/// Where a task goes that has finished its request in the pool.
pub(crate) trait Home: Send + Sync {
    fn rests(&self, task: Arc<Task>);
}

/// What a poll came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    /// The task has ended for good.
    Ended,
    /// No request in hand: whoever polled may poll again.
    Rests,
    /// In the middle of a request; the pool goes on with it.
    Waits,
}

const RESTING: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;
const WAITING: u8 = 3;
const QUEUED: u8 = 4;

pub(crate) struct Task {
    state: AtomicU8,
    rest: Rest,
    work: Mutex<Option<Work>>,
    pool: Weak<Pool>,
    /// Where it goes to wait and do little else, if it has a CPU.
    nearby: Weak<Pool>,
    home: Arc<dyn Home>,
    /// Which of its home's tasks this is.
    pub index: usize,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Task {
    pub fn new(pool: &Arc<Pool>, home: Arc<dyn Home>, index: usize, rest: Rest, work: Work) -> Arc<Self> {
        let (state, work) = (AtomicU8::new(RESTING), Mutex::new(Some(work)));
        Arc::new(Self { state, rest, work, pool: Arc::downgrade(pool), nearby: Weak::new(), home, index })
    }

    /// As [`new`](Self::new), of a worker that has `nearby` on its CPU.
    pub fn beside(
        (pool, nearby): (&Arc<Pool>, &Arc<Pool>),
        home: Arc<dyn Home>,
        index: usize,
        rest: Rest,
        work: Work,
    ) -> Arc<Self> {
        let (state, work) = (AtomicU8::new(RESTING), Mutex::new(Some(work)));
        let (pool, nearby) = (Arc::downgrade(pool), Arc::downgrade(nearby));
        Arc::new(Self { state, rest, work, pool, nearby, home, index })
    }

    /// Polls once; only for a task that rests, or that the pool took from its queue. `waker` is the task's
    /// own, made once.
    pub fn poll(self: &Arc<Self>, waker: &Waker) -> Polled {
        {
            // Never waited for: nobody else polls it until the state below says so.
            let mut slot = self.work.lock();
            let Some(work) = slot.as_mut() else { return Polled::Ended };
            self.state.store(POLLING, Ordering::Release);
            if work.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                *slot = None;
                return Polled::Ended;
            }
        }
        if self.rest.take() {
            self.state.store(RESTING, Ordering::Release);
            return Polled::Rests;
        }
        if self.advance(POLLING, WAITING).is_err() {
            self.state.store(QUEUED, Ordering::Release);
            self.enqueue(if left_for_nearby() { &self.nearby } else { &self.pool });
        }
        Polled::Waits
    }

    fn advance(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn enqueue(self: &Arc<Self>, pool: &Weak<Pool>) {
        if let Some(pool) = pool.upgrade().or_else(|| self.pool.upgrade()) {
            pool.push(self.clone());
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        loop {
            let moved = match self.state.load(Ordering::Acquire) {
                POLLING => self.advance(POLLING, WOKEN),
                WAITING => self.advance(WAITING, QUEUED).inspect(|_| self.enqueue(&self.pool)),
                // Woken already, or a waker left over from an earlier request.
                _ => return,
            };
            if moved.is_ok() {
                return;
            }
        }
    }
}

/// Threads kept for the next slow work; others end when they have had none for a while.
const IDLE_THREADS_MAX: usize = 4;
const SPARE_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Arc<Task>>,
    threads: Vec<JoinHandle<()>>,
    started: usize,
    /// Threads that are to go on.
    alive: usize,
    /// What wakes each of those that have nothing to do. The last one that came to rest is woken first, or a little work now and
    /// then would go round, and none would ever have been idle for long.
    idle: Vec<Arc<Condvar>>,
    closed: bool,
}

/// Threads that may block, and may hang with the file system below: so there are as many as requests can be in hand there. They start
/// when there is work.
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    threads_max: usize,
    spare_after: Duration,
    /// Where the threads may run: where whoever mounts may. A thread inherits the CPUs of the one that starts
    /// it, and that is a worker pinned to one.
    cpus: Option<CpuSet>,
    /// Likewise how: a worker that stacks runs after everybody else.
    policy: Option<Policy>,
    /// Those of single CPUs, for what waits and does little else.
    nearby: Mutex<BTreeMap<usize, Arc<Pool>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads_max", &self.threads_max).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool with its first thread, so that there is always one. Errors: the thread could not be started.
    pub fn new() -> io::Result<Arc<Self>> {
        Self::with(limits::BLOCKING_THREADS_MAX, SPARE_AFTER)
    }

    /// The pool whose threads are on `cpu`; it ends with this one. Errors: the first thread could not be started.
    pub fn nearby(&self, cpu: usize) -> io::Result<Arc<Self>> {
        let mut nearby = self.nearby.lock();
        if let Some(pool) = nearby.get(&cpu) {
            return Ok(pool.clone());
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        let pool = Self::on(Some(only), self.policy, self.threads_max, self.spare_after)?;
        nearby.insert(cpu, pool.clone());
        Ok(pool)
    }

    fn with(threads_max: usize, spare_after: Duration) -> io::Result<Arc<Self>> {
        let (cpus, policy) = (rustix::thread::sched_getaffinity(None).ok(), Policy::current().ok());
        Self::on(cpus, policy, threads_max, spare_after)
    }

    fn on(
        cpus: Option<CpuSet>,
        policy: Option<Policy>,
        threads_max: usize,
        spare_after: Duration,
    ) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queue: Mutex::default(),
            threads_max,
            spare_after,
            cpus,
            policy,
            nearby: Mutex::default(),
        });
        pool.spawn(&mut pool.queue.lock())?;
        Ok(pool)
    }

    fn spawn(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let (pool, name) = (self.clone(), format!("cofs-wait-{}", queue.started));
        let thread = std::thread::Builder::new().name(name).spawn(move || pool.run())?;
        queue.threads.retain(|thread| !thread.is_finished());
        queue.threads.push(thread);
        queue.started += 1;
        queue.alive += 1;
        Ok(())
    }

    /// Runs `work`, for which no request's memory is needed. Errors: the work itself, where too much waits already.
    pub fn take_over(self: &Arc<Self>, work: Work) -> Result<(), Work> {
        struct Nowhere;
        impl Home for Nowhere {
            fn rests(&self, _: Arc<Task>) {}
        }
        if self.queue.lock().tasks.len() >= limits::BLOCKING_QUEUE_MAX {
            return Err(work);
        }
        let task = Task::new(self, Arc::new(Nowhere), 0, Rest::default(), work);
        task.state.store(QUEUED, Ordering::Release);
        self.push(task);
        Ok(())
    }

    fn push(self: &Arc<Self>, task: Arc<Task>) {
        if KEEPS_WOKEN.take() {
            return NEXT.set(Some(task));
        }
        let mut queue = self.queue.lock();
        queue.tasks.push_back(task);
        if let Some(idle) = queue.idle.pop() {
            drop(queue);
            idle.notify_one();
        } else if queue.alive < self.threads_max
            && !queue.closed
            && let Err(error) = self.spawn(&mut queue)
        {
            tracing::warn!(%error, "no further thread for operations that wait");
        }
    }

    /// For a thread that `woken` wakes.
    fn next(&self, woken: &Arc<Condvar>) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            if queue.closed {
                return None;
            }
            queue.idle.push(woken.clone());
            // No timer runs where nobody is to go.
            if queue.alive > IDLE_THREADS_MAX {
                woken.wait_for(&mut queue, self.spare_after);
            } else {
                woken.wait(&mut queue);
            }
            // Still there: nobody has woken it.
            let at = queue.idle.iter().position(|idle| Arc::ptr_eq(idle, woken));
            let in_vain = at.map(|at| queue.idle.remove(at)).is_some();
            if in_vain && queue.tasks.is_empty() && !queue.closed && queue.alive > IDLE_THREADS_MAX {
                queue.alive -= 1;
                return None;
            }
        }
    }

    /// Undoes what this thread has inherited from a worker.
    fn disinherit(&self) -> io::Result<()> {
        if let Some(cpus) = &self.cpus {
            rustix::thread::sched_setaffinity(None, cpus)?;
        }
        match self.policy {
            Some(policy) if policy != Policy::current()? => policy.give(rustix::thread::gettid()),
            _ => Ok(()),
        }
    }

    fn run(&self) {
        if let Err(error) = self.disinherit() {
            tracing::warn!(%error, "a thread for operations that wait runs where and how its starter did");
        }
        let _may_block = BlockingThread::enter();
        let woken = Arc::default();
        while let Some(task) = NEXT.take().or_else(|| self.next(&woken)) {
            if task.poll(&Waker::from(task.clone())) == Polled::Rests {
                task.home.clone().rests(task);
            }
        }
    }

    /// Ends the threads once the queue is empty, and waits for them.
    pub fn close(&self) {
        std::mem::take(&mut *self.nearby.lock()).into_values().for_each(|pool| pool.close());
        let (threads, idle) = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            (std::mem::take(&mut queue.threads), std::mem::take(&mut queue.idle))
        };
        idle.iter().for_each(|idle| {
            idle.notify_one();
        });
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread for operations that wait has panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use cofs_face::{blocking, waiting};

    use super::*;

    #[derive(Default)]
    struct Idle(Mutex<Vec<Arc<Task>>>, Condvar);

    impl Home for Idle {
        fn rests(&self, task: Arc<Task>) {
            self.0.lock().push(task);
            self.1.notify_all();
        }
    }

    fn task(
        pool: &Arc<Pool>,
        home: &Arc<Idle>,
        every_nth_waits: usize,
        served: &Arc<AtomicUsize>,
    ) -> Arc<Task> {
        let (rest, served) = (Rest::default(), served.clone());
        let resting = rest.clone();
        let work = async move {
            loop {
                resting.until_polled().await;
                let number = served.fetch_add(1, Ordering::Relaxed);
                if number % every_nth_waits == 0 {
                    blocking().await;
                }
            }
        };
        Task::new(pool, home.clone(), 0, rest, Box::pin(work))
    }

    #[test]
    fn what_completes_at_once_stays_and_what_waits_comes_back_from_the_pool() {
        let (pool, home, served) = (Pool::new().unwrap(), Arc::new(Idle::default()), Arc::default());
        let one = task(&pool, &home, 2, &served);
        let waker = Waker::from(one.clone());
        assert_eq!(one.poll(&waker), Polled::Rests, "it comes to its first rest");
        assert_eq!(one.poll(&waker), Polled::Waits, "request 0 waits");
        let mut idle = home.0.lock();
        while idle.is_empty() {
            home.1.wait(&mut idle);
        }
        let back = idle.pop().unwrap();
        drop(idle);
        assert_eq!(back.poll(&waker), Polled::Rests, "request 1 completes at once");
        assert_eq!(served.load(Ordering::Relaxed), 2);
        pool.close();
    }

    #[test]
    fn what_waits_and_does_little_else_stays_on_its_cpu() {
        let pool = Pool::new().unwrap();
        let ours = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).rfind(|cpu| ours.is_set(*cpu)).unwrap();
        let nearby = pool.nearby(cpu).unwrap();
        assert!(Arc::ptr_eq(&nearby, &pool.nearby(cpu).unwrap()));
        let (tell, told) = std::sync::mpsc::channel();
        let look = move || tell.send(rustix::thread::sched_getaffinity(None).unwrap()).unwrap();
        let (rest, home) = (Rest::default(), Arc::new(Idle::default()));
        let work = async move {
            waiting().await;
            look();
            poll_fn(|_| Poll::<()>::Pending).await;
        };
        let task = Task::beside((&pool, &nearby), home.clone(), 0, rest, Box::pin(work));
        assert_eq!(task.poll(&Waker::from(task.clone())), Polled::Waits);
        let cpus = told.recv().unwrap();
        assert!(cpus.count() == 1 && cpus.is_set(cpu), "{cpus:?}");

        let (tell, told) = std::sync::mpsc::channel();
        let elsewhere = async move {
            blocking().await;
            tell.send(rustix::thread::sched_getaffinity(None).unwrap()).unwrap();
            poll_fn(|_| Poll::<()>::Pending).await;
        };
        let task = Task::beside((&pool, &nearby), home, 0, Rest::default(), Box::pin(elsewhere));
        assert_eq!(task.poll(&Waker::from(task.clone())), Polled::Waits);
        assert_eq!(told.recv().unwrap(), ours);
        pool.close();
    }

    #[test]
    fn many_tasks_from_many_threads_all_come_home() {
        let (pool, home, served) = (Pool::new().unwrap(), Arc::new(Idle::default()), Arc::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let one = task(&pool, &home, 1, &served);
                        let waker = Waker::from(one.clone());
                        one.poll(&waker);
                        one.poll(&waker);
                    }
                });
            }
        });
        let mut idle = home.0.lock();
        while idle.len() < 800 {
            home.1.wait(&mut idle);
        }
        drop(idle);
        pool.close();
    }

    #[test]
    fn threads_that_hang_keep_nobody_else_waiting_and_those_to_spare_end() {
        let pool = Pool::with(8, Duration::from_millis(1)).unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let (gate, done) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..7 {
            let (gate, done) = (gate.clone(), done.clone());
            let hangs = async move {
                let _ = gate.lock().recv();
                done.fetch_add(1, Ordering::SeqCst);
            };
            assert!(pool.take_over(Box::pin(hangs)).is_ok());
        }
        let (tell, told) = std::sync::mpsc::channel();
        assert!(pool.take_over(Box::pin(async move { tell.send(()).unwrap() })).is_ok());
        told.recv().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 0);
        (0..7).for_each(|_| open.send(()).unwrap());
        while pool.queue.lock().alive > IDLE_THREADS_MAX {
            std::thread::yield_now();
        }
        pool.close();
        assert_eq!(done.load(Ordering::SeqCst), 7);
    }

    #[test]
    fn a_little_work_now_and_then_keeps_few_threads() {
        let pool = Pool::with(12, Duration::from_millis(400)).unwrap();
        (0..11).for_each(|_| pool.spawn(&mut pool.queue.lock()).unwrap());
        let from = std::time::Instant::now();
        while pool.queue.lock().alive > IDLE_THREADS_MAX {
            assert!(from.elapsed().as_secs() < 60, "{} threads", pool.queue.lock().alive);
            assert!(pool.take_over(Box::pin(async {})).is_ok());
            std::thread::sleep(Duration::from_millis(10));
        }
        pool.close();
    }

    #[test]
    fn who_is_woken_last_goes_on_where_he_was_woken() {
        let (pool, home) = (Pool::new().unwrap(), Arc::new(Idle::default()));
        // A second thread lies in wait for whatever is queued.
        pool.spawn(&mut pool.queue.lock()).unwrap();
        for _ in 0..100 {
            let told = Arc::new(Mutex::new((None, None)));
            let (tell, waits) = (told.clone(), told.clone());
            let (rest, threads) = (Rest::default(), std::sync::mpsc::channel());
            let (here, woken) = (threads.0.clone(), threads.0);
            let waiting = async move {
                poll_fn(|cx| {
                    let mut state = waits.lock();
                    state.1 = Some(cx.waker().clone());
                    if state.0.is_some() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                woken.send(std::thread::current().id()).unwrap();
            };
            let task = Task::new(&pool, home.clone(), 0, rest, Box::pin(waiting));
            assert_eq!(task.poll(&Waker::from(task.clone())), Polled::Waits);
            let last = async move {
                here.send(std::thread::current().id()).unwrap();
                tell.lock().0 = Some(());
                let waker = tell.lock().1.take();
                wake_last(waker.unwrap());
            };
            assert!(pool.take_over(Box::pin(last)).is_ok());
            assert_eq!(threads.1.recv().unwrap(), threads.1.recv().unwrap());
        }
        pool.close();
    }

    #[test]
    fn work_for_nobodys_memory_is_bounded() {
        let pool = Pool::with(1, SPARE_AFTER).unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let hangs = async move {
            tell.send(()).unwrap();
            let _ = gate.recv();
        };
        assert!(pool.take_over(Box::pin(hangs)).is_ok());
        told.recv().unwrap();
        let taken = (0..=limits::BLOCKING_QUEUE_MAX).filter(|_| pool.take_over(Box::pin(async {})).is_ok());
        assert_eq!(taken.count(), limits::BLOCKING_QUEUE_MAX);
        open.send(()).unwrap();
        pool.close();
    }
}

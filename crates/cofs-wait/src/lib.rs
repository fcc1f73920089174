//! Where an operation may wait.
//!
//! A face polls an operation's future once on the thread that received the request. An operation that is
//! about to wait (a sync, a slow open) awaits [`blocking`] first: on a thread that must not wait this wakes
//! the task and yields, and the face's executor polls it again on a thread that may. A woken task is
//! always polled by such a thread, so the operation simply goes on where it stood, with all it borrows.
//!
//! Whether a read waits for a disk nobody knows ahead. So an operation is tried where it is, with [`unless_it_waits`]: whoever reads
//! below for it asks [`is_impatient`], takes only what is in memory, and where that is not enough says so by [`refuse`] and fails. Then the
//! operation begins again on a thread that may wait ([`here_or_waiting!`] does both). Who changes something has read what he must before, and
//! asks for [`no_way_back`] then: what was refused something changes nothing, and what has changed something is refused nothing.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
    static NEARBY: Cell<bool> = const { Cell::new(false) };
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::Any) };
}

/// What a caller would rather have than wait for a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// Nothing: he waits.
    Any,
    /// An error.
    None,
    /// That error, which he gets.
    Refused,
}

/// Marks this thread as one that may wait, for as long as the guard lives.
#[derive(Debug)]
pub struct BlockingThread {
    before: bool,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl BlockingThread {
    pub fn enter() -> Self {
        Self { before: MAY_BLOCK.replace(true), _not_send: std::marker::PhantomData }
    }
}

impl Drop for BlockingThread {
    fn drop(&mut self) {
        MAY_BLOCK.set(self.before);
    }
}

/// Returns at once on a thread that may wait; else moves the task to one.
pub async fn blocking() {
    poll_fn(|cx| leave(cx, false)).await
}

/// As [`blocking`], for what waits and does little else: such a thread need not be on another CPU, which would have to be woken.
pub async fn waiting() {
    poll_fn(|cx| leave(cx, true)).await
}

fn leave(cx: &Context<'_>, nearby: bool) -> Poll<()> {
    if MAY_BLOCK.get() {
        return Poll::Ready(());
    }
    NEARBY.set(nearby);
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// For an executor whose poll of a task has ended with `Pending`: whether it left by [`waiting`].
pub fn left_for_nearby() -> bool {
    NEARBY.take()
}

/// Whether the caller would rather have an error than wait for a disk; who gives it [says so](refuse).
#[must_use]
pub fn is_impatient() -> bool {
    PATIENCE.get() != Patience::Any
}

/// The impatient caller gets an error now for what would have to wait.
pub fn refuse() {
    if is_impatient() {
        PATIENCE.set(Patience::Refused);
    }
}

/// Whether something has been refused to the impatient caller: who has called what he cannot rely on to tell him asks.
#[must_use]
pub fn was_refused() -> bool {
    PATIENCE.get() == Patience::Refused
}

/// Before something is changed: the caller waits from here on. `false`: he has been refused something and must change nothing, as he will
/// begin again.
#[must_use]
pub fn no_way_back() -> bool {
    if was_refused() {
        return false;
    }
    PATIENCE.set(Patience::Any);
    true
}

/// This thread has no patience, for as long as the guard lives or until there is [no way back](no_way_back): then neither has it for
/// whoever began this.
struct Impatient {
    before: Patience,
}

impl Impatient {
    fn begin() -> Self {
        let before = PATIENCE.get();
        if before == Patience::Any {
            PATIENCE.set(Patience::None);
        }
        Self { before }
    }
}

impl Drop for Impatient {
    fn drop(&mut self) {
        if PATIENCE.get() != Patience::Any {
            PATIENCE.set(self.before);
        }
    }
}

/// Runs `operation`, on a thread that must not wait without patience. `None`: it would have had to wait for a disk, and has failed for
/// that, so that it has done nothing; the caller begins again where it may ([`waiting`]).
pub async fn unless_it_waits<T, E>(operation: impl Future<Output = Result<T, E>>) -> Option<Result<T, E>> {
    let mut refused = false;
    let result = without_patience(operation, &mut refused).await;
    if refused && result.is_err() { None } else { Some(result) }
}

/// As [`unless_it_waits`]; whether something was `refused` tells what an error means. One that had enough without it has succeeded.
pub async fn without_patience<T>(operation: impl Future<Output = T>, refused: &mut bool) -> T {
    let mut operation = pin!(operation);
    poll_fn(|cx| {
        if MAY_BLOCK.get() {
            return operation.as_mut().poll(cx);
        }
        let impatient = Impatient::begin();
        let polled = operation.as_mut().poll(cx);
        *refused |= was_refused();
        drop(impatient);
        polled
    })
    .await
}

/// What `$operation` comes to: here if memory has what it must read, else, begun again, on a thread that may wait. It holds nothing that others
/// want when it has failed, and is as if it had not begun.
#[macro_export]
macro_rules! here_or_waiting {
    ($operation:expr) => {{
        let mut refused = false;
        let result = $crate::without_patience($operation, &mut refused).await;
        // No `match` over both: what an operation comes to is large to be handed on.
        if refused && result.is_err() {
            $crate::waiting().await;
            $operation.await
        } else {
            result
        }
    }};
}

/// Runs `begin` as if this thread must not wait: for what can only be left where it does.
pub fn at_once<T>(begin: impl FnOnce() -> T) -> T {
    let _here = BlockingThread { before: MAY_BLOCK.replace(false), _not_send: std::marker::PhantomData };
    begin()
}

/// Runs a future to its end on this thread, which may wait: for tools and tests.
pub fn run<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let _here = BlockingThread::enter();
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut cx = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_task_leaves_the_thread_that_must_not_wait_and_goes_on_where_it_may() {
        let mut task = Box::pin(async {
            blocking().await;
            std::thread::current().id()
        });
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let there = std::thread::spawn(move || (run(task), std::thread::current().id())).join().unwrap();
        assert_eq!(there.0, there.1);
    }

    /// A read that finds in memory what is there, and a disk that must be waited for behind it.
    async fn read(in_memory: bool) -> Result<&'static str, &'static str> {
        if !in_memory && is_impatient() {
            refuse();
            return Err("not here");
        }
        Ok(if in_memory { "memory" } else { "disk" })
    }

    fn poll_here<F: Future>(operation: F) -> Poll<F::Output> {
        pin!(operation).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_memory_has_is_read_where_it_is_asked_for_and_the_rest_where_one_may_wait() {
        let outcome = |in_memory| async move { here_or_waiting!(read(in_memory)) };
        assert_eq!(poll_here(outcome(true)), Poll::Ready(Ok("memory")));
        let mut cold = Box::pin(outcome(false));
        assert!(cold.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(run(cold), Ok("disk"));
        assert_eq!(run(outcome(false)), Ok("disk"));
        assert!(!is_impatient());
    }

    #[test]
    fn an_error_that_nobody_refused_is_told() {
        assert_eq!(
            poll_here(unless_it_waits(async { Err::<(), _>("gone") })),
            Poll::Ready(Some(Err("gone")))
        );
        // An inner one has its own patience; the outer one's is as it was.
        let nested = async {
            assert_eq!(unless_it_waits(read(false)).await, None);
            Err::<(), _>("gone")
        };
        assert_eq!(poll_here(unless_it_waits(nested)), Poll::Ready(Some(Err("gone"))));
    }

    #[test]
    fn one_that_had_enough_without_what_was_refused_has_succeeded() {
        let content = async {
            let _ = read(false).await;
            Ok::<_, ()>("enough")
        };
        assert_eq!(poll_here(unless_it_waits(content)), Poll::Ready(Some(Ok("enough"))));
    }

    /// What must be read, `kept` what it changes: in the middle, as both sides may be on the disk.
    async fn change(before: bool, after: bool, kept: &Cell<u32>) -> Result<(), &'static str> {
        read(before).await?;
        if !no_way_back() {
            return Err("refused");
        }
        kept.set(kept.get() + 1);
        read(after).await.map(|_| ())
    }

    #[test]
    fn what_changes_something_does_so_once() {
        for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
            let kept = Cell::new(0);
            let mut changing = Box::pin(async { here_or_waiting!(change(before, after, &kept)) });
            let polled = changing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled.is_ready(), before, "what comes later is waited for where it is");
            assert_eq!(kept.get(), u32::from(before));
            if polled.is_pending() {
                assert_eq!(run(changing), Ok(()));
            }
            assert_eq!(kept.get(), 1);
            assert!(!is_impatient());
        }
    }

    #[test]
    fn what_was_refused_something_and_goes_on_changes_nothing() {
        let kept = Cell::new(0);
        let operation = async {
            let _ = read(false).await;
            change(true, true, &kept).await
        };
        assert_eq!(poll_here(unless_it_waits(operation)), Poll::Ready(None));
        assert_eq!(kept.get(), 0);
    }

    #[test]
    fn a_part_that_changes_something_leaves_the_whole_no_way_back() {
        let kept = Cell::new(0);
        let whole = async {
            unless_it_waits(change(true, true, &kept)).await.unwrap()?;
            read(false).await
        };
        assert_eq!(poll_here(unless_it_waits(whole)), Poll::Ready(Some(Ok("disk"))));
        // And the other way round: what the whole was refused keeps its part from it.
        let whole = async {
            let _ = read(false).await;
            match unless_it_waits(change(true, true, &kept)).await {
                Some(done) => done,
                None => Err("begun again"),
            }
        };
        assert_eq!(poll_here(unless_it_waits(whole)), Poll::Ready(None));
        assert_eq!(kept.get(), 1);
    }

    #[test]
    fn who_is_patient_is_not_refused() {
        refuse();
        assert!(!is_impatient());
    }
}

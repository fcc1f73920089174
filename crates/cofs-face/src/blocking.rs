//! Where an operation may wait.
//!
//! A face polls an operation's future once on the thread that received the request. An operation that is
//! about to wait (a sync, a slow open) awaits [`blocking`] first: on a thread that must not wait this wakes
//! the task and yields, and the face's executor polls it again on a thread that may. A woken task is
//! always polled by such a thread, so the operation simply goes on where it stood, with all it borrows.

use std::{cell::Cell, future::poll_fn, task::Poll};

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
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
    poll_fn(|cx| {
        if MAY_BLOCK.get() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
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
    let mut cx = std::task::Context::from_waker(&waker);
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
    use std::task::{Context, Waker};

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
}

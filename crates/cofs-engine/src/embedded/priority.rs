//! How much of the processors compaction gets.
//!
//! As long as it keeps up it has what nobody else wants (the lowest priority): it must not stall those who work. But where
//! all processors are busy that is nothing: the young tables become more, until there are too many, and then all wait until they are merged,
//! seconds long. So where it falls behind it gets its share like everybody else, and has it until it has caught up; and as long as somebody
//! waits for it: where space is short there is none until tables are merged, and a store is not closed before what runs has stopped.
//!
//! A thread that may lower its priority may not raise it again without privileges (`CAP_SYS_NICE`, or a limit that allows it). Without them
//! compaction always has its share.

use parking_lot::Mutex;
use rustix::{
    process::{Pid, setpriority_process},
    thread::gettid,
};

/// At so many young tables compaction has fallen behind.
const BEHIND: u64 = 20;
/// At so many it has caught up: RocksDB begins no compaction below that.
const CAUGHT_UP: u64 = 12;
const NICE_MOST: i32 = 19;
const NICE_NOT: i32 = 0;

#[derive(Default)]
pub(super) struct Priority(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that compact now.
    threads: Vec<Pid>,
    is_behind: bool,
    /// So many wait for them.
    waiting: usize,
    /// Whether a priority can be lowered and raised again; `None`: not tried yet.
    changeable: Option<bool>,
}

impl Priority {
    /// By a thread that begins to compact.
    pub(super) fn begun(&self) {
        let mut state = self.0.lock();
        let thread = gettid();
        state.threads.push(thread);
        if *state.changeable.get_or_insert_with(can_be_changed) {
            give(thread, state.share());
        }
    }

    /// By one that has begun.
    pub(super) fn ended(&self) {
        let thread = gettid();
        self.0.lock().threads.retain(|&other| other != thread);
    }

    /// There are so many young tables.
    pub(super) fn young_tables(&self, number: u64) {
        self.change(|state| {
            state.is_behind = if state.is_behind { number >= CAUGHT_UP } else { number >= BEHIND };
        });
    }

    /// By who waits, before he does.
    pub(super) fn waited_for(&self) {
        self.change(|state| state.waiting += 1);
    }

    /// By who has waited.
    pub(super) fn not_waited_for(&self) {
        self.change(|state| state.waiting -= 1);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        let before = state.share();
        change(&mut state);
        let share = state.share();
        if share != before && state.changeable == Some(true) {
            state.threads.iter().for_each(|&thread| give(thread, share));
        }
    }
}

impl State {
    /// Whether they have their share.
    fn share(&self) -> bool {
        self.is_behind || self.waiting > 0
    }
}

/// What cannot be given is not: it is a matter of speed.
fn give(thread: Pid, share: bool) {
    let _ = setpriority_process(Some(thread), if share { NICE_NOT } else { NICE_MOST });
}

/// Tried by a thread that ends with it.
fn can_be_changed() -> bool {
    let both_ways = || {
        let me = Some(gettid());
        setpriority_process(me, NICE_MOST).and_then(|()| setpriority_process(me, NICE_NOT)).is_ok()
    };
    std::thread::Builder::new().spawn(both_ways).is_ok_and(|tried| tried.join().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn who_falls_behind_or_is_waited_for_gets_a_share_until_that_is_over() {
        let priority = Priority::default();
        let nice = || getpriority_process(Some(gettid())).unwrap();
        let of_one_that_compacts = || {
            priority.begun();
            let mut seen = vec![nice()];
            for number in [BEHIND - 1, BEHIND, CAUGHT_UP, CAUGHT_UP - 1, BEHIND - 1] {
                priority.young_tables(number);
                seen.push(nice());
            }
            for wait in [true, true, false, false] {
                let tell = if wait { Priority::waited_for } else { Priority::not_waited_for };
                tell(&priority);
                seen.push(nice());
            }
            priority.ended();
            priority.young_tables(BEHIND);
            (seen, nice())
        };
        let (seen, after) = std::thread::scope(|scope| scope.spawn(of_one_that_compacts).join().unwrap());
        if can_be_changed() {
            assert_eq!((seen, after), (vec![19, 19, 0, 0, 19, 19, 0, 0, 0, 19], 19));
        } else {
            assert_eq!((seen, after), (vec![0; 10], 0));
        }
    }
}

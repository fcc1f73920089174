//! How long a pool takes to hand out objects: what those go by who cannot wait for it.

use std::time::Instant;

use cofs_types::limits::{OBJECT_PATIENCE, POOL_PROBE_INTERVAL};
use parking_lot::Mutex;

#[derive(Default)]
pub struct Takes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When those began that have not ended.
    begun: Vec<Instant>,
    /// When the last one ended that took long, or was given up.
    slow: Option<Instant>,
}

/// One of them, until it is dropped.
pub struct Taking<'a> {
    takes: &'a Takes,
    begun: Instant,
}

impl Takes {
    pub fn begin(&self) -> Taking<'_> {
        let begun = Instant::now();
        self.state.lock().begun.push(begun);
        Taking { takes: self, begun }
    }

    /// Whether somebody has waited for an object for longer than [`OBJECT_PATIENCE`], and still does.
    pub fn owes(&self) -> bool {
        self.state.lock().begun.iter().any(|&begun| is_long(begun))
    }

    /// Somebody has given one up, which may be one of these.
    pub fn given_up(&self) {
        let mut state = self.state.lock();
        if !state.begun.is_empty() {
            state.slow = Some(Instant::now());
        }
    }

    /// Whether somebody did lately.
    pub fn owed(&self) -> bool {
        self.state.lock().slow.is_some_and(|slow| slow.elapsed() < POOL_PROBE_INTERVAL)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let mut state = self.takes.state.lock();
        // Of several that began at once any will do.
        if let Some(at) = state.begun.iter().position(|begun| *begun == self.begun) {
            state.begun.swap_remove(at);
        }
        if is_long(self.begun) {
            state.slow = Some(Instant::now());
        }
    }
}

fn is_long(begun: Instant) -> bool {
    begun.elapsed() >= OBJECT_PATIENCE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_take_is_owed_once_it_takes_long_and_remembered_for_a_while() {
        let takes = Takes::default();
        drop(takes.begin());
        let (mut one, mut other) = (takes.begin(), takes.begin());
        // However long this takes.
        one.begun += Duration::from_secs(60);
        other.begun -= OBJECT_PATIENCE;
        takes.state.lock().begun.copy_from_slice(&[one.begun, other.begun]);
        assert_eq!((takes.owes(), takes.owed()), (true, false));
        drop(other);
        assert_eq!((takes.owes(), takes.owed()), (false, true));
        takes.state.lock().slow = Some(Instant::now() - POOL_PROBE_INTERVAL);
        drop(one);
        assert!(takes.state.lock().begun.is_empty());
        assert!(!takes.owed());
    }

    #[test]
    fn a_take_that_was_given_up_counts_at_once() {
        let takes = Takes::default();
        takes.given_up();
        assert!(!takes.owed(), "it is another pool's");
        let _taking = takes.begin();
        takes.given_up();
        assert!(takes.owed());
    }
}

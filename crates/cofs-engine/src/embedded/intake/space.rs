//! What the drain knows of the space below, and what commits may do by that.
//!
//! ```text
//!            no space             a removal waits
//!   enough ------------> short ---------------------> short, and the reserve given up
//!     ^                    |                                     |
//!     | the drain gets on  |                                     |
//!     +--------------------+                 the reserve is back |
//!     +----------------------------------------------------------+
//! ```
//!
//! While space is short, what grows is refused: the journal's rest is for what changes or removes something. Where what makes room
//! finds no rest, the reserve is given up for it; and until it is back growth is refused although the drain gets on, or it would use up
//! what is to make room. A store begins so, if it took the reserve to open it; and it begins short where opening took what is kept for that
//! alone, until there is as much again.
//!
//! Here is no file system: who calls says what came of it.

use crate::{EngineError, EngineHealth, embedded::error::is_full};

#[derive(Default)]
pub(super) struct Space {
    /// What the drain failed with, for whatever reason, if it has not got on since.
    stuck: Option<EngineError>,
    short: Option<Short>,
    /// Somebody waits who would make room.
    reserve_wanted: bool,
}

struct Short {
    /// What those who would grow are told.
    why: EngineError,
    reserve: Reserve,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reserve {
    /// Nobody has asked for it. Where the store was opened without room, so many bytes must be free before the drain's getting on means that
    /// there is some.
    Kept {
        room_bytes: u64,
    },
    GivenUp {
        bytes: u64,
    },
    /// There was none.
    Missing,
}

impl Space {
    /// There was no space to open the store, and the reserve, of so many bytes, was given up for that.
    pub(super) fn opened_with_reserve(&mut self, why: EngineError, bytes: u64) {
        self.short = Some(Short { why, reserve: Reserve::GivenUp { bytes } });
    }

    /// There was no space to open the store, but for so many bytes that are kept for that.
    pub(super) fn opened_without_room(&mut self, why: EngineError, bytes: u64) {
        self.short = Some(Short { why, reserve: Reserve::Kept { room_bytes: bytes } });
    }

    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }

    pub(super) fn is_reserve_wanted(&self) -> bool {
        self.reserve_wanted
    }

    pub(super) fn health(&self) -> EngineHealth {
        match (&self.short, &self.stuck) {
            (Some(short), _) => EngineHealth::Full(short.why.clone()),
            (None, Some(error)) => EngineHealth::Stuck(error.clone()),
            (None, None) => EngineHealth::Healthy,
        }
    }

    /// Errors: why nothing is taken that grows.
    pub(super) fn grow(&self) -> Result<(), EngineError> {
        self.short.as_ref().map_or(Ok(()), |short| Err(short.why.clone()))
    }

    /// Whether it is worth waiting for the drain; who `makes_room` has the reserve given up for that. Errors: what keeps the drain
    /// from going on.
    pub(super) fn wait(&mut self, makes_room: bool) -> Result<(), EngineError> {
        let Some(error) = &self.stuck else { return Ok(()) };
        if !(makes_room && is_full(error) && self.has_reserve()) {
            return Err(error.clone());
        }
        self.reserve_wanted = true;
        Ok(())
    }

    /// The drain has failed. If there was no space, and something `removes`, the reserve is given up by `release`, which tells how
    /// many bytes that has set free; another attempt is worth it at once then, and only then.
    pub(super) fn failed(
        &mut self,
        error: EngineError,
        removes: bool,
        release: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let wanted = std::mem::take(&mut self.reserve_wanted) || removes;
        let mut at_once = false;
        if is_full(&error) {
            let mut reserve = self.reserve();
            if wanted && self.has_reserve() {
                reserve = release().map_or(Reserve::Missing, |bytes| Reserve::GivenUp { bytes });
                at_once = reserve != Reserve::Missing;
            }
            self.short = Some(Short { why: error.clone(), reserve });
        }
        self.stuck = (!at_once).then_some(error);
        at_once
    }

    /// The drain has got on. See [`look_again`](Self::look_again).
    pub(super) fn got_on(&mut self, take_back: impl FnOnce(u64) -> bool) {
        self.stuck = None;
        self.reserve_wanted = false;
        match self.reserve() {
            Reserve::GivenUp { .. } | Reserve::Kept { room_bytes: 1.. } => self.look_again(take_back),
            Reserve::Kept { room_bytes: 0 } | Reserve::Missing => self.short = None,
        }
    }

    /// There may be more room than before: a reserve that was given up, or of which there must be so many bytes besides, is there if
    /// `take_back`, which is told them, says so.
    pub(super) fn look_again(&mut self, take_back: impl FnOnce(u64) -> bool) {
        if let Reserve::GivenUp { bytes } | Reserve::Kept { room_bytes: bytes @ 1.. } = self.reserve()
            && take_back(bytes)
        {
            self.short = None;
        }
    }

    pub(super) fn given_up_bytes(&self) -> Option<u64> {
        match self.reserve() {
            Reserve::GivenUp { bytes } => Some(bytes),
            Reserve::Kept { .. } | Reserve::Missing => None,
        }
    }

    fn has_reserve(&self) -> bool {
        matches!(self.reserve(), Reserve::Kept { .. })
    }

    fn reserve(&self) -> Reserve {
        self.short.as_ref().map_or(Reserve::Kept { room_bytes: 0 }, |short| short.reserve)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::embedded::error::from_errno;

    const BYTES: u64 = 5000;

    fn error(errno: Errno) -> EngineError {
        from_errno("draining", errno)
    }

    /// The drain fails, with a reserve there that nobody may take.
    fn fail(space: &mut Space, errno: Errno) {
        assert!(!space.failed(error(errno), false, || panic!("nobody wants the reserve")));
    }

    /// There is no space for something that removes, and a reserve.
    fn give_up(space: &mut Space) {
        assert!(space.failed(error(Errno::NOSPC), true, || Some(BYTES)));
    }

    fn get_on(space: &mut Space) {
        space.got_on(|_| panic!("nothing was given up"));
    }

    fn errno(refused: Result<(), EngineError>) -> Option<i32> {
        refused.err().and_then(|error| error.errno)
    }

    fn is_full(refused: Result<(), EngineError>) -> bool {
        errno(refused) == Some(Errno::NOSPC.raw_os_error())
    }

    #[test]
    fn where_there_is_no_space_growth_is_refused_until_the_drain_gets_on() {
        let mut space = Space::default();
        assert!(space.grow().is_ok() && !space.is_short());
        assert!(matches!(space.health(), EngineHealth::Healthy));
        fail(&mut space, Errno::NOSPC);
        assert!(is_full(space.grow()) && space.is_short());
        assert!(matches!(space.health(), EngineHealth::Full(_)));
        get_on(&mut space);
        assert!(space.grow().is_ok() && !space.is_short());
    }

    #[test]
    fn a_file_that_may_not_grow_is_as_no_space() {
        let mut space = Space::default();
        fail(&mut space, Errno::FBIG);
        assert_eq!(errno(space.grow()), Some(Errno::FBIG.raw_os_error()));
        assert!(matches!(space.health(), EngineHealth::Full(_)));
    }

    #[test]
    fn another_failure_refuses_only_those_who_have_to_wait() {
        let mut space = Space::default();
        assert!(space.wait(false).is_ok() && space.wait(true).is_ok());
        fail(&mut space, Errno::IO);
        assert!(space.grow().is_ok() && !space.is_short());
        assert!(matches!(space.health(), EngineHealth::Stuck(_)));
        for makes_room in [false, true] {
            assert_eq!(errno(space.wait(makes_room)), Some(Errno::IO.raw_os_error()));
        }
        get_on(&mut space);
        assert!(space.wait(false).is_ok());
    }

    #[test]
    fn the_reserve_is_given_up_for_what_makes_room_only() {
        let mut space = Space::default();
        fail(&mut space, Errno::NOSPC);
        assert!(is_full(space.wait(false)) && !space.is_reserve_wanted());
        assert!(space.wait(true).is_ok() && space.is_reserve_wanted());
        assert!(space.failed(error(Errno::NOSPC), false, || Some(BYTES)), "tried again at once");
        assert!(!space.is_reserve_wanted() && space.wait(true).is_ok() && is_full(space.grow()));
        // It was not enough: there is no second one.
        assert!(!space.failed(error(Errno::NOSPC), true, || panic!("twice")));
        assert!(is_full(space.wait(true)) && !space.is_reserve_wanted());
    }

    #[test]
    fn without_a_reserve_who_makes_room_is_told_so() {
        let mut space = Space::default();
        fail(&mut space, Errno::NOSPC);
        assert!(space.wait(true).is_ok());
        assert!(!space.failed(error(Errno::NOSPC), false, || None));
        assert!(is_full(space.wait(true)) && !space.is_reserve_wanted());
        // By now there may be one.
        get_on(&mut space);
        give_up(&mut space);
    }

    #[test]
    fn growth_is_refused_until_the_reserve_is_back() {
        let mut space = Space::default();
        give_up(&mut space);
        space.got_on(|bytes| bytes < BYTES);
        space.look_again(|bytes| bytes < BYTES);
        assert!(is_full(space.grow()) && space.wait(true).is_ok());
        fail(&mut space, Errno::IO);
        assert!(is_full(space.grow()), "whatever else goes wrong meanwhile");
        space.look_again(|bytes| bytes == BYTES);
        assert!(space.grow().is_ok());
        assert_eq!(errno(space.wait(true)), Some(Errno::IO.raw_os_error()), "the drain has not got on");
        give_up(&mut space);
        space.got_on(|bytes| bytes == BYTES);
        assert!(space.grow().is_ok() && space.wait(false).is_ok());
    }

    #[test]
    fn a_store_that_took_the_reserve_to_open_refuses_growth_until_that_is_back() {
        let mut space = Space::default();
        space.opened_with_reserve(error(Errno::NOSPC), BYTES);
        assert!(is_full(space.grow()));
        space.got_on(|bytes| bytes < BYTES);
        assert!(is_full(space.grow()));
        space.look_again(|bytes| bytes == BYTES);
        assert!(space.grow().is_ok());
    }

    #[test]
    fn a_store_that_was_opened_without_room_refuses_growth_until_there_is_some_and_has_its_reserve() {
        let mut space = Space::default();
        space.opened_without_room(error(Errno::NOSPC), BYTES);
        assert!(is_full(space.grow()) && space.given_up_bytes().is_none());
        space.got_on(|bytes| bytes < BYTES);
        assert!(is_full(space.grow()), "the drain got on without more room");
        space.look_again(|bytes| bytes == BYTES);
        assert!(space.grow().is_ok());
        space.opened_without_room(error(Errno::NOSPC), BYTES);
        give_up(&mut space);
        assert_eq!(space.given_up_bytes(), Some(BYTES));
    }

    #[test]
    fn who_waits_for_the_reserve_is_told_of_another_failure() {
        let mut space = Space::default();
        fail(&mut space, Errno::NOSPC);
        assert!(space.wait(true).is_ok());
        fail(&mut space, Errno::IO);
        assert!(!space.is_reserve_wanted(), "the drain may rest");
        assert_eq!(errno(space.wait(true)), Some(Errno::IO.raw_os_error()));
        assert!(is_full(space.grow()));
    }
}

//! What a process does with the directories that it lists: whether it looks at the files, or takes their names only.
//!
//! Attributes that come with a listing cost a third of a look-up, and are lost on those who do not want them: `find`
//! against `ls -l`, `du` and `rm -r`, which read a directory to its end before they look at its files. The kernel's own
//! guess sees only what has happened to the directory at hand, too late for them. A process, though, mostly goes on as it
//! has begun:
//!
//! - of a process that nobody knows, it is *asked*: a listing brings attributes, but for one file. Does it look up that
//!   one (which cannot be told of the others: the kernel answers from what it was given), it wants attributes;
//! - if it has read the directory to its end and opens the next without having done so, it takes *names* only, and gets no more than these (and
//!   directories' attributes, because it may go down the tree), until it looks up a file that it has listed.
//!
//! It is a guess and never more: a wrong one costs look-ups, or attributes for nothing. What is known of one process may
//! be forgotten for another whose number falls into the same seat.

use std::time::Instant;

use cofs_types::{InodeId, limits};
use parking_lot::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    Unknown,
    Names,
    /// Learned at this time; believed for a while, as nobody looks up what he was given.
    Attributes(Instant),
}

/// What a listing is to bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bring {
    Names,
    Attributes,
    /// Attributes, but for one file.
    Question,
}

struct Lister {
    pid: u32,
    habit: Habit,
    /// The directory that it has opened last.
    directory: Option<InodeId>,
    /// A file of that directory came without attributes.
    withheld: bool,
    /// Entries of that directory that came with attributes.
    given: usize,
    /// It was read to its end. (`rm` begins with a short look whether there is anything.)
    ended: bool,
}

/// What one answer to a listing has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Brought {
    /// Entries with attributes.
    pub given: usize,
    /// A file came without attributes.
    pub withheld: bool,
    /// There was nothing more.
    pub ended: bool,
}

impl Lister {
    const fn new(pid: u32) -> Self {
        Self { pid, habit: Habit::Unknown, directory: None, withheld: false, given: 0, ended: false }
    }

    /// The next directory: what was learned from the last one counts now.
    fn opens(&mut self, directory: InodeId) {
        self.habit = match self.habit {
            // It would have looked up what was withheld.
            Habit::Unknown if self.withheld && self.ended => Habit::Names,
            Habit::Attributes(since) if since.elapsed() > limits::LISTING_HABIT_LASTS => Habit::Unknown,
            known => known,
        };
        *self = Self { habit: self.habit, directory: Some(directory), ..Self::new(self.pid) };
    }

    fn bring(&self) -> Bring {
        match self.habit {
            Habit::Attributes(_) => Bring::Attributes,
            Habit::Unknown if self.given >= limits::LIST_ATTRIBUTES_UNASKED_MAX => Bring::Names,
            Habit::Unknown if self.withheld => Bring::Attributes,
            Habit::Unknown => Bring::Question,
            Habit::Names => Bring::Names,
        }
    }
}

pub(crate) struct Listers {
    seats: Box<[Mutex<Lister>]>,
}

impl Listers {
    pub(crate) fn new() -> Self {
        Self { seats: (0..limits::LISTERS_MAX).map(|_| Mutex::new(Lister::new(0))).collect() }
    }

    fn with<T>(&self, pid: u32, work: impl FnOnce(&mut Lister) -> T) -> T {
        let mut lister = self.seats[pid as usize % limits::LISTERS_MAX].lock();
        if lister.pid != pid {
            *lister = Lister::new(pid);
        }
        work(&mut lister)
    }

    pub(crate) fn opens(&self, pid: u32, directory: InodeId) {
        self.with(pid, |lister| lister.opens(directory));
    }

    pub(crate) fn bring(&self, pid: u32, directory: InodeId) -> Bring {
        self.with(pid, |lister| {
            if lister.directory != Some(directory) {
                lister.opens(directory);
            }
            lister.bring()
        })
    }

    /// What a listing of `directory` has brought.
    pub(crate) fn brought(&self, pid: u32, directory: InodeId, brought: Brought) {
        self.with(pid, |lister| {
            if lister.directory == Some(directory) {
                lister.given += brought.given;
                lister.withheld |= brought.withheld;
                lister.ended |= brought.ended;
            }
        });
    }

    /// A file of `directory` was looked up, and is there.
    pub(crate) fn looks_up(&self, pid: u32, directory: InodeId) {
        let mut lister = self.seats[pid as usize % limits::LISTERS_MAX].lock();
        if lister.pid == pid && lister.directory == Some(directory) && lister.withheld {
            lister.habit = Habit::Attributes(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn directory(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    /// Lists a directory of many files as the operation does; tells what it brought at last.
    fn list(listers: &Listers, pid: u32, number: u64) -> Bring {
        listers.opens(pid, directory(number));
        let first = listers.bring(pid, directory(number));
        let withheld = first != Bring::Attributes;
        listers.brought(pid, directory(number), Brought { given: 100, withheld, ended: true });
        first
    }

    #[test]
    fn who_looks_up_the_file_withheld_gets_all() {
        let listers = Listers::new();
        assert_eq!(list(&listers, PID, 1), Bring::Question);
        assert_eq!(listers.bring(PID, directory(1)), Bring::Attributes, "one question is enough");
        listers.looks_up(PID, directory(1));
        assert_eq!(list(&listers, PID, 2), Bring::Attributes);
        assert_eq!(list(&listers, PID, 3), Bring::Attributes);
        assert_eq!(list(&listers, PID + 1, 3), Bring::Question, "another process");
    }

    #[test]
    fn who_does_not_gets_names_until_it_looks_one_up() {
        let listers = Listers::new();
        list(&listers, PID, 1);
        listers.looks_up(PID, directory(9));
        listers.looks_up(PID + 1, directory(1));
        assert_eq!(list(&listers, PID, 2), Bring::Names);
        assert_eq!(list(&listers, PID, 3), Bring::Names);
        listers.looks_up(PID, directory(3));
        assert_eq!(listers.bring(PID, directory(3)), Bring::Attributes);
        assert_eq!(list(&listers, PID, 4), Bring::Attributes);
    }

    #[test]
    fn a_directory_without_files_teaches_nothing() {
        let listers = Listers::new();
        listers.opens(PID, directory(1));
        listers.brought(PID, directory(1), Brought { given: 50, withheld: false, ended: true });
        listers.looks_up(PID, directory(1));
        assert_eq!(list(&listers, PID, 2), Bring::Question);
    }

    #[test]
    fn a_short_look_teaches_nothing() {
        let listers = Listers::new();
        listers.opens(PID, directory(1));
        listers.brought(PID, directory(1), Brought { given: 50, withheld: true, ended: false });
        assert_eq!(list(&listers, PID, 1), Bring::Question);
        assert_eq!(list(&listers, PID, 2), Bring::Names);
    }

    #[test]
    fn attributes_that_nobody_has_asked_for_have_an_end() {
        let listers = Listers::new();
        listers.opens(PID, directory(1));
        let given = limits::LIST_ATTRIBUTES_UNASKED_MAX;
        listers.brought(PID, directory(1), Brought { given, withheld: true, ended: false });
        assert_eq!(listers.bring(PID, directory(1)), Bring::Names);
        listers.looks_up(PID, directory(1));
        assert_eq!(listers.bring(PID, directory(1)), Bring::Attributes);
    }
}

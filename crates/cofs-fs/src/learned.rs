//! How files end where they are born: what a directory's new files most likely need.
//!
//! A file that is created and grows past the inline maximum before its last close ended *large*, and *huge* if by far.
//! Where that happened to the last files of a directory (two large ones, or a huge one), the next one starts in an object
//! (and, where the kernel allows it, with passthrough from its first byte). A directory of which nothing is known
//! inherits: from its parent if new files start large there, or if all files lately were large in the parent's other
//! directories.
//!
//! It is a guess and never more: a wrong one costs a move, not an answer. It costs more than a right one saves, though,
//! and so a file that started large and ended small sets its directory back to nothing, and twice as much must speak for
//! the next guess there: where large files and small ones take turns there is one wrong guess, and no second.

use cofs_types::{InodeId, limits};
use quick_cache::sync::Cache;
use std::sync::atomic::{AtomicBool, Ordering};

/// From this score on, new files start in an object.
const WANTED_MIN: u8 = 2;
const WANTED_MAX: u8 = 64;
/// A directory's other score, from which on the unknown directories in it inherit.
const BROOD_WANTED: u8 = 4;
/// So many times the inline maximum is huge.
const HUGE: u64 = 256;

/// How a file stood at its first last close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Small,
    Large,
    Huge,
}

impl Ending {
    /// Of a file in an object.
    pub(crate) fn of_object(size_bytes: u64, inline_max: u64) -> Self {
        if size_bytes >= inline_max.saturating_mul(HUGE) { Self::Huge } else { Self::Large }
    }

    const fn weight(self) -> u8 {
        match self {
            Self::Small => 0,
            Self::Large => 1,
            Self::Huge => 2,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Habit {
    /// What speaks for large files here ...
    score: u8,
    /// ... and how much must.
    wanted: u8,
    /// What speaks for large files in the directories in it.
    brood: u8,
    parent: Option<InodeId>,
}

impl Default for Habit {
    fn default() -> Self {
        Self { score: 0, wanted: WANTED_MIN, brood: 0, parent: None }
    }
}

impl Habit {
    const fn starts_large(&self) -> bool {
        self.score >= self.wanted
    }

    fn learn(&mut self, ending: Ending, guessed_large: bool) {
        match (ending, guessed_large) {
            (Ending::Small, true) => {
                self.score = 0;
                self.wanted = self.wanted.saturating_mul(2).min(WANTED_MAX);
            }
            (Ending::Small, false) => self.score = self.score.saturating_sub(2),
            (large, right) => {
                self.score = self.score.saturating_add(large.weight()).min(self.wanted);
                if right && self.wanted > WANTED_MIN {
                    self.wanted -= 1;
                    self.score = self.wanted;
                }
            }
        }
    }
}

pub(crate) struct LearnedLayouts {
    /// Directories of which something is known; where nothing is, files are small.
    directories: Cache<InodeId, Habit>,
    /// Some directory may have something to be inherited: else nobody need ask for a parent.
    bequests: AtomicBool,
}

impl LearnedLayouts {
    pub(crate) fn new() -> Self {
        Self { directories: Cache::new(limits::LEARNED_DIRECTORIES_MAX), bequests: AtomicBool::new(false) }
    }

    /// Whether a file that is created in `directory` now should start in an object. `None`: that depends on its
    /// parent ([`inherit`](Self::inherit)).
    pub(crate) fn starts_large(&self, directory: InodeId) -> Option<bool> {
        match self.directories.get(&directory) {
            Some(habit) => Some(habit.starts_large()),
            None if self.bequests.load(Ordering::Relaxed) => None,
            None => Some(false),
        }
    }

    /// As [`starts_large`](Self::starts_large), for a directory of which nothing is known but its parent.
    pub(crate) fn inherit(&self, directory: InodeId, parent: InodeId) -> bool {
        let large = self
            .directories
            .get(&parent)
            .is_some_and(|habit| habit.starts_large() || habit.brood >= BROOD_WANTED);
        let score = if large { WANTED_MIN } else { 0 };
        self.directories.insert(directory, Habit { score, parent: Some(parent), ..Habit::default() });
        large
    }

    /// Whether it would be of use to know the parent of `directory`, where a file ended large.
    pub(crate) fn wants_parent(&self, directory: InodeId) -> bool {
        self.directories.get(&directory).is_none_or(|habit| habit.parent.is_none())
    }

    /// A file born in `directory` was closed for the first time.
    pub(crate) fn ended(
        &self,
        directory: InodeId,
        ending: Ending,
        guessed_large: bool,
        parent: Option<InodeId>,
    ) {
        let known = self.directories.get(&directory);
        if known.is_none() && ending == Ending::Small {
            return;
        }
        let mut habit = known.unwrap_or_default();
        habit.parent = habit.parent.or(parent);
        habit.learn(ending, guessed_large);
        if known != Some(habit) {
            self.directories.insert(directory, habit);
        }
        // The root is its own parent.
        if let Some(parent) = habit.parent.filter(|parent| *parent != directory) {
            self.ended_below(parent, ending);
        }
        if ending != Ending::Small {
            self.bequests.store(true, Ordering::Relaxed);
        }
    }

    /// A file ended so in a directory in `parent`.
    fn ended_below(&self, parent: InodeId, ending: Ending) {
        let known = self.directories.get(&parent);
        let before = known.unwrap_or_default();
        let brood = match ending {
            Ending::Small => 0,
            large => (before.brood + large.weight()).min(BROOD_WANTED),
        };
        if brood != before.brood {
            self.directories.insert(parent, Habit { brood, ..before });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.directories.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    /// As the file system does it; returns whether the file started large.
    fn file(learned: &LearnedLayouts, directory: u64, parent: u64, ending: Ending) -> bool {
        let (directory, parent) = (ino(directory), ino(parent));
        let started = learned.starts_large(directory).unwrap_or_else(|| learned.inherit(directory, parent));
        let told = (ending != Ending::Small && learned.wants_parent(directory)).then_some(parent);
        learned.ended(directory, ending, started, told);
        started
    }

    #[test]
    fn two_large_files_are_a_habit_and_so_is_a_huge_one() {
        let learned = LearnedLayouts::new();
        assert_eq!(Ending::of_object(256 << 14, 1 << 14), Ending::Huge);
        assert_eq!(Ending::of_object((256 << 14) - 1, 1 << 14), Ending::Large);
        for (directory, ending, needed) in [(5, Ending::Large, 2), (6, Ending::Huge, 1)] {
            for _ in 0..needed {
                assert!(!file(&learned, directory, 1, ending), "no habit yet");
            }
            assert!(file(&learned, directory, 1, ending));
        }
    }

    #[test]
    fn small_files_ask_for_nothing_and_leave_nothing() {
        let learned = LearnedLayouts::new();
        for directory in 5..50 {
            assert!(!file(&learned, directory, 1, Ending::Small));
        }
        assert_eq!(learned.len(), 0);
        assert_eq!(learned.starts_large(ino(50)), Some(false), "without a look at its parent");
    }

    #[test]
    fn where_large_and_small_take_turns_there_is_one_wrong_guess() {
        let learned = LearnedLayouts::new();
        let mut wrong = 0;
        for _ in 0..100 {
            file(&learned, 5, 1, Ending::Huge);
            wrong += u32::from(file(&learned, 5, 1, Ending::Small));
        }
        assert_eq!(wrong, 1);
        // Enough of one kind is a habit again.
        let started: Vec<bool> = (0..10).map(|_| file(&learned, 5, 1, Ending::Huge)).collect();
        assert!(!started[0] && started[9]);
    }

    #[test]
    fn a_directory_inherits_from_its_parent_and_from_its_siblings() {
        let learned = LearnedLayouts::new();
        file(&learned, 5, 1, Ending::Huge);
        assert!(file(&learned, 6, 5, Ending::Large), "made in a directory of large files");
        assert!(file(&learned, 6, 5, Ending::Small), "one there is a habit, as in its parent");
        assert!(!file(&learned, 7, 1, Ending::Huge), "one sibling is no habit");
        assert!(file(&learned, 8, 1, Ending::Small), "two are");
        assert!(!file(&learned, 9, 1, Ending::Small), "until one ended small");
        assert!(!file(&learned, 8, 1, Ending::Small));
    }

    /// How many huge files it takes until the next one starts large, at most 100.
    fn huge_files_needed(learned: &LearnedLayouts) -> usize {
        (0..100).take_while(|_| !file(learned, 5, 1, Ending::Huge)).count()
    }

    #[test]
    fn each_wrong_guess_doubles_what_must_speak_for_the_next_up_to_a_bound() {
        let learned = LearnedLayouts::new();
        let needed: Vec<_> = (0..9)
            .map(|_| {
                let needed = huge_files_needed(&learned);
                assert!(file(&learned, 5, 1, Ending::Small));
                needed
            })
            .collect();
        // The last of them was a right guess, which takes one off what the next wrong one doubles.
        assert_eq!(needed, [1, 2, 3, 5, 9, 17, 32, 32, 32]);
    }

    #[test]
    fn right_guesses_make_good_for_wrong_ones() {
        let learned = LearnedLayouts::new();
        for _ in 0..9 {
            huge_files_needed(&learned);
            file(&learned, 5, 1, Ending::Small);
        }
        huge_files_needed(&learned);
        assert!((0..62).all(|_| file(&learned, 5, 1, Ending::Large)));
        assert!(file(&learned, 5, 1, Ending::Small));
        assert_eq!(huge_files_needed(&learned), 2, "as after the first wrong guess");
    }

    #[test]
    fn what_was_not_guessed_and_ends_small_takes_back_as_much_as_a_huge_file_gives() {
        let learned = LearnedLayouts::new();
        let (directory, parent) = (ino(5), Some(ino(1)));
        for _ in 0..50 {
            learned.ended(directory, Ending::Huge, true, parent);
        }
        assert_eq!(learned.starts_large(directory), Some(true));
        // Made before there was a habit, and closed since.
        learned.ended(directory, Ending::Small, false, None);
        assert_eq!(learned.starts_large(directory), Some(false), "however many there were");

        learned.ended(directory, Ending::Huge, false, None);
        learned.ended(directory, Ending::Small, true, None);
        for (ending, large) in [(Ending::Huge, false), (Ending::Large, false), (Ending::Small, false)] {
            learned.ended(directory, ending, false, None);
            assert_eq!(learned.starts_large(directory), Some(large));
        }
        learned.ended(directory, Ending::Large, false, None);
        assert_eq!(learned.starts_large(directory), Some(false));
        learned.ended(directory, Ending::Huge, false, None);
        assert_eq!(learned.starts_large(directory), Some(true), "3 - 2 + 1 + 2 is 4");

        learned.ended(directory, Ending::Huge, true, None);
        for (ending, large) in [(Ending::Small, false), (Ending::Large, false), (Ending::Large, true)] {
            learned.ended(directory, ending, false, None);
            assert_eq!(learned.starts_large(directory), Some(large), "a right guess leaves 3 of 3, not 4");
        }
    }

    #[test]
    fn the_roots_own_files_say_nothing_of_the_directories_in_it() {
        let learned = LearnedLayouts::new();
        file(&learned, 1, 1, Ending::Large);
        file(&learned, 5, 1, Ending::Huge);
        file(&learned, 7, 1, Ending::Huge);
        file(&learned, 1, 1, Ending::Small);
        assert!(file(&learned, 8, 1, Ending::Huge));
    }

    #[test]
    fn what_ends_in_directories_below_takes_nothing_from_a_habit() {
        let learned = LearnedLayouts::new();
        file(&learned, 5, 1, Ending::Huge);
        file(&learned, 6, 5, Ending::Large);
        assert!(file(&learned, 5, 1, Ending::Huge));
    }

    #[test]
    fn however_many_siblings_there_are_the_next_one_inherits() {
        let learned = LearnedLayouts::new();
        let started = (0..300).map(|number| file(&learned, 100 + number, 1, Ending::Huge));
        assert_eq!(started.filter(|large| !large).count(), 2);
    }

    #[test]
    fn a_directory_is_asked_for_its_parent_once() {
        let learned = LearnedLayouts::new();
        assert!(learned.wants_parent(ino(6)));
        file(&learned, 6, 5, Ending::Large);
        assert!(!learned.wants_parent(ino(6)));
        assert!(learned.wants_parent(ino(5)), "known by a file below it only");
        file(&learned, 5, 1, Ending::Huge);
        assert!(!learned.wants_parent(ino(5)));
        assert!(!file(&learned, 7, 1, Ending::Huge));
        assert!(file(&learned, 8, 1, Ending::Huge), "5 and 7 are siblings of 8");
    }
}

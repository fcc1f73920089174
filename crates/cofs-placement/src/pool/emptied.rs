//! The directories in which something was removed: perhaps empty now.

use std::collections::BTreeSet;

use cofs_types::limits::OBJECT_DIRECTORIES_EMPTIED_MAX;
use parking_lot::Mutex;

use crate::path::DirectoryNumber;

#[derive(Default)]
pub struct Emptied {
    numbers: Mutex<BTreeSet<DirectoryNumber>>,
}

impl Emptied {
    /// Whether it is the first; and the oldest, if they are too many. If that is not empty, a later removal in it brings it back.
    pub fn note(&self, number: DirectoryNumber) -> (bool, Option<DirectoryNumber>) {
        let mut numbers = self.numbers.lock();
        let first = numbers.is_empty();
        numbers.insert(number);
        let too_many = numbers.len() > OBJECT_DIRECTORIES_EMPTIED_MAX;
        (first, if too_many { numbers.pop_first() } else { None })
    }

    pub fn any_before(&self, end: DirectoryNumber) -> bool {
        self.numbers.lock().first().is_some_and(|&first| first < end)
    }

    /// Those before `end`, or all, which are not noted any more.
    pub fn take_before(&self, end: Option<DirectoryNumber>) -> BTreeSet<DirectoryNumber> {
        let mut numbers = self.numbers.lock();
        let later = end.map_or_else(BTreeSet::new, |end| numbers.split_off(&end));
        std::mem::replace(&mut *numbers, later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_is_remembered_the_newest() {
        let number = |number| DirectoryNumber::from_parts(0, number);
        let emptied = Emptied::default();
        let most = OBJECT_DIRECTORIES_EMPTIED_MAX as u64;
        for noted in 0..most {
            assert_eq!(emptied.note(number(noted)), (noted == 0, None));
        }
        assert_eq!(emptied.note(number(most)), (false, Some(number(0))));
        assert!(!emptied.any_before(number(1)) && emptied.any_before(number(2)));
        assert_eq!(emptied.take_before(Some(number(3))).len(), 2);
        assert!(!emptied.any_before(number(3)));
        assert_eq!(emptied.take_before(None).len(), OBJECT_DIRECTORIES_EMPTIED_MAX - 2);
    }
}

//! The order of a memtable's keys, made when somebody asks for it: a commit only notes that there is a new key, and of what group. A tree
//! that each new key went to at once was what took longest in a create, and most tables are only ever walked once, when they are drained.
//!
//! Groups are what is scanned together ([`KeyShape::scanned`]), so that who lists a small directory does not order a large one.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
};

use super::{super::KeyShape, entries::At, rank::Rank};

/// Keys that are not in the order yet.
pub(super) struct Unordered {
    keys: KeyShape,
    /// By what the keys of a group begin with.
    groups: BTreeMap<Rank, Vec<At>>,
}

/// The order of the others.
pub(super) type Order = BTreeMap<Rank, At>;

impl Unordered {
    pub(super) fn new(keys: KeyShape) -> Self {
        Self { keys, groups: BTreeMap::new() }
    }

    /// `key` is new.
    pub(super) fn note(&mut self, key: &[u8], at: At) {
        let group = Rank::of(self.keys.group(key));
        match self.groups.get_mut(&group) {
            Some(ats) => ats.push(at),
            None => drop(self.groups.insert(group, vec![at])),
        }
    }

    /// The groups that have keys in the range, and others that may: what comes before the first one's beginning is less than
    /// all that it can have.
    fn groups(&self, range: &Range<&[u8]>) -> impl Iterator<Item = (&Rank, &Vec<At>)> {
        let from = Rank::of(self.keys.group(range.start));
        let to = Rank::of(range.end);
        let is_range = from < to;
        let within = (Bound::Included(from), Bound::Excluded(to));
        is_range.then(|| self.groups.range(within)).into_iter().flatten()
    }

    /// How many there are in these groups.
    pub(super) fn len(&self, range: &Range<&[u8]>) -> usize {
        self.groups(range).map(|(_, ats)| ats.len()).sum()
    }

    /// Takes out all of these groups.
    pub(super) fn take(&mut self, range: &Range<&[u8]>) -> Vec<At> {
        let groups: Vec<Rank> = self.groups(range).map(|(group, _)| group.clone()).collect();
        groups.iter().filter_map(|group| self.groups.remove(group)).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first byte tells how many are scanned together.
    fn shape() -> KeyShape {
        KeyShape { scanned: |key| key.first().map_or(0, |first| usize::from(*first)), ..KeyShape::default() }
    }

    #[test]
    fn of_a_range_its_groups_are_taken_and_no_others() {
        let all: [&[u8]; 6] =
            [&[1, 7], &[1, 9], &[3, 0, 1, 5], &[3, 0, 2, 1], &[3, 0, 2, 9], &[4, 0, 0, 0, 1]];
        let fresh = || {
            let mut unordered = Unordered::new(shape());
            (0..).zip(all).for_each(|(at, key)| unordered.note(key, at));
            unordered
        };
        let cases: [(&[u8], &[u8], &[At]); 8] = [
            (&[], &[9], &[0, 1, 2, 3, 4, 5]),
            (&[3, 0, 2, 5], &[3, 0, 2, 7], &[3, 4]),
            (&[3, 0, 1], &[3, 0, 2], &[2]),
            (&[3], &[4], &[2, 3, 4]),
            (&[1, 8], &[1, 8, 0], &[0, 1]),
            (&[4, 0, 0, 0, 2], &[9], &[5]),
            (&[2], &[3], &[]),
            (&[4], &[3], &[]),
        ];
        for (start, end, expected) in cases {
            let mut unordered = fresh();
            let range = start..end;
            assert_eq!(unordered.len(&range), expected.len());
            let mut taken = unordered.take(&range);
            taken.sort_unstable();
            assert_eq!(taken, expected, "{range:?}");
            assert_eq!((unordered.len(&range), unordered.take(&range)), (0, Vec::new()));
            assert_eq!(unordered.take(&(&[]..&[9])).len(), all.len() - expected.len());
        }
    }
}

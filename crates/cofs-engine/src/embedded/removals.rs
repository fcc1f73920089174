//! What a drain's removals spare: tables below of which nothing is left, and removals that have nothing to remove.
//!
//! RocksDB learns of a removal as of any record: it is written into a table and sinks from level to level, until a compaction
//! meets what it removes, which it reads and writes anew without it. Where all that a table has is removed, and that is known from the
//! removals alone, none of this is needed: the file goes (`rm -rf` of a tree with small files is most of what there is of this). And
//! a removal whose key lies in the range of no table, as that of a file that came and went within a segment, need not go down at all.
//!
//! That a table has no key but removed ones follows from the numbers of its first and its last key, if all numbers from the one to
//! the other are removed as a *whole* (see [`KeyShape`]).

use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
};

use super::{KeyShape, intake::Memtable};
use crate::Key;

/// Shorter runs of numbers hold no table: those in the making are cut at a MiB.
const RUN_NUMBERS_MIN: u64 = 64;

/// The range of a table below.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Table {
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// Tables of a level hide what those of a higher one have; only those of level 0 may overlap.
    pub(super) level: i32,
    pub(super) bytes: u64,
}

/// Numbers of a family that follow each other and are all removed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Run {
    family: Key,
    first: u64,
    last: u64,
}

/// A table with the keys of one family, which have numbers.
struct Span<'a> {
    family: &'a [u8],
    first: u64,
    last: u64,
}

impl<'a> Span<'a> {
    fn of(table: &'a Table, keys: KeyShape) -> Option<Self> {
        let family = keys.family(&table.first);
        let (first, last) = ((keys.number)(&table.first)?, (keys.number)(&table.last)?);
        (keys.family(&table.last) == family).then_some(Self { family, first, last })
    }
}

impl Run {
    /// Whether the run begins behind this key.
    fn is_behind(&self, key: &[u8], keys: KeyShape) -> bool {
        (keys.family(key), (keys.number)(key)) < (self.family.as_slice(), Some(self.first))
    }

    fn meets(&self, key: &[u8], keys: KeyShape) -> bool {
        keys.family(key) == self.family.as_slice()
            && (keys.number)(key).is_some_and(|number| number <= self.last)
    }

    fn holds(&self, table: &Span<'_>) -> bool {
        self.family.as_slice() == table.family && self.first <= table.first && table.last <= self.last
    }
}

/// The runs of a memtable's removals. None of one whose commits came from the journal: another version may have made them, that
/// promised less of its removals.
pub(super) fn runs(memtable: &Memtable, keys: KeyShape) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    if memtable.is_replayed() || memtable.removals() < RUN_NUMBERS_MIN as usize {
        return runs;
    }
    let mut open: Option<Run> = None;
    let mut close = |run: Option<Run>| runs.extend(run.filter(|run| run.last - run.first >= RUN_NUMBERS_MIN));
    memtable
        .visit::<()>(|key, value| {
            let Some(number) = (keys.number)(key).filter(|_| (keys.whole)(key)) else { return Ok(()) };
            let family = keys.family(key);
            let follows =
                |run: &Run| run.family.as_slice() == family && run.last.checked_add(1) == Some(number);
            if value.is_some() {
                close(open.take());
            } else if let Some(run) = open.as_mut().filter(|run| follows(run)) {
                run.last = number;
            } else {
                close(open.replace(Run { family: Key::from_slice(family), first: number, last: number }));
            }
            Ok(())
        })
        .unwrap_or_default();
    close(open);
    runs
}

/// The ranges of keys, each of one table or several neighbours, in which no table has anything left. `tables` are in the order of
/// their first keys.
///
/// A table stays if one below it shows what it hides: one that stays, or has keys outside of the run. And so does one with such a
/// table in its range: what goes are ranges.
pub(super) fn dead(runs: &[Run], tables: &[Table], keys: KeyShape) -> Vec<(Vec<u8>, Vec<u8>)> {
    if runs.is_empty() {
        return Vec::new();
    }
    let levels = Levels::of(tables);
    let mut ranges = Vec::new();
    for run in runs {
        let from = tables.partition_point(|table| run.is_behind(&table.first, keys));
        let of_run = tables[from..].iter().take_while(|table| run.meets(&table.first, keys));
        let is_held = |table: &Table| Span::of(table, keys).is_some_and(|span| run.holds(&span));
        let held = (from..).zip(of_run).filter(|(_, table)| is_held(table));
        let held: Vec<usize> = held.map(|(at, _)| at).collect();
        let mut dying: HashSet<usize> = held.iter().copied().collect();
        let stays = |at: usize, dying: &HashSet<usize>| {
            levels.below(&tables[at]).chain(within(tables, &tables[at])).any(|other| !dying.contains(&other))
        };
        loop {
            let staying: Vec<usize> = dying.iter().copied().filter(|&at| stays(at, &dying)).collect();
            if staying.is_empty() {
                break;
            }
            dying.retain(|at| !staying.contains(at));
        }
        for neighbours in held.split(|at| !dying.contains(at)).filter(|tables| !tables.is_empty()) {
            let first = neighbours.iter().map(|&at| &tables[at].first).min();
            let last = neighbours.iter().map(|&at| &tables[at].last).max();
            ranges.extend(first.cloned().zip(last.cloned()));
        }
    }
    ranges
}

/// The tables of any level whose range lies in this one's; itself among them.
fn within<'a>(tables: &'a [Table], table: &'a Table) -> impl Iterator<Item = usize> + 'a {
    let from = tables.partition_point(|other| other.first < table.first);
    let begin_in = tables[from..].iter().take_while(|other| other.first <= table.last);
    (from..).zip(begin_in).filter(|(_, other)| other.last <= table.last).map(|(at, _)| at)
}

/// Tables by their level, of which each but level 0 has them one behind the other.
pub(super) struct Levels<'a> {
    tables: &'a [Table],
    /// Level and indices, in the order of the tables.
    levels: BTreeMap<i32, Vec<usize>>,
}

impl<'a> Levels<'a> {
    /// `tables` are in the order of their first keys.
    pub(super) fn of(tables: &'a [Table]) -> Self {
        let mut levels: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (at, table) in tables.iter().enumerate() {
            levels.entry(table.level).or_default().push(at);
        }
        Self { tables, levels }
    }

    /// What stands below this table in its range.
    fn below<'b>(&'b self, table: &'b Table) -> impl Iterator<Item = usize> + 'b {
        let deeper = (Bound::Excluded(table.level), Bound::Unbounded);
        self.levels.range(deeper).flat_map(|(level, at)| self.meeting(*level, at, &table.first, &table.last))
    }

    /// The bytes of the tables that are merged where this range is: those that may have keys in it, and going down from level to level, those that
    /// meet what has been taken above. (A level has its tables side by side, so that whatever a table is merged into is written anew whole.)
    pub(super) fn bytes_in(&self, first: &[u8], last: &[u8]) -> u64 {
        let (mut first, mut last) = (first, last);
        let mut bytes = 0;
        for (level, of_level) in &self.levels {
            loop {
                let met: Vec<usize> = self.meeting(*level, of_level, first, last).collect();
                let tables = || met.iter().map(|&at| &self.tables[at]);
                let (before_first, before_last) = (first, last);
                first = tables().map(|table| table.first.as_slice()).fold(first, Ord::min);
                last = tables().map(|table| table.last.as_slice()).fold(last, Ord::max);
                // Where tables overlap each other, those that are met now may meet more.
                if *level > 0 || (first, last) == (before_first, before_last) {
                    bytes += tables().map(|table| table.bytes).sum::<u64>();
                    break;
                }
            }
        }
        bytes
    }

    /// Of the tables `of_level`.
    fn meeting<'b>(
        &'b self,
        level: i32,
        of_level: &'b [usize],
        first: &'b [u8],
        last: &'b [u8],
    ) -> impl Iterator<Item = usize> + 'b {
        let ends_before = move |&at: &usize| self.tables[at].last.as_slice() < first;
        let from = if level == 0 { 0 } else { of_level.partition_point(ends_before) };
        let begin = of_level[from..].iter().take_while(move |&&at| self.tables[at].first.as_slice() <= last);
        begin.copied().filter(move |at| !ends_before(at))
    }
}

/// Tells of keys, in their order, whether a table may have them.
pub(super) struct Held {
    /// The ranges of tables, joined where they overlap; in order.
    ranges: std::iter::Peekable<std::vec::IntoIter<(Vec<u8>, Vec<u8>)>>,
}

impl Held {
    /// `tables` are in the order of their first keys.
    pub(super) fn by(tables: Vec<Table>) -> Self {
        let mut ranges: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for Table { first, last, .. } in tables {
            match ranges.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(std::mem::take(end)),
                _ => ranges.push((first, last)),
            }
        }
        Self { ranges: ranges.into_iter().peekable() }
    }

    pub(super) fn may_have(&mut self, key: &[u8]) -> bool {
        while self.ranges.next_if(|(_, last)| last.as_slice() < key).is_some() {}
        self.ranges.peek().is_some_and(|(first, _)| first.as_slice() <= key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    /// `family number part`; who removes part 0 removes all.
    const KEYS: KeyShape = KeyShape {
        family_bytes: 1,
        number: |key| match key {
            [b'n' | b'm', number, _] => Some(u64::from(*number)),
            _ => None,
        },
        whole: |key| matches!(key, [_, _, 0]),
        scanned: |_| 1,
    };

    fn table(level: i32, first: &[u8], last: &[u8]) -> Table {
        Table { first: first.to_vec(), last: last.to_vec(), level, bytes: 1 }
    }

    fn run(first: u64, last: u64) -> Run {
        Run { family: Key::from_slice(b"n"), first, last }
    }

    fn memtable(changes: &[Change]) -> Memtable {
        let memtable = Memtable::of_segment(1 << 20, KEYS);
        memtable.apply(changes);
        memtable
    }

    fn removals(numbers: impl IntoIterator<Item = u8>) -> Vec<Change> {
        numbers.into_iter().map(|number| Change::delete([b'n', number, 0])).collect()
    }

    #[test]
    fn numbers_that_follow_each_other_are_a_run() {
        let mut changes = removals((0..70).chain(80..200));
        assert_eq!(runs(&memtable(&changes), KEYS), [run(0, 69), run(80, 199)]);
        // Other parts tell nothing of their numbers; other families stand apart.
        changes.push(Change::put([b'n', 90, 1], b"".to_vec()));
        changes.push(Change::delete([b'n', 75, 1]));
        changes.push(Change::delete([b'm', 70, 0]));
        assert_eq!(runs(&memtable(&changes), KEYS), [run(0, 69), run(80, 199)]);
        // What has a value again ends a run.
        changes.push(Change::put([b'n', 150, 0], b"".to_vec()));
        assert_eq!(runs(&memtable(&changes), KEYS), [run(0, 69), run(80, 149)]);
        assert!(runs(&memtable(&removals((0..200).step_by(2))), KEYS).is_empty());
        assert!(runs(&memtable(&[]), KEYS).is_empty());
    }

    #[test]
    fn what_came_from_the_journal_promises_nothing() {
        let memtable = memtable(&removals(0..100));
        assert_eq!(runs(&memtable, KEYS), [run(0, 99)]);
        memtable.replay(vec![]);
        assert!(runs(&memtable, KEYS).is_empty());
    }

    fn range(first: &[u8], last: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (first.to_vec(), last.to_vec())
    }

    fn in_order(tables: &[Table]) -> Vec<Table> {
        let mut tables = tables.to_vec();
        tables.sort();
        tables
    }

    fn dead_of(run: Run, tables: &[Table]) -> Vec<(Vec<u8>, Vec<u8>)> {
        dead(&[run], &in_order(tables), KEYS)
    }

    #[test]
    fn a_table_within_a_run_is_dead() {
        let tables = vec![
            table(6, b"n\x09\0", b"n\x0a\0"), // begins before the run
            table(6, b"n\x0a\x01", b"n\x14\x05"),
            table(6, b"n\x15\0", b"n\x20\0"),
            table(6, b"n\x21\0", b"n\x65\0"), // ends behind it
            table(6, b"m\x0a\0", b"m\x0b\0"),
            table(6, b"m\x0c\0", b"n\x0b\0"),
            table(6, b"x\x0a\0", b"x\x0b\0"),
        ];
        assert_eq!(dead_of(run(10, 100), &tables), [range(b"n\x0a\x01", b"n\x20\0")]);
        assert!(dead_of(run(50, 100), &tables).is_empty());
    }

    #[test]
    fn a_table_that_hides_older_ones_goes_only_with_them() {
        let (above, below) = (table(5, b"n\x0a\0", b"n\x14\0"), table(6, b"n\x0b\0", b"n\x15\0"));
        let both = vec![above.clone(), below.clone()];
        assert_eq!(dead_of(run(10, 21), &both), [range(b"n\x0a\0", b"n\x15\0")]);
        assert!(dead_of(run(10, 20), &both).is_empty());
        // One above it, which is younger, shows nothing that is older than what goes.
        let wide = table(4, b"n\x01\0", b"n\x99\0");
        assert_eq!(dead_of(run(10, 20), &[above.clone(), wide]), [range(b"n\x0a\0", b"n\x14\0")]);
        // One that goes, but for a third below it, stays; and so does what hides it.
        let (top, third) = (table(4, b"n\x0a\0", b"n\x0a\0"), table(6, b"n\x14\0", b"n\x99\0"));
        assert!(dead_of(run(10, 20), &[top, above, third]).is_empty());
    }

    #[test]
    fn tables_are_neighbours_where_none_stays_between_them() {
        let tables = vec![
            table(6, b"n\x0a\0", b"n\x0b\0"),
            table(5, b"n\x0c\0", b"n\x0d\0"),
            table(6, b"n\x0d\0", b"n\x99\0"),
            table(5, b"n\x0e\0", b"n\x0e\0"),
        ];
        assert_eq!(dead_of(run(10, 20), &tables), [range(b"n\x0a\0", b"n\x0b\0")]);
    }

    proptest::proptest! {
        /// Whatever is taken away, nothing that is left below it was hidden by it, and nothing that could go stays.
        #[test]
        fn tables_go_with_all_that_they_hide(
            levels in proptest::collection::vec(proptest::collection::btree_set(0u8..24, 0..12), 1..4),
            first in 0u64..8,
            numbers in 6u64..20,
        ) {
            let mut tables = Vec::new();
            for (level, ends) in (4..).zip(&levels) {
                let ends: Vec<_> = ends.iter().collect();
                tables.extend(ends.chunks_exact(2).map(|ends| table(level, &[b'n', *ends[0], 0], &[b'n', *ends[1], 0])));
            }
            let inside = |table: &Table| {
                u64::from(table.first[1]) >= first && u64::from(table.last[1]) <= first + numbers
            };
            let overlaps = |one: &Table, other: &Table| one.first <= other.last && other.first <= one.last;
            let covers = |one: &Table, other: &Table| one.first <= other.first && other.last <= one.last;
            let (mut gone, mut left): (Vec<_>, Vec<_>) = tables.iter().partition(|table| inside(table));
            let keeps = |one: &Table, other: &Table| covers(other, one) || one.level > other.level && overlaps(one, other);
            while let Some(at) = gone.iter().position(|table| left.iter().any(|left| keeps(left, table))) {
                left.push(gone.remove(at));
            }
            let ranges = dead_of(run(first, first + numbers), &tables);
            let taken = |table: &&Table| ranges.iter().any(|(first, last)| *first <= table.first && table.last <= *last);
            proptest::prop_assert_eq!(tables.iter().filter(taken).collect::<Vec<_>>(), gone);
        }
    }

    #[test]
    fn the_bytes_of_a_range_are_those_of_all_tables_that_are_merged_with_it() {
        let tables = in_order(&[
            table(0, b"b", b"c"),
            table(0, b"c", b"e"),
            table(0, b"k", b"k"),
            table(5, b"a", b"b"),
            table(5, b"g", b"h"),
            table(5, b"k", b"p"),
            table(6, b"a", b"a"),
            table(6, b"c", b"c"),
            table(6, b"f", b"g"),
            table(6, b"m", b"m"),
            table(6, b"q", b"q"),
        ]);
        let levels = Levels::of(&tables);
        let bytes = |first: &[u8], last: &[u8]| levels.bytes_in(first, last);
        // Both young ones, as they overlap; the older one that the first of them meets; and what that meets, and they.
        assert_eq!((bytes(b"e", b"e"), bytes(b"b", b"b")), (5, 5));
        assert_eq!((bytes(b"g", b"g"), bytes(b"h", b"i"), bytes(b"i", b"i")), (2, 2, 0));
        assert_eq!((bytes(b"k", b"k"), bytes(b"p", b"p"), bytes(b"q", b"z")), (3, 2, 1));
        assert_eq!((bytes(b"a", b"z"), bytes(b"z", b"z")), (11, 0));
    }

    #[test]
    fn keys_are_held_by_the_ranges_of_tables() {
        let tables =
            vec![table(0, b"d", b"f"), table(6, b"a", b"b"), table(5, b"e", b"h"), table(6, b"e", b"e")];
        let mut held = Held::by(in_order(&tables));
        let keys: [&[u8]; 9] = [b"", b"a", b"b", b"b\0", b"c", b"d", b"g", b"h", b"i"];
        let held = keys.map(|key| held.may_have(key));
        assert_eq!(held, [false, true, true, false, false, true, true, true, false]);
        assert!(!Held::by(vec![]).may_have(b""));
    }
}

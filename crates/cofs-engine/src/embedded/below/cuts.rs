//! Where tables begin.
//!
//! A table whose range no other has goes to the bottom at once and is never rewritten by compaction. So families of keys (see
//! [`KeyShape`]) that are large get tables of their own: records that come in the order of their keys then do not suffer for those
//! that do not. And where such a family has a gap, because several sequences of numbers grow at a time, a table ends too: what
//! comes next will lie in the gap.

use super::super::{KeyShape, intake::Memtable, removals::Table};
use crate::{EngineError, Key};

/// A part with less shares a table with its neighbours: many tiny tables would help nobody.
const PART_BYTES_MIN: usize = 1 << 20;
/// In a small memtable so many tables begin behind gaps, at most.
const GAPS_MAX: usize = 4;
/// Values that are this large on an average are not compressed: that takes longer than all else that is done to them here, and they
/// are small files, which would take as much anywhere else.
const LARGE_VALUE_BYTES: usize = 1 << 10;

/// Neighbouring keys of a family without a gap between their numbers; or several such, all small, of which the first is counted.
struct Part {
    first: Key,
    bytes: usize,
}

impl Part {
    fn is_large(&self) -> bool {
        self.bytes >= PART_BYTES_MIN
    }
}

/// The keys of one family in a memtable.
struct Family {
    name: Key,
    keys: usize,
    bytes: usize,
    parts: Vec<Part>,
}

/// Where another table begins.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) first: Key,
    pub(super) large_values: bool,
}

impl Family {
    fn is_large(&self) -> bool {
        self.bytes >= PART_BYTES_MIN
    }

    fn begin_part(&mut self, key: &[u8]) {
        self.join_small();
        self.parts.push(Part { first: Key::from_slice(key), bytes: 0 });
    }

    /// The last two parts, which are complete, are one if no table begins between them.
    fn join_small(&mut self) {
        if let [.., before, last] = self.parts.as_slice()
            && !before.is_large()
            && !last.is_large()
        {
            self.parts.pop();
        }
    }

    fn has_large_values(&self) -> bool {
        self.is_large() && self.bytes / self.keys.max(1) >= LARGE_VALUE_BYTES
    }

    fn add(&mut self, bytes: usize) {
        self.keys += 1;
        self.bytes += bytes;
        if let Some(part) = self.parts.last_mut() {
            part.bytes += bytes;
        }
    }

    fn cut(&self, part: &Part) -> Cut {
        Cut { first: part.first.clone(), large_values: self.has_large_values() }
    }

    fn cuts(&self) -> impl Iterator<Item = Cut> {
        let cut = self.parts.windows(2).filter(|pair| pair[0].is_large() || pair[1].is_large());
        cut.map(|pair| self.cut(&pair[1]))
    }
}

/// Where tables begin, in the order of the keys: between two families or two parts of one, of which one at least is large.
pub(super) fn cuts(memtable: &Memtable, keys: KeyShape) -> Result<Vec<Cut>, EngineError> {
    let mut families: Vec<Family> = Vec::new();
    let mut before = None;
    memtable.visit(|key, value| {
        let name = keys.family(key);
        let number = (keys.number)(key);
        if families.last().is_none_or(|family| family.name.as_slice() != name) {
            families.push(Family { name: Key::from_slice(name), keys: 0, bytes: 0, parts: Vec::new() });
            before = None;
        }
        if let Some(family) = families.last_mut() {
            if family.parts.is_empty() || !adjoin(before, number) {
                family.begin_part(key);
            }
            family.add(key.len() + value.map_or(0, <[u8]>::len));
        }
        before = number;
        Ok(())
    })?;
    families.iter_mut().for_each(Family::join_small);
    let mut cuts = Vec::new();
    for (at, family) in families.iter().enumerate() {
        if family.is_large() || at > 0 && families[at - 1].is_large() {
            cuts.extend(family.parts.first().map(|part| family.cut(part)));
        }
        cuts.extend(family.cuts());
    }
    Ok(cuts)
}

/// Lets a table begin also where one of those below begins, so that what is removed from each of them can be merged by itself.
pub(super) fn cut_between(cuts: &mut Vec<Cut>, below: &[Table]) {
    let large_values = |key: &[u8]| {
        let before = cuts.partition_point(|cut| cut.first.as_slice() <= key).checked_sub(1);
        before.is_some_and(|at| cuts[at].large_values)
    };
    let cut = |table: &Table| Cut {
        first: Key::from_slice(&table.first),
        large_values: large_values(&table.first),
    };
    let mut more: Vec<Cut> = below.iter().map(cut).collect();
    cuts.append(&mut more);
    cuts.sort_by(|one, other| one.first.cmp(&other.first));
}

/// Lets a table of a small memtable begin also behind the gaps between its keys in which most stands below: a small table over much that is none of its
/// business would be merged with all of that, and whatever else is to be merged there with it.
pub(super) fn cut_at_gaps(
    cuts: &mut Vec<Cut>,
    memtable: &Memtable,
    below: &[Table],
) -> Result<(), EngineError> {
    if memtable.bytes() >= PART_BYTES_MIN {
        return Ok(());
    }
    let mut gaps = Vec::new();
    let mut before: Option<Key> = None;
    let mut below = below.iter().peekable();
    memtable.visit(|key, _| {
        let mut bytes = 0;
        while let Some(table) = below.next_if(|table| table.first.as_slice() <= key) {
            let begins_in_it =
                before.as_ref().is_some_and(|before| before.as_slice() < table.first.as_slice());
            if begins_in_it && table.last.as_slice() < key {
                bytes += table.bytes;
            }
        }
        if bytes >= PART_BYTES_MIN as u64 {
            gaps.push((bytes, Key::from_slice(key)));
        }
        before = Some(Key::from_slice(key));
        Ok(())
    })?;
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    cuts.extend(gaps.into_iter().take(GAPS_MAX).map(|(_, first)| Cut { first, large_values: false }));
    cuts.sort_by(|one, other| one.first.cmp(&other.first));
    Ok(())
}

fn adjoin(one: Option<u64>, next: Option<u64>) -> bool {
    match (one, next) {
        (Some(one), Some(next)) => next.saturating_sub(one) <= 1,
        (one, next) => one == next,
    }
}

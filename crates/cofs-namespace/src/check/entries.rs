//! The pass over directory entries.

use cofs_types::{FsResult, InodeId, NameBuf};

use super::{Pass, Problem, table::Flag};
use crate::schema::{EntryRecord, Key, Occupant, ranges};

/// Neighbouring slots of one directory through which one search goes.
#[derive(Default)]
struct Chain {
    dir: Option<InodeId>,
    first: u64,
    next: u64,
    /// The names so far, where there is more than one slot. Bounded by `limits::ENTRY_CHAIN_MAX`.
    names: Vec<NameBuf>,
    goes_on: bool,
}

impl Chain {
    /// Goes to the next entry; whether its name is found there, and only there.
    fn step(&mut self, dir: InodeId, slot: u64, record: &EntryRecord<'_>, home: Option<u64>) -> bool {
        if !(self.goes_on && self.dir == Some(dir) && self.next == slot) {
            *self = Self { dir: Some(dir), first: slot, ..Self::default() };
        }
        self.next = slot.saturating_add(1);
        let found = home.is_none_or(|home| (self.first..=slot).contains(&home));
        let mut double = false;
        if let Some(occupant) = &record.occupant {
            double = self.names.iter().any(|name| **name == *occupant.name);
            if record.continues || self.goes_on {
                self.names.push(occupant.name.to_owned());
            }
        }
        self.goes_on = record.continues;
        found && !double
    }
}

impl Pass<'_> {
    pub(super) fn entries(&mut self) -> FsResult<()> {
        let checker = self.checker;
        let mut chain = Chain::default();
        let mut elsewhere = Vec::new();
        checker.scan(&ranges::all_entries(), &mut |key, value| {
            let (Ok(Key::Entry { dir, slot }), Ok(record)) = (Key::parse(key), EntryRecord::decode(value))
            else {
                self.unreadable(key, value, "directory entry");
                return Ok(());
            };
            let home = record.occupant.map(|occupant| self.hasher.home(occupant.name));
            let in_place = chain.step(dir, slot, &record, home);
            self.entry(dir, slot, &record, in_place, &mut elsewhere);
            Ok(())
        })?;
        self.settle_elsewhere(&elsewhere);
        Ok(())
    }

    fn entry(
        &mut self,
        dir: InodeId,
        slot: u64,
        record: &EntryRecord<'_>,
        in_place: bool,
        elsewhere: &mut Vec<(InodeId, u64, InodeId)>,
    ) {
        if record.occupant.is_some_and(|occupant| !self.trace(dir, &occupant)) {
            return;
        }
        let Some(parent) = self.table.find(dir).filter(|index| self.table.is_directory(*index)) else {
            self.found.add(Problem::EntryWithoutDirectory { dir, slot });
            return;
        };
        let Some(Occupant { name, ino, kind }) = record.occupant else { return };
        self.found.summary.entries += 1;
        let Some(index) = self.table.find(ino) else {
            self.found.add(Problem::DanglingEntry { dir, slot, name: name.to_owned(), ino });
            return;
        };
        if !in_place {
            self.found.add(Problem::MisplacedEntry { dir, slot, name: name.to_owned() });
            return;
        }
        let actual = self.table.kind(index);
        if actual != kind {
            self.found.add(Problem::EntryKind { dir, slot, stored: kind, kind: actual });
        }
        if !self.table.is_directory(index) {
            self.table.add_one(index);
        } else if self.table.parent(index) == Some(dir) && !self.table.has(index, Flag::Named) && ino != dir {
            self.table.set(index, Flag::Named);
            self.table.add_one(parent);
        } else if elsewhere.len() < cofs_types::limits::CHECK_PROBLEMS_MAX {
            elsewhere.push((dir, slot, ino));
        } else {
            self.found.more = true;
        }
    }

    /// Entries of directories that take another one for their parent: the only name is right, a second is not.
    fn settle_elsewhere(&mut self, elsewhere: &[(InodeId, u64, InodeId)]) {
        for &(dir, slot, ino) in elsewhere {
            let (Some(index), Some(parent)) = (self.table.find(ino), self.table.find(dir)) else { continue };
            if self.table.has(index, Flag::Named) || ino == InodeId::ROOT || ino == dir {
                self.found.add(Problem::ExtraDirectoryEntry { dir, slot, ino });
                continue;
            }
            self.found.add(Problem::WrongParent { ino, stored: self.table.parent(index), found: dir });
            self.table.set(index, Flag::Named);
            self.table.set_parent(index, dir);
            self.table.add_one(parent);
        }
    }
}

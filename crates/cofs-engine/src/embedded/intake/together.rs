//! Commits that waited for their turn, written as one record: one call for all of them, and none of them without the others.

use std::ops::Range;

use super::{
    Intake, Record, Writer, makes_room, too_large,
    turns::{Answer, Wanted},
};
use crate::{Change, EngineError, Guard, Outcome, embedded::error::is_full};

/// Changes that may stand in one record, as a share of a segment: what is left of a segment behind the last record is lost.
const SHARE_OF_SEGMENT: u64 = 64;

/// Commits whose guards hold, on their way to one record.
#[derive(Default)]
struct Group {
    changes: Vec<Change>,
    /// The place of each one's answer, and of its changes.
    members: Vec<(usize, Range<usize>)>,
    bytes: u64,
}

impl Group {
    fn add(&mut self, answer: usize, changes: Vec<Change>) {
        self.bytes += changes.iter().map(bytes).sum::<u64>();
        let from = self.changes.len();
        self.changes.extend(changes);
        self.members.push((answer, from..self.changes.len()));
    }

    /// Whether one of these is about a key that is changed here.
    fn changes_any(&self, guards: &[Guard]) -> bool {
        guards.iter().any(|guard| self.changes.iter().any(|change| change.key() == guard.key))
    }
}

fn bytes(change: &Change) -> u64 {
    let value = match change {
        Change::Put { value, .. } => value.len(),
        Change::Delete { .. } => 0,
    };
    (change.key().len() + value) as u64
}

impl Intake {
    /// [`Intake::commit`] of each, in order.
    pub(super) fn commit_together(
        &self,
        wanted: Vec<Wanted>,
        holds: impl Fn(&Guard) -> Result<bool, EngineError>,
    ) -> Vec<Answer> {
        let mut writer = self.writer.lock();
        let mut answers = Vec::with_capacity(wanted.len());
        let mut group = Group::default();
        for Wanted { guards, changes } in wanted {
            // A guard is about what is there after all that came before.
            if group.bytes > self.segment_bytes / SHARE_OF_SEGMENT || group.changes_any(&guards) {
                self.append_group(&mut writer, std::mem::take(&mut group), &mut answers);
            }
            let held = writer.all_hold(&guards, &holds);
            if matches!(held, Ok(true)) && !changes.is_empty() {
                group.add(answers.len(), changes);
            }
            answers.push(held.map(|held| if held { Outcome::Committed } else { Outcome::GuardFailed }));
        }
        self.append_group(&mut writer, group, &mut answers);
        answers
    }

    /// As one record. Where there is no room for that, each as its own: one of them may be what is too much, or have a right to space
    /// that the others have not. A write that fails otherwise fails for all: a network may take minutes to tell each.
    fn append_group(&self, writer: &mut Writer, group: Group, answers: &mut [Answer]) {
        let Group { changes, members, .. } = group;
        let failed = (members.len() > 1).then(|| {
            let all_make_room = members.iter().all(|(_, range)| makes_room(&changes[range.clone()]));
            self.append_changes(writer, &changes, all_make_room)
        });
        let of_all = match failed {
            Some(Ok(())) => return,
            Some(Err(error)) if writer.could_not_write(&error) && !is_full(&error) => Some(error),
            Some(Err(_)) | None => None,
        };
        for (answer, range) in members {
            let own = &changes[range];
            let written = match &of_all {
                Some(error) => Err(error.clone()),
                None => self.append_changes(writer, own, makes_room(own)),
            };
            if let Err(error) = written {
                answers[answer] = Err(error);
            }
        }
    }

    fn append_changes(
        &self,
        writer: &mut Writer,
        changes: &[Change],
        makes_room: bool,
    ) -> Result<(), EngineError> {
        let mut record = Record::of(changes).ok_or_else(too_large)?;
        self.append(writer, &mut record, changes, makes_room)
    }
}

//! Where the journal ended when the store was closed in order.
//!
//! Recovery stops at the first record that is not whole, which after a power cut is where the journal ends. Where all of it was on stable storage it is damage,
//! and all behind it would be gone without a word. So a store that is closed in order notes its end, once that is synced: what is noted stays true, of the
//! segment of that generation and of those before it. A note that is missing or not whole says nothing.

use std::{io, path::Path};

use super::Intake;
use crate::{read_small, small_file::write_note};

pub(in crate::embedded) const NAME: &str = "end-of-journal";
const BYTES_MAX: u64 = 64;

/// So many records were there in the segment of that generation, which was the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) generation: u64,
    pub(super) records: u64,
}

impl End {
    /// All that it tells of must be on stable storage.
    pub(super) fn note(self, directory: &Path) -> io::Result<()> {
        let Self { generation, records } = self;
        write_note(&directory.join(NAME), &format!("{generation} {records}\n"))
    }

    pub(super) fn noted(directory: &Path) -> Option<Self> {
        let text = read_small(&directory.join(NAME), BYTES_MAX).ok()?;
        let (generation, records) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { generation: generation.parse().ok()?, records: records.parse().ok()? })
    }

    /// Whether the segment of `generation`, in which so many records were found, `ended` or not, lacks any.
    pub(super) fn is_missed_in(self, generation: u64, records: u64, ended: bool) -> bool {
        generation < self.generation && !ended || generation == self.generation && records < self.records
    }
}

impl Intake {
    /// Notes where the journal ends, when nobody commits any more. That it cannot be noted does not matter.
    pub(super) fn note_end(&self) {
        if self.sync(|| self.poison.get().cloned().map_or(Ok(()), Err)).is_err() {
            return;
        }
        let writer = self.writer.lock();
        if let Some(layer) = &writer.layer {
            let end = End { generation: layer.segment.header.generation, records: writer.tail.records };
            let _ = end.note(&self.directory);
        }
    }
}

//! How files end where they are born: what a directory's new files most likely need.
//!
//! A file that is created and grows past the inline maximum before its last close ended *large*. Where that
//! happened to the last files of a directory, the next one starts in an object (and, where the kernel allows
//! it, with passthrough from its first byte); one that then ends small takes the directory back a step. It is
//! a guess and never more: a wrong one costs a move, not an answer.

use cofs_types::{InodeId, limits};
use quick_cache::sync::Cache;

/// From this many (net) large endings on, new files start in an object.
const LARGE_FROM: u8 = 2;
const MOST: u8 = 4;

pub(crate) struct LearnedLayouts {
    /// Directories with large endings lately; those that are not here have small files.
    directories: Cache<InodeId, u8>,
}

impl LearnedLayouts {
    pub(crate) fn new() -> Self {
        Self { directories: Cache::new(limits::LEARNED_DIRECTORIES_MAX) }
    }

    /// Whether a file that is created in `directory` now should start in an object.
    pub(crate) fn starts_large(&self, directory: InodeId) -> bool {
        self.directories.get(&directory).is_some_and(|score| score >= LARGE_FROM)
    }

    /// A file born in `directory` was closed for the first time.
    pub(crate) fn ended(&self, directory: InodeId, large: bool) {
        let before = self.directories.get(&directory);
        match (before.unwrap_or(0), large) {
            (score, true) => self.directories.insert(directory, (score + 1).min(MOST)),
            (0, false) => {}
            // Starting wrongly in an object costs more than moving there: one small file counts double.
            (score, false) => self.directories.insert(directory, score.saturating_sub(2)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.directories.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_teach_and_small_ones_teach_faster() {
        let learned = LearnedLayouts::new();
        let directory = InodeId::ROOT;
        learned.ended(directory, true);
        assert!(!learned.starts_large(directory), "one file is no habit");
        learned.ended(directory, true);
        assert!(learned.starts_large(directory));
        learned.ended(directory, false);
        assert!(!learned.starts_large(directory));
    }
}

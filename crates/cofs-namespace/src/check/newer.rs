//! What a newer cofs has written. It cannot be read here and is no damage, and what it leads to (names, bytes, objects)
//! would be taken for nobody's. So where there is any such record the check says so and nothing else, and there is nothing to repair.

use cofs_types::{FsError, FsResult};

use super::{Checker, Pass, Problem};
use crate::schema::{newer_version, ranges};

/// The records of newer versions that a check has met.
#[derive(Default)]
pub(super) struct Newer {
    records: u64,
    first: Option<(Vec<u8>, u8)>,
}

impl Newer {
    /// Notes a record; whether it is of a newer version.
    pub(super) fn note(&mut self, key: &[u8], value: &[u8]) -> bool {
        let Some(version) = newer_version(key, value) else { return false };
        self.records += 1;
        self.first.get_or_insert_with(|| (key.to_vec(), version));
        true
    }

    /// Errors: `Engine`, as for a volume of a newer format, if there was any.
    pub(super) fn refuse(&self) -> FsResult<()> {
        let Some((key, version)) = &self.first else { return Ok(()) };
        let (records, key) = (self.records, key.escape_ascii());
        Err(FsError::Engine(
            format!(
                "a newer cofs has written {records} of the records (the first: {key}, version {version}), which \
                 cannot be checked or repaired here: use that cofs"
            )
            .into(),
        ))
    }
}

impl Checker<'_> {
    /// All there are, where a check has not come by all records.
    pub(super) fn newer(&self) -> FsResult<Newer> {
        let mut newer = Newer::default();
        self.scan(&ranges::everything(), &mut |key, value| {
            newer.note(key, value);
            Ok(())
        })?;
        Ok(newer)
    }
}

impl Pass<'_> {
    /// A record that cannot be understood.
    pub(super) fn unreadable(&mut self, key: &[u8], value: &[u8], what: &str) {
        if !self.newer.note(key, value) {
            self.found.add(Problem::Undecodable { key: key.to_vec(), what: what.to_owned() });
        }
    }
}

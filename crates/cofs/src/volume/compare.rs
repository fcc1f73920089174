//! The metadata held against the pools, in both directions: data that names lead to and that are not there,
//! and data that no name leads to.
//!
//! Every object that an inode has is noted (24 bytes each) before the pools are read once; so an object whose
//! tag was lost is never taken for nobody's. Nobody may change the volume meanwhile, except that objects which
//! nothing leads to are removed.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use cofs_namespace::check::{Checker, Ownership, Salvage};
use cofs_placement::{FoundObject, Placement, PoolHealth};
use cofs_types::{FsError, FsResult, InodeId, ObjectId, PoolId, limits};

use super::salvage::salvage;
use crate::{failure::without_numbers, progress::Progress};

/// An inode's object, as the metadata have it.
struct Expected {
    object: ObjectId,
    ino: InodeId,
    size_bytes: u64,
    found: bool,
    /// Its size stands in the object until the next mount settles it.
    writing: bool,
}

/// A contradiction between metadata and pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contradiction {
    /// A file's bytes are gone. No repair can bring them back.
    Missing { ino: InodeId, object: ObjectId },
    /// Two inodes have one object.
    Shared { ino: InodeId, other: InodeId, object: ObjectId },
    /// Nobody has it: a crash left it.
    Orphan { object: ObjectId, size_bytes: u64 },
    /// Nobody has it, it has bytes, and the inode that it is tagged with is not there.
    Lost(Salvage),
    /// Its file is another object's, too, or has a name elsewhere: what is written to one changes the other.
    Linked { object: ObjectId, ino: InodeId },
    /// Its tag says another inode than the one that has it, or none.
    Tag { object: ObjectId, ino: InodeId, tag: Option<InodeId> },
    /// The inode's size is not the object's, though nobody had it open for writing.
    Size { ino: InodeId, object: ObjectId, stored: u64, found: u64 },
    /// A pool could not be read: its objects are not compared.
    Unread { pool: String, why: String },
    /// Something in a pool that cofs did not put there.
    Foreign { path: PathBuf },
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { ino, object } => {
                write!(
                    f,
                    "object {object} of inode {ino} is missing: its bytes are lost; remove the file (find -inum {ino})"
                )
            }
            Self::Shared { ino, other, object } => {
                write!(
                    f,
                    "object {object} belongs to inodes {other} and {ino}: copy both files and remove them"
                )
            }
            Self::Orphan { object, size_bytes } => {
                write!(
                    f,
                    "object {object} of {size_bytes} bytes belongs to no inode: put it on the reclaim list"
                )
            }
            Self::Lost(Salvage { owner, object, size_bytes, .. }) => {
                write!(
                    f,
                    "object {object} of {size_bytes} bytes belongs to inode {owner}, which is lost: make it anew, for root alone"
                )
            }
            Self::Linked { object, ino } => {
                write!(
                    f,
                    "object {object} of inode {ino} is one file with others (hard links, as some programs make of what is alike): copy the file (find -inum {ino}) and remove it"
                )
            }
            Self::Tag { object, ino, tag: Some(tag) } => {
                write!(f, "object {object} of inode {ino} is tagged with inode {tag}: correct it")
            }
            Self::Tag { object, ino, tag: None } => {
                write!(f, "object {object} of inode {ino} is not tagged: tag it")
            }
            Self::Size { ino, object, stored, found } => {
                write!(f, "inode {ino} has {stored} bytes, its object {object} {found}: take the object's")
            }
            Self::Unread { pool, why } => write!(f, "pool {pool} cannot be read: {why}"),
            Self::Foreign { path } => {
                write!(f, "{} was not put there by cofs: look at it, and move it away", path.display())
            }
        }
    }
}

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Compared {
    /// Objects in the pools, without those that wait to be taken.
    pub objects: u64,
    pub contradictions: Vec<Contradiction>,
    /// There were more than are told.
    pub more: bool,
}

impl Compared {
    fn add(&mut self, contradiction: Contradiction) {
        if self.contradictions.len() < limits::CHECK_PROBLEMS_MAX {
            self.contradictions.push(contradiction);
        } else {
            self.more = true;
        }
    }
}

/// Compares the metadata with every pool. Errors: those of the engine.
pub fn compare(checker: &Checker<'_>, placement: &Placement, progress: Progress) -> FsResult<Compared> {
    let sign = progress.count("looking at objects");
    let mut compared = Compared::default();
    let mut expected = expected(checker, &mut compared)?;
    sign.set_length(expected.len() as u64);
    let mut unread = Vec::new();
    for pool in placement.space() {
        let mut engine = Ok(());
        let directory = placement.pool_path(pool.id).unwrap_or(Path::new(""));
        let walked = placement.scan(pool.id, &mut |found| {
            sign.inc(1);
            engine = meet(checker, &mut expected, &mut compared, directory, found);
            engine.clone()
        });
        engine?;
        if let Err(error) = walked {
            unread.push(pool.id);
            compared.add(unread_pool(placement, pool.id, &error));
        }
    }
    // A file that was being written when the power went may have lost its object with it: the next mount
    // settles that.
    let is_lost = |one: &&Expected| !one.found && !one.writing && !unread.contains(&one.object.pool());
    for lost in expected.iter().filter(is_lost) {
        compared.add(Contradiction::Missing { ino: lost.ino, object: lost.object });
    }
    Ok(compared)
}

pub fn unread_pool(placement: &Placement, id: PoolId, error: &FsError) -> Contradiction {
    let pool = placement.space().into_iter().find(|pool| pool.id == id);
    let (name, health) = pool.map_or_else(Default::default, |pool| (pool.name, Some(pool.health)));
    // A pool that is away says why better than what was asked of it.
    let why = match health {
        Some(PoolHealth::Failed { why, advice, .. }) => {
            let directory = placement.pool_path(id).unwrap_or(Path::new(""));
            let advice = advice.unwrap_or("mend that, or say where it is now (cofs config)");
            format!("{}: {why}; {advice}", directory.display())
        }
        _ => error.to_string(),
    };
    Contradiction::Unread { pool: name, why: without_numbers(&why) }
}

/// Every object that an inode has, ascending.
fn expected(checker: &Checker<'_>, compared: &mut Compared) -> FsResult<Vec<Expected>> {
    let mut expected = Vec::new();
    checker.objects(&mut |ino, object, inode| {
        let (size_bytes, writing) = (inode.size_bytes, inode.writing);
        expected.push(Expected { object, ino, size_bytes, found: false, writing });
        Ok(())
    })?;
    expected.sort_by_key(|one| one.object);
    for pair in expected.windows(2) {
        if let [first, second] = pair
            && first.object == second.object
        {
            compared.add(Contradiction::Shared { ino: second.ino, other: first.ino, object: first.object });
        }
    }
    Ok(expected)
}

fn meet(
    checker: &Checker<'_>,
    expected: &mut [Expected],
    compared: &mut Compared,
    directory: &Path,
    found: FoundObject,
) -> FsResult<()> {
    let tagged = salvage(&found);
    let (id, owner, size_bytes, linked, ready) = match found {
        FoundObject::Object { id, owner, size_bytes, linked, ready, .. } => {
            (id, owner, size_bytes, linked, ready)
        }
        FoundObject::Foreign { path } => {
            compared.add(Contradiction::Foreign { path: directory.join(path) });
            return Ok(());
        }
    };
    let from = expected.partition_point(|one| one.object < id);
    let users = expected.get(from..).unwrap_or_default().partition_point(|one| one.object == id);
    let mine = expected.get_mut(from..from + users).unwrap_or_default();
    if mine.is_empty() {
        if !ready {
            compared.objects += 1;
            match (checker.ownership(id, owner)?, tagged) {
                (Ownership::Owned | Ownership::Reclaim, _) => {}
                (Ownership::Lost, Some(lost)) if size_bytes > 0 => compared.add(Contradiction::Lost(lost)),
                _ => compared.add(Contradiction::Orphan { object: id, size_bytes }),
            }
        }
        return Ok(());
    }
    compared.objects += 1;
    // One tag is all there is for those that share an object: it would go from one to the other for ever.
    let mut owned = linked || mine.iter().any(|one| owner == Some(one.ino));
    for one in mine {
        one.found = true;
        if linked {
            compared.add(Contradiction::Linked { object: id, ino: one.ino });
        }
        if !owned {
            owned = true;
            compared.add(Contradiction::Tag { object: id, ino: one.ino, tag: owner });
        }
        if !one.writing && one.size_bytes != size_bytes {
            let (ino, stored) = (one.ino, one.size_bytes);
            compared.add(Contradiction::Size { ino, object: id, stored, found: size_bytes });
        }
    }
    Ok(())
}

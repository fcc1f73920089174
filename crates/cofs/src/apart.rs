//! What must lie apart from a volume's own directories: its mount point, and the files that verbs write.

use std::path::{Path, PathBuf};

use crate::{
    failure::{Done, Failure},
    staged::place_of,
};

/// A directory that is a volume's own, and what it is; links need not have been followed.
pub type Part = (PathBuf, &'static str);

fn resolved(part: &Path) -> PathBuf {
    part.canonicalize().unwrap_or_else(|_| part.to_owned())
}

/// The one that holds `place`.
fn holder<'a>(place: &Path, parts: &'a [Part]) -> Option<&'a Part> {
    parts.iter().find(|(part, _)| place.starts_with(resolved(part)))
}

/// A volume that hides its own parts, or lies in itself, would wait for itself for ever. `point` has no links.
pub fn refuse_point(point: &Path, parts: &[Part]) -> Done {
    if let Some((part, what)) = holder(point, parts) {
        let said = format!("mount point {} lies inside {what} ({})", point.display(), part.display());
        return Err(Failure::new(said).next("name a directory outside"));
    }
    match parts.iter().find(|(part, _)| resolved(part).starts_with(point)) {
        Some((part, what)) => {
            Err(Failure::new(format!("{what} ({}) lies under the mount point", part.display()))
                .next("name another directory"))
        }
        None => Ok(()),
    }
}

/// Refuses a file in a volume's own directories: what is written there is lost with the volume, and instead of one of its
/// files, would damage it.
pub fn refuse_file(file: &Path, parts: &[Part]) -> Done {
    // Where nothing can stand, writing fails.
    let Ok(place) = place_of(file) else { return Ok(()) };
    match holder(&place, parts) {
        Some((part, what)) => {
            Err(Failure::new(format!("{} lies inside {what} ({})", file.display(), part.display()))
                .next("name a file outside"))
        }
        None => Ok(()),
    }
}

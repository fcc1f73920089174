//! What is mounted where: `/proc/self/mountinfo` (see proc_pid_mountinfo(5)).

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// The type under which cofs mounts appear.
pub const TYPE: &str = "fuse.cofs";

/// A file system's number, major and minor.
pub type Device = (u32, u32);

/// One mount of a cofs volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    pub point: PathBuf,
    pub device: Device,
    /// What of the volume stands there: `/`, or the directory or file that was bound (`mount --bind`).
    pub root: PathBuf,
    /// What was given as its source: the store's absolute path, unless `-o fsname=` says otherwise.
    pub source: PathBuf,
    /// The user who mounted it.
    pub owner_uid: Option<u32>,
}

impl Mount {
    /// Only then does it answer for the volume.
    pub fn is_whole(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether its process has ended. Only statfs(2) always asks it: attributes may be cached for ever. In the
    /// moment of the end requests are aborted, or cancelled with the ring that they came through.
    pub fn is_dead(&self) -> bool {
        matches!(rustix::fs::statfs(&self.point), Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
    }
}

/// All cofs mounts that this process sees, the latest last.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(fs::read("/proc/self/mountinfo")?.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount at exactly `point` (an absolute path without symlinks).
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.point == point))
}

/// The number of the volume that is mounted at exactly `point`. Unlike stat(2) it waits for nobody, and tells nothing of what lies below.
pub fn mounted_at(point: &Path) -> Option<Device> {
    at(point).ok()?.map(|mount| mount.device)
}

/// Where what was mounted from `source` is by now, should that have been moved: as a whole, if it is so anywhere. By now another's mount may have
/// the number.
pub fn of_device(device: Device, source: &Path) -> io::Result<Option<Mount>> {
    Ok(best(mounts()?, |mount| mount.device == device && mount.source == source))
}

/// A mount of `store` (an absolute path without symlinks): of the whole, if there is one.
pub fn of_store(store: &Path) -> io::Result<Option<Mount>> {
    Ok(best(mounts()?, |mount| mount.source == store))
}

/// The latest that `is_meant`, but a whole one before the parts that were bound.
fn best(mounts: Vec<Mount>, is_meant: impl Fn(&Mount) -> bool) -> Option<Mount> {
    mounts.into_iter().filter(is_meant).max_by_key(Mount::is_whole)
}

/// The path without symlinks, found through the parent where the directory itself does not answer.
pub fn absolute(dir: &Path) -> io::Result<PathBuf> {
    dir.canonicalize().or_else(|error| {
        let whole = std::path::absolute(dir)?;
        match (whole.parent(), whole.file_name()) {
            (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
            _ => Err(error),
        }
    })
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, point) = (unescape(fields.next()?), fields.next()?);
    // Optional fields end with a single dash; type and source follow.
    fields.find(|field| *field == b"-")?;
    if fields.next()? != TYPE.as_bytes() {
        return None;
    }
    let source = unescape(fields.next()?);
    let owner = fields.next().and_then(|options| {
        let number = options.split(|byte| *byte == b',').find_map(|word| word.strip_prefix(b"user_id="))?;
        std::str::from_utf8(number).ok()?.parse().ok()
    });
    Some(Mount { point: unescape(point), device, root, source, owner_uid: owner })
}

/// Blanks and backslashes stand as `\040` and the like.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| *first == b'\\').and_then(octal);
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(plain).into()
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cofs_mounts_are_seen_and_blanks_are_restored() {
        let line =
            br"36 35 0:40 / /mnt/a\040b rw,nosuid shared:1 master:2 - fuse.cofs /st\134ore rw,user_id=7,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.point.to_str(), mount.source.to_str()), (Some("/mnt/a b"), Some("/st\\ore")));
        assert_eq!((mount.device, mount.owner_uid), ((0, 40), Some(7)));
        assert!(mount.is_whole());
        assert_eq!(parse(b"36 35 0:40 / /mnt rw - ext4 /dev/vda rw"), None);
        assert_eq!(parse(b"36 35 0:40 / /mnt rw"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_whole_mount_is_found_before_what_was_bound_later() {
        let mounts = |roots: &[&str]| -> Vec<Mount> {
            let line = |(at, root)| format!("36 35 0:40 {root} /mnt{at} rw - fuse.cofs /store rw");
            roots.iter().enumerate().map(line).filter_map(|line| parse(line.as_bytes())).collect()
        };
        for (roots, found) in [
            (&["/", "/sub"][..], Some("/mnt0")),
            (&["/sub", "/", "/", "/a"], Some("/mnt2")),
            (&["/a", "/b"], Some("/mnt1")),
            (&[], None),
        ] {
            let best = best(mounts(roots), |_| true);
            assert_eq!(best.map(|mount| mount.point), found.map(PathBuf::from), "{roots:?}");
        }
    }
}

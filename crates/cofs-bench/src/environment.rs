//! What was measured where: without it a figure says nothing.

use std::{fmt, fs, path::Path};

use cofs_types::size::show_size;
use serde::{Deserialize, Serialize};

/// What the kernel counts a block device's size in, whatever its own sectors are (sysfs, `size`).
const SECTOR: u64 = 512;

/// The machine and the file system of one directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    pub directory: String,
    /// The type and source of the mount that the directory lies on, as `/proc/self/mountinfo` has them.
    pub file_system: String,
    pub source: String,
    pub mount_options: String,
    pub kernel: String,
    /// The name that it gives itself.
    pub processor: String,
    pub processors: usize,
    pub memory_mib: u64,
}

impl Environment {
    pub fn of(directory: &Path) -> Self {
        let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let place = if real.is_dir() { mount_of(&real) } else { device(&real) };
        let (file_system, source, mount_options) = place.unwrap_or_default();
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = rustix::system::sysinfo();
        let memory_mib = (memory.totalram as u64 * u64::from(memory.mem_unit)) >> 20;
        Self {
            directory: real.display().to_string(),
            file_system,
            source,
            mount_options,
            kernel,
            processor: processor().unwrap_or_default(),
            processors,
            memory_mib,
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, file_system, source, mount_options, kernel, processor, processors, memory_mib } =
            self;
        write!(
            f,
            "{directory} ({file_system} of {source}, {mount_options}; Linux {kernel}, {processors} CPUs ({processor}), {memory_mib} MiB)"
        )
    }
}

/// What keeps two FUSE mounts from being compared, if something does: the kernel checks permissions (`default_permissions`) on one of them only, and asks that one
/// for a directory's attributes again after each change.
pub fn unequal(environments: &[Environment]) -> Option<String> {
    let [a, b] = environments else { return None };
    let is_checked =
        |of: &Environment| of.mount_options.split([' ', ',']).any(|o| o == "default_permissions");
    let are_fuse = [a, b].iter().all(|of| of.file_system.starts_with("fuse"));
    let only = match (is_checked(a), is_checked(b)) {
        (true, false) if are_fuse => "A",
        (false, true) if are_fuse => "B",
        _ => return None,
    };
    Some(format!(
        "the kernel checks permissions on {only} only (default_permissions): what creates or removes takes a request more there"
    ))
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name") || line.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A block device is no part of the file system that its name stands in; the same three of it, with its size in place
/// of options.
fn device(path: &Path) -> Option<(String, String, String)> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let sectors = fs::read_to_string(format!("/sys/class/block/{name}/size")).ok()?;
    let bytes = sectors.trim().parse::<u64>().ok()?.checked_mul(SECTOR)?;
    Some(("block device".to_owned(), name, show_size(bytes)))
}

/// Type, source and options of the longest mount point above `path` (proc_pid_mountinfo(5)): those of the mount, then
/// those of the file system.
fn mount_of(path: &Path) -> Option<(String, String, String)> {
    // Anybody's mount point may be no text.
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let text = String::from_utf8_lossy(&table);
    let mounts = text.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(4);
        let (point, of_mount) = (before.next()?, before.next()?);
        let mut rest = after.split(' ');
        let (kind, source) = (rest.next()?.to_owned(), rest.next()?.to_owned());
        Some((point, kind, source, format!("{of_mount} {}", rest.next().unwrap_or_default())))
    });
    let above = mounts.filter(|(point, ..)| path.starts_with(point));
    // The last of equals lies on top.
    above.max_by_key(|(point, ..)| point.len()).map(|(_, kind, source, options)| (kind, source, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(file_system: &str, mount_options: &str) -> Environment {
        let [file_system, mount_options] = [file_system, mount_options].map(str::to_owned);
        Environment { file_system, mount_options, ..Environment::default() }
    }

    #[test]
    fn who_has_the_kernel_check_permissions_is_not_compared_with_who_has_not_unsaid() {
        let checked = on("fuse.cofs", "rw,relatime rw,user_id=0,group_id=0,default_permissions,allow_other");
        let unchecked = on("fuse.cofs", "rw,relatime rw,user_id=0,group_id=0");
        let ext4 = on("ext4", "rw,relatime rw");
        let said = |a: &Environment, b: &Environment| unequal(&[a.clone(), b.clone()]);
        assert!(said(&checked, &unchecked).unwrap().contains("on A only"));
        assert!(said(&unchecked, &checked).unwrap().contains("on B only"));
        for (a, b) in [(&checked, &checked), (&unchecked, &unchecked), (&checked, &ext4), (&ext4, &unchecked)]
        {
            assert_eq!(said(a, b), None);
        }
        assert_eq!(unequal(&[checked]), None);
    }
}

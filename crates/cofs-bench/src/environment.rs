//! What was measured where: without it a figure says nothing.

use std::{fmt, fs, path::Path};

use serde::{Deserialize, Serialize};

/// The machine and the file system of one directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Environment {
    pub directory: String,
    /// The type and source of the mount that the directory lies on, as `/proc/self/mountinfo` has them.
    pub file_system: String,
    pub source: String,
    pub kernel: String,
    pub processors: usize,
    pub memory_mib: u64,
}

impl Environment {
    pub fn of(directory: &Path) -> Self {
        let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let (file_system, source) = mount_of(&real).unwrap_or_default();
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = rustix::system::sysinfo();
        let memory_mib = (memory.totalram as u64 * u64::from(memory.mem_unit)) >> 20;
        Self { directory: real.display().to_string(), file_system, source, kernel, processors, memory_mib }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, file_system, source, kernel, processors, memory_mib } = self;
        write!(
            f,
            "{directory} ({file_system} of {source}; Linux {kernel}, {processors} CPUs, {memory_mib} MiB)"
        )
    }
}

/// Type and source of the longest mount point above `path` (proc_pid_mountinfo(5)).
fn mount_of(path: &Path) -> Option<(String, String)> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = text.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let mut rest = after.split(' ');
        Some((point, rest.next()?.to_owned(), rest.next()?.to_owned()))
    });
    let above = mounts.filter(|(point, ..)| path.starts_with(point));
    // The last of equals lies on top.
    above.max_by_key(|(point, ..)| point.len()).map(|(_, kind, source)| (kind, source))
}

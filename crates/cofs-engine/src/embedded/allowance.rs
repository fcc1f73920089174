//! What RocksDB takes for granted: threads, and room in the address space.
//!
//! Where there is none it throws, which ends the process, as nothing can catch that here. So it is tried out before. Whoever takes the last of it
//! between this and that still ends the process.

#![allow(unsafe_code, reason = "a setting of libc's allocator")]

use std::{io, sync::Mutex, thread};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use super::{error::from_errno, options::OPENING_THREADS};
use crate::EngineError;

/// What opens tables, and what flushes and compacts.
const THREADS: usize = OPENING_THREADS as usize + 2;
/// Beside the engine's memory: stacks, and what is allocated while a store is opened.
const MORE_BYTES: u64 = 192 << 20;

/// Whether this process may have what an engine of so much memory needs. Errors: EAGAIN (threads), ENOMEM.
pub(super) fn check(memory_bytes: usize) -> Result<(), EngineError> {
    if let Some(limit) = getrlimit(Resource::As).current {
        check_space(memory_bytes as u64 + MORE_BYTES, limit, used_bytes())?;
        share_allocator();
    }
    check_threads(THREADS)
}

/// libc's allocator, which is RocksDB's, sets 64 MiB of the address space aside for each thread: not any more.
fn share_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator's, which it reads under a lock of its own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// A limit is what `ulimit -v` sets, in bytes.
fn check_space(needed: u64, limit: u64, used: u64) -> Result<(), EngineError> {
    if used.saturating_add(needed) <= limit {
        return Ok(());
    }
    let [needed, limit, used] = [needed, limit, used].map(|bytes| bytes >> 20);
    let what =
        format!("the metadata need {needed} MiB of address space; of {limit} MiB allowed {used} are used");
    Err(from_errno(what, Errno::NOMEM).advise("have the limit on memory raised (ulimit -v)"))
}

/// Of the address space. 0 where that cannot be told.
fn used_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Tries whether so many can run at a time.
fn check_threads(count: usize) -> Result<(), EngineError> {
    let gate = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        let _closed = gate.lock();
        (0..count)
            .try_for_each(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop))
    });
    started.map_err(|error| {
        let what = format!("the metadata need {count} threads, not all of which can be had: {error}");
        from_errno(what, Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_what_it_is_allowed() {
        check(16 << 20).unwrap();
        check_space(100, 300, 200).unwrap();
        check_space(100, 300, u64::MAX).unwrap_err();
        let refused = check_space(100 << 20, 300 << 20, 201 << 20).unwrap_err();
        assert_eq!(refused.errno, Some(Errno::NOMEM.raw_os_error()));
        let said = "the metadata need 100 MiB of address space; of 300 MiB allowed 201 are used; have the limit on memory raised (ulimit -v)";
        assert_eq!(refused.to_string(), said);
        assert!(used_bytes() > 1 << 20);
    }
}

//! What the kernel's scheduler is told of a thread (sched(7)), and asked about it (`/proc/.../schedstat`).

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

use rustix::thread::Pid;

/// A scheduling policy, by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy(i32);

impl Policy {
    /// The usual one.
    pub const OTHER: Self = Self(libc::SCHED_OTHER);
    /// After everybody else; a CPU that runs only such threads counts as idle.
    pub const IDLE: Self = Self(libc::SCHED_IDLE);
    /// Before everybody else, at the lowest real-time priority.
    pub const FIRST: Self = Self(libc::SCHED_RR);

    /// The calling thread's.
    pub fn current() -> io::Result<Self> {
        // SAFETY: no memory is involved; 0 is the calling thread.
        match unsafe { libc::sched_getscheduler(0) } {
            policy if policy >= 0 => Ok(Self(policy)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives it to a thread; its niceness stays. Errors: EPERM without `CAP_SYS_NICE` or the limits that stand
    /// for it (leaving `IDLE`: `RLIMIT_NICE`; `FIRST`: `RLIMIT_RTPRIO`); ESRCH.
    pub fn give(self, thread: Pid) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: i32::from(self == Self::FIRST) };
        // SAFETY: the call reads the parameters, which outlive it.
        match unsafe { libc::sched_setscheduler(thread.as_raw_pid(), self.0, &parameters) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// How long a thread of this process was ready to run and had no CPU. A wait counts once it is over.
#[derive(Debug)]
pub(crate) struct WaitClock {
    schedstat: File,
    total: Duration,
}

impl WaitClock {
    /// From now on. Errors: the thread is gone, or the kernel does not tell.
    pub fn open(thread: Pid) -> io::Result<Self> {
        let schedstat = File::open(format!("/proc/self/task/{}/schedstat", thread.as_raw_pid()))?;
        let mut clock = Self { schedstat, total: Duration::ZERO };
        clock.lap()?;
        Ok(clock)
    }

    /// What it has waited since the last lap.
    pub fn lap(&mut self) -> io::Result<Duration> {
        let mut text = [0; 64];
        let len = self.schedstat.read_at(&mut text, 0)?;
        let total = waited(text.get(..len).unwrap_or_default())
            .ok_or_else(|| io::Error::other("schedstat is not as it was in any kernel so far"))?;
        Ok(total.saturating_sub(std::mem::replace(&mut self.total, total)))
    }
}

/// The second field of a `schedstat`: nanoseconds of waiting.
fn waited(schedstat: &[u8]) -> Option<Duration> {
    let field = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace().nth(1)?;
    Some(Duration::from_nanos(field.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_the_second_field() {
        assert_eq!(waited(b"113920 3507756 2\n"), Some(Duration::from_nanos(3_507_756)));
        for bad in [&b""[..], b"1", b"1 x 2", b"1 -1 2", b"\xff 1 2"] {
            assert_eq!(waited(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_thread_has_a_clock_and_a_policy() {
        assert_eq!(Policy::current().unwrap(), Policy::OTHER);
        let mut clock = WaitClock::open(rustix::thread::gettid()).unwrap();
        assert!(clock.lap().unwrap() < Duration::from_secs(60), "since it was opened, not since the start");
    }
}

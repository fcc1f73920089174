//! What the kernel's scheduler is told of a thread (sched(7)), and asked about it (`/proc/.../schedstat`, `stat`).

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

/// How a thread of this process has spent its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spent {
    /// On a CPU. Of one that runs at this moment the kernel has counted it up to its last tick.
    pub ran: Duration,
    /// Ready to run, without a CPU. A wait counts once it is over.
    pub waited: Duration,
}

/// Tells how a thread of this process spends its time.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    schedstat: File,
    total: Spent,
}

impl ThreadClock {
    /// From now on. Errors: the thread is gone, or the kernel does not tell.
    pub fn open(thread: Pid) -> io::Result<Self> {
        let schedstat = of_thread(thread, "schedstat")?;
        let mut clock = Self { schedstat, total: Spent::default() };
        clock.lap()?;
        Ok(clock)
    }

    /// Since the last lap.
    pub fn lap(&mut self) -> io::Result<Spent> {
        let mut text = [0; 64];
        let total = spent(read(&self.schedstat, &mut text)?).ok_or_else(|| unknown("schedstat"))?;
        let before = std::mem::replace(&mut self.total, total);
        Ok(Spent {
            ran: total.ran.saturating_sub(before.ran),
            waited: total.waited.saturating_sub(before.waited),
        })
    }
}

/// Tells on which CPU a thread of this process is.
#[derive(Debug)]
pub(crate) struct ThreadPlace(File);

impl ThreadPlace {
    /// Errors: the thread is gone.
    pub fn open(thread: Pid) -> io::Result<Self> {
        of_thread(thread, "stat").map(Self)
    }

    /// The one that it runs on, or ran on last. Errors: the thread is gone, or the kernel does not tell.
    pub fn cpu(&self) -> io::Result<usize> {
        let mut text = [0; 1024];
        cpu(read(&self.0, &mut text)?).ok_or_else(|| unknown("stat"))
    }
}

fn of_thread(thread: Pid, file: &str) -> io::Result<File> {
    File::open(format!("/proc/self/task/{}/{file}", thread.as_raw_pid()))
}

fn read<'a>(file: &File, text: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let len = file.read_at(text, 0)?;
    Ok(text.get(..len).unwrap_or_default())
}

fn unknown(file: &str) -> io::Error {
    io::Error::other(format!("{file} is not as it was in any kernel so far"))
}

/// The first two fields of a `schedstat`: nanoseconds on a CPU, and of waiting.
fn spent(schedstat: &[u8]) -> Option<Spent> {
    let mut fields = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace();
    let mut next = || fields.next()?.parse().ok().map(Duration::from_nanos);
    Some(Spent { ran: next()?, waited: next()? })
}

/// The 39th field of a `stat` (proc(5)). The second, a name in parentheses, may have anything in it.
fn cpu(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let behind = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    behind.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_stands_in_the_first_two_fields() {
        let nanos = Duration::from_nanos;
        assert_eq!(
            spent(b"113920 3507756 2\n"),
            Some(Spent { ran: nanos(113_920), waited: nanos(3_507_756) })
        );
        for bad in [&b""[..], b"1", b"1 x 2", b"x 1 2", b"1 -1 2", b"\xff 1 2"] {
            assert_eq!(spent(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_cpu_is_found_behind_any_name() {
        let fields = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        for name in [&b"name"[..], b"a) S 1 (b", b"\xff"] {
            let stat = [b"12 (", name, b") S ", fields.as_bytes(), b"\n"].concat();
            assert_eq!(cpu(&stat), Some(39), "{name:?}");
        }
        for bad in [&b""[..], b"12 (name", b"12 (name) S 4 5 6"] {
            assert_eq!(cpu(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_thread_has_a_policy_a_clock_and_a_place() {
        let this = rustix::thread::gettid();
        assert_eq!(Policy::current().unwrap(), Policy::OTHER);
        let mut clock = ThreadClock::open(this).unwrap();
        let from = std::time::Instant::now();
        while from.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        // It ran in between, however busy the machine is.
        std::thread::yield_now();
        let Spent { ran, waited } = clock.lap().unwrap();
        assert!(ran > Duration::ZERO && ran + waited < Duration::from_secs(60), "{ran:?}, {waited:?}");
        let place = ThreadPlace::open(this).unwrap();
        // Whoever is moved between the two looks is asked again.
        assert!((0..1000).any(|_| place.cpu().unwrap() == rustix::thread::sched_getcpu()));
    }
}

//! Time stamps as POSIX has them. Nothing here reads a clock: time is an argument.

/// Seconds and nanoseconds since 1970-01-01 UTC; `nanos < 1_000_000_000`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

impl Timestamp {
    pub const NANOS_PER_SEC: u32 = 1_000_000_000;

    /// `None` when `nanos` is a second or more.
    pub const fn new(secs: i64, nanos: u32) -> Option<Self> {
        if nanos >= Self::NANOS_PER_SEC {
            return None;
        }
        Some(Self { secs, nanos })
    }

    /// Whether an access time must be brought up to `now` under the `relatime` rule: it is not later
    /// than the last change, or a day old (Linux, `relatime_need_update`).
    pub fn relatime_due(self, mtime: Self, ctime: Self, now: Self) -> bool {
        const DAY_SECS: i64 = 24 * 60 * 60;
        self <= mtime || self <= ctime || now.secs.saturating_sub(self.secs) >= DAY_SECS
    }
}

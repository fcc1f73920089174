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

/// The day in UTC of a time in seconds since 1970, such as `2026-11-24` (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`).
pub fn utc_day(unix_secs: u64) -> String {
    let days = unix_secs / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let (month, day) = (if march < 10 { march + 3 } else { march - 9 }, day - (153 * march + 2) / 5 + 1);
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

/// The same with the time of that day, such as `2026-11-24T09:40:59Z` (RFC 3339).
pub fn utc(unix_secs: u64) -> String {
    let secs = unix_secs % 86_400;
    format!("{}T{:02}:{:02}:{:02}Z", utc_day(unix_secs), secs / 3600, secs / 60 % 60, secs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_740_700_799, "2025-02-27"),
            (1_798_761_600, "2027-01-01"),
        ] {
            assert_eq!(utc_day(unix), day);
        }
        assert_eq!(utc(1_740_700_799), "2025-02-27T23:59:59Z");
        assert_eq!(utc(951_782_400 + 3_723), "2000-02-29T01:02:03Z");
    }
}

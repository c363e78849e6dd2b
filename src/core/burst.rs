//! Tells the first of many events from the others, so that a log has one line for all of them.

/// How long nothing must happen before the next event counts as a new beginning, in milliseconds.
const QUIET_MS: i64 = 60_000;

/// A row of events, each soon after the one before. All times are milliseconds of one monotonic clock.
#[derive(Debug)]
pub struct Burst {
    latest: Option<i64>,
}

impl Burst {
    /// Nothing has happened.
    pub const fn new() -> Self {
        Self { latest: None }
    }

    /// Records that something happens. Returns whether it is the first time in a minute.
    pub fn begins_at(&mut self, now_ms: i64) -> bool {
        let latest = self.latest.replace(now_ms);
        latest.is_none_or(|latest| now_ms.saturating_sub(latest) >= QUIET_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn only_first_event_begins_burst() {
        let mut burst = Burst::new();
        assert!(burst.begins_at(NOW));
        assert!((0..100).all(|number| !burst.begins_at(NOW + number * (QUIET_MS - 1))));
    }

    #[test]
    fn a_minute_without_any_ends_the_row() {
        let mut burst = Burst::new();
        assert!(burst.begins_at(NOW));
        assert!(!burst.begins_at(NOW + QUIET_MS - 1));
        assert!(burst.begins_at(NOW + 2 * QUIET_MS - 1));
    }
}

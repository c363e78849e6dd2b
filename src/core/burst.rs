//! Recognizes the first of many similar events, so that the log has one line for all of them.

/// The time without events after which the next event begins a burst, in milliseconds.
const QUIET_MS: i64 = 60_000;

/// A burst of events, with less than a minute between two of them. All times are milliseconds of one monotonic clock.
#[derive(Debug)]
pub struct Burst {
    latest: Option<i64>,
}

impl Burst {
    pub const fn new() -> Self {
        Self { latest: None }
    }

    /// Records an event. Returns whether it is the first one in a minute.
    pub fn begins_at(&mut self, now_ms: i64) -> bool {
        debug_assert!(self.latest.is_none_or(|latest| latest <= now_ms), "the clock is monotonic");
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
    fn minute_without_events_ends_burst() {
        let mut burst = Burst::new();
        assert!(burst.begins_at(NOW));
        assert!(!burst.begins_at(NOW + QUIET_MS - 1));
        assert!(burst.begins_at(NOW + 2 * QUIET_MS - 1));
    }
}

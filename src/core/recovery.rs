//! The recovery period: after a start or a promotion, a lock is granted only to its present holder.
//!
//! A server that has just started or become a master may have lost the last grants, because replication and most settings of
//! `appendfsync` are asynchronous. So it waits until the leases that it may have lost have expired.

/// The time since which grants may be lost, and whether they are suspended. All times are milliseconds of one monotonic clock.
#[derive(Debug)]
pub struct Recovery {
    /// The time of the latest start or promotion.
    began_at: Option<i64>,
    /// Whether a grant is suspended, or may have been.
    is_suspending: bool,
    /// Whether the beginning of the suspension has been returned.
    is_announced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspensionChange {
    Began,
    Ended,
}

impl Recovery {
    pub const fn new() -> Self {
        Self { began_at: None, is_suspending: false, is_announced: false }
    }

    /// Records that the server has started, or has become a master.
    pub fn begin(&mut self, now_ms: i64) {
        debug_assert!(self.began_at.is_none_or(|began_at| began_at <= now_ms), "the clock is monotonic");
        self.began_at = Some(now_ms);
        self.is_announced = false;
    }

    /// Returns the rest of a period of `length_ms` milliseconds, or 0.
    pub fn remaining_ms(&self, length_ms: i64, now_ms: i64) -> i64 {
        // The clock is rounded down, so the period may have begun up to a millisecond later.
        let end = |began_at: i64| began_at.saturating_add(1).saturating_add(length_ms);
        self.began_at.filter(|_| length_ms > 0).map_or(0, |began_at| end(began_at).saturating_sub(now_ms).max(0))
    }

    /// Records that a grant was suspended, so that [`update`](Self::update) returns the end of the suspension.
    pub fn suspend(&mut self) {
        self.is_suspending = true;
    }

    /// Returns whether a grant is suspended, or may have been, and [`update`](Self::update) has not returned the end.
    pub fn is_suspending(&self) -> bool {
        self.is_suspending
    }

    /// Records whether grants are suspended now, for this or another reason. Returns the change since the last call.
    pub fn update(&mut self, is_suspending: bool) -> Option<SuspensionChange> {
        let was = std::mem::replace(&mut self.is_suspending, is_suspending);
        let was_announced = std::mem::replace(&mut self.is_announced, is_suspending);
        match is_suspending {
            true if !was_announced => Some(SuspensionChange::Began),
            false if was => Some(SuspensionChange::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn period_counts_from_latest_beginning() {
        let mut recovery = Recovery::new();
        assert_eq!(recovery.remaining_ms(1000, NOW), 0);
        recovery.begin(NOW);
        assert_eq!(recovery.remaining_ms(1000, NOW + 1), 1000);
        assert_eq!(recovery.remaining_ms(3000, NOW + 1001), 2000);
        assert_eq!(recovery.remaining_ms(1000, NOW + 1000), 1);
        assert_eq!(recovery.remaining_ms(1000, NOW + 1001), 0);
        assert_eq!(recovery.remaining_ms(0, NOW), 0);
        recovery.begin(NOW + 500);
        assert_eq!(recovery.remaining_ms(1000, NOW + 1001), 500);
    }

    #[test]
    fn each_change_is_returned_once() {
        let mut recovery = Recovery::new();
        assert_eq!(recovery.update(false), None);
        assert_eq!(recovery.update(true), Some(SuspensionChange::Began));
        assert_eq!(recovery.update(true), None);
        assert_eq!(recovery.update(false), Some(SuspensionChange::Ended));
        recovery.update(true);
        recovery.begin(NOW);
        assert_eq!(recovery.update(true), Some(SuspensionChange::Began), "a promotion in a period begins another");
    }

    #[test]
    fn end_is_returned_after_suspended_grant() {
        let mut recovery = Recovery::new();
        recovery.suspend();
        assert!(recovery.is_suspending());
        assert_eq!(recovery.update(false), Some(SuspensionChange::Ended));
        assert!(!recovery.is_suspending());
    }
}

//! Counts broken invariants.
//!
//! Debug assertions make a broken invariant panic. Otherwise it is counted: the host shows and logs the count.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The shortest time between two reports, in milliseconds.
const REPORT_INTERVAL_MS: i64 = 60_000;

/// The broken invariants of this process. The main thread alone uses the lock, so it never waits.
static BUGS: Mutex<Bugs> = Mutex::new(Bugs::new());

struct Bugs {
    count: u64,
    /// The latest message that no report has had yet.
    unreported: Option<&'static str>,
    /// The time of the latest report, in milliseconds of a monotonic clock.
    reported_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BugReport {
    /// The number of broken invariants since the module was loaded.
    pub count: u64,
    /// The invariant that was broken last.
    pub message: &'static str,
}

impl Bugs {
    const fn new() -> Self {
        Self { count: 0, unreported: None, reported_at: None }
    }

    fn record(&mut self, message: &'static str) {
        self.count = self.count.saturating_add(1);
        self.unreported = Some(message);
    }

    fn take_report(&mut self, now_ms: impl FnOnce() -> i64) -> Option<BugReport> {
        let message = self.unreported?;
        let now_ms = now_ms();
        let is_early = |at: i64| now_ms.saturating_sub(at) < REPORT_INTERVAL_MS;
        if self.reported_at.is_some_and(is_early) {
            return None;
        }
        (self.unreported, self.reported_at) = (None, Some(now_ms));
        Some(BugReport { count: self.count, message })
    }
}

/// Records a broken invariant. `message` describes the broken state.
///
/// # Panics
///
/// With debug assertions.
#[cold]
#[track_caller]
pub fn bug(message: &'static str) {
    debug_assert!(false, "bug: {message}");
    lock().record(message);
}

/// Records a broken invariant if `is_kept` is false. See [`bug`].
#[inline(always)]
#[track_caller]
pub fn check(is_kept: bool, message: &'static str) {
    if !is_kept {
        bug(message);
    }
}

/// A value that an invariant promises.
pub trait OrBug {
    /// Returns the value, and records a [`bug`] if there is none.
    #[track_caller]
    fn or_bug(self, message: &'static str) -> Self;
}

impl<T> OrBug for Option<T> {
    #[inline(always)]
    fn or_bug(self, message: &'static str) -> Self {
        check(self.is_some(), message);
        self
    }
}

/// Returns the number of broken invariants since the module was loaded.
pub fn bug_count() -> u64 {
    lock().count
}

/// Returns what to log, if an invariant was broken since the last report and that was a minute ago or longer.
///
/// `now_ms` reads a monotonic clock in milliseconds, and is called only if there is something to report.
pub fn take_bug_report(now_ms: impl FnOnce() -> i64) -> Option<BugReport> {
    lock().take_report(now_ms)
}

/// Lends the state. A panic cannot leave it changed in part.
fn lock() -> MutexGuard<'static, Bugs> {
    BUGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn report_has_count_and_latest_message() {
        let mut bugs = Bugs::new();
        assert_eq!(bugs.take_report(|| NOW), None);
        ["first", "second"].into_iter().for_each(|message| bugs.record(message));
        assert_eq!(bugs.take_report(|| NOW), Some(BugReport { count: 2, message: "second" }));
        assert_eq!(bugs.take_report(|| NOW + REPORT_INTERVAL_MS), None, "nothing new");
    }

    #[test]
    fn bug_after_report_waits_a_minute() {
        let mut bugs = Bugs::new();
        bugs.record("first");
        assert!(bugs.take_report(|| NOW).is_some());
        bugs.record("second");
        assert_eq!(bugs.take_report(|| NOW + REPORT_INTERVAL_MS - 1), None);
        let report = BugReport { count: 2, message: "second" };
        assert_eq!(bugs.take_report(|| NOW + REPORT_INTERVAL_MS), Some(report));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "bug: an entry is missing")]
    fn missing_value_panics_in_debug_build() {
        assert_eq!(Some(1).or_bug("a value is there"), Some(1));
        check(true, "kept");
        _ = None::<u8>.or_bug("an entry is missing");
    }

    #[test]
    #[cfg(not(debug_assertions))]
    fn missing_value_is_counted_in_release_build() {
        let before = bug_count();
        _ = None::<u8>.or_bug("an entry is missing");
        assert!(bug_count() > before);
    }
}

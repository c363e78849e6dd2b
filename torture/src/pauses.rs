//! When a server was certainly paused by CLIENT PAUSE. Nothing is written then, so nobody is granted a lock, none is handed over,
//! and no lease is set.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use support::now_ms;

use crate::court::Rule;

pub const NOTHING_IN_A_PAUSE: Rule = "in a pause nothing is granted, handed over or renewed";

/// The server counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// Nobody asks about one that ended longer ago; no wait is as long.
const REMEMBERED: Duration = Duration::from_secs(60);

struct Span {
    port: u16,
    from: Instant,
    until: Instant,
}

#[derive(Default)]
pub struct Pauses(Mutex<Vec<Span>>);

impl Pauses {
    /// A server was asked at `sent` to pause for so long, and has answered.
    pub fn add(&self, port: u16, sent: Instant, length: Duration) {
        let mut spans = self.spans();
        spans.retain(|span| span.until.elapsed() < REMEMBERED);
        spans.push(Span { port, from: Instant::now(), until: sent + length.saturating_sub(ROUNDING) });
    }

    /// The server is about to end, or another takes its place.
    pub fn end(&self) {
        let now = Instant::now();
        self.spans().iter_mut().for_each(|span| span.until = span.until.min(now));
    }

    /// Whether the server was paused all the time.
    pub fn cover(&self, port: u16, from: Instant, until: Instant) -> bool {
        self.spans().iter().any(|span| span.port == port && span.from <= from && until <= span.until)
    }

    /// Whether it was paused at this time by its clock, in Unix milliseconds.
    pub fn cover_ms(&self, port: u16, at_ms: i64) -> bool {
        let (now, ago) = (Instant::now(), now_ms() - at_ms);
        let at = u64::try_from(ago).ok().and_then(|ago| now.checked_sub(Duration::from_millis(ago)));
        at.is_some_and(|at| at.checked_sub(ROUNDING).is_some_and(|from| self.cover(port, from, at + ROUNDING)))
    }

    /// Whether there was one, or a part of one, between these two.
    pub fn any_between(&self, port: u16, from: Instant, until: Instant) -> bool {
        self.spans().iter().any(|span| span.port == port && span.from < until && from < span.until)
    }

    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.0.lock().expect("no panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_was_certainly_in_the_pause() {
        let pauses = Pauses::default();
        let sent = Instant::now();
        pauses.add(1, sent, Duration::from_millis(1000));
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        assert!(pauses.cover(1, at(1), at(900)));
        assert!(!pauses.cover(1, sent, at(900)), "it may have begun later");
        assert!(!pauses.cover(1, at(1), at(1001)) && !pauses.cover(2, at(1), at(900)));
        assert!(pauses.any_between(1, sent, at(1)) && !pauses.any_between(1, at(1001), at(1002)));
    }

    #[test]
    fn a_moment_is_told_by_the_clock_of_the_server() {
        let pauses = Pauses::default();
        pauses.add(1, Instant::now(), Duration::from_millis(10_000));
        std::thread::sleep(Duration::from_millis(30));
        assert!(pauses.cover_ms(1, now_ms() - 10));
        assert!(!pauses.cover_ms(1, now_ms() - 500), "before it began");
        assert!(!pauses.cover_ms(2, now_ms() - 10), "another server");
    }

    #[test]
    fn a_pause_ends_with_its_server() {
        let pauses = Pauses::default();
        pauses.add(1, Instant::now(), Duration::from_millis(1000));
        let begun = Instant::now();
        pauses.end();
        assert!(!pauses.cover(1, begun, begun + Duration::from_millis(100)));
    }
}

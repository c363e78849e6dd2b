//! When a server was certainly paused by CLIENT PAUSE. Nothing is written in a pause: no lock is granted, and no lease
//! is set.

use std::time::{Duration, Instant};

use support::now_ms;

use super::{ROUNDING, Spans};
use crate::report::Rule;

pub const NOTHING_IN_A_PAUSE: Rule = "in a pause nothing is granted, handed over or renewed";

/// The value of a span is the port of the server.
#[derive(Default)]
pub struct Pauses(Spans<u16>);

impl Pauses {
    /// A server has confirmed a pause of this length that was asked for at `sent`.
    pub fn add(&self, port: u16, sent: Instant, length: Duration) {
        self.0.add(Instant::now(), sent + length.saturating_sub(ROUNDING), port);
    }

    /// The server is about to end, or to be replaced.
    pub fn end(&self) {
        self.0.end_all();
    }

    /// Whether the server was paused all the time.
    pub fn cover(&self, port: u16, from: Instant, until: Instant) -> bool {
        self.0.cover(from, until, |paused| paused == port)
    }

    /// Whether the server was paused at this time by its clock, in Unix milliseconds.
    pub fn cover_ms(&self, port: u16, at_ms: i64) -> bool {
        let (now, ago) = (Instant::now(), now_ms() - at_ms);
        let at = u64::try_from(ago).ok().and_then(|ago| now.checked_sub(Duration::from_millis(ago)));
        at.is_some_and(|at| at.checked_sub(ROUNDING).is_some_and(|from| self.cover(port, from, at + ROUNDING)))
    }

    /// Whether there was a pause, or a part of one, between these two.
    pub fn any_between(&self, port: u16, from: Instant, until: Instant) -> bool {
        self.0.during(from, until).contains(&port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_covers_the_time_after_its_confirmation() {
        let pauses = Pauses::default();
        let sent = Instant::now();
        pauses.add(1, sent, Duration::from_millis(1000));
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        assert!(pauses.cover(1, at(1), at(900)));
        assert!(!pauses.cover(1, sent, at(900)), "it may have begun later");
        assert!(!pauses.cover(1, at(1), at(1001)) && !pauses.cover(2, at(1), at(900)));
        assert!(pauses.any_between(1, sent, at(1)) && !pauses.any_between(1, at(1001), at(1002)));
        pauses.end();
        assert!(!pauses.cover(1, begun, at(100)), "it ends with its server");
    }

    #[test]
    fn moment_in_a_pause_is_found_by_unix_time() {
        let pauses = Pauses::default();
        pauses.add(1, Instant::now(), Duration::from_millis(10_000));
        std::thread::sleep(Duration::from_millis(30));
        assert!(pauses.cover_ms(1, now_ms() - 10));
        assert!(!pauses.cover_ms(1, now_ms() - 500), "before it began");
        assert!(!pauses.cover_ms(2, now_ms() - 10), "another server");
    }
}

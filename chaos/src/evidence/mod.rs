//! What the clients know of the servers at each time, as far as it excuses a reply or forbids one: spans of time in
//! which something was so, or may have been.

mod settings;
mod spans;
mod stalls;

use std::time::{Duration, Instant};

use support::{Reply, now_ms};

use crate::report::Rule;
pub use settings::{SUSPENDED, is_put_off};
pub use spans::Spans;
pub use stalls::{StallLog, probe_latency, starved};

/// The server counts whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(2);
pub const NOTHING_IN_A_PAUSE: Rule = "in a pause nothing is granted, handed over or renewed";

#[derive(Default)]
pub struct Evidence {
    /// Promises about time are checked against the time without stalls.
    pub stalls: StallLog,
    /// FLUSHALL: a lock that was granted before has no promises after it, and a token that certainly held a lock before
    /// does not hold it after it. The value is whether all databases were certainly flushed.
    pub flushes: Spans<bool>,
    /// The server with this port was certainly paused by CLIENT PAUSE: no lock is granted, and no lease is set.
    pub pauses: Spans<u16>,
    /// There may be no server, or another one: sessions and queues may have ended.
    pub changes: Spans<()>,
    /// The settings of these names that may be in force.
    pub longest_lease_ms: Spans<u64>,
    pub recovery_ms: Spans<u64>,
    /// Grants were certainly suspended.
    pub suspended: Spans<()>,
    /// Certainly no lease might be set.
    pub no_leases: Spans<()>,
    /// The codes of errors with which the server can refuse a command because of a fault, before it has done anything
    /// of it.
    pub refusals: &'static [&'static str],
    /// The wall clock of the server can be set: no lease has a certain length.
    pub sets_clock: bool,
    /// Replies are checked by the rules of one server that loses nothing.
    pub checks_replies: bool,
}

impl Evidence {
    /// The code of an error with which the server refuses a command because of a fault.
    pub fn refusal(&self, reply: &Reply) -> Option<&'static str> {
        let Reply::Error(line) = reply else { return None };
        self.refusals.iter().copied().find(|code| line.starts_with(code))
    }

    /// A server has confirmed a pause of this length that was asked for at `sent`.
    pub fn paused(&self, port: u16, sent: Instant, length: Duration) {
        self.pauses.add(Instant::now(), sent + length.saturating_sub(ROUNDING), port);
    }

    /// Whether the server was paused all the time.
    pub fn pause_covers(&self, port: u16, from: Instant, until: Instant) -> bool {
        self.pauses.cover(from, until, |paused| paused == port)
    }

    /// Whether the server was paused at this time by its clock, in Unix milliseconds.
    pub fn was_paused_at_ms(&self, port: u16, at_ms: i64) -> bool {
        let ago = u64::try_from(now_ms() - at_ms).ok();
        let at = ago.and_then(|ago| Instant::now().checked_sub(Duration::from_millis(ago) + ROUNDING));
        at.is_some_and(|at| self.pause_covers(port, at, at + 2 * ROUNDING))
    }
}

#[test]
fn pause_covers_the_time_after_its_confirmation() {
    let evidence = Evidence::default();
    let sent = Instant::now();
    evidence.paused(1, sent, Duration::from_millis(1000));
    let begun = Instant::now();
    let at = |ms| begun + Duration::from_millis(ms);
    assert!(evidence.pause_covers(1, at(1), at(900)));
    assert!(!evidence.pause_covers(1, sent, at(900)), "it may have begun later");
    assert!(!evidence.pause_covers(1, at(1), at(1001)) && !evidence.pause_covers(2, at(1), at(900)));
    std::thread::sleep(Duration::from_millis(30));
    assert!(evidence.was_paused_at_ms(1, now_ms() - 10) && !evidence.was_paused_at_ms(1, now_ms() - 500));
    evidence.pauses.end_all();
    assert!(!evidence.pause_covers(1, begun, at(500)), "it ends with its server");
}

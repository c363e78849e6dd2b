//! What the clients know of the servers at each time, as far as it excuses a reply or forbids one: spans of time in
//! which something was so, or may have been. A reply must fit the settings of the module that were in force at some time
//! between the request and the reply.

mod spans;
mod stalls;

use std::time::{Duration, Instant};

use support::Reply;

use crate::report::{Finding, Rule};
pub use spans::Spans;
pub use stalls::{Since, StallLog, probe_latency, since_now};

/// The server counts whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(2);
const TOO_LONG: Rule = "a lease is refused if it is longer than lock.max-lease-ms, and only then";
const PUT_OFF: Rule = "TRYAGAIN is replied while lock.recovery-ms is set, and only then";
pub const SUSPENDED: Rule = "in a recovery period no token is granted a lock that it does not hold already";

#[derive(Default)]
pub struct Evidence {
    /// Promises about time are checked against the time without stalls.
    pub stalls: StallLog,
    /// FLUSHALL: a lock that was granted before has no promises after it.
    pub flushes: Spans<()>,
    /// There may be no server, or another one: sessions and queues may have ended.
    pub changes: Spans<()>,
    /// The settings of these names that may be in force.
    pub longest_lease_ms: Spans<u64>,
    pub recovery_ms: Spans<u64>,
    pub suspended: Spans<()>,
    /// The codes of errors with which the server can refuse a command because of a fault, before it has done anything
    /// of it.
    pub refusals: &'static [&'static str],
    /// The wall clock of the server can be set: no lease has a certain length.
    pub sets_clock: bool,
    /// Replies are checked by the rules of one server that loses nothing.
    pub checks_replies: bool,
}

impl Evidence {
    pub fn refusal(&self, reply: &Reply) -> Option<&'static str> {
        let Reply::Error(line) = reply else { return None };
        self.refusals.iter().copied().find(|code| line.starts_with(code))
    }

    /// The shortest lease that a request for this one can have got, if it was granted between these two.
    pub fn cut(&self, lease_ms: Option<u64>, from: Instant, until: Instant) -> Option<u64> {
        let limits = self.longest_lease_ms.during(from, until);
        limits.into_iter().filter(|limit| *limit > 0).chain(lease_ms).min()
    }

    /// Whether grants may have been suspended, and leases not renewed, at some time between these two.
    pub fn may_suspend(&self, from: Instant, until: Instant) -> bool {
        self.recovery_ms.during(from, until).iter().any(|ms| *ms > 0)
    }

    /// A recovery period with this rest was shown, or begins with the start of a server, between these two.
    pub fn suspends(&self, rest: Duration, from: Instant, until: Instant) {
        self.suspended.add(until, Some(from + rest.saturating_sub(ROUNDING)), ());
    }

    /// Returns the rule that a reply breaks, if any, to a request with this lease. `fresh`: the token cannot hold the
    /// lock before.
    pub fn check_lease(&self, lease_ms: Option<u64>, fresh: bool, reply: &Reply, span: (Instant, Instant)) -> Finding {
        let (sent, received) = span;
        let limits = self.longest_lease_ms.during(sent, received);
        let too_long = |limit: &u64| *limit > 0 && lease_ms.is_none_or(|lease| lease > *limit);
        let has_code = |code: &str| reply.is_error() && reply.code() == code;
        let is_served = !reply.is_error() && *reply != Reply::Closed;
        let text = || format!("the reply to a lease of {lease_ms:?} is {reply:?}; limits {limits:?}");
        if has_code("LEASELIMIT") && !limits.iter().any(too_long) || is_served && limits.iter().all(too_long) {
            return Some((TOO_LONG, text()));
        }
        if has_code("TRYAGAIN") && !self.may_suspend(sent, received) {
            return Some((PUT_OFF, text()));
        }
        (fresh && *reply == 1 && self.suspended.cover(sent, received)).then(|| (SUSPENDED, text()))
    }
}

/// Whether an error only means that the lease is not set.
pub fn is_put_off(reply: &Reply) -> bool {
    reply.is_error() && matches!(reply.code(), "TRYAGAIN" | "LEASELIMIT")
}

#[test]
fn reply_must_fit_the_settings_in_force() {
    let error = |code: &str| Reply::Error(format!("{code} with a reason"));
    let broken = |limit_ms, recovery_ms, lease, reply: Reply| {
        let (longest_lease_ms, recovery_ms) = (Spans::beginning_with(limit_ms), Spans::beginning_with(recovery_ms));
        let evidence = Evidence { longest_lease_ms, recovery_ms, ..Evidence::default() };
        let (now, soon) = (Instant::now(), Instant::now() + Duration::from_millis(5));
        evidence.suspends(Duration::from_millis(100), now - ROUNDING, now - ROUNDING);
        evidence.check_lease(lease, true, &reply, (now, soon)).map(|(rule, _)| rule)
    };
    assert_eq!(broken(100, 0, Some(101), error("LEASELIMIT")), None);
    assert_eq!(broken(100, 0, Some(100), error("LEASELIMIT")), Some(TOO_LONG));
    assert_eq!(broken(0, 0, None, error("LEASELIMIT")), Some(TOO_LONG));
    assert_eq!(broken(100, 0, Some(101), Reply::Nil), Some(TOO_LONG));
    assert_eq!(broken(0, 0, Some(10), error("TRYAGAIN")), Some(PUT_OFF));
    assert_eq!(broken(0, 100, Some(10), error("TRYAGAIN")), None);
    assert_eq!(broken(0, 100, Some(10), Reply::Int(1)), Some(SUSPENDED));
}

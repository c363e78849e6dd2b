//! The settings of the module, which change during a run: the longest lease, and the recovery period, in which no token
//! is granted a lock that it does not hold already. A reply must fit the settings that were in force at some time
//! between the request and the reply.

use std::time::{Duration, Instant};

use support::Reply;

use super::{Evidence, ROUNDING};
use crate::report::{Finding, Rule};

const TOO_LONG: Rule = "a lease is refused if it is longer than lock.max-lease-ms, and only then";
const PUT_OFF: Rule = "TRYAGAIN is replied while lock.recovery-ms is set, and only then";
pub const SUSPENDED: Rule = "in a recovery period no token is granted a lock that it does not hold already";
const NO_LEASE: Rule = "in a recovery period no lease is set before the longest lease from its end";

impl Evidence {
    /// The leases that a request for this one can have got, if it was granted between these two.
    pub fn possible_leases(&self, lease_ms: Option<u64>, from: Instant, until: Instant) -> Vec<Option<u64>> {
        let cut = |limit: u64| Some(limit).filter(|limit| *limit > 0).into_iter().chain(lease_ms).min();
        self.longest_lease_ms.during(from, until).into_iter().map(cut).collect()
    }

    /// The shortest of them; `None` without a lease.
    pub fn cut(&self, lease_ms: Option<u64>, from: Instant, until: Instant) -> Option<u64> {
        self.possible_leases(lease_ms, from, until).into_iter().flatten().chain(lease_ms).min()
    }

    /// Whether grants may have been suspended, and leases not renewed, at some time between these two.
    pub fn may_suspend(&self, from: Instant, until: Instant) -> bool {
        self.recovery_ms.during(from, until).iter().any(|ms| *ms > 0)
    }

    /// Whether grants were certainly suspended all the time.
    pub fn is_suspended(&self, from: Instant, until: Instant) -> bool {
        self.suspended.cover(from, until, |()| true)
    }

    /// Returns the rule that a reply breaks, if any, to a request with this lease. `fresh`: the token cannot hold the
    /// lock before.
    pub fn check_lease(
        &self,
        lease_ms: Option<u64>,
        fresh: bool,
        reply: &Reply,
        sent: Instant,
        received: Instant,
    ) -> Finding {
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
        (fresh && *reply == 1 && self.is_suspended(sent, received)).then(|| (SUSPENDED, "the reply is 1".to_owned()))
    }

    /// The same for LOCK.EXTEND.
    pub fn check_extension(&self, lease_ms: Option<u64>, reply: &Reply, sent: Instant, received: Instant) -> Finding {
        if matches!(reply, Reply::Int(_)) && self.no_leases.cover(sent, received, |()| true) {
            return Some((NO_LEASE, format!("the reply is {reply:?}")));
        }
        self.check_lease(lease_ms, false, reply, sent, received)
    }

    /// A server that grants nothing for so long is about to start, and no other server replies any more.
    pub fn period_begins(&self, length: Duration) {
        let now = Instant::now();
        self.suspended.add(now, now + length.saturating_sub(ROUNDING), ());
    }

    /// LOCK.INFO has shown the rest of a recovery period at some time between these two.
    pub fn note_remaining(&self, remaining: Duration, sent: Instant, received: Instant) {
        let end = sent + remaining.saturating_sub(ROUNDING);
        self.suspended.add(received, end, ());
        let limits = self.longest_lease_ms.during(sent, received);
        if let Some(longest) = limits.iter().max().filter(|_| !limits.contains(&0)) {
            self.no_leases.add(received, end.checked_sub(Duration::from_millis(*longest)).unwrap_or(received), ());
        }
    }

    /// The recovery period is about to change.
    pub fn recovery_changes(&self) {
        self.suspended.end_all();
        self.no_leases.end_all();
    }
}

/// Whether an error only means that the lease is not set.
pub fn is_put_off(reply: &Reply) -> bool {
    reply.is_error() && matches!(reply.code(), "TRYAGAIN" | "LEASELIMIT")
}

#[cfg(test)]
mod tests {
    use super::super::Spans;
    use super::*;

    fn in_force(limit_ms: u64, recovery_ms: u64) -> Evidence {
        let (longest_lease_ms, recovery_ms) = (Spans::beginning_with(limit_ms), Spans::beginning_with(recovery_ms));
        Evidence { longest_lease_ms, recovery_ms, ..Evidence::default() }
    }

    fn error(code: &str) -> Reply {
        Reply::Error(format!("{code} with a reason"))
    }

    #[test]
    fn lease_is_refused_only_if_it_is_too_long() {
        let broken = |limit, recovery, lease, reply: Reply| {
            let soon = Instant::now() + Duration::from_millis(5);
            let evidence = in_force(limit, recovery);
            evidence.check_lease(lease, true, &reply, Instant::now(), soon).map(|(rule, _)| rule)
        };
        assert_eq!(broken(100, 0, Some(100), Reply::Int(1)), None);
        assert_eq!(broken(100, 0, Some(101), error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, None, error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, Some(100), error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(0, 0, None, error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(100, 0, Some(101), Reply::Nil), Some(TOO_LONG));
        assert_eq!(broken(100, 0, None, Reply::Int(1)), Some(TOO_LONG));
        assert_eq!(broken(0, 0, Some(10), error("TRYAGAIN")), Some(PUT_OFF));
        assert_eq!(broken(0, 100, Some(10), error("TRYAGAIN")), None);
    }

    #[test]
    fn either_limit_can_count_while_it_changes() {
        let (evidence, sent) = (in_force(0, 0), Instant::now());
        evidence.longest_lease_ms.begin(100);
        let leases = |sent| evidence.possible_leases(Some(200), sent, Instant::now() + Duration::from_millis(2));
        assert_eq!(leases(sent), [Some(200), Some(100)]);
        assert_eq!(evidence.cut(Some(200), sent, Instant::now()), Some(100));
        evidence.longest_lease_ms.settle();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(leases(Instant::now()), [Some(100)]);
    }

    #[test]
    fn recovery_period_suspends_grants_and_leases() {
        let (evidence, now) = (in_force(400, 1000), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        evidence.note_remaining(Duration::from_millis(1000), now, now);
        let grant = |fresh, ms| evidence.check_lease(None, fresh, &Reply::Int(1), at(1), at(ms));
        let granted = |fresh, ms| grant(fresh, ms).is_some_and(|(rule, _)| rule == SUSPENDED);
        assert!(!granted(false, 500) && !granted(true, 1500));
        let extended = |reply: &Reply, ms| evidence.check_extension(Some(10), reply, at(1), at(ms));
        assert_eq!(extended(&Reply::Int(10), 590).map(|(rule, _)| rule), Some(NO_LEASE));
        assert_eq!(extended(&Reply::Int(10), 600), None, "the longest lease from its end");
        assert_eq!(extended(&error("TRYAGAIN"), 500), None);
        evidence.recovery_changes();
        assert!(!evidence.is_suspended(at(1), at(500)));
    }
}

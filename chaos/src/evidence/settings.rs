//! The settings of the module, which change during a run: the longest lease, and the recovery period, in which no token
//! is granted a lock that it does not hold already. A reply must fit the settings that were in force at some time
//! between the request and the reply.

use std::time::{Duration, Instant};

use support::Reply;

use super::{ROUNDING, Spans};
use crate::report::{Finding, Rule};

const TOO_LONG: Rule = "a lease is refused if it is longer than lock.max-lease-ms, and only then";
const PUT_OFF: Rule = "TRYAGAIN is replied while lock.recovery-ms is set, and only then";
pub const SUSPENDED: Rule = "in a recovery period no token is granted a lock that it does not hold already";
const NO_LEASE: Rule = "in a recovery period no lease is set before the longest lease from its end";

/// The known values of all settings.
#[derive(Default)]
pub struct InForce {
    pub longest_lease_ms: Spans<u64>,
    pub recovery_ms: Spans<u64>,
    /// Grants were certainly suspended.
    suspended: Spans<()>,
    /// Certainly no lease might be set.
    pub no_leases: Spans<()>,
}

impl InForce {
    /// The server is about to start with these.
    pub fn start_with(longest_lease_ms: u64, recovery_ms: u64) -> Self {
        let settings = Self::default();
        settings.longest_lease_ms.begin(longest_lease_ms);
        settings.recovery_ms.begin(recovery_ms);
        settings
    }

    /// A server that grants nothing for so long is about to start, and no other server replies any more.
    pub fn period_begins(&self, length: Duration) {
        let now = Instant::now();
        self.suspended.add(now, now + length.saturating_sub(ROUNDING), ());
    }

    /// The shortest lease that a grant of this one can have, if it was made between these two.
    pub fn cut(&self, lease_ms: Option<u64>, from: Instant, until: Instant) -> Option<u64> {
        let limits = self.longest_lease_ms.during(from, until);
        limits.into_iter().filter(|limit| *limit > 0).chain(lease_ms).min()
    }

    /// The leases that a wait with this lease can have got, if it was granted between these two.
    pub fn possible_leases(&self, lease_ms: u64, from: Instant, until: Instant) -> Vec<u64> {
        let cut = |limit: u64| if limit == 0 { lease_ms } else { lease_ms.min(limit) };
        self.longest_lease_ms.during(from, until).into_iter().map(cut).collect()
    }

    /// Whether grants may have been suspended, and leases not renewed, at some time between these two.
    pub fn may_suspend(&self, from: Instant, until: Instant) -> bool {
        self.recovery_ms.during(from, until).iter().any(|ms| *ms > 0)
    }

    /// Returns the rule that a reply breaks, if any, to a request with this lease. `fresh`: the token cannot hold the
    /// lock before.
    pub fn check(
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
    pub fn check_extension(&self, lease_ms: u64, reply: &Reply, sent: Instant, received: Instant) -> Finding {
        if matches!(reply, Reply::Int(_)) && self.no_leases.cover(sent, received, |()| true) {
            return Some((NO_LEASE, format!("the reply is {reply:?}")));
        }
        self.check(Some(lease_ms), false, reply, sent, received)
    }

    /// Whether grants were certainly suspended all the time.
    pub fn is_suspended(&self, from: Instant, until: Instant) -> bool {
        self.suspended.cover(from, until, |()| true)
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
    use super::*;

    fn after(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    fn error(code: &str) -> Reply {
        Reply::Error(format!("{code} with a reason"))
    }

    /// The rule that a reply breaks while these are in force.
    fn broken(limit_ms: u64, recovery_ms: u64, lease_ms: Option<u64>, reply: &Reply) -> Option<Rule> {
        let settings = InForce::start_with(limit_ms, recovery_ms);
        settings.check(lease_ms, true, reply, Instant::now(), after(5)).map(|(rule, _)| rule)
    }

    #[test]
    fn lease_is_refused_only_if_it_is_too_long() {
        assert_eq!(broken(100, 0, Some(100), &Reply::Int(1)), None);
        assert_eq!(broken(100, 0, Some(101), &error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, None, &error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, Some(100), &error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(0, 0, None, &error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(100, 0, Some(101), &Reply::Nil), Some(TOO_LONG));
        assert_eq!(broken(100, 0, None, &Reply::Int(1)), Some(TOO_LONG));
    }

    #[test]
    fn either_limit_can_count_while_it_changes() {
        let settings = InForce::start_with(0, 0);
        let sent = Instant::now();
        settings.longest_lease_ms.begin(100);
        let check = |sent, reply: &Reply| settings.check(Some(200), false, reply, sent, after(2)).map(|(rule, _)| rule);
        assert_eq!(check(sent, &Reply::Int(1)), None);
        assert_eq!(check(sent, &error("LEASELIMIT")), None);
        assert_eq!(settings.cut(Some(200), sent, Instant::now()), Some(100));
        assert_eq!(settings.possible_leases(200, sent, after(2)), [200, 100]);
        settings.longest_lease_ms.settle();
        let later = after(2);
        assert_eq!(check(later, &Reply::Int(1)), Some(TOO_LONG));
        assert_eq!(settings.possible_leases(200, later, after(4)), [100]);
        assert_eq!(settings.possible_leases(50, later, after(4)), [50]);
    }

    #[test]
    fn recovery_period_suspends_grants() {
        assert_eq!(broken(0, 0, Some(10), &error("TRYAGAIN")), Some(PUT_OFF));
        assert_eq!(broken(0, 100, Some(10), &error("TRYAGAIN")), None);
        let (settings, now) = (InForce::start_with(0, 1000), Instant::now());
        settings.note_remaining(Duration::from_millis(1000), now, now);
        let rule = |fresh, reply, ms| settings.check(None, fresh, &reply, after(1), after(ms)).map(|(rule, _)| rule);
        assert_eq!(rule(true, Reply::Int(1), 500), Some(SUSPENDED));
        assert_eq!(rule(true, Reply::Nil, 500), None);
        assert_eq!(rule(false, Reply::Int(1), 500), None);
        assert_eq!(rule(true, Reply::Int(1), 1500), None);
        settings.recovery_changes();
        assert_eq!(rule(true, Reply::Int(1), 500), None);
    }

    #[test]
    fn first_part_of_recovery_period_allows_no_lease() {
        let extended = |limit_ms: u64, reply: &Reply, ms: u64| {
            let (settings, now) = (InForce::start_with(limit_ms, 1000), Instant::now());
            settings.note_remaining(Duration::from_millis(1000), now, now);
            let at = |ms| now + Duration::from_millis(ms);
            settings.check_extension(10, reply, at(1), at(ms)).map(|(rule, _)| rule)
        };
        assert_eq!(extended(400, &Reply::Int(10), 590), Some(NO_LEASE));
        assert_eq!(extended(400, &Reply::Int(10), 600), None, "the longest lease from its end");
        assert_eq!(extended(400, &error("TRYAGAIN"), 500), None);
        assert_eq!(extended(0, &Reply::Int(10), 500), None, "the longest lease is unknown");
    }
}

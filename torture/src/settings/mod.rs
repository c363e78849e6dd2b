//! The module's settings, which change while everybody works: the longest lease, and the recovery period, in which nobody is
//! granted a lock that he does not hold already. What was told must fit what was in force at some time meanwhile.

mod change;
mod in_force;

pub use change::change;

use std::time::{Duration, Instant};

use support::Reply;

use crate::court::Rule;
use crate::ledger::Finding;
use in_force::{Setting, Spells};

const TOO_LONG: Rule = "a lease is refused if it is longer than lock.max-lease-ms, and only then";
const PUT_OFF: Rule = "TRYAGAIN is told while lock.recovery-ms is set, and only then";
pub const HELD_BACK: Rule = "in a recovery period nobody is granted a lock that he does not hold already";
/// What following a recovery period to its end is called in the figures.
pub const PERIODS: &str = "recovery periods";
const NOT_SET: Rule = "in a recovery period no lease is set before the longest lease from its end";

/// The server counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// What is known of all of them.
#[derive(Default)]
pub struct Settings {
    longest_lease: Setting,
    recovery: Setting,
    /// Grants were certainly held back.
    held_back: Spells,
    /// Certainly no lease might be set.
    no_leases: Spells,
}

impl Settings {
    /// The server is about to start with these.
    pub fn start_with(&self, longest_lease_ms: u64, recovery_ms: u64) {
        self.longest_lease.begin(longest_lease_ms);
        self.recovery.begin(recovery_ms);
    }

    /// A server that grants nothing for so long is about to start, and no other answers any more.
    pub fn period_begins(&self, length: Duration) {
        let now = Instant::now();
        self.held_back.add(now, now + length.saturating_sub(ROUNDING));
    }

    /// The longest lease that a grant of this one certainly has, if it was made between these two.
    pub fn cut(&self, lease_ms: Option<u64>, from: Instant, until: Instant) -> Option<u64> {
        let limits = self.longest_lease.during(from, until);
        limits.into_iter().filter(|limit| *limit > 0).chain(lease_ms).min()
    }

    /// What a wait with this lease may have got, if it was granted between these two.
    pub fn possible_leases(&self, lease_ms: u64, from: Instant, until: Instant) -> Vec<u64> {
        let cut = |limit: u64| if limit == 0 { lease_ms } else { lease_ms.min(limit) };
        self.longest_lease.during(from, until).into_iter().map(cut).collect()
    }

    /// Whether grants may have been held back, and leases not be renewed, at some time between these two.
    pub fn may_hold_back(&self, from: Instant, until: Instant) -> bool {
        self.recovery.during(from, until).iter().any(|ms| *ms > 0)
    }

    /// What is wrong with an answer to a request with this lease; `fresh` is for a token that cannot hold the lock before.
    pub fn judge(
        &self,
        lease_ms: Option<u64>,
        fresh: bool,
        reply: &Reply,
        sent: Instant,
        received: Instant,
    ) -> Finding {
        let limits = self.longest_lease.during(sent, received);
        let too_long = |limit: &u64| *limit > 0 && lease_ms.is_none_or(|lease| lease > *limit);
        let told = |code: &str| matches!(reply, Reply::Error(line) if line.starts_with(code));
        let served = !reply.is_error() && *reply != Reply::Closed;
        let text = || Some(format!("with a lease of {lease_ms:?} it was told {reply:?}; limits {limits:?}"));
        if told("LEASELIMIT") && !limits.iter().any(too_long) || served && limits.iter().all(too_long) {
            return text().map(|text| (TOO_LONG, text));
        }
        if told("TRYAGAIN") && !self.may_hold_back(sent, received) {
            return text().map(|text| (PUT_OFF, text));
        }
        (fresh && *reply == 1 && self.is_held_back(sent, received)).then_some((HELD_BACK, "it was told 1".to_owned()))
    }

    /// The same for LOCK.EXTEND.
    pub fn judge_extension(&self, lease_ms: u64, reply: &Reply, sent: Instant, received: Instant) -> Finding {
        if matches!(reply, Reply::Int(_)) && self.no_leases.cover(sent, received) {
            return Some((NOT_SET, format!("it was told {reply:?}")));
        }
        self.judge(Some(lease_ms), false, reply, sent, received)
    }

    /// Whether grants were certainly held back all the time.
    pub fn is_held_back(&self, from: Instant, until: Instant) -> bool {
        self.held_back.cover(from, until)
    }

    /// LOCK.INFO has told what remained of a recovery period at some time between these two.
    fn note_remaining(&self, remaining: Duration, sent: Instant, received: Instant) {
        let end = sent + remaining.saturating_sub(ROUNDING);
        self.held_back.add(received, end);
        let limits = self.longest_lease.during(sent, received);
        if let Some(longest) = limits.iter().max().filter(|_| !limits.contains(&0)) {
            self.no_leases.add(received, end.checked_sub(Duration::from_millis(*longest)).unwrap_or(received));
        }
    }

    /// A setting is about to change.
    fn let_go(&self) {
        self.held_back.end();
        self.no_leases.end();
    }
}

/// Whether an error only means that the lease is not set.
pub fn is_put_off(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(line) if line.starts_with("TRYAGAIN") || line.starts_with("LEASELIMIT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule that is broken by an answer which came while this was in force.
    fn broken(limit_ms: u64, recovery_ms: u64, lease_ms: Option<u64>, reply: &Reply) -> Option<Rule> {
        let settings = Settings::default();
        settings.start_with(limit_ms, recovery_ms);
        let sent = Instant::now();
        settings.judge(lease_ms, true, reply, sent, sent + Duration::from_millis(5)).map(|(rule, _)| rule)
    }

    fn error(code: &str) -> Reply {
        Reply::Error(format!("{code} with a reason"))
    }

    #[test]
    fn a_lease_is_refused_only_if_it_is_too_long() {
        assert_eq!(broken(100, 0, Some(100), &Reply::Int(1)), None);
        assert_eq!(broken(100, 0, Some(101), &error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, None, &error("LEASELIMIT")), None);
        assert_eq!(broken(100, 0, Some(100), &error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(0, 0, None, &error("LEASELIMIT")), Some(TOO_LONG));
        assert_eq!(broken(100, 0, Some(101), &Reply::Nil), Some(TOO_LONG));
        assert_eq!(broken(100, 0, None, &Reply::Int(1)), Some(TOO_LONG));
    }

    #[test]
    fn while_a_limit_is_changed_either_may_count() {
        let settings = Settings::default();
        settings.start_with(0, 0);
        let sent = Instant::now();
        settings.longest_lease.begin(100);
        let judge = |reply: &Reply| {
            let now = Instant::now();
            settings.judge(Some(200), false, reply, sent, now + ROUNDING).map(|(rule, _)| rule)
        };
        assert_eq!(judge(&Reply::Int(1)), None);
        assert_eq!(judge(&error("LEASELIMIT")), None);
        assert_eq!(settings.cut(Some(200), sent, Instant::now()), Some(100));
        settings.longest_lease.settled();
        let later = Instant::now() + ROUNDING;
        let late = settings.judge(Some(200), false, &Reply::Int(1), later, later + ROUNDING);
        assert_eq!(late.map(|(rule, _)| rule), Some(TOO_LONG));
    }

    #[test]
    fn a_wait_gets_the_lease_of_the_moment() {
        let settings = Settings::default();
        settings.start_with(0, 0);
        let start = Instant::now();
        settings.longest_lease.begin(100);
        assert_eq!(settings.possible_leases(200, start, Instant::now() + ROUNDING), [200, 100]);
        settings.longest_lease.settled();
        let later = Instant::now() + ROUNDING;
        assert_eq!(settings.possible_leases(200, later, later + ROUNDING), [100]);
        assert_eq!(settings.possible_leases(50, later, later + ROUNDING), [50]);
    }

    #[test]
    fn nobody_is_put_off_without_a_recovery_period_or_granted_a_lock_in_one() {
        assert_eq!(broken(0, 0, Some(10), &error("TRYAGAIN")), Some(PUT_OFF));
        assert_eq!(broken(0, 100, Some(10), &error("TRYAGAIN")), None);
        let settings = Settings::default();
        settings.start_with(0, 1000);
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let now = Instant::now();
        settings.note_remaining(Duration::from_millis(1000), now, now);
        let rule = |fresh, reply, ms| settings.judge(None, fresh, &reply, at(1), at(ms)).map(|(rule, _)| rule);
        assert_eq!(rule(true, Reply::Int(1), 500), Some(HELD_BACK));
        assert_eq!(rule(true, Reply::Nil, 500), None);
        assert_eq!(rule(false, Reply::Int(1), 500), None);
        assert_eq!(rule(true, Reply::Int(1), 1500), None);
        settings.let_go();
        assert_eq!(rule(true, Reply::Int(1), 500), None);
    }

    #[test]
    fn no_lease_is_set_in_the_first_part_of_a_recovery_period() {
        let extended = |limit_ms: u64, reply: &Reply, ms: u64| {
            let settings = Settings::default();
            settings.start_with(limit_ms, 1000);
            let now = Instant::now();
            settings.note_remaining(Duration::from_millis(1000), now, now);
            let at = |ms| now + Duration::from_millis(ms);
            settings.judge_extension(10, reply, at(1), at(ms)).map(|(rule, _)| rule)
        };
        assert_eq!(extended(400, &Reply::Int(10), 590), Some(NOT_SET));
        assert_eq!(extended(400, &Reply::Int(10), 600), None, "the longest lease from its end");
        assert_eq!(extended(400, &error("TRYAGAIN"), 500), None);
        assert_eq!(extended(0, &Reply::Int(10), 500), None, "nothing is known of the longest lease");
    }
}

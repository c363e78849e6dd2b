//! When nobody is granted a lock that he does not hold already, and what that means.

use redis_lock::server::Reply;

use super::spec::{Held, Lock, Ms, Outcome, outcome};
use super::{Checker, Conditions, Name, Running, Verdict};
use crate::request::{Request, Verb, token_of};
use crate::step::Knob;

/// For how long grants are held back. Of a standstill nobody can know from outside when exactly the module has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantSuspension {
    /// What remains of the recovery period.
    pub period_ms: Ms,
    /// What remains of its first part, in which no lease is lengthened: all of it but the longest lease.
    pub first_part_ms: Ms,
    /// What remains of the time after a standstill, at least and at most.
    pub stall_ms: (Ms, Ms),
}

impl GrantSuspension {
    /// Whether grants are surely held back.
    pub fn is_sure(&self) -> bool {
        self.period_ms.max(self.stall_ms.0) > 0
    }

    /// Whether they may be.
    pub fn may_be(&self) -> bool {
        self.most_ms() > 0
    }

    /// How long they are at most.
    pub fn most_ms(&self) -> Ms {
        self.period_ms.max(self.stall_ms.1)
    }

    /// Whether the server may show that so much remains.
    pub fn may_show(&self, ms: Ms) -> bool {
        (self.period_ms.max(self.stall_ms.0)..=self.most_ms()).contains(&ms)
    }

    /// Whether a lease is surely not lengthened.
    pub fn refuses_leases(&self) -> bool {
        self.first_part_ms.max(self.stall_ms.0) > 0
    }

    /// Whether it may not be.
    pub fn may_refuse_leases(&self) -> bool {
        self.first_part_ms.max(self.stall_ms.1) > 0
    }
}

/// What LOCK.INFO shows, with 0 in the place of what remains of the recovery period if that may be shown.
pub(super) fn without_recovery(reply: &Reply, suspension: &GrantSuspension) -> Reply {
    let Reply::Map(pairs) = reply else { return reply.clone() };
    let mut pairs = pairs.clone();
    for (name, value) in &mut pairs {
        if matches!(name, Reply::Bytes(text) if text == b"recovery-ms") {
            let is_right = matches!(value, Reply::Integer(ms) if suspension.may_show(*ms));
            *value = if is_right { Reply::Integer(0) } else { Reply::Nil };
        }
    }
    Reply::Map(pairs)
}

impl Checker {
    /// What comes of a request under the settings. Where it is not sure whether grants are held back, it is taken that they are
    /// not.
    pub(super) fn outcome(&self, request: &Request, lock: &Lock, now: Ms) -> Outcome {
        const LEASE_LIMIT: Outcome = Outcome::Refused("LEASELIMIT");
        let longest = self.limits.lease_ms;
        if longest.is_some_and(|longest| !has_lease_within(&request.verb, longest)) {
            return LEASE_LIMIT;
        }
        match outcome(request, &token_of(request.identity), lock, now) {
            due if self.suspension.is_sure() && due.takes(lock) => due.behind_others(),
            Outcome::Done { sets_lease: true, .. } if self.suspension.refuses_leases() => Outcome::Refused("TRYAGAIN"),
            Outcome::Done { reply, .. } if is_beyond(&request.verb, reply, longest) => LEASE_LIMIT,
            due => due,
        }
    }

    /// What comes of a command at its end. If it has left the lock as it is, grants may have been held back.
    pub(super) fn outcome_in(&self, running: &Running, lock: &Lock, now: Ms) -> Outcome {
        match self.outcome(&running.request, lock, now) {
            due if running.reply.is_some() => due,
            due if self.suspension.may_be() && due.takes(lock) => due.behind_others(),
            Outcome::Done { sets_lease: true, .. } if self.suspension.may_refuse_leases() => {
                Outcome::Refused("TRYAGAIN")
            }
            due => due,
        }
    }

    /// The module has changed a lock. Somebody may have come to hold it.
    pub(super) fn check_grant(&self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> Verdict {
        if !self.suspension.is_sure() && self.ledger.is_empty() {
            return Ok(());
        }
        let holders = after.holders();
        let Some(new) = holders.iter().find(|held| !before.is_held_by(&held.who)) else { return Ok(()) };
        if self.suspension.is_sure() {
            return Err(format!("{:?} is granted the lock, and nobody is: {:?}", new.who, self.suspension));
        }
        self.ledger.check(name, new, now + self.wall_offset)
    }

    /// The server ends. Those who hold a lock may believe so until their leases end, and if the period is no shorter than the
    /// longest lease, nobody else is granted it before.
    pub fn fails(&mut self) {
        let Self { models, ledger, limits, wall_offset, now, .. } = self;
        if limits.lease_ms.is_none_or(|longest| longest > limits.recovery_ms) {
            return ledger.clear();
        }
        for (name, model) in models.iter().filter(|(_, model)| model.is_counted) {
            for held in model.lock(*now).holders() {
                let until = held.until.unwrap_or(Ms::MAX / 2);
                ledger.note(name, held, until + *wall_offset);
            }
        }
    }

    /// A setting is set. Leases that run may be longer than a new limit, and a shorter period may be too short.
    pub(super) fn follow_conditions(&mut self, knob: Knob, value: Ms) {
        match knob {
            Knob::MaxLeaseMs => {
                for model in self.models.values_mut() {
                    model.is_counted = false;
                    let sessions = model.sessions.iter_mut().filter(|_| value > 0);
                    sessions.for_each(|session| session.lowest = session.lowest.min(value));
                }
            }
            Knob::RecoveryMs if value < self.limits.recovery_ms => self.ledger.clear(),
            _ => {}
        }
    }

    /// Follows the time in which grants are held back.
    pub(super) fn update_suspension(&mut self, conditions: &Conditions) {
        self.suspension = conditions.suspension;
        (self.now, self.wall_offset) = (conditions.now, conditions.steady - conditions.now);
    }
}

/// Whether the lease that a request gives is no longer than this, and there where it must be.
fn has_lease_within(verb: &Verb, longest: i64) -> bool {
    match verb {
        Verb::Take(take) => take.lease.is_some_and(|lease| lease <= longest),
        Verb::Release { lease, .. } => lease.is_none_or(|lease| lease <= longest),
        Verb::Extend { lease, .. } => *lease <= longest,
        _ => true,
    }
}

/// Whether EXTEND would leave a lease that is longer than the longest.
fn is_beyond(verb: &Verb, reply: i64, longest: Option<i64>) -> bool {
    matches!(verb, Verb::Extend { .. }) && longest.is_some_and(|longest| reply > longest)
}

/// Who may believe that he holds a lock which his server has granted him before it failed.
#[derive(Default)]
pub(super) struct Ledger(Vec<Entry>);

struct Entry {
    name: Name,
    held: Held,
    /// By the clock that is never set.
    until: Ms,
}

impl Ledger {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing is known any more: the conditions are not kept.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A holder of a server that is gone counts to the end of his lease. He stops there, by his own count.
    pub fn note(&mut self, name: &Name, held: Held, until: Ms) {
        self.0.push(Entry { name: name.clone(), held, until });
    }

    /// Forgets those whose leases have ended.
    pub fn forget(&mut self, steady: Ms) {
        self.0.retain(|entry| entry.until >= steady);
    }

    /// Nobody is granted a lock that somebody else may believe to hold.
    fn check(&self, name: &Name, new: &Held, steady: Ms) -> Verdict {
        let excludes = |entry: &&Entry| entry.until >= steady && entry.name == *name;
        let is_other = |entry: &&Entry| entry.held.who != new.who && !entry.held.who.can_hold_with(&new.who);
        match self.0.iter().filter(excludes).find(is_other) {
            Some(Entry { held, .. }) => {
                Err(format!("{:?} is granted the lock that {:?} may believe to hold", new.who, held.who))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::spec::Who;
    use crate::request::Form;

    fn held(form: Form, name: &str) -> Held {
        Held { who: Who { form, name: name.into() }, holds: 1, until: None }
    }

    #[test]
    fn who_may_believe_to_hold_a_lock_excludes_others_to_the_end_of_his_lease() {
        let lock = (0, b"door".as_slice().into());
        let mut ledger = Ledger::default();
        ledger.note(&lock, held(Form::Share, "alice"), 1000);
        let bob = held(Form::Mutex, "bob");
        assert!(ledger.check(&lock, &bob, 1000).is_err());
        assert_eq!(ledger.check(&lock, &bob, 1001), Ok(()));
        assert_eq!(ledger.check(&lock, &held(Form::Share, "bob"), 1000), Ok(()), "a share beside a share");
        assert_eq!(ledger.check(&lock, &held(Form::Share, "alice"), 1000), Ok(()), "it is hers");
        assert_eq!(ledger.check(&(1, lock.1.clone()), &bob, 1000), Ok(()), "another lock");
        ledger.forget(1001);
        assert!(ledger.is_empty());
    }
}

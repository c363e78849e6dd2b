//! The suspension of grants: no client is granted a lock that it does not hold already. Checks that, and what follows
//! from it.

use redis_lock::server::Reply;

use super::spec::{Held, Lock, Ms, Outcome, outcome};
use super::{Checker, Conditions, Name, Running, Verdict};
use crate::request::{Request, Verb, token_of};
use crate::step::Knob;

/// How long grants are suspended. An observer does not know exactly when the module has detected a stall.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantSuspension {
    /// The rest of the recovery period.
    pub period_ms: Ms,
    /// The rest of the first part of the period, in which no lease is lengthened. It is the period without the longest
    /// lease.
    pub first_part_ms: Ms,
    /// The rest of the time after a stall: the least and the greatest value.
    pub stall_ms: (Ms, Ms),
}

impl GrantSuspension {
    /// Returns whether grants are certainly suspended.
    pub fn is_sure(&self) -> bool {
        self.period_ms.max(self.stall_ms.0) > 0
    }

    /// Returns whether grants may be suspended.
    pub fn may_be(&self) -> bool {
        self.most_ms() > 0
    }

    /// Returns the longest time for which they may be suspended.
    pub fn most_ms(&self) -> Ms {
        self.period_ms.max(self.stall_ms.1)
    }

    /// Returns whether the server may show this rest of the suspension.
    pub fn may_show(&self, ms: Ms) -> bool {
        (self.period_ms.max(self.stall_ms.0)..=self.most_ms()).contains(&ms)
    }

    /// Returns whether the server certainly lengthens no lease.
    pub fn refuses_leases(&self) -> bool {
        self.first_part_ms.max(self.stall_ms.0) > 0
    }

    /// Returns whether the server may refuse to lengthen a lease.
    pub fn may_refuse_leases(&self) -> bool {
        self.first_part_ms.max(self.stall_ms.1) > 0
    }
}

/// Returns the reply of LOCK.INFO with 0 instead of the rest of the recovery period, if the shown rest is possible.
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
    /// Returns the outcome of a request under the settings. If it is uncertain whether grants are suspended, assumes
    /// that they are not.
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

    /// Returns the outcome of a command at its end. If the command has not changed the lock, grants may have been
    /// suspended.
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

    /// Returns whether a request that would wait gets the error TRYAGAIN, because the lock is to be returned to the caller when
    /// grants are not suspended any more, and whether that is certain.
    pub(super) fn regains(&self, Running { name, request, reply, .. }: &Running, lock: &Lock, now: Ms) -> Option<bool> {
        let identity = token_of(request.identity);
        if reply.is_some() || !self.suspension.may_be() || lock.holders().iter().any(|held| held.who.name == identity) {
            return None;
        }
        let mut sessions = self.models.get(name)?.sessions.iter();
        let session = sessions.find(|session| session.who.name == identity && !session.is_over(now))?;
        Some(self.suspension.is_sure() && session.is_sure && self.keeps_session(name, &session.who))
    }

    /// The module has changed a lock. Checks the new holder, if there is one.
    pub(super) fn check_grant(&self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> Verdict {
        if !self.suspension.is_sure() && self.ledger.is_empty() {
            return Ok(());
        }
        let holders = after.holders();
        let Some(new) = holders.iter().find(|held| !before.is_held_by(&held.who)) else { return Ok(()) };
        if self.suspension.is_sure() {
            return Err(format!("{:?} is granted the lock while grants are suspended: {:?}", new.who, self.suspension));
        }
        self.ledger.check(name, new, now + self.wall_offset)
    }

    /// The server stops. A holder may use the lock until its lease ends. If the recovery period is at least as long as
    /// the longest lease, the next server must not grant the lock to another client before that.
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

    /// A setting has changed. The leases of holders may be longer than a new limit, and a shorter recovery period may
    /// be too short.
    pub(super) fn follow_conditions(&mut self, knob: Knob, value: Ms) {
        match knob {
            Knob::MaxLeaseMs => self.models.values_mut().for_each(|model| model.is_counted = false),
            Knob::RecoveryMs if value < self.limits.recovery_ms => self.ledger.clear(),
            _ => {}
        }
    }

    /// Updates the suspension of grants.
    pub(super) fn update_suspension(&mut self, conditions: &Conditions) {
        self.suspension = conditions.suspension;
        if conditions.now < self.now {
            // A renewal that was refused stays due when the clock is set back.
            let sessions = self.models.values_mut().flat_map(|model| &mut model.sessions);
            sessions.filter(|session| session.renew_at <= self.now).for_each(|session| session.may_be_early = true);
        }
        (self.now, self.wall_offset) = (conditions.now, conditions.steady - conditions.now);
    }
}

/// Returns whether the request sets no longer lease than `longest`. A request for a lock must have a lease.
fn has_lease_within(verb: &Verb, longest: i64) -> bool {
    match verb {
        Verb::Take(take) => take.lease.is_some_and(|lease| lease <= longest),
        Verb::Release { lease, .. } => lease.is_none_or(|lease| lease <= longest),
        Verb::Extend { lease, .. } => *lease <= longest,
        _ => true,
    }
}

/// Returns whether EXTEND would leave a lease that is longer than `longest`.
fn is_beyond(verb: &Verb, reply: i64, longest: Option<i64>) -> bool {
    matches!(verb, Verb::Extend { .. }) && longest.is_some_and(|longest| reply > longest)
}

/// The holders whose server has failed, and which may still use their locks.
#[derive(Default)]
pub(super) struct Ledger(Vec<Entry>);

struct Entry {
    name: Name,
    held: Held,
    /// The end of the lease, by the clock that is never set.
    until: Ms,
}

impl Ledger {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all holders, because the settings do not protect them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a holder of a failed server. It stops at the end of its lease, by its own clock.
    pub fn note(&mut self, name: &Name, held: Held, until: Ms) {
        self.0.push(Entry { name: name.clone(), held, until });
    }

    /// Forgets the holders whose leases have ended.
    pub fn forget(&mut self, steady: Ms) {
        self.0.retain(|entry| entry.until >= steady);
    }

    /// Checks that no client is granted a lock that another holder may still use.
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
    fn former_holder_excludes_others_until_lease_ends() {
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

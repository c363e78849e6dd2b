//! The grace periods of sessions: how long a lock is held after the connection has closed.

use super::lock_model::{LockModel, Session};
use super::spec::{Held, Lock, Ms, Who};
use super::{Checker, Name, Verdict};

impl Checker {
    /// Returns whether the module has set the lease to the grace period of a session whose connection has closed.
    /// If so, the session has ended.
    pub(super) fn begins_grace(&mut self, name: &Name, was: &Held, is: &Held, now: Ms) -> Result<bool, String> {
        let (refuses, limits) = (self.suspension.refuses_leases(), self.limits);
        let model = self.model(name);
        let ends = |session: &Session| session.who == is.who && session.may_end_at(is.until, &limits, now);
        if was.who != is.who || was.holds != is.holds || !model.sessions.iter().any(ends) {
            return Ok(false);
        }
        if refuses && was.until.is_some_and(|until| is.until > Some(until)) {
            return Err(format!("{was:?} becomes {is:?} after its session, and no lease is lengthened"));
        }
        model.sessions.retain(|session| session.who != is.who);
        Ok(true)
    }

    /// Returns whether an expired lock goes back to its session for the rest of the grace period. If so, the session
    /// has ended.
    pub(super) fn is_given_back_for_grace(&mut self, name: &Name, held: &Held, now: Ms) -> bool {
        let limits = self.limits;
        let model = self.model(name);
        let returns = |session: &Session| {
            let is_same = session.who == held.who && session.holds == held.holds;
            is_same && held.until.is_some() && session.lease_end_in_grace(&limits, now) == held.until
        };
        let is_given_back = model.sessions.iter().any(returns);
        if is_given_back {
            model.sessions.retain(|session| session.who != held.who);
        }
        is_given_back
    }

    /// A lease that already ends with the grace period, cut to the longest lease, needs no change.
    pub(super) fn settle_grace(&mut self, name: &Name, lock: &Lock, now: Ms) {
        let limits = self.limits;
        let is_settled = |session: &Session| {
            let held = lock.held_by(&session.who);
            held.is_some_and(|held| held.until.is_some() && session.lease_end_in_grace(&limits, now) == held.until)
        };
        self.model(name).sessions.retain(|session| !is_settled(session));
    }

    /// While no lease is lengthened, a lease that ends before the grace period does not change, and the session has
    /// ended.
    pub(super) fn settle_short_graces(&mut self, now: Ms) {
        if !self.suspension.may_be() && !self.suspension.refuses_leases() {
            return;
        }
        for model in self.models.values_mut() {
            let lock = model.lock(now);
            let is_short = |session: &&mut Session| {
                let until = lock.held_by(&session.who).and_then(|held| held.until);
                until.zip(session.grace_end()).is_some_and(|(until, end)| until <= end)
            };
            model.sessions.iter_mut().filter(is_short).for_each(Session::mark_uncertain);
        }
    }
}

impl LockModel {
    /// Checks that a lock that is revoked has no grace period, or that the period has expired.
    pub fn check_no_grace(&self, who: &Who, now: Ms) -> Verdict {
        let session = self.session_of(who).filter(|session| !session.is_uncertain());
        match session.and_then(Session::grace_end).filter(|&end| end > now && !self.is_unnotified(who)) {
            Some(end) => Err(format!("the lock is taken from {who:?}, and its grace period ends at {end}")),
            None => Ok(()),
        }
    }
}

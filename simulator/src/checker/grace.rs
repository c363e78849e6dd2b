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
        model.end_session(&is.who);
        Ok(true)
    }

    /// The module has written a lock as it was. The grace period of a session may end with the lease.
    pub(super) fn left_unchanged(&mut self, name: &Name, lock: &Lock, now: Ms) {
        let limits = self.limits;
        let ends_with =
            |session: &Session, held: &Held| session.who == held.who && session.grace_ends_at(held.until, &limits, now);
        let model = self.model(name);
        for held in lock.holders() {
            if model.sessions.iter().any(|session| ends_with(session, &held)) {
                model.end_session(&held.who);
            }
        }
    }

    /// Returns whether an expired lock goes back to its session for the rest of the grace period. If so, the session
    /// has ended.
    pub(super) fn is_given_back_for_grace(&mut self, name: &Name, held: &Held, now: Ms) -> bool {
        let limits = self.limits;
        let model = self.model(name);
        let returns = |session: &Session| {
            let is_same = session.who == held.who && session.holds == held.holds;
            is_same && session.grace_ends_at(held.until, &limits, now)
        };
        let is_given_back = model.sessions.iter().any(returns);
        if is_given_back {
            model.end_session(&held.who);
        }
        is_given_back
    }
}

impl LockModel {
    /// Checks that a lock that is revoked has no grace period, or that the period has expired.
    pub fn check_no_grace(&self, who: &Who, now: Ms) -> Verdict {
        let session = self.session_of(who).filter(|session| session.is_sure);
        match session.and_then(Session::grace_end).filter(|&end| end > now && !self.is_unnotified(who)) {
            Some(end) => Err(format!("the lock is taken from {who:?}, and its grace period ends at {end}")),
            None => Ok(()),
        }
    }
}

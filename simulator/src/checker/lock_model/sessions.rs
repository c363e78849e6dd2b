//! The model of the sessions of a lock.

use redis_lock::server::{ClientId, Writer};

use super::LockModel;
use crate::checker::settings::Limits;
use crate::checker::spec::{Held, Lock, Ms, Who};
use crate::request::Terms;

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    pub who: Who,
    pub holds: i64,
    pub lease: i64,
    /// How long the lock is held after the connection has closed.
    pub grace: Option<i64>,
    /// The connection: that of the latest request for the session.
    pub client: ClientId,
    /// The time of the next renewal.
    pub renew_at: Ms,
    /// The time at which the connection closed.
    pub closed_at: Option<Ms>,
    /// Whether it certainly continues: since the module has read the lease, no external write has changed the lock.
    pub is_sure: bool,
    /// Whether its holder has kept the lock in all external writes since then, with the same number of holds.
    pub is_kept: bool,
    /// Whether an external write or a step of the clock may have made the next renewal due earlier.
    pub may_be_early: bool,
}

impl LockModel {
    /// Gives the session of this holder to a connection. It begins with the first one.
    pub fn begin_session(&mut self, who: Who, holds: i64, terms: Terms, client: ClientId, now: Ms) {
        let Terms { lease, grace } = terms;
        // A lock has one session, except that each share has its own.
        // That of a closed connection has ended before, even if the write of its grace period had nothing to change.
        self.sessions
            .retain(|session| if session.who == who { !session.is_closed() } else { session.can_hold_with(&who) });
        let renew_at = now + lease / 3;
        match self.session_of_mut(&who) {
            Some(session) => {
                session.lease = session.lease.max(lease);
                session.renew_at = session.renew_at.min(renew_at);
                session.grace = session.grace.max(grace);
                (session.holds, session.client, session.closed_at) = (holds, client, None);
            }
            None => {
                let (closed_at, is_sure, is_kept, may_be_early) = (None, true, false, false);
                self.sessions.push(Session {
                    who,
                    holds,
                    lease,
                    grace,
                    client,
                    renew_at,
                    closed_at,
                    is_sure,
                    is_kept,
                    may_be_early,
                });
            }
        }
    }

    pub fn session_of(&self, who: &Who) -> Option<&Session> {
        self.sessions.iter().find(|session| session.who == *who)
    }

    pub fn session_of_mut(&mut self, who: &Who) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.who == *who)
    }

    /// Records that all sessions may have ended.
    pub fn mark_sessions_uncertain(&mut self) {
        self.sessions.iter_mut().for_each(Session::mark_uncertain);
    }

    /// Ends the session of a holder, whose revocation is carried out.
    pub fn end_session(&mut self, who: &Who) {
        self.sessions.retain(|session| session.who != *who);
        self.revoked.retain(|other| other != who);
    }

    /// Ends all sessions.
    pub fn end_sessions(&mut self) {
        self.sessions.clear();
    }
}

impl Session {
    /// Returns whether this claim can hold the lock at the same time as the session.
    pub fn can_hold_with(&self, who: &Who) -> bool {
        self.who.can_hold_with(who)
    }

    /// Returns whether the session certainly continues, and its connection is open.
    pub fn is_open(&self) -> bool {
        self.is_sure && !self.is_closed()
    }

    /// Returns whether the connection has closed.
    pub fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Returns when the grace period ends that has begun with the close.
    pub fn grace_end(&self) -> Option<Ms> {
        self.closed_at.zip(self.grace).map(|(closed_at, grace)| closed_at + grace)
    }

    /// Returns whether the connection has closed, and no grace period is left.
    pub fn is_over(&self, now: Ms) -> bool {
        self.is_closed() && self.grace_end().is_none_or(|end| end <= now)
    }

    /// Returns whether a lease that ends then may be that of the grace period.
    pub fn may_end_at(&self, until: Option<Ms>, limits: &Limits, now: Ms) -> bool {
        let end = self.lease_end_in_grace(limits, now);
        end.zip(until).is_some_and(|(end, until)| until == end || !self.is_sure && until < end)
    }

    /// Returns whether a lease ends with the grace period.
    pub fn grace_ends_at(&self, until: Option<Ms>, limits: &Limits, now: Ms) -> bool {
        until.is_some() && self.lease_end_in_grace(limits, now) == until
    }

    /// Returns the end of the lease that is set now for the grace period: it is no longer than a lease may be now.
    pub fn lease_end_in_grace(&self, limits: &Limits, now: Ms) -> Option<Ms> {
        self.grace_end().map(|end| limits.cut_end(end, now))
    }

    /// Sets the lease to the one that a renewal has written, and the time of the next renewal.
    pub fn show_lease(&mut self, held: &Held, now: Ms) {
        self.lease = held.until.map_or(self.lease, |until| until - now);
        (self.renew_at, self.may_be_early) = (now + self.lease / 3, false);
    }

    /// Records that the session may have ended.
    pub fn mark_uncertain(&mut self) {
        (self.is_sure, self.is_kept, self.may_be_early) = (false, false, true);
    }

    /// Records that an external write has changed the lock. The session continues if a command has left it to its holder.
    pub fn mark_changed(&mut self, writer: Writer, was: &Lock, is: &Lock) {
        let holds = |lock: &Lock| lock.held_by(&self.who).map(|held| held.holds);
        let is_kept = writer == Writer::Command && self.continues() && holds(was).is_some() && holds(was) == holds(is);
        self.mark_uncertain();
        self.is_kept = is_kept;
    }

    /// Returns whether it certainly continues, although its lease may be unknown.
    pub fn continues(&self) -> bool {
        self.is_sure || self.is_kept
    }

    /// Sets the lease as LOCK.EXTEND does, in milliseconds.
    pub fn extend(&mut self, lease: i64, now: Ms) {
        self.lease = lease.max(100);
        // As if the lease had begun earlier.
        self.renew_at = now + lease - self.lease + self.lease / 3;
    }

    /// The connection has closed.
    pub fn close(&mut self, now: Ms) {
        self.closed_at.get_or_insert(now);
    }
}

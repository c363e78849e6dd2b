//! The model of the sessions of a lock.

use std::collections::BTreeSet;

use redis_lock::server::ClientId;

use super::LockModel;
use crate::checker::settings::Limits;
use crate::checker::spec::{Held, Ms, Who};
use crate::request::Terms;

/// A session.
#[derive(Clone)]
pub struct Session {
    pub who: Who,
    pub holds: i64,
    pub lease: i64,
    /// The shortest lease to which a limit of leases may have cut it.
    pub lowest: i64,
    /// How long the lock is held after the last connection has closed.
    pub grace: Option<i64>,
    /// The open connections of the session.
    pub clients: BTreeSet<ClientId>,
    /// All connections of the session, with those that have closed.
    pub ever: BTreeSet<ClientId>,
    /// The time of the next renewal.
    pub renew_at: Ms,
    /// The time at which the last connection closed.
    pub closed_at: Option<Ms>,
    /// The time of the latest close, of a connection that was the last one if the others belong to an earlier session.
    pub one_closed_at: Option<Ms>,
    /// Whether an iteration has ended since the session had no lock to release.
    pub was_dead: bool,
    pub trust: Trust,
    /// Whether it may be a later session of the same name. Only the latest connections belong to such a session.
    pub may_be_later: bool,
}

/// The certainty that a session continues after an external write to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// The session continues.
    Sure,
    /// The session continues when the module has read the new end of the lease. If the lease ends before that, the module may end
    /// the session.
    Unread,
    /// The session may have ended.
    Uncertain,
}

impl LockModel {
    /// Adds a connection to the session of this holder, which begins with the first one.
    pub fn begin_session(&mut self, who: Who, holds: i64, terms: Terms, client: ClientId, now: Ms) {
        let Terms { lease, grace } = terms;
        // A lock has one session, except that each share has its own.
        self.sessions.retain(|session| session.who == who || session.can_hold_with(&who));
        match self.sessions.iter_mut().find(|session| session.who == who) {
            Some(session) => {
                session.lease = session.lease.max(lease);
                session.lowest = session.lowest.max(lease);
                session.renew_at = session.renew_at.min(now + lease / 3);
                session.grace = session.grace.max(grace);
                session.holds = holds;
                session.clients.insert(client);
                session.ever.insert(client);
                session.closed_at = None;
            }
            None => {
                let (clients, ever) = ([client].into(), [client].into());
                let renew_at = now + lease / 3;
                self.sessions.push(Session {
                    who,
                    holds,
                    lease,
                    lowest: lease,
                    grace,
                    clients,
                    ever,
                    renew_at,
                    closed_at: None,
                    one_closed_at: None,
                    was_dead: false,
                    trust: Trust::Sure,
                    may_be_later: false,
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

    /// Removes the sessions without connections and without a lock. The module removes such a session later, so it is uncertain
    /// first.
    pub fn drop_dead_session(&mut self, is_settled: bool) {
        // At any time, because the clock may be set back.
        let lock = self.lock(Ms::MIN);
        let is_dead = |session: &Session| session.clients.is_empty() && !lock.is_held_by(&session.who);
        self.sessions.retain(|session| !(is_dead(session) && is_settled && session.was_dead));
        for session in self.sessions.iter_mut().filter(|session| is_dead(session)) {
            session.was_dead = true;
            session.mark_uncertain();
        }
    }

    /// Records that all sessions may have ended.
    pub fn mark_sessions_uncertain(&mut self) {
        self.sessions.iter_mut().for_each(Session::mark_uncertain);
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

    /// Returns whether the session certainly continues, and has a connection.
    pub fn is_open(&self) -> bool {
        self.trust == Trust::Sure && !self.clients.is_empty()
    }

    /// Returns when the grace period ends that has begun with the last close.
    pub fn grace_end(&self) -> Option<Ms> {
        let closed_at = self.closed_at.filter(|_| self.clients.is_empty());
        closed_at.zip(self.grace).map(|(closed_at, grace)| closed_at + grace)
    }

    /// Returns whether a lease that ends then may be that of the grace period.
    pub fn may_end_at(&self, until: Option<Ms>, limits: &Limits, now: Ms) -> bool {
        let is_unsure = self.is_unsure();
        let closed_at = if is_unsure { self.one_closed_at } else { self.closed_at.filter(|_| self.clients.is_empty()) };
        let end = closed_at.zip(self.grace).map(|(closed_at, grace)| limits.cut_end(closed_at + grace, now));
        end.zip(until).is_some_and(|(end, until)| until == end || is_unsure && until < end)
    }

    /// Returns the end of the lease that is set now for the grace period: it is no longer than a lease may be now.
    pub fn lease_end_in_grace(&self, limits: &Limits, now: Ms) -> Option<Ms> {
        self.grace_end().map(|end| limits.cut_end(end, now))
    }

    /// Returns whether the session may have ended, or may be a later one to which its earlier connections do not belong.
    pub fn is_unsure(&self) -> bool {
        self.is_uncertain() || self.may_be_later
    }

    /// Returns whether the session may have ended.
    pub fn is_uncertain(&self) -> bool {
        self.trust == Trust::Uncertain
    }

    /// Returns whether the session may just have taken its lock back.
    pub fn may_have_taken(&self, held: &Held, limits: &Limits, now: Ms) -> bool {
        let is_full = limits.may_renew(self, held, now) && held.holds == self.holds;
        self.who == held.who && is_full && !self.clients.is_empty()
    }

    /// Sets the lease to the one that a renewal has written.
    pub fn show_lease(&mut self, held: &Held, now: Ms) {
        self.lease = held.until.map_or(self.lease, |until| until - now);
        self.lowest = self.lease;
    }

    /// Records that the session may have ended.
    pub fn mark_uncertain(&mut self) {
        self.trust = Trust::Uncertain;
    }

    /// Sets the lease as LOCK.EXTEND does, in milliseconds.
    pub fn extend(&mut self, lease: i64, now: Ms) {
        self.lease = lease.max(100);
        self.lowest = self.lease;
        // As if the lease had begun earlier.
        self.renew_at = now + lease - self.lease + self.lease / 3;
    }

    /// Removes a connection. Returns whether it was the last one.
    pub fn detach(&mut self, client: ClientId, now: Ms) -> bool {
        let is_one = self.clients.remove(&client);
        let is_last = is_one && self.clients.is_empty();
        if is_last {
            self.closed_at = Some(now);
        }
        if is_one {
            self.one_closed_at = Some(now);
        }
        is_last
    }
}

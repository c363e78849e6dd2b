//! Sessions: holds that belong to a connection. Their leases are renewed until it closes, which releases the lock.
//!
//! A **session** belongs to one grant of one lock, and to the connection that asked for it last. It ends when the lock is released,
//! lost or granted to another holder, or when that connection closes. It stores the number of holds, and the length and the end of the lease. With these it
//! takes the lock again if the lease expires while a connection is open, and distinguishes that case from every other loss.
//!
//! The sessions of the shares of a lost lock end together, and are removed one by one.
//!
//! A connection may have very many sessions, so its close is only recorded, and the sessions are processed one by one.
//!
//! Invariant: a hold has at most one session.

mod renewals;
mod shares;

use std::mem;
use std::rc::Rc;

use super::record::{HoldId, RecordId, Revocation, Session, SessionLeaseEnd};
use super::tasks::Work;
use super::{HoldKey, Locks};
use crate::core::tables::NEVER;
use crate::core::{ClientId, Kind, Lease, UnixMs, check};

pub use shares::ShareBatch;

/// The shortest lease of a session, in milliseconds: each renewal is a write.
pub const MIN_SESSION_LEASE_MS: i64 = 100;

/// The number of sessions of one lock's shares for which each of their leases has at least one millisecond. Otherwise, with
/// thousands of them, a short lease would expire before all were renewed or returned.
const SHARES_IN_A_MS: usize = 5;

/// A lock or a share whose session begins, and the lease to renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The number of holds, at least 1.
    pub holds: i64,
    pub lease: Lease,
    pub grace: Option<Lease>,
}

impl Session {
    /// Returns whether the lease has expired, if its end is known. If the lock is free earlier, an external write has removed it.
    pub fn has_expired(&self, now: UnixMs) -> bool {
        self.lease_end.has_passed(now)
    }
}

impl SessionLeaseEnd {
    /// Returns whether the lease has expired, if its end is known.
    ///
    /// A key exists through the last millisecond of its expiry time, but the expiry cycle of Redis 8 removes it 1 ms earlier.
    pub fn has_passed(self, now: UnixMs) -> bool {
        match self {
            Self::Unknown | Self::Never => false,
            Self::At(end) => now >= end,
            Self::Passed => true,
        }
    }
}

impl Locks {
    /// Returns whether there is no session, and nothing to forget about earlier ones.
    pub fn has_sessions(&self) -> bool {
        self.sessions > 0 || self.is_forgetting()
    }

    pub fn session_count(&self) -> usize {
        self.sessions
    }

    pub fn session(&self, id: HoldId) -> Option<&Session> {
        self.hold(id)?.session.as_deref()
    }

    fn session_mut(&mut self, id: HoldId) -> Option<&mut Session> {
        self.holds.get_mut(id)?.session.as_deref_mut()
    }

    /// Returns the hold of a lock or of the share with a token, if it has a session.
    pub fn session_of(&self, record: RecordId, share: Option<&[u8]>) -> Option<HoldId> {
        self.hold_of(record, share).filter(|id| self.session(*id).is_some())
    }

    /// Returns the hold with a key, if it has a session.
    pub fn find_session(&self, hold_key: HoldKey<'_>) -> Option<HoldId> {
        self.find_hold(hold_key).filter(|id| self.session(*id).is_some())
    }

    /// Returns the connection of a session, if it is open.
    pub fn client_of(&self, id: HoldId) -> Option<ClientId> {
        self.session(id).map(|session| session.client).filter(|client| !self.connections.is_closed(*client))
    }

    /// Begins the session of a lock, or gives it to another connection.
    ///
    /// A session of another holder ends. The lease of the session becomes the longer one of its own and that of `new`, and its
    /// grace period likewise.
    pub fn attach(&mut self, new: NewSession, client: ClientId, now: UnixMs) {
        let NewSession { db, key, kind, owner, holds, lease, grace } = new;
        debug_assert!(holds >= 1, "a session without a hold begins");
        if let Some(record) = self.record_of(db, &key) {
            if kind == Kind::Shared {
                self.end_session(HoldKey::whole(db, &key));
            } else {
                self.end_shares(record);
            }
        }
        let Some(id) = self.hold_for(db, &key, kind, &owner) else { return };
        let Some(hold) = self.holds.get_mut(id) else { return };
        let (record, is_new) = (hold.record, hold.session.is_none());
        let session = hold.session.get_or_insert_with(|| {
            let lease_end = SessionLeaseEnd::Unknown;
            Box::new(Session { holds, lease, grace, client, lease_end, renew_at: NEVER })
        });
        session.lease = session.lease.max(lease);
        session.grace = session.grace.max(grace);
        // A repeated request may not have lengthened the lease, so it does not delay the renewal.
        let renew_at = session.renew_at.min(session.lease.renewal_after(now));
        let before = mem::replace(&mut session.client, client);
        if !is_new {
            check(self.connections.remove(before, id), "a session is not in the table of its connection");
        }
        self.connections.add(client, id);
        if is_new {
            self.sessions = self.sessions.saturating_add(1);
            if let Some(shares) = self.shares_mut(record).filter(|_| kind == Kind::Shared) {
                shares.begin_session(&owner);
            }
        }
        debug_assert!(renew_at != NEVER, "a session has no renewal");
        self.schedule_renewal_at(id, renew_at);
    }

    /// Ends the session of a lock or a share, if it has one.
    pub fn end_session(&mut self, hold_key: HoldKey<'_>) {
        if let Some(id) = self.find_session(hold_key) {
            self.end_session_of(id);
        }
    }

    /// Ends the session of a hold, if it has one.
    pub fn end_session_of(&mut self, id: HoldId) {
        self.take_session(id);
        self.drop_hold_if_unused(id);
    }

    /// Records that a connection has closed at `now`. [`detach_closed`](Self::detach_closed) processes its sessions.
    pub fn connection_closed(&mut self, client: ClientId, now: UnixMs) {
        self.connections.close(client, now);
    }

    /// Ends one session of a closed connection. Its lock is to be revoked. Returns whether there was one.
    pub fn detach_closed(&mut self) -> bool {
        let closed = self.connections.next_of_closed();
        if let Some((_, id)) = closed {
            check(self.session(id).is_some(), "a closed connection has a session that does not exist");
            self.revoke_session(id);
        }
        closed.is_some()
    }

    /// Ends the session of a hold if its connection has closed, like [`detach_closed`](Self::detach_closed).
    pub fn detach_closed_of(&mut self, id: HoldId) {
        if self.connections.has_closed() && self.session(id).is_some() && self.client_of(id).is_none() {
            self.revoke_session(id);
        }
    }

    /// Ends the session of a hold if it belongs to this connection, which is open.
    ///
    /// A session of a closed connection goes on until [`detach_closed`](Self::detach_closed) processes it.
    pub fn detach(&mut self, id: HoldId, client: ClientId) {
        if self.client_of(id) == Some(client) {
            self.end_session_of(id);
        }
    }

    /// Ends the session of a closed connection. Its lock is to be revoked, unless the share has ended with others.
    fn revoke_session(&mut self, id: HoldId) {
        let (is_current, client) = (self.is_current(id), self.session(id).map(|session| session.client));
        let closed_at = client.and_then(|client| self.connections.closed_at(client));
        let was_to_return = self.hold(id).is_some_and(|hold| self.is_to_return(hold.record, hold.share()));
        if let Some(session) = self.take_session(id).filter(|_| is_current) {
            let grace_end = session.grace.zip(closed_at).map(|(grace, closed)| grace.end_from(closed));
            self.revoke(id, Revocation::of_session(&session, grace_end, was_to_return));
        }
        self.drop_hold_if_unused(id);
    }

    /// Sets the number of holds of a session's lock.
    pub fn set_holds(&mut self, hold_key: HoldKey<'_>, holds: i64) {
        debug_assert!(holds >= 1, "a session goes on without a hold");
        if let Some(session) = self.find_session(hold_key).and_then(|id| self.session_mut(id)) {
            session.holds = holds;
        }
    }

    /// Sets the length of the lease that is renewed from `now` on. It is at least [`MIN_SESSION_LEASE_MS`].
    pub fn set_lease(&mut self, hold_key: HoldKey<'_>, lease: Lease, now: UnixMs) {
        let Some(id) = self.find_session(hold_key) else { return };
        let renewed = lease.at_least_ms(MIN_SESSION_LEASE_MS);
        if let Some(session) = self.session_mut(id) {
            session.lease = renewed;
        }
        self.schedule_renewal_at(id, renewed.renewal_before(lease.end_from(now)));
        self.keep_return(id);
    }

    /// Fits the lease to renew: all shares of the lock can be renewed in it, it is at most `longest`, at least
    /// [`MIN_SESSION_LEASE_MS`].
    pub fn fit_lease(&mut self, id: HoldId, longest: Option<Lease>) {
        let Some(hold) = self.hold(id) else { return };
        let shares =
            self.shares_of(hold.record).filter(|_| hold.kind == Kind::Shared).map(|shares| shares.in_session.len());
        let Some(session) = self.session_mut(id) else { return };
        if let Some(shares) = shares {
            let least_ms = shares.div_euclid(SHARES_IN_A_MS);
            session.lease = session.lease.at_least_ms(i64::try_from(least_ms).unwrap_or(i64::MAX));
        }
        if let Some(longest) = longest {
            session.lease = session.lease.min(longest).at_least_ms(MIN_SESSION_LEASE_MS);
        }
    }

    /// Sets the end of the lease, or `None` if the lock no longer has a lease.
    pub fn set_lease_end(&mut self, id: HoldId, lease_end: Option<UnixMs>) {
        if let Some(session) = self.session_mut(id) {
            session.lease_end = lease_end.map_or(SessionLeaseEnd::Never, SessionLeaseEnd::At);
        }
    }

    /// Sets the end of the lease that a check has found. The renewal comes in time for it, if an external write has shortened it.
    pub fn lease_found(&mut self, id: HoldId, lease_end: Option<UnixMs>) {
        self.set_lease_end(id, lease_end);
        if let (Some(end), Some(session)) = (lease_end, self.session(id)) {
            let due = session.lease.renewal_before(end).min(session.renew_at);
            self.schedule_renewal_at(id, due);
        }
    }

    /// Takes the session from a hold, if it has one. The caller drops the hold if nothing else is kept for it.
    pub(super) fn take_session(&mut self, id: HoldId) -> Option<Box<Session>> {
        let is_current = self.is_current(id);
        let hold = self.holds.get_mut(id)?;
        let (record, session) = (hold.record, hold.session.take()?);
        let token = hold.share().map(Box::<[u8]>::from);
        self.reschedule(record, Work::Renew(id.slot()), session.renew_at, NEVER);
        if is_current {
            self.sessions = self.sessions.saturating_sub(1);
            if let Some((shares, token)) = self.shares_mut(record).zip(token) {
                shares.end_session(&token);
                self.continue_without_one(record);
            }
        }
        check(self.connections.remove(session.client, id), "a session is not in the table of its connection");
        Some(session)
    }
}

#[cfg(test)]
mod tests;

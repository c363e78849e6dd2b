//! Sessions: locks that belong to connections. Their leases are renewed until the last connection closes, which releases them.
//!
//! A **session** belongs to one grant of one lock. It ends when the lock is released, lost or granted to another holder, or when
//! its last connection closes. It stores the holder, the number of holds, and the length and the end of the lease. With these it
//! takes the lock again if the lease expires while a connection is open, and distinguishes that case from every other loss.
//!
//! A share has a session of its own. Those of a lost lock end together, and are removed one by one.
//!
//! A connection may have very many sessions, so its close is only recorded, and the sessions are processed one by one.
//!
//! Invariants: a hold key has at most one session. A session has at least one connection, except inside a function.

mod renewals;
mod shares;
mod tasks;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use super::tables::{HoldKey, LockIndex, RemovedShares};
use super::tables::NEVER;
use super::{
    Arena, ClientId, CloseTime, Connections, DeferredFree, Holder, Id, Kind, Lease, OrBug, Sweep, UnixMs, bug, check,
};
use renewals::{Class, Renewals};
use shares::ShareSessions;

pub use shares::{MAX_SHARE_BATCH, ShareBatch};
pub use tasks::SessionTask;

/// The shortest lease of a session, in milliseconds: each renewal is a write.
pub const MIN_SESSION_LEASE_MS: i64 = 100;

/// The number of sessions of one lock's shares for which each of their leases has at least one millisecond. Otherwise, with
/// thousands of them, a short lease would expire before all were renewed or returned.
const SHARES_IN_A_MS: usize = 5;

/// A handle to a session.
pub type SessionId = Id<Session>;

/// A lock that belongs to connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub lock: SessionLock,
    clients: BTreeSet<ClientId>,
    /// When the last of its connections so far has closed.
    closed_at: Option<CloseTime>,
    pub(super) lease_end: SessionLeaseEnd,
    /// The time of the next renewal, or [`NEVER`].
    renew_at: UnixMs,
    /// The class in which the renewal is scheduled.
    class: Class,
}

/// The end of a session's lease, if it is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLeaseEnd {
    /// The lease is new, or an external write has changed it.
    Unknown,
    /// An external write has removed the lease.
    Never,
    At(UnixMs),
    /// The lease has expired, and the session takes the lock again.
    Passed,
}

/// The lock or the share of a session, and the lease to renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLock {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The number of holds, at least 1.
    pub holds: i64,
    /// The length of the lease that each renewal sets.
    pub lease: Lease,
    /// How long the lock is held after the last connection has closed, if it is not released immediately.
    pub grace: Option<Lease>,
}

/// All sessions of the server.
pub struct Sessions {
    sessions: Arena<Session>,
    by_lock: LockIndex<Session, ShareSessions>,
    connections: Connections<SessionId>,
    /// The number of pairs of a session and a connection, without the sessions in `ended`.
    pairs: usize,
    renewals: Renewals,
    checks: Sweep,
    /// The source of tasks that is asked first.
    next_source: usize,
    /// The locks whose shares need a recheck and are not being returned.
    rechecks: BTreeSet<(i32, Rc<[u8]>)>,
    /// The locks that continue to return their shares, in this order. The sessions of some may have ended.
    returns: VecDeque<(i32, Rc<[u8]>)>,
    /// Sessions of shares that have ended together, by lock. They are removed one by one. Some may have been removed already.
    ended: VecDeque<RemovedShares<Session>>,
}

impl Session {
    /// Returns whether `holder` is the holder of this session.
    pub fn matches<L>(&self, holder: &Holder<'_, L>) -> bool {
        holder.kind == self.lock.kind && *holder.owner == *self.lock.owner
    }

    /// Returns the end of the grace period that began when the last connection closed, if the session has one.
    pub fn grace_end(&self) -> Option<UnixMs> {
        self.lock.grace.zip(self.closed_at).map(|(grace, closed)| grace.end_from(closed.unix))
    }

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

impl SessionLock {
    pub fn hold_key(&self) -> HoldKey<'_> {
        HoldKey::of(self.db, &self.key, self.kind, &self.owner)
    }
}

impl Sessions {
    pub const fn new() -> Self {
        Self {
            sessions: Arena::new(),
            by_lock: LockIndex::new(),
            connections: Connections::new(),
            pairs: 0,
            renewals: Renewals::new(),
            checks: Sweep::END,
            next_source: 0,
            rechecks: BTreeSet::new(),
            returns: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns whether there is no session, and nothing to forget about earlier ones.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.ended.is_empty() && self.returns.is_empty()
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sum of the sizes of all tables. It is 0 when there are no sessions.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let tables = [
            self.ended.iter().map(ExactSizeIterator::len).sum(),
            self.rechecks.len(),
            self.returns.len(),
            self.sessions.len(),
            self.by_lock.handle_count(),
            self.connections.entries().count(),
        ];
        tables.into_iter().chain([self.pairs, self.renewals.entry_count()]).sum()
    }

    pub fn pairs(&self) -> usize {
        self.pairs
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// Returns the session of a lock or a share, if it has one.
    pub fn find(&self, hold_key: HoldKey<'_>) -> Option<SessionId> {
        self.by_lock.get(hold_key)
    }

    /// Returns whether a session exists and has not ended together with other shares.
    pub fn is_current(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|session| self.by_lock.get(session.lock.hold_key()) == Some(id))
    }

    /// Returns the open connections of a session.
    pub fn clients(&self, id: SessionId) -> impl Iterator<Item = ClientId> {
        let all = self.get(id).into_iter().flat_map(|session| &session.clients);
        all.copied().filter(|client| !self.connections.is_closed(*client))
    }

    /// Adds a connection to the session of a lock, and begins the session if there is none.
    ///
    /// A session of another holder ends. The lease of the session becomes the longer one of its own and that of `lock`, and its
    /// grace period likewise.
    pub fn attach(&mut self, lock: SessionLock, client: ClientId, now: UnixMs) {
        debug_assert!(lock.holds >= 1, "a session without a hold begins");
        let SessionLock { db, lease, grace, .. } = lock;
        if lock.kind == Kind::Shared {
            self.end(HoldKey::whole(db, &lock.key));
        } else {
            self.end_shares(db, &lock.key);
        }
        let known = self.find(lock.hold_key());
        let same = |session: &Session| (session.lock.kind, &session.lock.owner) == (lock.kind, &lock.owner);
        let id = match known.filter(|&id| self.get(id).is_some_and(same)) {
            Some(id) => id,
            None => {
                self.end(lock.hold_key());
                let Some(id) = self.begin(lock) else { return };
                id
            }
        };
        self.connections.add(client, id);
        let Some(session) = self.sessions.get_mut(id) else { return bug("a session that was found does not exist") };
        session.lock.lease = session.lock.lease.max(lease);
        session.lock.grace = session.lock.grace.max(grace);
        if session.clients.insert(client) {
            self.pairs = self.pairs.saturating_add(1);
            if let Some(shares) = self.by_lock.common_mut(db, &session.lock.key) {
                shares.pairs = shares.pairs.saturating_add(1);
            }
        }
        // A repeated request may not have lengthened the lease, so it does not delay the renewal.
        let renew_at = session.renew_at.min(session.lock.lease.renewal_after(now));
        debug_assert!(renew_at < NEVER, "a session has no renewal");
        self.schedule_renewal_at(id, renew_at);
    }

    /// Begins a session without connections. Returns `None` if there are almost 2^32 sessions already.
    fn begin(&mut self, lock: SessionLock) -> Option<SessionId> {
        debug_assert!(self.find(lock.hold_key()).is_none(), "a hold key has two sessions");
        let (db, key) = (lock.db, Rc::clone(&lock.key));
        let clients = BTreeSet::new();
        let lease_end = SessionLeaseEnd::Unknown;
        let session = Session { lock, clients, closed_at: None, lease_end, renew_at: NEVER, class: Class::SHORTEST };
        let id = self.sessions.insert(session)?;
        let session = self.sessions.get(id).or_bug("a new session does not exist")?;
        self.by_lock.insert(db, key, session.lock.hold_key().share, id);
        Some(id)
    }

    /// Ends the session of a lock or a share, if it has one.
    pub fn end(&mut self, hold_key: HoldKey<'_>) {
        if let Some(id) = self.find(hold_key) {
            self.remove(id);
        }
    }

    /// Ends all sessions, and adds their tables to `deferred_free`.
    pub fn end_all(&mut self, deferred_free: &mut DeferredFree) {
        let Self { sessions, by_lock, connections, renewals, rechecks, returns, ended, .. } =
            std::mem::replace(self, Self::new());
        if !sessions.is_empty() {
            deferred_free.add(sessions.into_entries());
            deferred_free.add(by_lock.into_entries());
            deferred_free.add(connections.into_entries());
            deferred_free.add(renewals.into_entries());
            deferred_free.add(rechecks);
            deferred_free.add(returns);
            deferred_free.add(ended.into_iter().flatten());
        }
    }

    /// Records that a connection has closed at `now`. [`pop_orphan`](Self::pop_orphan) processes its sessions.
    pub fn connection_closed(&mut self, client: ClientId, now: UnixMs) {
        self.connections.close(client, now);
    }

    /// Returns whether closed connections still have sessions.
    pub fn has_closed_connections(&self) -> bool {
        self.connections.has_closed()
    }

    /// Detaches one closed connection from one of its sessions.
    ///
    /// Returns the session if that was its last connection. The session has ended, and its lock is to be released.
    pub fn pop_orphan(&mut self) -> Option<Session> {
        let (client, id) = self.connections.next_of_closed()?;
        check(self.get(id).is_some(), "a closed connection has a session that does not exist");
        let is_current = self.is_current(id);
        self.detach_client(id, client).filter(|_| is_current)
    }

    /// Detaches all closed connections from a session. Returns it if no open one is left, like [`pop_orphan`](Self::pop_orphan).
    pub fn take_orphan(&mut self, hold_key: HoldKey<'_>) -> Option<Session> {
        let id = self.find(hold_key).filter(|_| self.has_closed_connections())?;
        let is_closed = |client: &&ClientId| self.connections.is_closed(**client);
        let closed: Vec<_> = self.get(id)?.clients.iter().filter(is_closed).copied().collect();
        closed.into_iter().filter_map(|client| self.detach_client(id, client)).last()
    }

    /// Detaches an open connection from the session of a lock or a share. The session ends with its last connection.
    ///
    /// A closed connection stays attached until [`pop_orphan`](Self::pop_orphan) processes it.
    pub fn detach(&mut self, hold_key: HoldKey<'_>, client: ClientId) {
        if let Some(id) = self.find(hold_key).filter(|_| !self.connections.is_closed(client)) {
            self.detach_client(id, client);
        }
    }

    /// Sets the number of holds of a session's lock.
    pub fn set_holds(&mut self, hold_key: HoldKey<'_>, holds: i64) {
        debug_assert!(holds >= 1, "a session goes on without a hold");
        if let Some(session) = self.find(hold_key).and_then(|id| self.sessions.get_mut(id)) {
            session.lock.holds = holds;
        }
    }

    /// Sets the length of the lease that is renewed from `now` on. It is at least [`MIN_SESSION_LEASE_MS`].
    pub fn set_lease(&mut self, hold_key: HoldKey<'_>, lease: Lease, now: UnixMs) {
        let Some(id) = self.find(hold_key) else { return };
        let renewed = lease.at_least_ms(MIN_SESSION_LEASE_MS);
        if let Some(session) = self.sessions.get_mut(id) {
            session.lock.lease = renewed;
        }
        self.schedule_renewal_at(id, renewed.renewal_before(lease.end_from(now)));
    }

    /// Fits the lease to renew: all shares of the lock can be renewed in it, it is at most `longest`, at least
    /// [`MIN_SESSION_LEASE_MS`].
    pub fn fit_lease(&mut self, id: SessionId, longest: Option<Lease>) {
        let Some(Session { lock, .. }) = self.sessions.get_mut(id) else { return };
        if lock.kind == Kind::Shared {
            let least_ms = self.by_lock.share_count(lock.db, &lock.key).div_euclid(SHARES_IN_A_MS);
            lock.lease = lock.lease.at_least_ms(i64::try_from(least_ms).unwrap_or(i64::MAX));
        }
        if let Some(longest) = longest {
            lock.lease = lock.lease.min(longest).at_least_ms(MIN_SESSION_LEASE_MS);
        }
    }

    /// Sets the end of the lease, or `None` if the lock no longer has a lease.
    pub fn set_lease_end(&mut self, id: SessionId, lease_end: Option<UnixMs>) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.lease_end = lease_end.map_or(SessionLeaseEnd::Never, SessionLeaseEnd::At);
        }
    }

    /// Sets the end of the lease that a check has found. The renewal comes in time for it, if an external write has shortened it.
    pub fn lease_found(&mut self, id: SessionId, lease_end: Option<UnixMs>) {
        self.set_lease_end(id, lease_end);
        if let (Some(end), Some(session)) = (lease_end, self.get(id)) {
            let due = session.lock.lease.renewal_before(end).min(session.renew_at);
            self.schedule_renewal_at(id, due);
        }
    }

    /// Detaches a connection from a session. Returns the session if that was its last connection.
    fn detach_client(&mut self, id: SessionId, client: ClientId) -> Option<Session> {
        let is_current = self.is_current(id);
        let session = self.sessions.get_mut(id)?;
        if session.clients.remove(&client) {
            session.closed_at = session.closed_at.max(self.connections.closed_at(client));
            let (db, key) = (session.lock.db, Rc::clone(&session.lock.key));
            if is_current {
                self.subtract_pairs(db, &key, 1);
            }
            check(self.connections.remove(client, id), "a connection of a session is not in the table");
        }
        if self.get(id)?.clients.is_empty() { self.remove(id) } else { None }
    }

    fn subtract_pairs(&mut self, db: i32, key: &[u8], count: usize) {
        for pairs in
            self.by_lock.common_mut(db, key).map(|shares| &mut shares.pairs).into_iter().chain([&mut self.pairs])
        {
            check(*pairs >= count, "more pairs are subtracted than were counted");
            *pairs = pairs.saturating_sub(count);
        }
    }

    fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.renewals.reschedule(id, (session.class, session.renew_at), (session.class, NEVER));
        if self.by_lock.get(session.lock.hold_key()) == Some(id) {
            let (db, key) = (session.lock.db, &session.lock.key);
            self.subtract_pairs(db, key, session.clients.len());
            self.by_lock.remove(session.lock.hold_key());
            self.continue_without_one(db, key);
        }
        for &client in &session.clients {
            check(self.connections.remove(client, id), "a connection of a session is not in the table");
        }
        debug_assert!(!self.is_empty() || self.pairs == 0, "pairs are left without sessions");
        Some(session)
    }
}

#[cfg(test)]
mod tests;

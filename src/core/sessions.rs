//! Locks that belong to connections: renewed while one of them is open, given up when the last one closes.
//!
//! A **session** belongs to one grant of one lock. It ends with the lock's release or loss, with a new grant, or with
//! its last connection. What it remembers of the lock (identity, holds, length and end of the lease) lets it take the
//! lock back if the lease ran out although a connection is open, and tells that from every other way to lose a lock.
//!
//! A connection may have very many sessions, so its close is only noted; they are worked off one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::rc::Rc;

use super::lock_index::LockIndex;
use super::timer_queue::{NEVER, TimerQueue};
use super::{Arena, ClientId, Cursor, Holder, Id, Kind, Lease, UnixMs};

/// The shortest lease that a session renews, in milliseconds: each renewal is a write.
pub const MIN_SESSION_LEASE_MS: i64 = 100;

/// Handle to a session.
pub type SessionId = Id<Session>;

/// One lock, as its connections hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub lock: SessionLock,
    clients: BTreeSet<ClientId>,
    /// When the lease ends unless it is renewed: [`NEVER`] if that is not known, `UnixMs::MIN` if it has ended.
    lease_end: UnixMs,
    renew_at: UnixMs,
}

/// Who holds which lock, and for how long each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLock {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// At least 1.
    pub holds: i64,
    /// What each renewal sets.
    pub lease: Lease,
}

/// All sessions of the server.
pub struct Sessions {
    sessions: Arena<Session>,
    by_lock: LockIndex<Session>,
    by_client: BTreeMap<ClientId, BTreeSet<SessionId>>,
    /// Connections that are closed and still have sessions.
    closed: BTreeSet<ClientId>,
    /// Pairs of a session and a connection.
    pairs: usize,
    renewals: TimerQueue<SessionId>,
    /// Where a look at all sessions has come to.
    check_cursor: Cursor,
}

/// What is to be done for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTask {
    /// Renew the lease. The session is due no more until it is told when.
    Renew(SessionId),
    /// See whether the lock is still there.
    Check(SessionId),
}

impl Session {
    /// Whether a lock that is held is the one that this session is about.
    pub fn matches<L>(&self, holder: &Holder<'_, L>) -> bool {
        holder.kind == self.lock.kind && *holder.owner == *self.lock.owner
    }

    /// Whether the lease has ended by itself, as far as is known. A lock that goes before that was taken away. Most of a
    /// server keeps a key through its last millisecond, but the cycle in which Redis 8 expires keys does not.
    pub fn has_lapsed(&self, now: UnixMs) -> bool {
        now >= self.lease_end
    }
}

impl Sessions {
    pub const fn new() -> Self {
        Self {
            sessions: Arena::new(),
            by_lock: LockIndex::new(),
            by_client: BTreeMap::new(),
            closed: BTreeSet::new(),
            pairs: 0,
            renewals: TimerQueue::new(),
            check_cursor: Cursor::END,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions, over all locks.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Pairs of a session and a connection.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// The session of a lock, if it has one.
    pub fn find(&self, db: i32, key: &[u8]) -> Option<SessionId> {
        if self.is_empty() { None } else { self.by_lock.get(db, key) }
    }

    /// The open connections of a session.
    pub fn clients(&self, id: SessionId) -> impl Iterator<Item = ClientId> {
        let all = self.get(id).into_iter().flat_map(|session| &session.clients);
        all.copied().filter(|client| !self.closed.contains(client))
    }

    /// Makes a connection part of the session of this grant; the first one begins it. A session of another identity
    /// belonged to an earlier grant and ends.
    pub fn attach(&mut self, lock: SessionLock, client: ClientId, now: UnixMs) {
        let SessionLock { db, lease, .. } = lock;
        let known = self.find(db, &lock.key);
        let same = |session: &Session| (session.lock.kind, &session.lock.owner) == (lock.kind, &lock.owner);
        let id = match known.filter(|&id| self.get(id).is_some_and(same)) {
            Some(id) => id,
            None => {
                self.end(db, &lock.key);
                let key = Rc::clone(&lock.key);
                let session = Session { lock, clients: BTreeSet::new(), lease_end: NEVER, renew_at: NEVER };
                let Some(id) = self.sessions.insert(session) else { return };
                self.by_lock.insert(db, key, id);
                id
            }
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session.lock.lease = session.lock.lease.max(lease);
            if session.clients.insert(client) {
                self.pairs = self.pairs.saturating_add(1);
            }
        }
        self.by_client.entry(client).or_default().insert(id);
        self.schedule_renewal(id, now);
    }

    /// Ends the session of a lock, if it has one.
    pub fn end(&mut self, db: i32, key: &[u8]) {
        if let Some(id) = self.find(db, key) {
            self.remove(id);
        }
    }

    /// Ends all sessions.
    pub fn end_all(&mut self) {
        *self = Self::new();
    }

    /// Notes that a connection is closed. Its sessions are given out by [`pop_orphan`](Self::pop_orphan).
    pub fn connection_closed(&mut self, client: ClientId) {
        if self.by_client.contains_key(&client) {
            self.closed.insert(client);
        }
    }

    /// Whether there are sessions of closed connections to be worked off.
    pub fn has_closed_connections(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Takes one closed connection out of one of its sessions. Returns the session if that was its last connection: it
    /// has ended, and its lock is to be released.
    pub fn pop_orphan(&mut self) -> Option<Session> {
        let client = *self.closed.first()?;
        let id = self.by_client.get(&client).and_then(|of_client| of_client.first().copied());
        match id {
            Some(id) => self.leave(id, client),
            None => {
                self.closed.remove(&client);
                None
            }
        }
    }

    /// Takes all closed connections out of the session of a lock. Returns it if it had no other, like
    /// [`pop_orphan`](Self::pop_orphan).
    pub fn take_orphan(&mut self, db: i32, key: &[u8]) -> Option<Session> {
        let id = self.find(db, key).filter(|_| self.has_closed_connections())?;
        let is_closed = |client: &&ClientId| self.closed.contains(client);
        let closed: Vec<_> = self.get(id)?.clients.iter().filter(is_closed).copied().collect();
        closed.into_iter().filter_map(|client| self.leave(id, client)).last()
    }

    /// Takes an open connection out of the session of a lock, which ends with its last one. A closed one stays, to be
    /// worked off.
    pub fn detach(&mut self, db: i32, key: &[u8], client: ClientId) {
        if let Some(id) = self.find(db, key).filter(|_| !self.closed.contains(&client)) {
            self.leave(id, client);
        }
    }

    /// The holder has another number of holds now.
    pub fn set_holds(&mut self, db: i32, key: &[u8], holds: i64) {
        if let Some(session) = self.find(db, key).and_then(|id| self.sessions.get_mut(id)) {
            session.lock.holds = holds;
        }
    }

    /// What is renewed has another length from `now` on, but no less than [`MIN_SESSION_LEASE_MS`].
    pub fn set_lease(&mut self, db: i32, key: &[u8], lease: Lease, now: UnixMs) {
        let Some(id) = self.find(db, key) else { return };
        if let Some(session) = self.sessions.get_mut(id) {
            session.lock.lease = Lease::from_ms(MIN_SESSION_LEASE_MS).map_or(lease, |least| lease.max(least));
        }
        self.schedule_renewal_at(id, lease.renewal_after(now));
    }

    /// The lease ends then (`None`: there is none any more).
    pub fn set_lease_end(&mut self, id: SessionId, lease_end: Option<UnixMs>) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.lease_end = lease_end.unwrap_or(NEVER);
        }
    }

    /// Somebody else has set or taken away the lease: looks at it as soon as can be. If the lock goes before that, it was
    /// taken away.
    pub fn lease_changed(&mut self, id: SessionId) {
        self.check_soon(id, NEVER);
    }

    /// The lease has ended by itself: takes the lock back as soon as can be.
    pub fn lease_expired(&mut self, id: SessionId) {
        self.check_soon(id, UnixMs::MIN);
    }

    fn check_soon(&mut self, id: SessionId, lease_end: UnixMs) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.lease_end = lease_end;
        }
        self.schedule_renewal_at(id, UnixMs::MIN);
    }

    /// Looks at every session as soon as can be, one after the other.
    pub fn check_all(&mut self) {
        self.check_cursor = Cursor::start();
    }

    /// When something is to be done next.
    pub fn next_due(&self) -> Option<UnixMs> {
        if self.check_cursor.has_more() || self.has_closed_connections() {
            Some(UnixMs::MIN)
        } else {
            self.renewals.earliest()
        }
    }

    /// What is to be done now, if anything.
    pub fn pop_due(&mut self, now: UnixMs) -> Option<SessionTask> {
        if let Some(id) = self.sessions.next(&mut self.check_cursor) {
            return Some(SessionTask::Check(id));
        }
        let id = self.renewals.pop_due(now)?;
        self.sessions.get_mut(id)?.renew_at = NEVER;
        Some(SessionTask::Renew(id))
    }

    /// Renews a lease again after a third of it.
    pub fn schedule_renewal(&mut self, id: SessionId, now: UnixMs) {
        if let Some(lease) = self.get(id).map(|session| session.lock.lease) {
            self.schedule_renewal_at(id, lease.renewal_after(now));
        }
    }

    /// Renews a lease at `time`.
    pub fn schedule_renewal_at(&mut self, id: SessionId, time: UnixMs) {
        if let Some(session) = self.sessions.get_mut(id) {
            self.renewals.reschedule(id, mem::replace(&mut session.renew_at, time), time);
        }
    }

    /// Takes a connection out of a session, which is returned if that was the last one.
    fn leave(&mut self, id: SessionId, client: ClientId) -> Option<Session> {
        let session = self.sessions.get_mut(id)?;
        if session.clients.remove(&client) {
            self.pairs = self.pairs.saturating_sub(1);
            self.forget_pair(id, client);
        }
        if self.get(id)?.clients.is_empty() { self.remove(id) } else { None }
    }

    fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.renewals.reschedule(id, session.renew_at, NEVER);
        self.by_lock.remove(session.lock.db, &session.lock.key);
        self.pairs = self.pairs.saturating_sub(session.clients.len());
        session.clients.iter().for_each(|&client| self.forget_pair(id, client));
        Some(session)
    }

    fn forget_pair(&mut self, id: SessionId, client: ClientId) {
        let Some(of_client) = self.by_client.get_mut(&client) else { return };
        of_client.remove(&id);
        if of_client.is_empty() {
            self.by_client.remove(&client);
            self.closed.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests;

//! Locks that belong to connections: renewed while one of them is open, given up when the last one closes.
//!
//! A **session** belongs to one grant of one lock. It ends with the lock's release or loss, with a new grant, or with
//! its last connection. What it remembers of the lock (identity, holds, length of the lease) lets it take the lock back
//! if the lease ran out although a connection is open.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::agenda::{Agenda, NEVER};
use super::lock_index::LockIndex;
use super::{Arena, ClientId, Id, Kind, Lease, UnixMs};

/// Handle to a session.
pub type SessionId = Id<Session>;

/// One lock, as its connections hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// At least 1.
    pub holds: i64,
    /// What each renewal sets.
    pub lease: Lease,
    pub clients: BTreeSet<ClientId>,
    renew_at: UnixMs,
}

/// All sessions of the server.
pub struct Sessions {
    sessions: Arena<Session>,
    by_lock: LockIndex<Session>,
    by_client: BTreeMap<ClientId, BTreeSet<SessionId>>,
    renewals: Agenda<SessionId>,
}

/// A grant that a connection wants to belong to it.
#[derive(Clone, Debug)]
pub struct Begin {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    pub holds: i64,
    pub lease: Lease,
    pub client: ClientId,
}

impl Sessions {
    pub const fn new() -> Self {
        Self { sessions: Arena::new(), by_lock: LockIndex::new(), by_client: BTreeMap::new(), renewals: Agenda::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions, over all locks.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// The session of a lock, if it has one.
    pub fn of(&self, db: i32, key: &[u8]) -> Option<SessionId> {
        if self.is_empty() { None } else { self.by_lock.get(db, key) }
    }

    /// Makes a connection part of the session of this grant; the first one begins it. A session of another identity
    /// belonged to an earlier grant and ends.
    pub fn begin(&mut self, begin: Begin, now: UnixMs) {
        let Begin { db, key, kind, owner, holds, lease, client } = begin;
        let known = self.of(db, &key);
        let same = |session: &&Session| session.kind == kind && session.owner == owner;
        let id = match known.filter(|&id| self.get(id).as_ref().is_some_and(same)) {
            Some(id) => id,
            None => {
                self.end(db, &key);
                let (clients, renew_at) = (BTreeSet::new(), NEVER);
                let index_key = Rc::clone(&key);
                let session = Session { db, key, kind, owner, holds, lease, clients, renew_at };
                let Some(id) = self.sessions.insert(session) else { return };
                self.by_lock.insert(db, index_key, id);
                id
            }
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session.clients.insert(client);
            session.lease = session.lease.max(lease);
        }
        self.by_client.entry(client).or_default().insert(id);
        self.renew_later(id, now);
    }

    /// Ends the session of a lock, if it has one.
    pub fn end(&mut self, db: i32, key: &[u8]) {
        if let Some(id) = self.of(db, key) {
            self.remove(id);
        }
    }

    /// Ends the sessions of one database, or all of them.
    pub fn end_all(&mut self, db: Option<i32>) {
        for id in self.by_lock.all(db) {
            self.remove(id);
        }
    }

    /// A connection has closed. Answers the sessions that ended with it, whose locks are to be released.
    pub fn connection_closed(&mut self, client: ClientId) -> Vec<Session> {
        let ids = self.by_client.remove(&client).unwrap_or_default();
        ids.into_iter().filter_map(|id| self.leave(id, client)).collect()
    }

    /// The holder has another number of holds now.
    pub fn set_holds(&mut self, db: i32, key: &[u8], holds: i64) {
        if let Some(session) = self.of(db, key).and_then(|id| self.sessions.get_mut(id)) {
            session.holds = holds;
        }
    }

    /// The lease has another length from `now` on.
    pub fn set_lease(&mut self, db: i32, key: &[u8], lease: Lease, now: UnixMs) {
        let Some(id) = self.of(db, key) else { return };
        if let Some(session) = self.sessions.get_mut(id) {
            session.lease = lease;
        }
        self.renew_later(id, now);
    }

    /// When a lease is to be renewed next.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.renewals.earliest()
    }

    /// A session whose lease is to be renewed now. It is due no more until it is told when.
    pub fn pop_due(&mut self, now: UnixMs) -> Option<SessionId> {
        let id = self.renewals.pop_due(now)?;
        self.sessions.get_mut(id)?.renew_at = NEVER;
        Some(id)
    }

    /// Renews a lease again after a third of it.
    pub fn renew_later(&mut self, id: SessionId, now: UnixMs) {
        if let Some(lease) = self.get(id).map(|session| session.lease) {
            self.renew_at(id, lease.third_from(now));
        }
    }

    /// Renews a lease at `time`.
    pub fn renew_at(&mut self, id: SessionId, time: UnixMs) {
        if let Some(session) = self.sessions.get_mut(id) {
            self.renewals.reschedule(id, std::mem::replace(&mut session.renew_at, time), time);
        }
    }

    /// Takes a connection out of a session, which it answers if that was the last one.
    fn leave(&mut self, id: SessionId, client: ClientId) -> Option<Session> {
        let session = self.sessions.get_mut(id)?;
        session.clients.remove(&client);
        if session.clients.is_empty() { self.remove(id) } else { None }
    }

    fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.renewals.reschedule(id, session.renew_at, NEVER);
        self.by_lock.remove(session.db, &session.key);
        for client in &session.clients {
            if let Some(of_client) = self.by_client.get_mut(client) {
                of_client.remove(&id);
                if of_client.is_empty() {
                    self.by_client.remove(client);
                }
            }
        }
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = 1_000_000;

    fn begin(sessions: &mut Sessions, key: &str, owner: &str, client: ClientId) {
        let lease = Lease::from_ms(300).unwrap();
        let (key, owner) = (key.as_bytes().into(), owner.as_bytes().into());
        sessions.begin(Begin { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, client }, NOW);
    }

    fn owners(closed: &[Session]) -> Vec<&[u8]> {
        closed.iter().map(|session| &*session.owner).collect()
    }

    #[test]
    fn a_session_ends_with_the_last_of_its_connections() {
        let mut sessions = Sessions::new();
        begin(&mut sessions, "k", "a", 1);
        begin(&mut sessions, "k", "a", 2);
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions.connection_closed(1), []);
        assert_eq!(owners(&sessions.connection_closed(2)), [b"a"]);
        assert!(sessions.is_empty());
        assert_eq!(sessions.next_due(), None);
        assert_eq!(sessions.connection_closed(2), []);
    }

    #[test]
    fn a_connection_takes_all_its_locks_with_it() {
        let mut sessions = Sessions::new();
        for key in ["k", "l", "m"] {
            begin(&mut sessions, key, "a", 1);
        }
        begin(&mut sessions, "n", "b", 2);
        assert_eq!(sessions.connection_closed(1).len(), 3);
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_new_grant_ends_the_session_of_the_earlier_one() {
        let mut sessions = Sessions::new();
        begin(&mut sessions, "k", "a", 1);
        begin(&mut sessions, "k", "b", 2);
        assert_eq!(sessions.connection_closed(1), []);
        assert_eq!(owners(&sessions.connection_closed(2)), [b"b"]);
    }

    #[test]
    fn what_has_ended_is_neither_renewed_nor_released() {
        let mut sessions = Sessions::new();
        begin(&mut sessions, "k", "a", 1);
        sessions.end(0, b"k");
        assert_eq!(sessions.next_due(), None);
        assert_eq!(sessions.connection_closed(1), []);
        begin(&mut sessions, "k", "a", 1);
        sessions.end_all(Some(1));
        assert_eq!(sessions.len(), 1);
        sessions.end_all(Some(0));
        assert!(sessions.is_empty() && sessions.by_client.is_empty());
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_it() {
        let mut sessions = Sessions::new();
        begin(&mut sessions, "k", "a", 1);
        assert_eq!(sessions.next_due(), Some(NOW + 100));
        assert_eq!(sessions.pop_due(NOW + 99), None);
        let id = sessions.pop_due(NOW + 100).unwrap();
        assert_eq!(sessions.pop_due(NOW + 100), None);
        sessions.renew_later(id, NOW + 100);
        assert_eq!(sessions.next_due(), Some(NOW + 200));
        sessions.set_lease(0, b"k", Lease::from_ms(3).unwrap(), NOW + 150);
        assert_eq!(sessions.next_due(), Some(NOW + 151));
    }

    #[test]
    fn a_repeat_lengthens_what_is_renewed_and_never_shortens_it() {
        let mut sessions = Sessions::new();
        begin(&mut sessions, "k", "a", 1);
        let id = sessions.of(0, b"k").unwrap();
        for (ms, expected) in [(900, 900), (30, 900)] {
            let lease = Lease::from_ms(ms).unwrap();
            let (key, owner) = (b"k"[..].into(), b"a"[..].into());
            sessions.begin(Begin { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, client: 1 }, NOW);
            assert_eq!(sessions.get(id).unwrap().lease, Lease::from_ms(expected).unwrap());
        }
    }
}

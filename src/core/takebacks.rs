//! Locks that are to be taken from connections that are gone: a session whose last connection closed, or a grant of
//! which no connection heard.

use std::rc::Rc;

use super::agenda::{Agenda, NEVER};
use super::lock_index::LockIndex;
use super::{Arena, Grant, Held, Id, Kind, Session, UnixMs};

/// Handle to a take-back.
pub type TakeBackId = Id<TakeBack>;

/// A lock to be released in the name of a holder that is gone, if it still is the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeBack {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The grant of which no connection heard. Its turn is kept, should it come back.
    pub grant: Option<Grant>,
    /// Gives up all holds, not only the first one.
    all_holds: bool,
    due: UnixMs,
}

/// All that are to be done: at most one a lock.
pub struct TakeBacks {
    entries: Arena<TakeBack>,
    by_lock: LockIndex<TakeBack>,
    due: Agenda<TakeBackId>,
}

impl TakeBack {
    /// Of a grant: it has one hold.
    pub fn of_grant(grant: Grant) -> Self {
        let (db, key, kind, owner) = (grant.db, Rc::clone(&grant.key), grant.claim.kind, grant.claim.owner.clone());
        Self { db, key, kind, owner, grant: Some(grant), all_holds: false, due: UnixMs::MIN }
    }

    /// Of a session: it is given up with all its holds.
    pub fn of_session(session: Session) -> Self {
        let Session { db, key, kind, owner, .. } = session;
        Self { db, key, kind, owner, grant: None, all_holds: true, due: UnixMs::MIN }
    }

    /// Whether the lock is still held as it was when its connection went.
    pub fn is_of<L>(&self, held: &Held<'_, L>) -> bool {
        *held.owner == *self.owner && held.kind == self.kind && (self.all_holds || held.holds == 1)
    }
}

impl TakeBacks {
    pub const fn new() -> Self {
        Self { entries: Arena::new(), by_lock: LockIndex::new(), due: Agenda::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The take-back of a lock, if there is one.
    pub fn of(&self, db: i32, key: &[u8]) -> Option<TakeBackId> {
        if self.is_empty() { None } else { self.by_lock.get(db, key) }
    }

    pub fn get(&self, id: TakeBackId) -> Option<&TakeBack> {
        self.entries.get(id)
    }

    /// Adds one, to be done at once. It replaces an earlier one of the lock; if both are of the same holder, whose
    /// grant and session went together, it takes over what that one had to do.
    pub fn add(&mut self, mut take_back: TakeBack) {
        if let Some(earlier) = self.of(take_back.db, &take_back.key).and_then(|id| self.remove(id)) {
            if earlier.kind == take_back.kind && earlier.owner == take_back.owner {
                take_back.grant = take_back.grant.or(earlier.grant);
                take_back.all_holds |= earlier.all_holds;
            }
        }
        let (db, key, due) = (take_back.db, Rc::clone(&take_back.key), take_back.due);
        if let Some(id) = self.entries.insert(take_back) {
            self.by_lock.insert(db, key, id);
            self.due.reschedule(id, NEVER, due);
        }
    }

    /// Takes one out, because it is done now or has become void.
    pub fn remove(&mut self, id: TakeBackId) -> Option<TakeBack> {
        let take_back = self.entries.remove(id)?;
        self.due.reschedule(id, take_back.due, NEVER);
        self.by_lock.remove(take_back.db, &take_back.key);
        Some(take_back)
    }

    /// Puts one off until `time`.
    pub fn put_off(&mut self, id: TakeBackId, time: UnixMs) {
        if let Some(take_back) = self.entries.get_mut(id) {
            self.due.reschedule(id, take_back.due, time);
            take_back.due = time;
        }
    }

    /// One that is due. It stays until it is removed or put off.
    pub fn next(&self, now: UnixMs) -> Option<TakeBackId> {
        self.due.first().filter(|_| self.due.earliest().is_some_and(|due| due <= now))
    }

    /// When one falls due next.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.due.earliest()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::core::{Claim, Ticket};

    fn undelivered(owner: &str) -> TakeBack {
        let claim = Claim { kind: Kind::Reentrant, owner: owner.as_bytes().into(), lease: None };
        let key = b"k"[..].into();
        let grant =
            Grant { db: 0, key, claim, longest_lease: None, ticket: Ticket(7), since: 0, connections: Vec::new() };
        TakeBack::of_grant(grant)
    }

    fn held(owner: &'static str, holds: i64) -> Held<'static> {
        Held { kind: Kind::Reentrant, owner: Cow::Borrowed(owner.as_bytes()), holds, lease_end: None }
    }

    #[test]
    fn a_grant_is_taken_back_only_as_it_was_granted() {
        let take_back = undelivered("a");
        assert!(take_back.is_of(&held("a", 1)));
        assert!(!take_back.is_of(&held("a", 2)));
        assert!(!take_back.is_of(&held("b", 1)));
        assert!(!take_back.is_of(&Held { kind: Kind::Mutex, ..held("a", 1) }));
    }

    #[test]
    fn there_is_one_a_lock_and_the_latest_holder_counts() {
        let mut take_backs = TakeBacks::new();
        take_backs.add(undelivered("a"));
        take_backs.add(undelivered("b"));
        let id = take_backs.of(0, b"k").unwrap();
        assert_eq!(&*take_backs.get(id).unwrap().owner, b"b");
        assert!(take_backs.remove(id).is_some());
        assert!(take_backs.is_empty() && take_backs.next_due().is_none());
    }

    #[test]
    fn a_grant_and_a_session_that_went_together_are_one() {
        let mut take_backs = TakeBacks::new();
        take_backs.add(undelivered("a"));
        take_backs.add(TakeBack { grant: None, all_holds: true, ..undelivered("a") });
        let both = take_backs.of(0, b"k").and_then(|id| take_backs.get(id)).unwrap();
        assert!(both.grant.is_some() && both.is_of(&held("a", 3)));
    }

    #[test]
    fn one_that_is_put_off_comes_again() {
        let mut take_backs = TakeBacks::new();
        take_backs.add(undelivered("a"));
        let id = take_backs.next(0).unwrap();
        take_backs.put_off(id, 20);
        assert_eq!(take_backs.next(19), None);
        assert_eq!(take_backs.next(20), Some(id));
    }
}

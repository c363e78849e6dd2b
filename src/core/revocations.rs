//! Revocations: locks to be released because their holders have disconnected.
//!
//! A lock is revoked when the last connection of its session has closed, or when no connection has received its grant. A
//! revocation belongs to one grant, and a later grant of the lock cancels it.

use std::rc::Rc;

use super::tables::LockIndex;
use super::sessions::SessionLeaseEnd;
use super::tables::{NEVER, TimerQueue};
use super::{Arena, DeferredFree, Grant, HoldKey, Holder, Id, Kind, OrBug, Session, SessionLock, UnixMs, bug};

/// A handle to a revocation.
pub type RevocationId = Id<Revocation>;

/// A lock to be released on behalf of a disconnected holder, if that still holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The grant that no connection has received. Its turn is restored when the lock is released.
    pub grant: Option<Grant>,
    /// Whether all holds are released, and not only the first one.
    all_holds: bool,
    /// The end of the grace period of the session, if it had one. Until then the lock stays held.
    grace_end: Option<UnixMs>,
    /// The end of the session's lease. If that passes within the grace period, the lock is returned with these holds.
    lease_end: SessionLeaseEnd,
    pub holds: i64,
    /// The time of the next attempt.
    due: UnixMs,
}

/// All pending revocations, at most one for each hold key.
pub struct Revocations {
    entries: Arena<Revocation>,
    by_lock: LockIndex<Revocation>,
    due: TimerQueue<RevocationId>,
}

impl Revocation {
    /// Creates the revocation of a grant, which has one hold.
    pub fn of_grant(grant: Grant) -> Self {
        let (db, key, kind, owner) = (grant.db, Rc::clone(&grant.key), grant.claim.kind, grant.claim.owner.clone());
        let lease_end = SessionLeaseEnd::Unknown;
        let (grace_end, due) = (None, UnixMs::MIN);
        Self { db, key, kind, owner, grant: Some(grant), all_holds: false, grace_end, lease_end, holds: 1, due }
    }

    /// Creates the revocation of a session's lock, with all its holds.
    pub fn of_session(session: Session) -> Self {
        let grace_end = session.grace_end();
        let (lease_end, due) = (session.lease_end, UnixMs::MIN);
        let SessionLock { db, key, kind, owner, holds, .. } = session.lock;
        Self { db, key, kind, owner, grant: None, all_holds: true, grace_end, lease_end, holds, due }
    }

    pub fn hold_key(&self) -> HoldKey<'_> {
        HoldKey::of(self.db, &self.key, self.kind, &self.owner)
    }

    /// Returns the end of the grace period, if it has not passed at `now`. A grant that no connection has received has none.
    pub fn grace_end_after(&self, now: UnixMs) -> Option<UnixMs> {
        self.grace_end.filter(|&end| end > now && self.grant.is_none())
    }

    /// Returns the end of the grace period to which the lock is returned if it is free: its lease has ended by itself before the
    /// server could set it. If the lock is free earlier, an external write has removed it.
    pub fn return_until(&self, now: UnixMs) -> Option<UnixMs> {
        self.grace_end_after(now).filter(|_| self.lease_end.has_passed(now))
    }

    /// Returns whether `holder` still holds the lock as it was granted.
    pub fn matches<L>(&self, holder: &Holder<'_, L>) -> bool {
        *holder.owner == *self.owner && holder.kind == self.kind && (self.all_holds || holder.holds == 1)
    }
}

impl Revocations {
    pub const fn new() -> Self {
        Self { entries: Arena::new(), by_lock: LockIndex::new(), due: TimerQueue::new() }
    }

    /// Returns the sum of the sizes of all tables.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        [self.entries.len(), self.by_lock.handle_count(), self.due.entry_count()].into_iter().sum()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the revocation of a lock or a share, if it has one.
    pub fn find(&self, hold_key: HoldKey<'_>) -> Option<RevocationId> {
        self.by_lock.get(hold_key)
    }

    pub fn get(&self, id: RevocationId) -> Option<&Revocation> {
        self.entries.get(id)
    }

    /// Adds a revocation, which is due now. It replaces an earlier one of the same hold key.
    ///
    /// If both have the same holder, whose grant and session ended together, they are merged.
    pub fn add(&mut self, mut revocation: Revocation) {
        if let Some(previous) = self.find(revocation.hold_key()).and_then(|id| self.remove(id)) {
            if previous.kind == revocation.kind && previous.owner == revocation.owner {
                revocation.grant = revocation.grant.or(previous.grant);
                revocation.all_holds |= previous.all_holds;
                revocation.grace_end = revocation.grace_end.max(previous.grace_end);
            }
        }
        let due = revocation.due;
        let Some(id) = self.entries.insert(revocation) else { return };
        let Some(revocation) = self.entries.get(id) else { return bug("a new revocation does not exist") };
        let Revocation { db, key, .. } = revocation;
        self.by_lock.insert(*db, Rc::clone(key), revocation.hold_key().share, id);
        self.due.reschedule(id, NEVER, due);
    }

    /// Removes and returns a revocation that is carried out now or is cancelled.
    pub fn remove(&mut self, id: RevocationId) -> Option<Revocation> {
        let revocation = self.entries.remove(id)?;
        self.due.reschedule(id, revocation.due, NEVER);
        // The index drops a lock's handles when it gets one of the other form.
        if self.by_lock.get(revocation.hold_key()) == Some(id) {
            self.by_lock.remove(revocation.hold_key());
        }
        Some(revocation)
    }

    /// Returns whether shares of a lock are to be revoked.
    pub fn has_shares(&self, db: i32, key: &[u8]) -> bool {
        self.by_lock.has_shares(db, key)
    }

    /// Returns the tokens of the shares of a lock that are to be revoked.
    pub fn shares(&self, db: i32, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.by_lock.tokens_from(db, key, b"")
    }

    /// Removes the revocation of a lock or a share that is granted again.
    pub fn cancel(&mut self, hold_key: HoldKey<'_>) {
        if let Some(id) = self.find(hold_key) {
            self.remove(id);
        }
    }

    /// Postpones a revocation until `time`.
    pub fn postpone(&mut self, id: RevocationId, time: UnixMs) {
        debug_assert!(time < NEVER, "a revocation is postponed forever");
        if let Some(revocation) = self.entries.get_mut(id) {
            self.due.reschedule(id, revocation.due, time);
            revocation.due = time;
        }
    }

    /// Returns a revocation that is due at `now`. It stays due until it is removed or postponed.
    pub fn first_due(&self, now: UnixMs) -> Option<RevocationId> {
        let id = self.due.first_due(now)?;
        self.get(id).or_bug("a scheduled revocation does not exist").map(|_| id)
    }

    pub fn next_due(&self) -> Option<UnixMs> {
        self.due.earliest()
    }

    /// Removes all revocations, and adds their tables to `deferred_free`.
    pub fn clear(&mut self, deferred_free: &mut DeferredFree) {
        let Self { entries, by_lock, due } = std::mem::replace(self, Self::new());
        if !entries.is_empty() {
            deferred_free.add(entries.into_entries());
            deferred_free.add(by_lock.into_entries());
            deferred_free.add(due.into_entries());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::core::{Claim, Turn};

    fn undelivered(owner: &str) -> Revocation {
        let claim = Claim { kind: Kind::Reentrant, owner: owner.as_bytes().into(), lease: None, limit: None };
        let key = b"k"[..].into();
        let grant = Grant { db: 0, key, claim, longest_lease: None, turn: Turn(7), since: 0, waiters: Vec::new() };
        Revocation::of_grant(grant)
    }

    fn holder(owner: &'static str, holds: i64) -> Holder<'static> {
        Holder { kind: Kind::Reentrant, owner: Cow::Borrowed(owner.as_bytes()), holds, lease_end: None }
    }

    #[test]
    fn revocation_matches_only_unchanged_grant() {
        let revocation = undelivered("a");
        assert!(revocation.matches(&holder("a", 1)));
        assert!(!revocation.matches(&holder("a", 2)));
        assert!(!revocation.matches(&holder("b", 1)));
        assert!(!revocation.matches(&Holder { kind: Kind::Mutex, ..holder("a", 1) }));
    }

    #[test]
    fn later_revocation_replaces_earlier_one() {
        let mut revocations = Revocations::new();
        revocations.add(undelivered("a"));
        revocations.add(undelivered("b"));
        let id = revocations.find(HoldKey::whole(0, b"k")).unwrap();
        assert_eq!(&*revocations.get(id).unwrap().owner, b"b");
        // The turn of c is not restored for b.
        let alone = Revocation { grant: None, ..undelivered("b") };
        revocations.add(undelivered("c"));
        revocations.add(alone.clone());
        let id = revocations.find(HoldKey::whole(0, b"k")).unwrap();
        assert_eq!(revocations.get(id), Some(&alone));
        revocations.add(Revocation { kind: Kind::Mutex, ..undelivered("b") });
        revocations.add(alone.clone());
        let id = revocations.find(HoldKey::whole(0, b"k")).unwrap();
        assert_eq!(revocations.get(id), Some(&alone));
        assert!(revocations.remove(id).is_some());
        assert!(revocations.is_empty() && revocations.next_due().is_none());
    }

    #[test]
    fn revocations_of_grant_and_session_are_merged() {
        let mut revocations = Revocations::new();
        revocations.add(undelivered("a"));
        revocations.add(Revocation { grant: None, all_holds: true, ..undelivered("a") });
        let both = revocations.find(HoldKey::whole(0, b"k")).and_then(|id| revocations.get(id)).unwrap();
        assert!(both.grant.is_some() && both.matches(&holder("a", 3)));
    }

    #[test]
    fn grant_that_reached_no_client_has_no_grace_period() {
        let mut revocations = Revocations::new();
        let session = |grace_end| Revocation { grant: None, all_holds: true, grace_end, ..undelivered("a") };
        revocations.add(session(Some(50)));
        revocations.add(session(Some(40)));
        let ends = |revocations: &Revocations| {
            let id = revocations.first_due(0).unwrap();
            [49, 50].map(|now| revocations.get(id).unwrap().grace_end_after(now))
        };
        assert_eq!(ends(&revocations), [Some(50), None]);
        revocations.add(undelivered("a"));
        assert_eq!(ends(&revocations), [None, None]);
    }

    #[test]
    fn revocation_is_cancelled_when_lock_is_granted() {
        let mut revocations = Revocations::new();
        revocations.add(undelivered("a"));
        revocations.cancel(HoldKey::whole(0, b"other"));
        assert_eq!((revocations.next_due(), revocations.entry_count()), (Some(UnixMs::MIN), 3));
        revocations.cancel(HoldKey::whole(0, b"k"));
        assert_eq!(revocations.entry_count(), 0);
        assert!(revocations.is_empty() && revocations.find(HoldKey::whole(0, b"k")).is_none());
        assert_eq!((revocations.next_due(), revocations.first_due(UnixMs::MAX)), (None, None));
    }

    #[test]
    fn cleared_revocations_are_freed_later() {
        let (mut revocations, mut deferred_free) = (Revocations::new(), DeferredFree::new());
        revocations.clear(&mut deferred_free);
        assert!(deferred_free.is_empty());
        revocations.add(undelivered("a"));
        revocations.clear(&mut deferred_free);
        assert!(revocations.is_empty() && revocations.next_due().is_none());
        // An entry and the end, for each of three tables.
        assert_eq!((0..10).take_while(|_| deferred_free.free_one()).count(), 6);
    }

    #[test]
    fn postponed_revocation_is_due_again() {
        let mut revocations = Revocations::new();
        revocations.add(undelivered("a"));
        let id = revocations.first_due(0).unwrap();
        revocations.postpone(id, 20);
        assert_eq!(revocations.first_due(19), None);
        assert_eq!(revocations.first_due(20), Some(id));
    }
}

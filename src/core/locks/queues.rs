//! The queues: the waiters of each lock, their order and their deadlines.
//!
//! A **queue entry** is a claim on the lock with a turn. An owner has at most one entry in a queue: a later request of the owner
//! takes the place of the earlier one. It keeps the turn if it is for the same kind of the lock.
//!
//! An entry is **attached** while a client waits. Otherwise it is **detached**: it is kept for the grace period, and does not delay
//! other waiters. When the same claim waits again, the entry is attached at its old turn.
//!
//! Invariants:
//!
//! - An entry is in exactly one queue.
//! - An entry is in the queue order exactly while it is attached, and in the timer queue `detached` exactly while it is not.
//! - A request gets at most one reply, because the reply detaches or removes its entry.
//! - A queue without requests has no review and no deadline.

use super::Locks;
use super::record::{EntryId, EntryState, QueueEntry, Record, RecordId, WaitingRequest};
use super::types::{Claim, Grant, JoinRequest, Turn, Waiter, WaiterId};
use crate::core::tables::{NEVER, Slot};
use crate::core::{Cause, Kind, OrBug, UnixMs, WaitEnd};

/// The result of [`Locks::join`](super::Locks::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOutcome {
    pub entry: EntryId,
    /// Whether the owner had an entry already.
    pub rejoined: bool,
    /// The earlier request of the owner, whose wait ends.
    pub replaced: Option<WaiterId>,
}

impl Locks {
    /// Returns the event that made the lock free, or is expected to.
    pub fn cause_of(&self, queue: RecordId) -> Cause {
        self.queue(queue).map_or(Cause::Other, |queue| queue.cause)
    }

    pub fn waiter_count_of(&self, queue: RecordId) -> usize {
        self.queue(queue).map_or(0, |queue| queue.requests as usize)
    }

    pub fn has_capacity(&self, limit: usize) -> bool {
        self.waiter_count() < limit
    }

    /// Returns the queue and the claim of an entry, if it exists.
    pub fn origin_of(&self, entry: EntryId) -> Option<(&Record, &Claim)> {
        let entry = self.entries.get(entry)?;
        Some((self.records.get(entry.record).or_bug("an entry has no record")?, &entry.claim))
    }

    /// Adds a request to the queue of a lock: in the place of the earlier request of the owner, if there is one, else at the end.
    /// The earlier request has ended with `end`. A request for another kind of the lock does not keep the turn.
    ///
    /// Returns `None` if there are `limit` requests, and the owner has none of them. With `limit` entries, the next detached entry
    /// to be dropped is dropped now.
    pub fn join(&mut self, join: JoinRequest<'_>, limit: usize, end: WaitEnd) -> Option<JoinOutcome> {
        let JoinRequest { db, key, claim, waiter, now, deadline } = join;
        debug_assert!(deadline.is_none_or(|deadline| deadline >= now), "a wait ends before it begins");
        debug_assert!(claim.limit.is_none() || claim.kind == Kind::Shared, "only a share has a limit");
        if !self.has_capacity(limit) && self.request_of(db, key, &claim.owner).is_none() {
            return None;
        }
        let known = self.entry_of(db, key, &claim.owner);
        let replaced = known.and_then(|known| self.end_wait(known, end));
        let known = known.filter(|known| self.keeps_turn(*known, claim.kind));
        let entry = match known {
            Some(known) => {
                self.entries.get_mut(known).or_bug("a known entry does not exist")?.claim = claim;
                known
            }
            None => {
                self.free_capacity(limit);
                let queue = self.record_for(db, key)?;
                self.add_entry(queue, claim, now)?
            }
        };
        let deadline = deadline.unwrap_or(NEVER);
        self.set_state(entry, EntryState::Attached(WaitingRequest { waiter, since: now, deadline }));
        Some(JoinOutcome { entry, rejoined: known.is_some() || replaced.is_some(), replaced })
    }

    /// Returns whether an entry is for this kind of the lock. Removes it if it is for another one.
    fn keeps_turn(&mut self, entry: EntryId, kind: Kind) -> bool {
        let is_same = self.entries.get(entry).is_some_and(|entry| entry.claim.kind == kind);
        if !is_same {
            self.remove_entry(entry);
        }
        is_same
    }

    /// Returns the claim of the first waiter.
    pub fn first(&self, queue: RecordId) -> Option<&Claim> {
        self.entry_at(self.order.of(queue).next()?).map(|entry| &entry.claim)
    }

    /// Returns what [`grant_first`](Self::grant_first) would return, and its entry, which stays in the queue.
    pub fn first_grant(&self, queue: RecordId) -> Option<(Grant, EntryId)> {
        let slot = self.order.of(queue).next()?;
        let (entry, id) = (self.entry_at(slot)?, self.entries.id_at(slot)?);
        let (db, key) = self.lock_of(queue).or_bug("a queue with waiters does not exist")?;
        let QueueEntry { ref claim, turn, since, .. } = *entry;
        let waiter = entry.request().or_bug("an entry in the order has no request")?.waiter;
        Some((Grant { db, key, claim: claim.clone(), turn, since, waiter }, id))
    }

    fn entry_at(&self, slot: Slot) -> Option<&QueueEntry> {
        self.entries.at(slot).or_bug("an entry in the queue order does not exist")
    }

    /// Drops the entry of an owner if it is detached, because the lock was granted without it.
    pub fn drop_detached_entry(&mut self, db: i32, key: &[u8], owner: &[u8]) {
        let is_detached = |entry: &EntryId| self.entries.get(*entry).is_some_and(|entry| entry.request().is_none());
        if let Some(entry) = self.entry_of(db, key, owner).filter(is_detached) {
            self.remove_entry(entry);
        }
    }

    /// Restores the turn of a revoked grant. The entry is detached and kept until `until`, unless the owner waits again. If it does
    /// for another kind of the lock, the turn is lost.
    pub fn restore(&mut self, grant: Grant, until: UnixMs) {
        let Grant { db, key, claim, turn, since, .. } = grant;
        let kind = claim.kind;
        let entry = self.entry_of(db, &key, &claim.owner).or_else(|| {
            let queue = self.record_for(db, &key)?;
            let entry = self.add_entry(queue, claim, since)?;
            self.set_state(entry, EntryState::Detached(until));
            Some(entry)
        });
        let is_same = |entry: &EntryId| self.entries.get(*entry).is_some_and(|entry| entry.claim.kind == kind);
        if let Some(entry) = entry.filter(is_same) {
            self.move_to_turn(entry, turn);
        }
    }

    /// Begins to drop all detached entries. [`next_task`](Self::next_task) drops them one by one.
    pub fn drop_detached_entries(&mut self) {
        self.drops_detached = self.detached.first().is_some();
    }

    /// Begins to check the slots of all locks.
    pub fn check_slots(&mut self) {
        self.slot_sweep.begin();
    }

    /// Begins to abort the waits for a lock whose slot has moved. [`next_task`](Self::next_task) returns the waiters.
    pub fn abort(&mut self, queue: RecordId) {
        self.aborted.entry(queue).or_insert(Turn(u64::MIN));
    }

    /// Returns the next waiter whose wait is aborted, or `Some(None)` at the end of a queue. Returns `None` if no queue is aborted.
    pub(super) fn next_aborted(&mut self) -> Option<Option<WaiterId>> {
        let (&queue, &from) = self.aborted.first_key_value()?;
        // The order finds a queue by its slot, and the slot of a dropped queue may belong to another one.
        let next = self.queue(queue).and_then(|_| self.order.from(queue, from).next());
        let Some((turn, entry)) = next else {
            self.aborted.remove(&queue);
            return Some(None);
        };
        debug_assert!(turn >= from, "the turns of aborted waits rise");
        self.aborted.insert(queue, Turn(turn.0.saturating_add(1)));
        Some(self.entry_at(entry).and_then(QueueEntry::request).map(|request| request.waiter))
    }

    /// Returns the waiters of a lock in the order of their turns.
    pub fn waiters(&self, queue: RecordId) -> impl Iterator<Item = Waiter<'_>> {
        let entries = self.order.of(queue).filter_map(|entry| self.entry_at(entry));
        entries.filter_map(|entry| {
            let WaitingRequest { waiter, deadline, .. } =
                *entry.request().or_bug("an entry in the order has no request")?;
            let deadline = (deadline != NEVER).then_some(deadline);
            Some(Waiter { claim: &entry.claim, since: entry.since, deadline, id: waiter })
        })
    }
}

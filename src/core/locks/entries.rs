//! Queue entries: their index by owner, and their changes between attached and detached.

use std::hash::BuildHasher;
use std::mem;

use super::record::{EntryId, EntryState, QueueEntry, RecordId, WaitingRequest};
use super::types::Turn;
use super::{Claim, Locks, first_expired_ms, queue_in};
use crate::core::tables::{AT_ONCE, NEVER};
use crate::core::{Cause, Kind, OrBug, UnixMs, bug, check};

impl Locks {
    /// Returns the entry of an owner, attached or detached.
    pub(super) fn entry_of(&self, db: i32, key: &[u8], owner: &[u8]) -> Option<EntryId> {
        let queue = self.record_of(db, key)?;
        let is_owner = |entry: &QueueEntry| entry.owner_key() == (queue, owner);
        let slot = self.owners.find((queue, owner), |slot| self.entries.at(*slot).is_some_and(is_owner))?;
        self.entries.id_at(*slot)
    }

    /// Returns the request of an owner that waits for a lock.
    pub fn request_of(&self, db: i32, key: &[u8], owner: &[u8]) -> Option<&WaitingRequest> {
        self.entries.get(self.entry_of(db, key, owner)?)?.request()
    }

    /// Returns whether an owner has a place in the queue of a lock, which a request for this kind would take. It may be kept.
    pub fn has_place(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> bool {
        let entry = self.entry_of(db, key, owner).and_then(|entry| self.entries.get(entry));
        entry.is_some_and(|entry| entry.claim.kind == kind || entry.request().is_some())
    }

    /// Adds an entry with the last turn. It is detached, and in no timer queue.
    ///
    /// Returns `None` if there are almost 2^32 entries already.
    pub(super) fn add_entry(&mut self, queue: RecordId, claim: Claim, since: UnixMs) -> Option<EntryId> {
        let turn = Turn(self.next_turn);
        debug_assert!(self.next_turn < u64::MAX, "turns rise");
        self.next_turn = self.next_turn.saturating_add(1);
        let is_share = claim.kind == Kind::Shared;
        let entry = QueueEntry { record: queue, turn, claim, since, state: EntryState::Detached(NEVER) };
        let id = self.entries.insert(entry)?;
        self.share_entries = self.share_entries.saturating_add(is_share.into());
        self.owners.insert(id.slot(), |hasher, slot| {
            let entry = self.entries.at(*slot).or_bug("an owner in the index has no entry");
            entry.map_or(0, |entry| hasher.hash_one(entry.owner_key()))
        });
        let queue = queue_in(&mut self.records, queue).or_bug("a new entry has no queue")?;
        queue.entries = queue.entries.saturating_add(1);
        Some(id)
    }

    /// Removes an entry, and its queue if that was the last entry.
    pub(super) fn remove_entry(&mut self, id: EntryId) -> Option<QueueEntry> {
        self.set_state(id, EntryState::Detached(NEVER));
        let entry = self.entries.remove(id).or_bug("an entry to remove does not exist")?;
        let shares = usize::from(entry.claim.kind == Kind::Shared);
        debug_assert!(self.share_entries >= shares, "an entry of a share was not counted");
        self.share_entries = self.share_entries.saturating_sub(shares);
        let owner = self.owners.remove(entry.owner_key(), |&other| other == id.slot());
        check(owner.is_some(), "an entry has no owner in the index");
        let queue = queue_in(&mut self.records, entry.record).or_bug("an entry had no queue")?;
        debug_assert!(queue.entries > 0, "an entry was not counted");
        queue.entries = queue.entries.saturating_sub(1);
        if queue.entries == 0 {
            debug_assert_eq!(queue.requests, 0, "a queue without entries has requests");
            debug_assert_eq!(queue.review_at, NEVER, "a queue without entries has a review");
            debug_assert_eq!(queue.time_out_place, NEVER, "a queue without entries has deadlines");
            self.drop_if_unused(entry.record);
        }
        Some(entry)
    }

    /// Drops a detached entry if there are `limit` entries or more, so that one can be added.
    pub(super) fn free_capacity(&mut self, limit: usize) {
        if self.entries.len() >= limit {
            if let Some(entry) = self.detached.first() {
                self.remove_entry(entry);
            }
        }
    }

    /// Sets the state of an entry, and updates the queue order, the deadlines and the detached entries. Returns the previous state.
    /// `Detached(NEVER)` is the state of an entry that is about to be attached or removed.
    pub(super) fn set_state(&mut self, id: EntryId, state: EntryState) -> Option<EntryState> {
        let entry = self.entries.get_mut(id).or_bug("an entry to change does not exist")?;
        let before = mem::replace(&mut entry.state, state);
        let (record, turn) = (entry.record, entry.turn);
        let queue = queue_in(&mut self.records, record).or_bug("an entry has no queue")?;
        if let EntryState::Attached(request) = before {
            debug_assert!(queue.requests > 0, "a request was not counted");
            queue.requests = queue.requests.saturating_sub(1);
            let place = &mut queue.time_out_place;
            self.deadlines.remove(record.slot(), place, first_expired_ms(request.deadline), id.slot());
        }
        if let EntryState::Attached(request) = state {
            queue.requests = queue.requests.saturating_add(1);
            let place = &mut queue.time_out_place;
            self.deadlines.insert(record.slot(), place, first_expired_ms(request.deadline), id.slot());
        }
        let kept_until = |state| if let EntryState::Detached(until) = state { until } else { NEVER };
        self.detached.reschedule(id, kept_until(before), kept_until(state));
        match (before, state) {
            (EntryState::Attached(_), EntryState::Detached(_)) => self.remove_from_order(id, record, turn),
            (EntryState::Detached(_), EntryState::Attached(_)) => {
                check(self.order.insert(record, turn, id), "a detached entry is in the queue order");
            }
            _ => {}
        }
        Some(before)
    }

    pub(super) fn move_to_turn(&mut self, id: EntryId, turn: Turn) {
        debug_assert!(turn.0 < self.next_turn, "a restored turn was never given");
        let Some(entry) = self.entries.get_mut(id) else { return bug("an entry to move does not exist") };
        let previous = mem::replace(&mut entry.turn, turn);
        if self.order.remove(entry.record, previous, id) {
            let is_new = self.order.insert(entry.record, turn, id);
            debug_assert!(is_new, "two entries have one turn");
        }
    }

    /// Removes an entry from the queue order.
    ///
    /// Without requests, the queue needs no review. If a share is first now, the lock is reviewed, because it may have capacity.
    fn remove_from_order(&mut self, entry: EntryId, id: RecordId, turn: Turn) {
        check(self.order.remove(id, turn, entry), "an attached entry is not in the queue order");
        let is_shares_turn = || self.first(id).is_some_and(|claim| claim.kind == Kind::Shared);
        if self.share_entries > 0 && is_shares_turn() {
            self.set_review(id, AT_ONCE, Cause::Other);
        }
        if self.waiter_count_of(id) == 0 {
            self.cancel_review(id);
        }
    }
}
